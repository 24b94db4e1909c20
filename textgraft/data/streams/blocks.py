"""Training on text that is read while it trains: block after block of tokens, never the whole corpus.

A block is a sequence of exactly N tokens, cut from the endless stream of documents (mixtures); the last document of one
continues in the next. An ordinary stream (data.streams.base) makes the batches of a block, in an order of its own, as
if it were the corpus, so that documents are shuffled within blocks. Block e is epoch e of the training. Where it begins
in the files is a few numbers, the cursor: a run that resumes tokenizes one block again, and nothing before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.streams.base import Stream, TokenSource
from textgraft.data.streams.mixtures import At, Places, Source, documents, progress
from textgraft.data.streams.parallel_encoding import encoded

BLOCK_TOKENS = 1 << 22
"""Default size of a block: eight megabytes of ids, ten to twenty seconds of tokenization."""


@dataclass(frozen=True)
class Cursor:
    """Where a block begins: the places before its first document, and the tokens of that which earlier blocks have."""

    block: int
    places: Places
    token: int = 0

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"block": self.block, "token": self.token, "places": [at._asdict() for at in self.places]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Cursor:
        """The inverse of `to_json`."""
        return cls(int(values["block"]), tuple(At(**at) for at in values["places"]), int(values["token"]))


@dataclass(frozen=True)
class _Block:
    """Ids (N,) and the first token of each document in them, and where this and the next block begin."""

    ids: np.ndarray
    starts: np.ndarray
    begin: Cursor
    end: Cursor


@dataclass(frozen=True)
class Reading:
    """How blocks are made: everything that their content depends on, and the number of processes that tokenize.

    Attributes:
        sources: The mixture.
        tokenizer: The content of a tokenizer.json.
        block_tokens: Tokens of a block.
        seed: Seed of the order of files.
        processes: See parallel_encoding.encoded.
    """

    sources: tuple[Source, ...]
    tokenizer: str
    block_tokens: int = BLOCK_TOKENS
    seed: int = 0
    processes: int = 0

    def begin(self) -> Cursor:
        """Where block 0 begins."""
        return Cursor(0, (At(),) * len(self.sources))

    def blocks(self, begin: Cursor, stop: threading.Event) -> Iterator[_Block]:
        """The blocks from a cursor on, until `stop` is set."""
        texts = documents(self.sources, begin.places, self.seed)
        skipped, filled = begin.token, 0
        parts: list[np.ndarray] = []
        starts: list[int] = []
        for ids, places in encoded(texts, self.tokenizer, processes=self.processes, stop=stop.is_set):
            used, skipped = skipped, 0
            while used < len(ids):
                part = ids[used : used + self.block_tokens - filled]
                parts.append(part)
                starts.append(filled)
                used, filled = used + len(part), filled + len(part)
                if filled == self.block_tokens:
                    end = Cursor(begin.block + 1, places, used)
                    yield _Block(np.concatenate(parts), np.array(starts, dtype=np.int64), begin, end)
                    begin, parts, starts, filled = end, [], [], 0


class BlockCorpus:
    """A TokenSource of one block at a time: its content is that of the block that was loaded last, at first block 0.

    While the training is on one block, the next one is prepared in a thread, which `close` ends. A copy in another
    process (pickle) begins where this one has been told to.
    """

    num_words = num_characters = 0  # not counted: no measure of training text needs them

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._known = [reading.begin()]
        self._block: _Block | None = None
        self._ahead: _Ahead | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens of a block."""
        return self.reading.block_tokens

    @property
    def document_starts(self) -> np.ndarray:
        """The first token of each document in the block."""
        return self._loaded().starts

    def read(self, start: int, stop: int) -> np.ndarray:
        """Ids start to stop of the block. Raises IndexError outside."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"tokens {start} to {stop} of a block of {self.num_tokens}")
        return self._loaded().ids[start:stop]

    def load(self, number: int) -> None:
        """Make block `number` the content. Raises UserError where its files cannot be read."""
        while self._block is None or self._block.begin.block != number:
            begin = max((one for one in self._known if one.block <= number), key=lambda one: one.block)
            if self._ahead is None or not begin.block <= self._ahead.number <= number:
                self.close()
                self._ahead = _Ahead(self.reading, begin)
            self._block = self._ahead.next()
            self._known = [self.reading.begin(), self._block.begin, self._block.end]

    def cursor(self, number: int) -> dict[str, Any]:
        """Where block `number` begins, or the last block before it of which that is known."""
        return max((one for one in self._known if one.block <= number), key=lambda one: one.block).to_json()

    def seek(self, cursor: dict[str, Any]) -> None:
        """Let the block of a cursor begin there."""
        self._known = [self.reading.begin(), Cursor.from_json(cursor)]

    def facts(self) -> dict[str, dict[str, Any]]:
        """Entries of run.json for each source, up to the end of the block."""
        return progress(self.reading.sources, self._known[-1].places)

    def close(self) -> None:
        """End the thread and the processes that prepare the next block."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _loaded(self) -> _Block:
        if self._block is None:
            self.load(self._known[-1].block)
        assert self._block is not None
        return self._block

    def __getstate__(self) -> dict[str, Any]:
        return {"reading": self.reading, "_known": self._known, "_block": None, "_ahead": None}


class _Ahead:
    """Blocks from a cursor on, the next one in preparation; `number` is that of the next one."""

    def __init__(self, reading: Reading, begin: Cursor) -> None:
        self.number = begin.block
        self._stop = threading.Event()
        self._blocks = reading.blocks(begin, self._stop)
        self._executor = ThreadPoolExecutor(1, "blocks")
        self._future = self._executor.submit(next, self._blocks)

    def next(self) -> _Block:
        block = self._future.result()
        self.number = block.end.block
        self._future = self._executor.submit(next, self._blocks)
        return block

    def close(self) -> None:
        self._stop.set()
        with suppress(Exception):  # what could not be read will be told to those who need it
            self._future.result()
        with suppress(Exception):
            self._executor.submit(self._blocks.close).result()  # type: ignore[attr-defined]
        self._executor.shutdown()


class BlockStream:
    """An ordinary stream over a BlockCorpus: epoch e is block e (see data.streams.base.Stream).

    Args:
        stream: A stream made from the corpus, whose batches depend on its number of tokens and on its content only.
        corpus: The corpus.

    Raises:
        UserError: The stream is of pairs of texts, whose number depends on the documents.
    """

    def __init__(self, stream: Stream, corpus: BlockCorpus) -> None:
        if getattr(stream, "pairs", False):
            message = "streamed text cannot be used for next sentence prediction: the number of pairs is not known."
            remedy = "Set next_sentence = false in the recipe's head, or tokenize it first (textgraft tokenize)."
            raise UserError(message, where="next_sentence", remedy=remedy)
        self.stream, self.corpus = stream, corpus
        self.stateful = stream.stateful

    def length(self, epoch: int) -> int:
        """Number of batches of a block."""
        return self.stream.length(epoch)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Batches of a block from number `start`."""
        self.corpus.load(epoch)
        return self.stream.batches(epoch, start)

    def rate_scale(self, batch: Batch) -> float:
        """Factor of the learning rate for a batch."""
        return self.stream.rate_scale(batch)

    def cursor(self, epoch: int, batch: int) -> dict[str, Any]:
        """Where to read on for batch number `batch` of a block, as JSON values."""
        return self.corpus.cursor(epoch)

    def seek(self, cursor: dict[str, Any]) -> None:
        """Read on at a cursor."""
        self.corpus.seek(cursor)


def by_blocks(stream: Stream, corpus: TokenSource) -> Stream:
    """The stream, block by block if the corpus is a BlockCorpus."""
    return BlockStream(stream, corpus) if isinstance(corpus, BlockCorpus) else stream


@contextmanager
def in_use(corpus: TokenSource | None) -> Iterator[None]:
    """Context that closes a BlockCorpus at its end; without effect for any other corpus."""
    try:
        yield
    finally:
        if isinstance(corpus, BlockCorpus):
            corpus.close()
