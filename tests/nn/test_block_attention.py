"""Local and memory-compressed attention: masks beside loops, leaks, work, and what they keep of a text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from textgraft.nn import attention as whole
from textgraft.nn import block_attention
from textgraft.nn.attention import Attention, causal
from textgraft.nn.block_attention import Blocks, CompressedAttention, LocalAttention

D, SIZE = 4, 3
KINDS = ("local", "compressed")


def made(kind: str, size: int = SIZE) -> LocalAttention:
    torch.manual_seed(0)
    layer = LocalAttention(D, 2) if kind == "local" else CompressedAttention(D, 2, size)
    return layer.double().eval()


def full(steps: int, size: int = SIZE, rows: int = 1) -> Blocks:
    return Blocks(size, torch.ones(rows, 0, dtype=torch.bool), torch.ones(rows, steps, dtype=torch.bool))


def dependence(layer: LocalAttention, steps: int, size: int) -> Tensor:
    """(T, T) True where the output at one position depends on the input at another, by gradients."""
    x = torch.randn(1, steps, D, dtype=torch.float64, requires_grad=True)
    found = torch.zeros(steps, steps, dtype=torch.bool)
    for t in range(steps):
        total = layer(x, full(steps, size))[0][0, t].sum()
        (gradient,) = torch.autograd.grad(total, x, allow_unused=True, materialize_grads=True)
        found[t] = gradient[0].abs().sum(dim=1) > 1e-12
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("steps", [1, 2, 3, 7, 12])
def test_a_local_block_sees_itself_up_to_each_position(steps: int, size: int) -> None:
    found = dependence(made("local"), steps, size)
    for t in range(steps):
        for s in range(steps):
            assert found[t, s] == (s <= t and s // size == t // size)


@given(steps=st.integers(1, 12), size=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_a_compressed_block_is_seen_when_its_last_position_is_past(steps: int, size: int) -> None:
    blocks = full(steps, size)
    mask = blocks.complete(steps // size)[0, 0]
    found = dependence(made("compressed", size), steps, size)
    for t in range(steps):
        for j in range(steps // size):
            members = range(j * size, (j + 1) * size)
            assert mask[t, j] == all(s <= t for s in members)
        reach = (t + 1) // size * size
        for s in range(steps):
            if s == t and s >= reach:
                continue  # through the query, where there is more than one key
            assert found[t, s] == (s < reach)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("changed", range(10))
def test_no_later_token_changes_an_earlier_output(kind: str, changed: int) -> None:
    layer, x = made(kind), torch.randn(1, 10, D, dtype=torch.float64)
    other = x.clone()
    other[:, changed] += 1
    before, after = layer(x, full(10))[0], layer(other, full(10))[0]
    assert torch.equal(before[:, :changed], after[:, :changed])
    assert not torch.equal(before[:, changed:], after[:, changed:])


def test_a_local_layer_is_attention_with_a_mask_of_blocks() -> None:
    """The weights are those of dense attention: one block is dense, more are dense with a block-diagonal mask."""
    layer, x = made("local"), torch.randn(2, 11, D, dtype=torch.float64)
    dense = Attention(D, 2).double()
    dense.load_state_dict(layer.state_dict())
    number = torch.arange(11) // SIZE
    mask = causal(11, 11) & (number == number[:, None])
    torch.testing.assert_close(layer(x, full(11, rows=2))[0], dense(x, mask)[0])
    torch.testing.assert_close(layer(x, full(11, 11, rows=2))[0], dense(x, causal(11, 11))[0])


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of scores of each call of `attend`, for one head."""
    counted: list[int] = []

    def counting(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def counted_attend(query: Tensor, key: Tensor, *rest: object) -> Tensor:
            counted.append(query.shape[0] * query.shape[2] * key.shape[2])
            return attend(query, key, *rest)

        return counted_attend

    for module in (whole, block_attention):
        monkeypatch.setattr(module, "attend", counting(module.attend))
    return counted


@pytest.mark.parametrize("steps", [48, 96, 192])
def test_work_is_linear_or_a_third(steps: int, scores: list[int]) -> None:
    x = torch.randn(1, steps, D, dtype=torch.float64)
    Attention(D, 2).double()(x, causal(steps, steps))
    made("local")(x, full(steps, 16))
    made("compressed")(x, full(steps, 3))
    assert scores == [steps * steps, steps * 16, steps * steps // 3]


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_token_costs_a_block_or_a_third(kind: str, scores: list[int]) -> None:
    layer, x = made(kind), torch.randn(1, 31, D, dtype=torch.float64)
    _, past = layer(x[:, :30], full(30))
    scores.clear()
    layer(x[:, 30:], Blocks(SIZE, torch.ones(1, 30, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)), past)
    assert scores == [SIZE if kind == "local" else 10]
    kept = [part.shape[1] for part in past]
    assert kept == ([SIZE - 1] if kind == "local" else [SIZE - 1, 10])


@pytest.mark.parametrize("kind", KINDS)
@given(cuts=st.lists(st.integers(1, 6), min_size=1, max_size=5), size=st.integers(1, 5), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_windows_with_gaps_equal_each_text_alone(kind: str, cuts: list[int], size: int, seed: int) -> None:
    """Padding anywhere, in windows of any lengths: every real token gets what it gets in its text without padding."""
    generator = torch.Generator().manual_seed(seed)
    steps, layer = sum(cuts), made(kind, size)
    x = torch.randn(3, steps, D, dtype=torch.float64, generator=generator)
    real = torch.rand(3, steps, generator=generator) < 0.6
    outputs, past, first = [], None, 0
    for cut in cuts:
        window = slice(first, first + cut)
        y, past = layer(x[:, window], Blocks(size, real[:, :first], real[:, window]), past)
        outputs.append(y)
        first += cut
    together = torch.cat(outputs, dim=1)
    for row in range(3):
        text = x[row, real[row]][None]
        if text.shape[1]:
            torch.testing.assert_close(together[row, real[row]], layer(text, full(text.shape[1], size))[0][0])


def test_before_the_first_complete_block_there_is_nothing_to_attend_to() -> None:
    layer = made("compressed")
    x = torch.randn(1, 7, D, dtype=torch.float64, requires_grad=True)
    for steps in (1, 2, 7):
        y, _ = layer(x[:, :steps], full(steps))
        torch.testing.assert_close(y[0, :2], layer.output.bias.expand(min(2, steps), -1))
    y.sum().backward()
    assert x.grad is not None
    assert bool(x.grad.isfinite().all())
