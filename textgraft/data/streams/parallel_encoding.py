"""Tokenization in processes beside the one that trains: results in the order of the texts, in constant memory.

The processes are spawned, so that they share no lock with a process that computes, and end with it however it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

import numpy as np

from textgraft.core.errors import UserError
from textgraft.text.tokenizer import Tokenizer

BATCH_CHARACTERS = 250_000
"""Characters of a batch: some tenths of a second of work."""
PROCESSES_PER_CORE = 4
_WAITING = 2
"""Batches that are with each process or on the way to it."""

Tag = TypeVar("Tag")
Encoded = tuple[np.ndarray, np.ndarray]
"""Ids of several texts one after another, and the length of each."""


def validate_processes(count: int) -> None:
    """Raise UserError for a negative number of processes, and for far more than there are cores."""
    cores = os.cpu_count() or 1
    most = PROCESSES_PER_CORE * cores
    if not 0 <= count <= most:
        remedy = f"Give 0 (tokenize in the training's own process) to {most}; this machine has {cores} cores."
        raise UserError(f"{count} tokenizer processes.", where="tokenizer_processes", remedy=remedy)


def encoded(
    texts: Iterator[tuple[str, Tag]], tokenizer: str, *, processes: int, stop: Callable[[], bool] = lambda: False
) -> Iterator[tuple[np.ndarray, Tag]]:
    """Ids of texts as the language model's targets (`Tokenizer.corpus_ids`), each with its text's tag, in order.

    Args:
        texts: Texts with any value that belongs to each.
        tokenizer: The content of a tokenizer.json.
        processes: Number of processes; 0: this one.
        stop: Asked before each batch; once it is true, the iterator ends.

    Raises:
        TokenizersEnded: A process was ended from outside.
    """
    batches = _batches(texts, stop)
    if not processes:
        for part, tags in batches:
            yield from _with_tags(encode(tokenizer, part), tags)
        return
    with _pool(processes, tokenizer) as pool:
        waiting: deque[tuple[Future[Encoded], list[Tag]]] = deque()
        begun, ended = False, False
        try:
            while not stop() and (waiting or not ended):
                while not ended and len(waiting) < _WAITING * processes:
                    part, tags = next(batches, ([], []))
                    ended = not part
                    if part:
                        waiting.append((pool.submit(encode, tokenizer, part), tags))
                if waiting:
                    future, tags = waiting.popleft()
                    result = future.result()
                    begun = True
                    yield from _with_tags(result, tags)
        except BrokenProcessPool as error:
            raise TokenizersEnded(begun=begun) from error


class TokenizersEnded(UserError):
    """A process that tokenizes has ended, by a signal or as soon as it began.

    Args:
        begun: It had tokenized some texts.
    """

    def __init__(self, *, begun: bool) -> None:
        message = "a process that tokenizes was ended from outside, perhaps for want of memory."
        remedy = "Run the same command again, with fewer processes that tokenize."
        if not begun:
            message = "the processes that tokenize could not begin."
            remedy = "In a script, put what it does below `if __name__ == '__main__':`, or use 0 processes."
        super().__init__(message, where="tokenizer_processes", remedy=remedy)


@contextmanager
def _pool(processes: int, tokenizer: str) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that ends without what they have not begun."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(tokenizer,))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def encode(tokenizer: str, texts: Sequence[str]) -> Encoded:
    """Ids of some texts, (N,) uint16 or uint32 for larger vocabularies, and their lengths (texts,)."""
    loaded = _loaded(tokenizer)
    ids = loaded.corpus_ids(list(texts))
    dtype = np.uint16 if loaded.vocab_size < 1 << 16 else np.uint32
    return np.concatenate([*ids, np.zeros(0, dtype)]).astype(dtype), np.array([len(one) for one in ids])


def _with_tags(result: Encoded, tags: Sequence[Tag]) -> Iterator[tuple[np.ndarray, Tag]]:
    ids, lengths = result
    return zip(np.split(ids, np.cumsum(lengths)[:-1]), tags, strict=True)


def _batches(texts: Iterator[tuple[str, Tag]], stop: Callable[[], bool]) -> Iterator[tuple[list[str], list[Tag]]]:
    part: list[str] = []
    tags: list[Tag] = []
    characters = 0
    for text, tag in texts:
        part.append(text)
        tags.append(tag)
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            if stop():
                return
            yield part, tags
            part, tags, characters = [], [], 0
    if part:
        yield part, tags


@lru_cache(maxsize=2)
def _loaded(tokenizer: str) -> Tokenizer:
    return Tokenizer.from_json(tokenizer)


def _begin(tokenizer: str) -> None:
    """Prepare a process: one thread, deaf to Ctrl-C, which is its parent's to act on, and gone when the parent is."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _loaded(tokenizer)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
