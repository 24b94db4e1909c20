"""Embedding tables that start from skip-gram vectors; the training of those is gensim's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import VOCAB, Tokens, copied, language_model

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, pretrain
from textgraft.training import token_vectors
from textgraft.training.driver import Stopped
from textgraft.training.settings import Settings
from textgraft.training.token_vectors import cached_token_vectors, start_from_vectors, train_token_vectors


def drawn(vocab_size: int, dim: int) -> np.ndarray:
    return np.random.default_rng(3).normal(2.0, 5.0, (vocab_size, dim)).astype(np.float32)


def test_vectors_are_centred_and_scaled_to_the_table_and_unknown_rows_stay() -> None:
    model, before = language_model(), copied(language_model())
    table = "encoder.embedding.weight"
    vectors = drawn(VOCAB, 6)
    vectors[[0, 7]] = 0
    assert start_from_vectors(model, vectors) == VOCAB - 2
    after = copied(model)
    known = [row for row in range(VOCAB) if row not in (0, 7)]
    assert torch.equal(after[table][[0, 7]], before[table][[0, 7]])
    torch.testing.assert_close(after[table][known].mean(dim=0), torch.zeros(6), atol=1e-5, rtol=0)
    assert float(after[table][known].std()) == pytest.approx(float(before[table].std()), rel=1e-4)
    centred = torch.from_numpy(vectors[known] - vectors[known].mean(axis=0))
    torch.testing.assert_close(
        after[table][known] / centred, torch.full((28, 6), float(after[table][5, 0] / centred[4, 0]))
    )
    assert all(torch.equal(after[name], before[name]) for name in after.keys() - {table})


def test_vectors_of_another_shape_are_refused() -> None:
    with pytest.raises(UserError, match=r"vectors are \(30, 5\).*table is \(30, 6\)"):
        start_from_vectors(language_model(), drawn(VOCAB, 5))


def test_trained_vectors_are_the_same_for_the_same_seed() -> None:
    pytest.importorskip("gensim")
    corpus: Any = Tokens(3000)
    first, again = (train_token_vectors(corpus, 6, VOCAB + 1, tokens=2000, seed=1) for _ in range(2))
    assert np.array_equal(first, again)
    assert not first[VOCAB].any()
    assert first[:VOCAB].any(axis=1).all()
    assert not np.array_equal(first, train_token_vectors(corpus, 6, VOCAB + 1, tokens=2000, seed=2))


def test_pretraining_trains_vectors_once_however_often_it_is_stopped(
    tiny_recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(tiny_recipe.read_text().replace("validate_every", "token_vectors = 1000\nvalidate_every"))
    (tmp_path / "pool.txt").write_text("\n".join(f"The film number {i} was good and bad, I think." for i in range(400)))
    trained = []

    def training(corpus: object, dim: int, vocab_size: int, *, tokens: int, seed: int) -> np.ndarray:
        trained.append((dim, tokens, seed))
        return drawn(vocab_size, dim)

    def run(name: str) -> bytes:
        settings = Settings(precision="fp32")
        pretrain(
            [tmp_path / "pool.txt"],
            tmp_path / name,
            options=PretrainOptions(recipe=str(recipe), tokens=2000, settings=settings),
            context=QUIET,
        )
        return (tmp_path / name / "model.safetensors").read_bytes()

    def stopped(*arguments: object, **options: object) -> None:
        raise Stopped("stopped.")

    monkeypatch.setattr(token_vectors, "train_token_vectors", training)
    monkeypatch.setattr("textgraft.tasks.language_modeling.pretrain.gensim_word2vec", lambda: None)
    whole = run("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "textgraft.tasks.language_modeling.pretrain.drive", stopped
        )  # after the vectors, before the first checkpoint
        with pytest.raises(Stopped):
            run("again")
    assert run("again") == whole
    assert trained == [(16, 1000, 0)] * 2


def test_without_gensim_nothing_is_begun(tiny_recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(tiny_recipe.read_text().replace("validate_every", "token_vectors = 1000\nvalidate_every"))
    (tmp_path / "pool.txt").write_text("A film.\nAnother.\n")
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    with pytest.raises(UserError, match="needs gensim"):
        pretrain([tmp_path / "pool.txt"], tmp_path / "out", options=PretrainOptions(recipe=str(recipe)), context=QUIET)
    assert [path.name for path in (tmp_path / "out.run").iterdir()] == ["plan.json"]


def test_cached_vectors_are_read_as_they_were_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_vectors, "train_token_vectors", lambda *_, **__: drawn(VOCAB, 6))
    corpus: Any = Tokens()
    options = {"tokens": 100, "seed": 0}
    for _ in range(2):
        found = cached_token_vectors(tmp_path / "vectors.f32", corpus, 6, VOCAB, **options)
        assert np.array_equal(found, drawn(VOCAB, 6))
        monkeypatch.setattr(token_vectors, "train_token_vectors", None)
