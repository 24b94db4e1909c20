"""Vectors of words from frozen models: those of a direct forward pass, computed once, kept whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_questions import encoder
from made_up_tags import TEXT, sentences
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.word_embeddings import sources
from textgraft.word_embeddings.sources import FrozenModel, StaticVectors, as_kept, bytes_kept, keep, word_vectors
from textgraft.word_embeddings.word_vectors import WordVectors

SENTENCES = [s.words for s in sentences(20, 3, clauses=2).sentences]


def frozen(family: str, layer_aggregation: str = "last", **others: Any) -> FrozenModel:
    return FrozenModel(encoder(family, TEXT, num_layers=2), family, layer_aggregation, precision="fp32", **others)


def static() -> StaticVectors:
    rows = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    return StaticVectors(WordVectors(["the", "river", "."], rows), "static", "s")


@pytest.mark.parametrize("family", ["bert", "gpt", "xl", "lstm", "backward"])
@pytest.mark.parametrize("layer_aggregation", ["last", "first"])
@torch.no_grad()
def test_vectors_are_those_of_a_direct_forward_pass(family: str, layer_aggregation: str) -> None:
    source = frozen(family, layer_aggregation)
    model, tokenizer = source.artifact.model, source.artifact.tokenizer
    found = source.vectors(SENTENCES[:5])
    for words, vectors in zip(SENTENCES[:5], found, strict=True):
        pieces = [tokenizer.words([word])[0] for word in words]
        marks = tokenizer.pair_marks
        ids = [*marks.before, *(int(i) for piece in pieces for i in piece), *marks.after]
        row = torch.tensor([ids])
        batch = Batch(row, torch.ones_like(row, dtype=torch.bool))
        layers = model.encoder(batch, keep="all").layers
        read = layers[-1 if layer_aggregation == "last" else 0][0]
        at = np.cumsum([len(marks.before), *map(len, pieces)])
        last = model.encoder.direction == "left"
        places = at[1:] - 1 if last else at[:-1]
        torch.testing.assert_close(torch.from_numpy(vectors), read[places.tolist()], rtol=1e-4, atol=1e-5)


def test_a_long_sentence_has_a_vector_for_every_word() -> None:
    words = tuple(word for s in SENTENCES for word in s)
    (vectors,) = frozen("bert").vectors([words])
    assert vectors.shape == (len(words), 16)
    assert vectors.any(axis=1).all()


def test_static_vectors_know_no_context_and_count_what_they_lack() -> None:
    source = static()
    first, second = source.vectors([("the", "river"), ("river", "unheard")])
    assert (first[1] == second[0]).all()
    assert not second[1].any()
    assert source.unknown([("the", "unheard"), ("unheard", ".")]) == 2


def test_memory_is_flat_in_the_number_of_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "AT_ONCE", 4)
    source, asked = static(), []
    vectors = source.vectors

    def watched(sentences: Sequence[Sequence[str]]) -> list[NDArray[Any]]:
        asked.append(len(sentences))
        return vectors(sentences)

    monkeypatch.setattr(source, "vectors", watched)
    rows = word_vectors(source, (("the",) for _ in range(10)))
    next(rows)
    assert asked == [4]
    assert len(list(rows)) == 9
    assert asked == [4, 4, 2]


def test_kept_vectors_are_the_computed_ones_and_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = frozen("bert")
    twice = [*SENTENCES, *SENTENCES[:4]]
    kept = keep(source, twice, tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == bytes_kept(source, twice)
    computed = [as_kept(v) for v in source.vectors(list(dict.fromkeys(SENTENCES)))]
    places = dict(zip(dict.fromkeys(SENTENCES), computed, strict=True))
    for words, vectors in zip(twice, kept.vectors(twice), strict=True):
        assert (vectors == places[words]).all()
    new = kept.vectors([("the", "cloud"), SENTENCES[0]])
    np.testing.assert_allclose(new[0], source.vectors([("the", "cloud")])[0], rtol=1e-4, atol=1e-5)
    assert (new[1] == places[SENTENCES[0]]).all()
    monkeypatch.setattr(source, "vectors", None)
    assert keep(source, twice, tmp_path).vectors(SENTENCES[:1])[0].dtype == np.float16


class Killed(BaseException):
    """What ends a process."""


def test_killed_half_way_nothing_is_kept_and_the_next_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "AT_ONCE", 4)
    source = frozen("lstm")
    vectors, calls = source.vectors, []

    def killing(sentences: Sequence[Sequence[str]]) -> list[NDArray[Any]]:
        calls.append(1)
        if len(calls) == 3:
            raise Killed
        return vectors(sentences)

    monkeypatch.setattr(source, "vectors", killing)
    with pytest.raises(Killed):
        keep(source, SENTENCES, tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / "vectors-x.f16.part").write_bytes(b"what a power cut leaves")
    kept = keep(source, SENTENCES, tmp_path)
    assert (kept.vectors(SENTENCES[:1])[0] == as_kept(vectors(SENTENCES[:4])[0])).all()


def test_a_truncated_file_is_made_again_and_other_questions_have_other_files(tmp_path: Path) -> None:
    source = frozen("bert")
    first = [v.copy() for v in keep(source, SENTENCES, tmp_path).vectors(SENTENCES)]
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-2])
    again = keep(source, SENTENCES, tmp_path).vectors(SENTENCES)
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    keep(frozen("bert", "sum"), SENTENCES, tmp_path)
    keep(source, SENTENCES[:-1], tmp_path)
    assert len(list(tmp_path.iterdir())) == 3


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1))
@settings(max_examples=50)
def test_no_number_becomes_infinite(numbers: list[float]) -> None:
    kept = as_kept(np.array(numbers, dtype=np.float32))
    expected = np.array(numbers, dtype=np.float32).clip(-65504, 65504).astype(np.float16)
    assert np.isfinite(kept).all()
    assert kept.dtype == np.float16
    assert kept.tobytes() == expected.tobytes()


def test_what_is_no_source_is_explained() -> None:
    with pytest.raises(UserError, match="these word vectors have no words"):
        StaticVectors(WordVectors([], np.zeros((0, 3), dtype=np.float32)), "empty", "e")
    with pytest.raises(UserError, match="no layer aggregation 'sum'"):
        StaticVectors(static().word_vectors, "static", "s", "sum")
    with pytest.raises(UserError, match="was not trained with"):
        frozen("bert", "mix")
    with pytest.raises(UserError, match="needs 4 layers"):
        frozen("bert", "sum-last-4")
