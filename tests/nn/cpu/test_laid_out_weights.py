"""Products of few rows with weights that are laid out once: torch's own numbers, each weight once, nothing stale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from textgraft.data.streams.base import ExampleStream
from textgraft.models.inference import predict_logits
from textgraft.models.model import Model, build
from textgraft.nn.cpu import precision
from textgraft.nn.cpu.precision import FEW_ROWS, Casts, Linear, computing_in
from textgraft.training.loop import Run
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

mkl = pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="torch without MKL")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the weights that were laid out."""
    shapes: list[tuple[int, ...]] = []
    inner = precision._pack

    def packed(weight: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(weight.shape))
        return inner(weight)

    monkeypatch.setattr(precision, "_pack", packed)
    return shapes


@mkl
@settings(max_examples=60)
@given(
    rows=st.integers(1, FEW_ROWS + 20),
    inputs=st.integers(1, 70),
    outputs=st.integers(1, 70),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_product_is_torchs(rows: int, inputs: int, outputs: int, bias: bool, seed: int) -> None:
    torch.manual_seed(seed)
    layer, x, casts = Linear(inputs, outputs, bias=bias), torch.randn(rows, inputs), Casts()
    with torch.no_grad(), computing_in("fp32", casts=casts):
        for shape in ((rows, inputs), (1, rows, inputs)):
            found = layer(x.view(shape))
            assert found.shape == (*shape[:-1], outputs)
            torch.testing.assert_close(found.view(rows, outputs), F.linear(x, layer.weight, layer.bias), **CLOSE)


@mkl
def test_a_weight_is_laid_out_once_and_again_when_it_has_changed(made: list[tuple[int, ...]]) -> None:
    layer, x, casts = Linear(16, 24), torch.randn(5, 16), Casts()
    with torch.no_grad(), computing_in("fp32", casts=casts):
        layer(x)
        made.clear()  # the first of this shape was also tried
        layer(x), layer(x[:2])
        assert made == []
        layer.weight.mul_(2)
        torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias), **CLOSE)
    assert made == [(24, 16)]


def test_nothing_is_laid_out_for_gradients_many_rows_or_without_casts(made: list[tuple[int, ...]]) -> None:
    layer, few, many, casts = Linear(16, 25), torch.randn(5, 16), torch.randn(FEW_ROWS + 1, 16), Casts()
    with computing_in("fp32", casts=casts):
        assert layer(few).requires_grad
    with torch.no_grad(), computing_in("fp32", casts=casts):
        layer(many)
    with torch.no_grad(), computing_in("fp32"):
        layer(few)
    assert made == []


def classifier() -> Model:
    torch.manual_seed(0)
    encoder = {"name": "bert", "vocab_size": 50, "embedding_dim": 16, "num_layers": 2, "num_heads": 2}
    head = {"name": "classification", "input_dim": 16, "outputs": 3, "pooling": "mean", "hidden_dim": 0}
    return build({"encoder": encoder | {"feed_forward_dim": 32, "max_length": 64}, "head": head}).eval()


@mkl
def test_one_text_is_answered_as_among_many(made: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    model = classifier()
    texts = [torch.randint(5, 50, (n,)).numpy() for n in range(3, 60)]
    with monkeypatch.context() as plain:
        plain.setattr(precision, "_packed_casts", lambda *given: None)
        together = torch.from_numpy(predict_logits(model, texts, 0, "fp32"))
    assert made == []
    alone = torch.cat([torch.from_numpy(predict_logits(model, [text], 0, "fp32")) for text in texts])
    torch.testing.assert_close(alone, together, **CLOSE)
    linear = [module for module in model.encoder.modules() if isinstance(module, nn.Linear)]
    shapes = {tuple(module.weight.shape) for module in linear}
    assert len(linear) <= len(made) <= len(linear) + len(shapes)  # those that were tried first


@mkl
def test_a_layout_that_serves_one_number_of_rows_alone_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = precision._packed_linear

    def wrong(x: torch.Tensor, *given: torch.Tensor | None) -> torch.Tensor:
        found = inner(x, *given)
        return found if len(x) == 64 else found + 1

    monkeypatch.setattr(precision, "_packed_linear", wrong)
    layer, x = Linear(17, 19), torch.randn(5, 17)
    with torch.no_grad(), computing_in("fp32", casts=Casts()):
        torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
    precision._packing_is_usable.cache_clear()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_a_training_step_leaves_no_stale_weights(optimizer: Any, precision: str) -> None:
    """Fused optimizers change weights without saying so; what was asked between two steps is not answered again."""
    torch.manual_seed(0)
    encoder = {"name": "bert", "vocab_size": 30, "embedding_dim": 16, "num_layers": 1, "num_heads": 2}
    encoder |= {"feed_forward_dim": 32, "max_length": 16}
    head = {"name": "classification", "input_dim": 16, "outputs": 2, "direction": "both", "pooling": "mean"}
    model = build({"encoder": encoder, "head": head | {"hidden_dim": 0, "batch_norm": False}})
    texts = [np.random.default_rng(seed).integers(4, 30, 9) for seed in range(8)]
    stream = ExampleStream(texts, torch.tensor([0, 1] * 4), pad_id=0, rows=8)
    run = Run(model, [Phase("p", 3, 0.01, optimizer=optimizer)], stream, Settings(precision=precision))
    for _ in run.steps():
        found = predict_logits(model, texts, 0, precision)
        fresh = build(model.describe())
        fresh.load_state_dict(model.state_dict())
        np.testing.assert_allclose(found, predict_logits(fresh, texts, 0, precision), rtol=0, atol=1e-6)
