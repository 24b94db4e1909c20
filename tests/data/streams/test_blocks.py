"""Blocks of a streamed corpus: their content, the batches of every objective, and resumption at any batch."""

from __future__ import annotations

import copy
import pickle
import random
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from made_up_reviews import reviews

from textgraft.core.errors import UserError
from textgraft.data.streams.base import BothEndsStream, LanguageModelStream, ScatteredStream, Seekable, Stream
from textgraft.data.streams.blocks import BlockCorpus, BlockStream, Reading
from textgraft.data.streams.masking import MaskedStream, MaskingTokens
from textgraft.data.streams.mixtures import At, Source, documents
from textgraft.text.tokenizer import Tokenizer

BLOCK = 2000
TEXTS = reviews(160)[0]
TOKENIZER = Tokenizer.train(TEXTS, vocab_size=150)
TOKENS = MaskingTokens(
    2, 3, 8, 1, special=np.arange(TOKENIZER.vocab_size) < 9, continues=np.zeros(TOKENIZER.vocab_size, dtype=bool)
)
STREAMS: dict[str, Callable[[BlockCorpus], Stream]] = {
    "contiguous": lambda corpus: LanguageModelStream(corpus, rows=4, bptt=20),
    "backwards": lambda corpus: LanguageModelStream(corpus, rows=4, bptt=20, direction="right"),
    "scattered": lambda corpus: ScatteredStream(corpus, rows=4, bptt=20),
    "masked": lambda corpus: MaskedStream(corpus, TOKENS, rows=4, length=20),
    "both ends": lambda corpus: BothEndsStream(corpus, np.ones((TOKENIZER.vocab_size, 5)), rows=4, bptt=20),
}
Key = tuple[int, int, bytes, bytes]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokenize little at a time: a block here is little."""
    monkeypatch.setattr("textgraft.data.streams.parallel_encoding.BATCH_CHARACTERS", 4000)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Source, ...]:
    folder = tmp_path_factory.mktemp("texts")
    for number in range(4):
        (folder / f"{number}.txt").write_text("\n".join(TEXTS[number * 40 : (number + 1) * 40]))
    files = [str(folder / f"{number}.txt") for number in range(4)]
    return Source("a", tuple(files[:3]), None, 0.6), Source("b", tuple(files[3:]), None, 0.4)


@pytest.fixture
def reading(sources: tuple[Source, ...]) -> Reading:
    return Reading(sources, TOKENIZER.to_json(), BLOCK, seed=5)


def batches_of(stream: BlockStream, blocks: range, start: int = 0) -> list[Key]:
    """Block, number, ids and targets of every batch."""
    found: list[Key] = []
    for block in blocks:
        for number, batch in enumerate(stream.batches(block, start), start):
            assert batch.targets is not None
            found.append((block, number, batch.ids.numpy().tobytes(), batch.targets.numpy().tobytes()))
        assert number + 1 == stream.length(block)
        start = 0
    stream.corpus.close()
    return found


def test_blocks_are_the_stream_of_documents_cut_into_equal_parts(sources: tuple[Source, ...], reading: Reading) -> None:
    corpus = BlockCorpus(reading)
    blocks = []
    for number in range(6):
        corpus.load(number)
        blocks.append(corpus.read(0, BLOCK).copy())
        starts = corpus.document_starts
        assert starts[0] == 0
        assert (blocks[-1][starts[1:]] == TOKENIZER.bos_id).all()
    corpus.close()
    texts = [text for text, _ in islice(documents(sources, (At(), At()), 5), 1000)]
    expected = np.concatenate(TOKENIZER.corpus_ids(texts))[: 6 * BLOCK]
    assert (np.concatenate(blocks) == expected).all()
    with pytest.raises(IndexError):
        corpus.read(0, BLOCK + 1)


@pytest.mark.parametrize("name", STREAMS)
def test_from_the_cursor_of_any_batch_the_same_batches_follow(name: str, reading: Reading) -> None:
    def made() -> BlockStream:
        corpus = BlockCorpus(reading)
        return BlockStream(STREAMS[name](corpus), corpus)

    stream = made()
    assert isinstance(stream, Seekable)
    whole = batches_of(stream, range(4))
    cursors = {}
    for block in range(4):
        for number, _ in enumerate(stream.batches(block)):
            cursors[block, number] = stream.cursor(block, number)
        cursors[block + 1, 0] = stream.cursor(block + 1, 0)  # as the loop saves it at the end of an epoch
    stream.corpus.close()
    for index in random.Random(0).sample(range(len(whole)), 5):
        block, number = whole[index][:2]
        again = made()
        again.seek(cursors[block, number])
        assert batches_of(again, range(block, 4), number) == whole[index:]


def test_a_block_further_ahead_or_behind_is_found(reading: Reading) -> None:
    """Phases begin at whole epochs, and validation may look back."""
    corpus = BlockCorpus(reading)
    stream = BlockStream(ScatteredStream(corpus, rows=4, bptt=20), corpus)
    whole = batches_of(stream, range(6))
    assert batches_of(stream, range(3, 5)) == [key for key in whole if key[0] in (3, 4)]
    assert batches_of(stream, range(1, 2)) == [key for key in whole if key[0] == 1]
    assert stream.cursor(5, 0)["block"] <= 5
    seeking = BlockStream(ScatteredStream(corpus, rows=4, bptt=20), corpus)
    seeking.seek(stream.cursor(5, 0))
    assert batches_of(seeking, range(5, 6)) == [key for key in whole if key[0] == 5]


def test_a_pickled_corpus_goes_on_where_the_other_was_told_to(reading: Reading) -> None:
    corpus = BlockCorpus(reading)
    corpus.load(2)
    copied = pickle.loads(pickle.dumps(corpus))
    copied.seek(corpus.cursor(2))
    for one in (copied, copy.copy(corpus)):
        one.load(2)
        assert (one.read(0, BLOCK) == corpus.read(0, BLOCK)).all()
        one.close()
    corpus.close()


def test_processes_change_nothing(reading: Reading) -> None:
    corpora = [BlockCorpus(Reading(reading.sources, reading.tokenizer, BLOCK, 5, processes)) for processes in (0, 1)]
    for number in range(3):
        for corpus in corpora:
            corpus.load(number)
        assert (corpora[0].read(0, BLOCK) == corpora[1].read(0, BLOCK)).all()
        assert corpora[0].cursor(number) == corpora[1].cursor(number)
    for corpus in corpora:
        corpus.close()


def test_pairs_are_refused(reading: Reading) -> None:
    corpus = BlockCorpus(reading)
    with pytest.raises(UserError, match="next sentence prediction"):
        BlockStream(MaskedStream(corpus, TOKENS, length=20, pairs=True), corpus)
    corpus.close()


def test_a_file_that_disappears_midway_ends_the_stream_with_its_name(tmp_path: Path) -> None:
    files = []
    for number in range(8):
        files.append(tmp_path / f"{number}.txt")
        files[-1].write_text("\n".join(reviews(60, number)[0]))
    source = Source("a", tuple(map(str, files)))
    corpus = BlockCorpus(Reading((source,), TOKENIZER.to_json(), 600))
    corpus.load(0)
    for file in files:
        file.unlink()
    with pytest.raises(UserError, match=r"\d\.txt: no such file or folder"):
        deque(map(corpus.load, range(200)))
    corpus.close()


def test_facts_are_those_of_the_blocks_that_were_read(sources: tuple[Source, ...], reading: Reading) -> None:
    corpus = BlockCorpus(reading)
    for number in range(20):
        corpus.load(number)
    facts = corpus.facts()
    assert facts["a"]["share"] == pytest.approx(0.6, abs=0.03)
    assert facts["b"]["epochs"] > 1
    corpus.close()
