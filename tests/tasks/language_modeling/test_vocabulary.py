"""A language model that moves to another vocabulary (Howard & Ruder 2018, section 3.2)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import Model, build
from textgraft.tasks.language_modeling.adapt import move_to_vocabulary
from textgraft.text.tokenizer import Tokenizer

OLD = ["the film was good and the plot was good", "the film was long and the actor was odd", "he is so in a mood"] * 3
NEW = ["the meal was good and the wine was odd", "the meal was long and the bread was good", "he is so in a hall"] * 3


def language_model(vocab_size: int, **head: object) -> Model:
    shape = {"name": "awd_lstm", "vocab_size": vocab_size, "embedding_dim": 6, "hidden_dim": 6, "num_layers": 2}
    head = {"name": "language_model", "vocab_size": vocab_size, "input_dim": 6, "output_layer": "full", **head}
    model = build({"encoder": shape, "head": head})
    with torch.no_grad():
        for value in model.parameters():
            value.normal_()  # biases too
    return model.eval()


def tokenizer(texts: list[str], size: int) -> Tokenizer:
    return Tokenizer.train(texts, kind="word", vocab_size=size, min_frequency=1)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("output_layer", ["full", "sampled"])
def test_known_tokens_keep_their_rows_and_new_ones_get_the_mean(tied: bool, output_layer: str) -> None:
    old, new = tokenizer(OLD, 40), tokenizer(NEW, 40)
    assert old.vocab_size == new.vocab_size == 24  # as many as four gates of six units have rows: those stay
    source = Artifact(language_model(old.vocab_size, tied=tied, output_layer=output_layer), old, None, {"name": "lm"})
    moved = move_to_vocabulary(source, new)
    before, after = source.model.values(), moved.model.values()
    tables = {"encoder.embedding.weight", "head.output.bias"} | (set() if tied else {"head.output.weight"})
    assert tables <= before.keys()
    assert "meal" in new.tokens
    assert "meal" not in old.tokens
    for name in tables:
        for row, token in enumerate(new.tokens):
            known = token in old.tokens
            expected = before[name][old.tokens.index(token)] if known else before[name].mean(dim=0)
            torch.testing.assert_close(after[name][row], expected)
    for name in after.keys() - tables:
        assert torch.equal(after[name], before[name]), name


def test_a_moved_model_is_saved_and_loaded(tmp_path: Path) -> None:
    source = Artifact(language_model(tokenizer(OLD, 40).vocab_size), tokenizer(OLD, 40), None, {"name": "lm"})
    moved = move_to_vocabulary(source, tokenizer(NEW, 40))
    loaded = loading.load_network(artifact.save(moved, tmp_path / "moved"))
    assert loaded.tokenizer.tokens == moved.tokenizer.tokens
    for name, value in moved.model.values().items():
        assert torch.equal(loaded.model.values()[name], value), name
