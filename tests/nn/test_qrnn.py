"""QRNN's recurrence (Bradbury et al. 2017) against a plain loop: outputs, gradients, state, precision."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from textgraft.nn.qrnn import QRNNLayer, qrnn

T, B, D, H = 7, 3, 4, 5
CASES = list(itertools.product([1, 2], ["fo", "f"]))


def inputs(window: int, pooling: str, *, steps: int = T) -> dict[str, Tensor]:
    torch.manual_seed(0)
    gates = (1 + len(pooling)) * H

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64).requires_grad_()

    made = {"x": draw(steps, B, D), "weight": draw(gates, window * D), "bias": draw(gates), "c0": draw(B, H)}
    return made | ({"x_prev": draw(B, D)} if window == 2 else {})


def by_loop(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    c0: Tensor,
    x_prev: Tensor | None = None,
    update: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    c, before, outputs = c0, x_prev, []
    for t in range(len(x)):
        seen = x[t] if before is None else torch.cat([x[t], before], dim=1)
        gates = (seen @ weight.t() + bias).split(H, dim=1)
        z, f = gates[0].tanh(), gates[1].sigmoid()
        if update is not None:
            f = 1 - update[t] * (1 - f)
        c = f * c + (1 - f) * z
        outputs.append(gates[2].sigmoid() * c if len(gates) == 3 else c)
        before = None if before is None else x[t]
    return torch.stack(outputs), c


def assert_same_gradients(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], leaves: list[Tensor]) -> None:
    """Both results and the gradients of a random linear function of them."""
    torch.manual_seed(1)
    weights = [torch.randn_like(t) for t in one]
    gradients = []
    for result in (one, other):
        loss = sum(((t * w).sum() for t, w in zip(result, weights, strict=True)), torch.zeros(()))
        gradients.append(torch.autograd.grad(loss, leaves, allow_unused=True))
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("window", "pooling"), CASES)
@pytest.mark.parametrize("zoneout", [False, True])
def test_recurrence_is_the_loop_in_outputs_and_gradients(window: int, pooling: str, zoneout: bool) -> None:
    made: dict[str, Any] = inputs(window, pooling)
    update = torch.rand(T, B, H, dtype=torch.float64).round() if zoneout else None
    assert_same_gradients(qrnn(**made, update=update), by_loop(**made, update=update), list(made.values()))


@pytest.mark.parametrize(("window", "pooling"), CASES)
def test_gradients_against_finite_differences(window: int, pooling: str) -> None:
    made = inputs(window, pooling, steps=4)
    assert torch.autograd.gradcheck(lambda *args: qrnn(*args), tuple(made.values()))


@pytest.mark.parametrize("window", [1, 2])
def test_state_carried_over_windows_equals_one_long_window(window: Any) -> None:
    torch.manual_seed(0)
    layer = QRNNLayer(D, H, window=window).double()
    x = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
    whole, (whole_c, *_) = layer(x)
    state, parts = None, []
    for piece in x.split(3):
        h, state = layer(piece, state)
        parts.append(h)
    assert state is not None
    leaves = [x, *layer.parameters()]
    assert_same_gradients((whole, whole_c), (torch.cat(parts), state[0]), leaves)


@pytest.mark.parametrize("window", [1, 2])
def test_truncate_equals_windows_that_start_from_a_detached_state(window: Any) -> None:
    torch.manual_seed(0)
    layer = QRNNLayer(D, H, window=window).double()
    x = torch.randn(T, B, D, dtype=torch.float64, requires_grad=True)
    whole, (whole_c, *_) = layer(x, truncate=3)
    state, parts = None, []
    for piece in x.split(3):
        h, state = layer(piece, None if state is None else tuple(s.detach() for s in state))
        parts.append(h)
    assert state is not None
    assert_same_gradients((whole, whole_c), (torch.cat(parts), state[0]), [x, *layer.parameters()])


def test_bfloat16_matmul_keeps_the_recurrence_in_float32() -> None:
    torch.manual_seed(0)
    layer = QRNNLayer(D, H, window=2)
    x = torch.randn(500, B, D)
    exact, (exact_c, _) = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        h, (c, x_last) = layer(x)
    assert (h.dtype, c.dtype, x_last.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    torch.testing.assert_close(h.float(), exact, atol=0.03, rtol=0)
    torch.testing.assert_close(c, exact_c, atol=0.03, rtol=0)
    h.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


def test_a_long_memory_survives_bfloat16() -> None:
    # With f = σ(7) the state decays by 0.9 % in ten steps; a state kept in bfloat16 could not move at all.
    gates = torch.cat([torch.zeros(10, 1, 1), torch.full((10, 1, 1), 7.0)], dim=2).bfloat16()
    h, c = qrnn(gates, torch.eye(2).bfloat16(), torch.zeros(2).bfloat16(), torch.ones(1, 1))
    assert h.shape == (10, 1, 1)
    assert c.item() == pytest.approx(float(torch.tensor(7.0).sigmoid()) ** 10, rel=1e-6)


def test_zoneout_keeps_units_for_a_step_and_takes_the_expectation_in_evaluation() -> None:
    torch.manual_seed(0)
    layer = QRNNLayer(1, 2000, zoneout=0.3, pooling="f")
    x = torch.randn(1, 1, 1)
    start = torch.randn(1, 2000)
    drawn = layer(x, (start,))[0][0]
    kept = (drawn == start).float().mean().item()
    assert kept == pytest.approx(0.3, abs=0.04)
    plain = QRNNLayer(1, 2000, pooling="f")
    plain.load_state_dict(layer.state_dict())
    update = plain(x, (start,))[0][0] - start
    torch.testing.assert_close(layer.eval()(x, (start,))[0][0], start + 0.7 * update)


def test_weight_dropout_is_drawn_anew_in_training_only() -> None:
    torch.manual_seed(0)
    layer = QRNNLayer(D, H, weight_dropout=0.5)
    x = torch.randn(T, B, D)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
