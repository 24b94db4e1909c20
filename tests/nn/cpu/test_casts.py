"""Weights cast once for many steps: the same numbers as weights cast at every step, fewer casts, nothing stale."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoded
from textgraft.generation import decoding
from textgraft.generation.decoding import GenerateOptions, Tokens, write
from textgraft.heads.translation import TranslationConfig, TranslationHead
from textgraft.models.model import Model, build
from textgraft.nn.attention_scores import REACHES, SCORES
from textgraft.nn.cpu import precision
from textgraft.nn.cpu.precision import Casts, cast_once, computing_in

V, STEPS = 50, 12
LSTM = {"name": "awd_lstm", "hidden_dim": 24}
GPT = {"name": "gpt", "num_heads": 2, "max_length": 32}
XL = {"name": "transformer_xl", "num_heads": 2, "hidden_dim": 24, "memory_length": 8}
ENCODERS: dict[str, dict[str, Any]] = {
    "lstm": LSTM,
    "qrnn": {**LSTM, "cell": "qrnn"},
    "gpt": {**GPT, "norm": "post"},
    "gpt-3": {**GPT, "attention": "alternating", "window": 4},
    "xl": XL,
    "xl, own biases": {**XL, "shared_biases": False, "norm": "pre"},
    "xl, adaptive": {**XL, "cutoffs": [10, 30], "div_value": 2.0, "project_first": True},
}
EVERY = [(name, "adaptive") for name in ENCODERS] + [(name, "chunked") for name in ENCODERS if "adaptive" not in name]
every_model = pytest.mark.parametrize(("encoder", "output"), EVERY)


def model_of(encoder: str, output: str = "chunked") -> Model:
    torch.manual_seed(0)
    described = {"vocab_size": V, "embedding_dim": 16, "num_layers": 2, **ENCODERS[encoder]}
    head = {"name": "language_model", "vocab_size": V, "input_dim": 16, "output_layer": output}
    return build({"encoder": described, "head": head}).eval()


class CastsSeen(TorchDispatchMode):
    """How often torch itself, whoever asked it, put each of a model's weights into bfloat16, by the weight's name."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.names = {p.untyped_storage().data_ptr(): name for name, p in module.named_parameters() if p.dim() > 1}
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._to_copy.default and (kwargs or {}).get("dtype") == torch.bfloat16:
            self.counts.update([name] if (name := self.names.get(args[0].untyped_storage().data_ptr())) else [])
        return func(*args, **(kwargs or {}))


class CastAnew(Casts):
    """As it was: a cast for each step."""

    def of(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        return weight.to(dtype)


def written(model: Model) -> list[tuple[int, float]]:
    options = GenerateOptions(max_tokens=STEPS, temperature=1.0, precision="bf16")
    found = write(model, [[1, 2, 3], [4, 5, 6]], options, Tokens(frozenset()))
    return [(w.token, w.log_probability) for w in found]


@every_model
def test_a_text_is_the_same_to_the_bit(encoder: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with casts at each step, and as where autocast makes them."""
    model = model_of(encoder, output)
    found = written(model)
    monkeypatch.setattr(decoding, "Casts", CastAnew)
    assert found == written(model)
    monkeypatch.setattr(decoding, "Casts", lambda: None)
    assert found == written(model)


@every_model
def test_torch_casts_no_matrix_twice_in_a_text(encoder: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(encoder, output)
    with CastsSeen(model) as seen:
        written(model)
    assert len(seen.counts) >= 2
    assert set(seen.counts.values()) == {1}
    monkeypatch.setattr(decoding, "Casts", lambda: None)
    with CastsSeen(model) as before:
        written(model)
    assert before.counts.keys() <= seen.counts.keys()  # the adaptive layer then casts copies of some
    assert min(before.counts.values()) >= STEPS


@pytest.mark.parametrize("reach", REACHES)
@pytest.mark.parametrize("score", SCORES)
def test_a_translation_casts_no_matrix_twice(score: str, reach: str) -> None:
    torch.manual_seed(0)
    config = TranslationConfig(V, input_dim=16, embedding_dim=8, hidden_dim=16, score=score, reach=reach)
    head = TranslationHead(config).eval()
    mask = torch.ones(2, 5, dtype=torch.bool)
    encoded, words = Encoded(torch.randn(2, 5, 16), mask, (), None), torch.tensor([3, 4])

    def stepped(casts: Casts | None) -> list[Tensor]:
        found = []
        with torch.no_grad(), computing_in("bf16", casts=casts):
            decoding = head.begin(encoded)
            for _ in range(STEPS):
                with computing_in("bf16", casts=casts):
                    decoding, _ = head.step(words, decoding)
                    found.append(head.next_word(decoding))
        return found

    with CastsSeen(head) as seen:
        found = stepped(Casts())
    assert len(seen.counts) >= 6
    assert set(seen.counts.values()) == {1}
    assert all(torch.equal(a, b) for a, b in zip(found, stepped(None), strict=True))


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
    for encoder, output in EVERY:
        model = model_of(encoder, output)
        written(model)
        (casts,) = made
        made.clear()
        own = {id(parameter) for parameter in model.parameters()}
        assert casts.asked.keys() <= own
        assert len(casts._cache) == len(casts.asked) <= len(own)
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
    assert not casts._cache
    assert precision._CASTS.get() is None


@pytest.mark.parametrize("encoder", ["lstm", "gpt", "xl"])
def test_training_after_a_text_learns_from_the_weights_themselves(encoder: str) -> None:
    """Gradients reach every weight, though a text was written with casts of them just before."""
    model: Any = model_of(encoder)
    written(model)
    ids = torch.tensor([[1, 2, 3, 4]])
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), targets=torch.tensor([[2, 3, 4, 5]]))
    with computing_in("bf16"):
        model.loss(batch).total.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.encoder.layers.parameters())
