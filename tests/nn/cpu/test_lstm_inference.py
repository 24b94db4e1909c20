"""An LSTM layer that is only read in bfloat16: the exact one's numbers, whoever computes them and however they lie."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from textgraft.nn.cpu import lstm_inference
from textgraft.nn.cpu.lstm_inference import MAX_STEPS, MIN_STEPS, POSITIONS_AT_ONCE, lstm_in_bfloat16
from textgraft.nn.recurrent import LSTMLayer, lstm_sequence

D, H = 24, 16
has_onednn = pytest.mark.skipif(not lstm_inference._onednn_is_usable(), reason="this processor reads step by step")


def arguments(steps: int, rows: int, seed: int = 0) -> list[Tensor]:
    """x, h, c, both weights and the bias of a layer, the cells in float32."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (steps, rows, D), (rows, H), (rows, H), (4 * H, D), (4 * H, H), (4 * H,)
    drawn = [torch.randn(shape, generator=generator) / (4 if len(shape) == 2 else 1) for shape in shapes]
    return [t if i == 2 else t.to(torch.bfloat16) for i, t in enumerate(drawn)]


def exact(given: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The same numbers in float64, where nothing is rounded between steps."""
    return lstm_sequence(*(t.double() for t in given))


@settings(max_examples=60)
@given(steps=st.integers(1, 150), rows=st.sampled_from([1, 2, 3, 17, 65, 600]), seed=st.integers(0, 99))
def test_it_is_the_exact_layer_but_for_bfloat16(steps: int, rows: int, seed: int) -> None:
    given = arguments(steps, rows, seed)
    before = [t.clone() for t in given]
    h, c = lstm_in_bfloat16(*given)
    expected_h, expected_c = exact(given)
    assert h.shape == (steps, rows, H)
    assert h.dtype == torch.bfloat16
    assert c.shape == (rows, H)
    assert c.dtype == torch.float32
    torch.testing.assert_close(h.double(), expected_h, atol=0.03, rtol=0)
    assert (h.double() - expected_h).abs().mean() < 0.004
    torch.testing.assert_close(c.double(), expected_c, atol=0.06, rtol=0.02)
    assert all(torch.equal(now, then) for now, then in zip(given, before, strict=True))


def test_strides_do_not_matter() -> None:
    """Encoders hand on (B, T, D) transposed, and oneDNN reads memory as it lies."""
    given = arguments(20, 5)
    h, c = lstm_in_bfloat16(*given)
    lying = [given[0].transpose(0, 1).contiguous().transpose(0, 1), *(t.t().contiguous().t() for t in given[1:5])]
    assert not any(t.is_contiguous() for t in lying)
    other_h, other_c = lstm_in_bfloat16(*lying, given[5])
    assert torch.equal(h, other_h)
    assert torch.equal(c, other_c)


@has_onednn
def test_the_cells_of_onednn_stay_in_float32_under_autocast() -> None:
    """A cell that grows by less than bfloat16 can tell: forget gate one, input gate a five-hundredth."""
    x, h, c, w_ih, w_hh, bias = arguments(64, 2)
    w_ih.zero_(), w_hh.zero_(), c.fill_(1.0)
    bias[:H], bias[H : 2 * H], bias[2 * H : 3 * H] = -6.25, 30.0, 30.0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, cells = lstm_inference._run_onednn(x, h, c, w_ih, w_hh, bias)
    grown = 1 + 64 * torch.sigmoid(torch.tensor(-6.25))
    torch.testing.assert_close(cells, grown.expand(2, H), atol=1e-3, rtol=0)


@given(steps=st.integers(1, 5_000), rows=st.integers(1, 1_000))
def test_parts_are_all_steps_in_few_sizes(steps: int, rows: int) -> None:
    parts = lstm_inference._parts(steps, rows)
    assert sum(parts) == steps
    assert min(parts) > 0
    sizes = {8, 16, 32, 64}
    assert set(parts[:-1]) <= sizes
    assert parts[-1] in sizes or parts[-1] < MIN_STEPS
    assert max(parts) <= MAX_STEPS
    assert rows * max(parts) <= POSITIONS_AT_ONCE or max(parts) <= MIN_STEPS


def test_whoever_cannot_reads_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    given = arguments(30, 4)
    h, _ = lstm_in_bfloat16(*given)

    def refused(*_: object) -> tuple[Tensor, Tensor]:
        raise RuntimeError("could not create a primitive descriptor")

    monkeypatch.setattr(lstm_inference, "_run_onednn", refused)
    lstm_inference._onednn_is_usable.cache_clear()
    try:
        by_steps, _ = lstm_in_bfloat16(*given)
    finally:
        lstm_inference._onednn_is_usable.cache_clear()
    torch.testing.assert_close(by_steps.float(), h.float(), atol=0.02, rtol=0)


@has_onednn
def test_wide_cells_are_read_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    widths: list[int] = []
    lstm_inference._onednn_is_usable()  # which tries a small one
    inner = lstm_inference._run_onednn

    def noted(*given: Tensor) -> tuple[Tensor, Tensor]:
        widths.append(given[2].shape[1])
        return inner(*given)

    monkeypatch.setattr(lstm_inference, "_run_onednn", noted)
    for hidden in (8, lstm_inference.MAX_CELLS + 8):
        layer = LSTMLayer(4, hidden)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            layer(torch.randn(MIN_STEPS, 2, 4))
    assert widths == [8]
