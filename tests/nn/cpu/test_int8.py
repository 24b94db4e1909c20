"""Recurrent products in whole numbers: sums done by hand, an LSTM near its own float32, answers that are checked."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from processor import native_int8

from textgraft.core.errors import UserError
from textgraft.metrics.agreement import Agreement
from textgraft.nn import recurrent
from textgraft.nn.cpu import precision
from textgraft.nn.cpu.int8 import STEPS, Int8Matrix
from textgraft.nn.cpu.lstm_inference import MAX_CELLS_IN_BFLOAT16, faster_than_int8
from textgraft.nn.cpu.precision import Casts, computing_in
from textgraft.nn.recurrent import LSTMLayer


@pytest.fixture
def no_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor that has no AMX, or with wider cells."""
    monkeypatch.setattr(recurrent, "faster_than_int8", lambda cells: False)


@native_int8
@settings(max_examples=60)
@given(rows=st.integers(1, 70), inputs=st.integers(1, 90), outputs=st.integers(1, 90), seed=st.integers(0, 99))
def test_products_are_those_of_the_rounded_numbers(rows: int, inputs: int, outputs: int, seed: int) -> None:
    torch.manual_seed(seed)
    weight, x, bias, total = torch.randn(outputs, inputs), torch.rand(rows, inputs) * 2 - 1, torch.randn(outputs), 1.0
    scales = weight.abs().amax(dim=1, keepdim=True) / STEPS
    rounded = (weight / scales).round().double() * scales.double()
    whole = (x * STEPS + (STEPS + 1.5)).floor() - STEPS - 1  # in float32, where a half may lie on either side
    expected = total + bias.double() + (whole.double() / STEPS) @ rounded.T
    found = Int8Matrix(weight).add_to(torch.full((rows, outputs), total), x, bias)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


@native_int8
@settings(max_examples=60)
@given(
    rows=st.integers(1, 70), inputs=st.integers(1, 90), size=st.sampled_from([1e-3, 1.0, 1e4]), seed=st.integers(0, 99)
)
def test_what_is_unbounded_is_rounded_row_by_row(rows: int, inputs: int, size: float, seed: int) -> None:
    torch.manual_seed(seed)
    weight, x = torch.randn(17, inputs), torch.randn(rows, inputs) * size
    largest = x.abs().amax(dim=1, keepdim=True)
    scales = weight.abs().amax(dim=1, keepdim=True) / STEPS
    rounded = (weight / scales).round().double() * scales.double()
    whole = (x * (STEPS / largest) + STEPS + 1.5).floor() - STEPS - 1  # in float32, where a half may lie on either side
    expected = (whole.double() / STEPS) @ rounded.T * largest.double()
    torch.testing.assert_close(Int8Matrix(weight).linear(x).double(), expected, rtol=1e-4, atol=1e-4 * size)


@native_int8
def test_zeros_stay_zero() -> None:
    nothing = torch.zeros(2, 3)
    assert torch.equal(Int8Matrix(torch.zeros(3, 8)).add_to(nothing.clone(), torch.ones(2, 8), nothing[0]), nothing)
    assert torch.equal(Int8Matrix(torch.ones(3, 8)).linear(torch.zeros(2, 8)), nothing)
    bias = torch.randn(3)
    assert torch.equal(Int8Matrix(torch.ones(3, 8)).linear(torch.zeros(2, 8), bias), bias.expand(2, 3))


@native_int8
@pytest.mark.usefixtures("no_sooner")
@pytest.mark.parametrize("rows", [1, 5])
def test_an_lstm_in_int8_is_near_itself_and_hands_its_state_on(rows: int) -> None:
    torch.manual_seed(0)
    layer, x = LSTMLayer(12, 48), torch.randn(20, rows, 12)
    with torch.no_grad():
        usual, (h, c) = layer(x)
        with computing_in("int8", casts=Casts()):
            faster, state = layer(x)
            first, carried = layer(x[:7])
            second, _ = layer(x[7:], carried)
    assert 0 < (faster - usual).abs().max() < 0.03
    assert (state[0] - h).abs().max() < 0.03
    assert (state[1] - c).abs().max() < 0.06
    torch.testing.assert_close(torch.cat([first, second]), faster, rtol=0, atol=1e-5)


@native_int8
@pytest.mark.usefixtures("no_sooner")
def test_weights_become_whole_numbers_once_and_again_when_they_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.Tensor] = []
    monkeypatch.setattr(precision, "Int8Matrix", lambda weight: made.append(weight) or Int8Matrix(weight))
    layer, x, casts = LSTMLayer(4, 8), torch.randn(3, 2, 4), Casts()
    with torch.no_grad(), computing_in("int8", casts=casts):
        before, _ = layer(x)
        layer(x)
        assert len(made) == 2
        layer.weight_hh.mul_(2)
        after, _ = layer(x)
    assert len(made) == 3
    assert not torch.equal(before, after)


@native_int8
@pytest.mark.skipif(not faster_than_int8(8), reason="int8 is the quicker one here")
def test_narrow_cells_are_read_in_bfloat16_where_that_is_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.Tensor] = []
    monkeypatch.setattr(precision, "Int8Matrix", lambda weight: made.append(weight) or Int8Matrix(weight))
    layer, x = LSTMLayer(4, 8), torch.randn(20, 2, 4)
    with torch.no_grad():
        with computing_in("int8", casts=Casts()):
            faster, _ = layer(x)
        with computing_in("bf16"):
            usual, _ = layer(x)
        assert torch.equal(faster, usual)
        assert made == []
        wide = LSTMLayer(4, MAX_CELLS_IN_BFLOAT16 + 8)
        with computing_in("int8", casts=Casts()):
            wide(x)
    assert len(made) == 2


def test_gradients_and_other_processors_know_no_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = LSTMLayer(4, 8), torch.randn(3, 2, 4)
    with computing_in("int8"):
        y, _ = layer(x)
    y.sum().backward()
    assert layer.weight_hh.grad is not None
    monkeypatch.setattr(precision, "int8_is_native", lambda: False)
    with torch.no_grad():
        with computing_in("int8"):
            elsewhere, _ = layer(x)
        with computing_in("auto"):
            usual, _ = layer(x)
    assert torch.equal(elsewhere, usual)


def test_nothing_is_learned_in_int8() -> None:
    with pytest.raises(UserError, match="int8 is for inference only"):
        precision.resolve("int8")


def test_answers_that_stray_are_refused() -> None:
    agreement = Agreement("texts", 150)
    agreement.compare(["a"] * 10, ["a"] * 9 + ["b"])  # of 150 one may
    with pytest.raises(UserError, match=r"80\.0% of 10 texts") as refused:
        Agreement("texts", 150).compare(["a"] * 10, ["a"] * 8 + ["b"] * 2)
    assert 'precision="int8"' in str(refused.value.remedy)


def test_answers_are_believed_once_enough_of_them_are_the_same() -> None:
    agreement = Agreement("texts", 150)
    for passed in (False, True):
        agreement.compare(["a"] * 100, ["a"] * 99 + ["b"])
        assert agreement.passed is passed
