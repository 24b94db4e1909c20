"""Pooled sources in a stack: the memory of brute force, the same in every epoch, saved, and forgotten after a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_questions import write_recipe
from made_up_tags import NOUNS, sentences, write_encoder
from numpy.typing import NDArray

from textgraft.comparison.methods import MethodOptions, new_method
from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.streams.words import WordStream
from textgraft.models import loading
from textgraft.tasks.tagging.finetune import STACKED, TagOptions, tag_finetune
from textgraft.tasks.tagging.predictor import Tagger
from textgraft.tasks.tagging.stacked import Network
from textgraft.training.settings import Settings
from textgraft.word_embeddings.formats import save_vectors
from textgraft.word_embeddings.layers import WordLayers
from textgraft.word_embeddings.pooled import PREFIXES, VECTORS, WORDS, Pooled, Remembered
from textgraft.word_embeddings.pooled_memory import WordMemory
from textgraft.word_embeddings.sources import as_kept
from textgraft.word_embeddings.stack import Stack
from textgraft.word_embeddings.word_vectors import WordVectors

TRAIN, TEST = sentences(120, 1, names=True), sentences(20, 2, names=True)
WORDS_OF_TRAIN, WORDS_OF_TEST = ([s.words for s in part.sentences] for part in (TRAIN, TEST))
FP32 = Settings(precision="fp32", save_seconds=0.0)
SMALL = Network(hidden_dim=16, character_filters=8)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_encoder(folder, "lstm")
    rows = np.random.default_rng(0).normal(size=(len(NOUNS), 6)).astype(np.float32)
    save_vectors(WordVectors([*NOUNS], rows), folder / "words.txt", to="glove")
    return folder


def opened(folder: Path, prefix: str = "pooled:") -> Stack:
    return Stack.open([f"{prefix}{folder / 'lstm'}", folder / "words.txt"], precision="fp32")


def pooled_of(stack: Stack) -> Pooled:
    (found,) = (source for source in stack.sources if isinstance(source, Pooled))
    return found


def options(folder: Path, epochs: int = 2, network: Network = SMALL) -> TagOptions:
    return replace(STACKED, recipe=str(write_recipe(folder, epochs)), settings=FP32, network=network)


class Made:
    """A source whose vectors say which sentence of all that were asked it was, so that order shows."""

    name, layer_aggregation, width, fingerprint = "made", "last", 2, "made"

    def vectors(self, sentences: Sequence[Sequence[str]]) -> list[NDArray[Any]]:
        return [np.array([[hash_of(words), -len(word)] for word in words], dtype=np.float32) for words in sentences]

    def files(self) -> dict[str, bytes]:
        return {}


def hash_of(words: Sequence[str]) -> int:
    return sum(ord(c) for word in words for c in word) % 64


def by_brute_force(
    read: list[tuple[str, NDArray[Any]]], asked: Sequence[Sequence[str]], pooling: str
) -> list[NDArray[Any]]:
    """The memory's half for each sentence; `read`, every word so far with its vector, grows meanwhile."""
    found = []
    for words, vectors in zip(asked, Made().vectors(asked), strict=True):
        read += [(word, vector) for word, vector in zip(words, vectors, strict=True)]
        rows = [np.stack([v for w, v in read if w == word]) for word in words]
        found.append(np.stack([getattr(np, pooling)(row, axis=0) for row in rows]))
    return found


@pytest.mark.parametrize("pooling", PREFIXES.values())
def test_what_is_learned_from_has_the_memory_of_the_files_order_whatever_the_batches(
    pooling: str, tmp_path: Path
) -> None:
    again = [*WORDS_OF_TRAIN, WORDS_OF_TRAIN[0]]
    source = Remembered(Pooled(Made(), WordMemory(pooling)), again, tmp_path)
    read: list[Any] = []
    wanted = by_brute_force(read, again, pooling)
    order = np.random.default_rng(3).permutation(len(WORDS_OF_TRAIN)).tolist()
    for _ in range(2):  # two epochs
        for number in order:
            (found,) = source.vectors([again[number]])
            first = again.index(again[number])
            np.testing.assert_allclose(found[:, :2], Made().vectors([again[number]])[0])
            np.testing.assert_allclose(found[:, 2:], wanted[first], rtol=2e-3)
    assert (source.vectors([again[-1]])[0] == source.vectors([again[0]])[0]).all()  # that of its first time
    # Then a file to tag: the memory of all that was learned from grows on, and is forgotten with the file.
    for _ in range(2):
        reading, seen = source.reading(), list(read)
        for words, both in zip(WORDS_OF_TEST, by_brute_force(seen, WORDS_OF_TEST, pooling), strict=True):
            np.testing.assert_allclose(reading.vectors([words])[0][:, 2:], both, rtol=1e-5)
    assert len(source.memory) == len({word for words in again for word in words})


def test_a_file_is_remembered_in_its_order() -> None:
    def stack() -> Stack:
        return Stack([Pooled(Made(), WordMemory("min"))])

    together = stack().reading().vectors(WORDS_OF_TEST)
    reference = stack()
    for words, found in zip(WORDS_OF_TEST, together, strict=True):
        assert (reference.vectors([words])[0] == found).all()
    other = stack().vectors(WORDS_OF_TEST[::-1])[::-1]
    assert any((a != b).any() for a, b in zip(together, other, strict=True))


first, *others = PREFIXES


@pytest.mark.parametrize("prefix", [first, *(pytest.param(other, marks=pytest.mark.slow) for other in others)])
def test_a_tagger_learns_is_saved_with_its_memory_and_answers_the_same(
    prefix: str, sources: Path, tmp_path: Path
) -> None:
    stack = opened(sources, prefix)
    assert stack.width == 2 * 16 + 6
    done = tag_finetune(
        TRAIN, tmp_path / "out", model=stack, valid=TEST, test=TEST, options=options(tmp_path, 12), context=QUIET
    )
    assert done.record["stack"] == [f"{prefix}{sources / 'lstm'}", str(sources / "words.txt")]
    assert done.record["results"]["methods"]["tagger"]["f1"]["mean"] > 0.8
    tagger = Tagger(done.folder, precision="fp32")
    assert tagger.artifact.stack is not None
    memory, ours = pooled_of(tagger.artifact.stack).memory, pooled_of(stack).memory
    assert len(memory) == len({word for words in WORDS_OF_TRAIN for word in words})
    for (words, vectors, counts), other in zip([memory.content()], [ours.content()], strict=True):
        assert words == other[0]
        assert (vectors == other[1]).all()
        assert (counts == other[2]).all()
    for _ in range(2):
        predictions = tagger.tag(TEST.sentences)
        assert [r.tags for r in predictions] == [r.tags for r in done.predictions]
        assert len(pooled_of(tagger.artifact.stack).memory) == len(memory)  # the file is forgotten
    moved = tmp_path / "moved"
    shutil.copytree(done.folder, moved)
    (moved / "sources" / "0" / VECTORS).write_bytes(b"altered")
    with pytest.raises(UserError, match="truncated or altered") as caught:
        loading.load_network(moved)
    assert VECTORS in caught.value.where
    (moved / "sources" / "0" / WORDS).unlink()
    with pytest.raises(UserError, match="missing or unreadable"):
        loading.load_network(moved)


class Killed(BaseException):
    """What ends a process between two steps."""


@pytest.mark.slow
def test_killed_it_ends_with_the_same_bits(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt(out: str) -> Any:
        parts = {"valid": TEST.sample(5), "test": TEST}
        model = opened(sources)
        return tag_finetune(TRAIN, tmp_path / out, model=model, options=options(tmp_path, 3), context=QUIET, **parts)

    whole = attempt("whole")
    batches, count = WordStream.batches, 0

    def killing(self: WordStream, epoch: int, start: int = 0) -> Iterator[Batch]:
        nonlocal count
        for batch in batches(self, epoch, start):
            count += 1
            if count % 4 == 0:
                raise Killed
            yield batch

    monkeypatch.setattr(WordStream, "batches", killing)
    kills = 0
    for _ in range(20):
        try:
            again = attempt("out")
            break
        except Killed:
            kills += 1
    assert kills > 1
    for name in ("model.safetensors", f"sources/0/{VECTORS}", f"sources/0/{WORDS}"):
        assert (whole.folder / name).read_bytes() == (again.folder / name).read_bytes()


def test_mistakes_are_explained(sources: Path, tmp_path: Path) -> None:
    for name, message in (
        (f"pooled:{sources / 'words.txt'}", "pooling has no effect"),
        (f"pooled:{sources / 'lstm'}@lats", "unknown layer aggregation 'lats'"),
        ("pooled:", "a name is missing"),
        ("pooled:nothing-of-that-name", "no model 'nothing-of-that-name'"),
        (f"pooled-fade:{sources / 'lstm'}", "no model 'pooled-fade:"),
    ):
        with pytest.raises(UserError, match=message):
            Stack.open([name])
    with pytest.raises(UserError, match="depend on what was read before them"):
        WordLayers(f"pooled:{sources / 'lstm'}")
    with pytest.raises(UserError, match="depend on what was read before them"):
        new_method(f"features@{sources / 'lstm'}+pooled:{sources / 'lstm'}", MethodOptions())
    first = Stack.open([f"pooled:{sources / 'lstm'}@first", sources / "lstm"])
    assert first.names == [f"pooled:{sources / 'lstm'}@first", str(sources / "lstm")]
    tight = options(tmp_path, network=replace(SMALL, kept_bytes=1000))
    with pytest.raises(UserError, match="have to be kept on disk") as caught:
        tag_finetune(TRAIN, tmp_path / "out", model=opened(sources), test=TEST, options=tight, context=QUIET)
    assert "kept_bytes" in caught.value.remedy


def test_half_precision_does_not_lose_a_mean() -> None:
    memory = WordMemory("mean")
    for _ in range(3000):
        ((found),) = memory.pooled([["a"]], [as_kept(np.full((1, 2), 100.0, dtype=np.float32))])
    assert found[0].tolist() == [100.0] * 4
