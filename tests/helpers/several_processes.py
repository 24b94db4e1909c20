"""A training on the processes that torchrun starts, or on one: `several_processes.py SCENARIO OUT [--steps N] …`.

Writes OUT/result.json: the loss of each step, the scores, and a hash of the weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from textgraft.core import processes
from textgraft.core.launched import launched
from textgraft.data.streams.base import ExampleStream, LanguageModelStream, MixedStream, ScatteredStream, Stream
from textgraft.data.streams.masking import MaskedStream, MaskingTokens
from textgraft.models.model import Model, build_fresh, with_dropout
from textgraft.training import driver
from textgraft.training.followers import Leader, dismiss, follow
from textgraft.training.loop import Run, Scores
from textgraft.training.perplexity import language_model_validator
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

V, D = 60, 16
LAYERS = {"vocab_size": V, "embedding_dim": D, "num_layers": 2}
BLOCKS = {**LAYERS, "num_heads": 2, "max_length": 32}
ENCODERS: dict[str, dict[str, Any]] = {
    "lstm": {**LAYERS, "name": "awd_lstm", "hidden_dim": 20},
    "gpt": {**BLOCKS, "name": "gpt"},
    "bert": {**BLOCKS, "name": "bert", "feed_forward_dim": 32},
    "llama": {**BLOCKS, "name": "llama", "num_key_value_heads": 1, "feed_forward_dim": 32},
    "transformer_xl": {**LAYERS, "name": "transformer_xl", "hidden_dim": 32, "num_heads": 2, "memory_length": 16},
    "bridge": {
        "name": "transformers",
        "model_type": "electra",
        "max_length": 32,
        "segments": True,
        **LAYERS,
        "checkpoint": {
            "vocab_size": V,
            "embedding_size": D,
            "hidden_size": D,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_position_embeddings": 32,
        },
        "dropouts": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    },
}


class Words:
    """A corpus in memory in which each id often follows a certain other; a document every 40 ids."""

    num_words, num_characters = 5_000, 25_000

    def __init__(self, num_tokens: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        ids = generator.integers(4, V, num_tokens)
        for i in range(1, num_tokens):
            if generator.random() < 0.7:
                ids[i] = 4 + (3 * ids[i - 1] + 5) % (V - 4)
        self.ids, self.num_tokens, self.document_starts = ids, num_tokens, np.arange(0, num_tokens, 40)

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.ids[start:stop]


def language_model(family: str, dropout: float) -> Model:
    head: dict[str, Any] = {"name": "language_model", "vocab_size": V, "input_dim": D}
    if family in ("bert", "bridge"):
        head["name"] = "masked_language_model"
    return fresh({"encoder": ENCODERS[family], "head": head}, dropout)


def classifier(family: str, dropout: float) -> Model:
    head = {"name": "classification", "input_dim": D, "outputs": 3, "hidden_dim": 12}
    head["direction"] = "both" if family in ("bert", "bridge") else "left"
    return fresh({"encoder": ENCODERS[family], "head": head}, dropout)


def fresh(description: dict[str, Any], dropout: float) -> Model:
    model = build_fresh(description, seed=1)
    return build_fresh(with_dropout(model.describe(), dropout), seed=1)


def examples(kind: type[ExampleStream]) -> Stream:
    generator = np.random.default_rng(0)
    sequences = [generator.integers(4, V, generator.integers(3, 20)) for _ in range(70)]
    targets = torch.tensor([int(s.sum() % 3) for s in sequences])
    return kind(sequences, targets, pad_id=1, rows=8)


def text(family: str) -> Stream:
    corpus = Words(4_000, seed=0)
    if family in ("bert", "bridge"):
        tokens = MaskingTokens(0, 1, 2, 3, special=np.arange(V) < 4, continues=np.zeros(V, dtype=bool))
        return MaskedStream(corpus, tokens, length=24, rows=8)
    if family in ("gpt", "llama"):
        return ScatteredStream(corpus, rows=8, bptt=24)
    return LanguageModelStream(corpus, rows=8, bptt=24)


def accuracy(model: Model) -> Scores:
    batches = list(examples(ExampleStream).batches(0))
    with torch.no_grad():
        losses = [model.loss(batch) for batch in batches]
        right = sum(int((model(b).argmax(1) == b.targets).sum()) for b in batches if b.targets is not None)
    loss = sum(float(one.total) for one in losses) / sum(one.count for one in losses)
    return {"loss": loss, "score": -loss, "accuracy": right / 70}


THAWING = [
    Phase("head", 2, 0.004, trainable=1, schedule="one_cycle", weight_decay=0.01),
    Phase("top 2", 2, 0.002, trainable=2, lr_decay=2.6, schedule="one_cycle", weight_decay=0.01),
    Phase("all", 20, 0.002, lr_decay=2.6, schedule="stlr", optimizer="adam", betas=(0.7, 0.99)),
]
CONTRASTIVE = [Phase("vectors", 4, 0.01, contrastive_temperature=0.1), Phase("head", 4, 0.01, trainable=1)]
FAMILIES = tuple(ENCODERS)
SCENARIOS = (*FAMILIES, *(f"thawing-{f}" for f in ("lstm", "bert")), "contrastive-bert", "ntasgd-lstm", "muon-gpt")


def scenario(name: str, dropout: float) -> tuple[Model, list[Phase], Stream, Callable[[Model], Scores]]:
    """The model, phases, stream and validation of a training."""
    way, _, family = name.rpartition("-")
    if way == "thawing":
        return classifier(family, dropout), THAWING, examples(ExampleStream), accuracy
    if way == "contrastive":
        return classifier(family, dropout), CONTRASTIVE, examples(MixedStream), accuracy
    phase = Phase("all", 1000, 0.005, schedule="constant")
    if way == "ntasgd":
        phase = Phase("all", 1000, 5.0, schedule="constant", optimizer="ntasgd")
    if way == "muon":
        phase = Phase("all", 1000, 0.005, schedule="constant", optimizer="muon", weight_decay=0.01)
    if family in ("bert", "bridge"):
        return language_model(family, dropout), [phase], text(family), masked_loss
    corpus: Any = Words(1_000, seed=1)
    return language_model(family, dropout), [phase], text(family), language_model_validator(corpus, rows=4, window=20)


def masked_loss(model: Model) -> Scores:
    corpus, special = Words(1_000, seed=1), np.arange(V) < 4
    tokens = MaskingTokens(0, 1, 2, 3, special=special, continues=np.zeros(V, dtype=bool))
    losses = [model.loss(batch) for batch in MaskedStream(corpus, tokens, length=24, rows=8).batches(0)]
    loss = sum(float(one.total) for one in losses) / sum(one.count for one in losses)
    return {"loss": loss, "score": -loss}


class _Enough(Exception):
    pass


def train(options: argparse.Namespace) -> None:
    """Train as `options` say, resuming from OUT/checkpoint.safetensors, and write OUT/result.json."""
    model, phases, stream, validate = scenario(options.scenario, options.dropout)
    settings = Settings(precision="fp32", validate_every=50, accumulate=options.accumulate, device="cpu")
    settings = replace(settings, save_seconds=options.save_seconds, sharding=options.sharding)
    settings = replace(settings, activation_checkpointing=options.activation_checkpointing)
    if phases[-1].epochs == 1000:  # N steps
        batches = stream.length(0)
        phases = [replace(phases[0], epochs=options.steps * options.accumulate / batches)]
        phases = [replace(phases[0], lr=options.lr)] if options.lr else phases
    run = Run(model, phases, stream, settings, validate)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    losses, original = [], Leader.steps

    def recorded(leader: Leader, on_progress: Any) -> Any:
        for step in original(leader, on_progress):
            losses.append([step.phase, step.step, step.loss])
            with open(out / "losses.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(losses[-1]) + "\n")
            yield step

    Leader.steps = recorded  # type: ignore[method-assign]
    driver.drive(run, out / "checkpoint.safetensors", title="test", show=False)
    weights = hashlib.sha256(b"".join(v.numpy().tobytes() for v in run.model.state_dict().values())).hexdigest()
    scores = [{k: v for k, v in row.items() if k != "seconds"} for row in run.progress.history]
    final = validate(run.model.eval())
    assert all(math.isfinite(loss) for *_, loss in losses)
    result = {"losses": losses, "weights": weights, "history": scores, "final": final, "seconds": run.progress.seconds}
    (out / "result.json").write_text(json.dumps(result | {"tokens": run.progress.tokens}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--save-seconds", type=float, default=60.0)
    parser.add_argument("--sharding", default="none")
    parser.add_argument("--activation_checkpointing", action="store_true")
    parser.add_argument("--double", action="store_true", help="in float64, where rounding is too small to grow")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.double:
        torch.set_default_dtype(torch.float64)
        torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    if not launched():
        return train(options)
    joined = processes.start()
    if joined.first:
        train(options)
        dismiss()
    else:
        follow(joined)
    processes.finish()
    processes.leave(0)


if __name__ == "__main__":
    main()
