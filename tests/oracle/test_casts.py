"""Weights cast once for many steps: the same numbers as weights cast at every step, fewer casts, nothing stale."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from textgraft import decoding
from textgraft.data.batch import Batch
from textgraft.decoding import GenerateOptions, Tokens, write
from textgraft.model import Model, build
from textgraft.nn import precision
from textgraft.nn.precision import Casts, cast_once, computing_in

V, STEPS = 50, 12
CELLS = {"lstm": {"cell": "lstm"}, "qrnn": {"cell": "qrnn"}}
OUTPUTS = ["chunked", "adaptive"]


def model_of(cell: str, output: str = "chunked") -> Model:
    torch.manual_seed(0)
    encoder = {"name": "awd_lstm", "vocab_size": V, "embedding_dim": 16, "hidden_dim": 24, "num_layers": 2}
    head = {"name": "language_model", "vocab_size": V, "input_dim": 16, "output_layer": output}
    return build({"encoder": {**encoder, **CELLS[cell]}, "head": head}).eval()


class CastAnew(Casts):
    """As it was: a cast for each step."""

    def of(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        return weight.to(dtype)


def written(model: Model) -> list[tuple[int, float]]:
    options = GenerateOptions(max_tokens=STEPS, temperature=1.0, precision="bf16")
    found = write(model, [[1, 2, 3], [4, 5, 6]], options, Tokens(frozenset()))
    return [(w.token, w.log_probability) for w in found]


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_text_is_the_same_to_the_bit(cell: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(cell, output)
    found = written(model)
    monkeypatch.setattr(decoding, "Casts", CastAnew)
    assert found == written(model)


def test_each_weight_is_cast_once_for_a_text_and_only_weights_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Casts] = []

    class Counted(Casts):
        def __init__(self) -> None:
            super().__init__()
            self.asked: Counter[int] = Counter()
            made.append(self)

        def of(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
            self.asked[id(weight)] += 1
            return super().of(weight, dtype)

    monkeypatch.setattr(decoding, "Casts", Counted)
    for cell in CELLS:
        for output in OUTPUTS:
            model = model_of(cell, output)
            written(model)
            (casts,) = made
            made.clear()
            own = {id(parameter) for parameter in model.parameters()}
            assert casts.asked.keys() <= own
            assert len(casts._made) == len(casts.asked) <= len(own)
            assert max(casts.asked.values()) >= STEPS
    model = model_of("lstm")
    stepped = [p for layer in model.encoder.layers for p in layer.parameters()]
    written(model)
    assert {id(p) for p in stepped} <= made[0].asked.keys()


def test_a_weight_that_has_changed_is_cast_anew() -> None:
    weight, casts = torch.nn.Parameter(torch.ones(3)), Casts()
    with torch.no_grad(), computing_in("bf16", casts=casts):
        first = cast_once(weight, torch.bfloat16)
        assert cast_once(weight, torch.bfloat16) is first
        weight.add_(1)
        assert cast_once(weight, torch.bfloat16).tolist() == [2.0] * 3
    assert first.tolist() == [1.0] * 3


def test_where_gradients_are_wanted_or_nobody_asked_nothing_is_kept() -> None:
    weight, casts = torch.nn.Parameter(torch.ones(3)), Casts()
    with computing_in("bf16", casts=casts):
        assert cast_once(weight, torch.bfloat16) is weight
        with torch.no_grad():
            assert cast_once(weight, torch.float32) is weight
            assert cast_once(weight * 1, torch.bfloat16).dtype == torch.float32  # no weight, so never seen again
            with computing_in("bf16"):
                assert cast_once(weight, torch.bfloat16) is weight
    with torch.no_grad():
        assert cast_once(weight, torch.bfloat16) is weight
    assert not casts._made
    assert precision._CASTS.get() is None


def test_training_after_a_text_learns_from_the_weights_themselves() -> None:
    """Gradients reach every weight, though a text was written with casts of them just before."""
    model: Any = model_of("lstm")
    written(model)
    ids = torch.tensor([[1, 2, 3, 4]])
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), targets=torch.tensor([[2, 3, 4, 5]]))
    with computing_in("bf16"):
        model.loss(batch).total.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.encoder.layers.parameters())
