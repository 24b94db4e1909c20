"""The vectors that a language model gives to the words of sentences: features for whatever comes after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from textgraft.artifact import Artifact
from textgraft.data.batch import Batch, budget_batches, pad
from textgraft.data.tags import Piece
from textgraft.data.words import Vectors, WordWindow, chosen_piece, word_batches, word_windows
from textgraft.encoders.base import Direction, Encoded, State
from textgraft.errors import UserError
from textgraft.heads.tagging import at_words
from textgraft.inference import TOKENS_PER_BATCH, frozen_readout
from textgraft.model import Model
from textgraft.nn.precision import computing_in
from textgraft.nn.readout import LAST, Concatenation, Readout

WINDOW = 512
"""Flair reads as many characters at a time."""
WHOLE = 1 << 40
"""More tokens than any sentence has."""


def read_words(
    windows: Sequence[WordWindow],
    lengths: Sequence[int],
    pad_id: int,
    answer: Callable[[Batch], Tensor],
    *,
    piece: Piece,
    vectors: Vectors | None = None,
) -> list[np.ndarray]:
    """For each sentence, of so many words, what `answer` (B, T, D) says where they are: (W, D), from all windows."""
    found: list[np.ndarray] = [np.zeros((0, 0), dtype=np.float32)] * len(lengths)
    batches = budget_batches([len(w.ids) for w in windows], tokens=TOKENS_PER_BATCH, rows=512)
    made = word_batches(windows, batches, pad_id, piece=piece, vectors=vectors)
    for indices, batch in zip(batches, made, strict=True):
        assert batch.words is not None
        positions = answer(batch)
        read = at_words(positions, batch.words.to(positions.device)).float().cpu().numpy()
        for row, index in enumerate(indices):
            window = windows[index]
            if not found[window.sentence].size:
                found[window.sentence] = np.zeros((lengths[window.sentence], read.shape[2]), dtype=np.float32)
            found[window.sentence][window.start : window.start + len(window.spans)] = read[row, : len(window.spans)]
    return found


def word_vectors(
    source: Artifact,
    sentences: Sequence[Sequence[str]],
    *,
    window: int = WINDOW,
    readout: str = LAST,
    precision: str = "auto",
) -> list[np.ndarray]:
    """(W, D) float32 of each sentence's W words: the encoder's top layer at the piece at which it has read the word.

    `readout`, one of nn.readout.READOUTS, reads other layers than the top.

    An encoder that reads from one side and hands on its state reads sentences of any length `window` tokens at a time:
    the vectors are those that it would have read at once, and memory is bounded by the window. Others see windows that
    overlap (data.words), no longer than they can look at, of which each word has the best; of a word longer than such
    a window the rest is not read. Raises UserError for a sentence without words, and for a window without room for one.
    """
    return _words_read(source, sentences, frozen_readout(source.model, readout), window, precision)


def layer_vectors(
    source: Artifact, sentences: Sequence[Sequence[str]], *, window: int = WINDOW, precision: str = "auto"
) -> list[list[np.ndarray]]:
    """For each sentence of W words the vectors of every layer, (W, D_l) float32, bottom (embeddings) -> top.

    One pass reads all layers; words stand where `word_vectors` takes them. Raises UserError as that does.
    """
    widths = source.model.encoder.widths
    found = _words_read(source, sentences, Concatenation(slice(None), widths), window, precision)
    borders = np.cumsum(widths)[:-1]
    return [np.split(vectors, borders, axis=1) for vectors in found]


@torch.no_grad()
def _words_read(
    source: Artifact, sentences: Sequence[Sequence[str]], read: Readout | None, window: int, precision: str
) -> list[np.ndarray]:
    """(W, D) of each sentence's words as `read` reads the layers; None is the top layer."""
    if window < 1:
        raise UserError(f"{window} tokens leave no room for a word.", where="window", remedy="Give some hundreds.")
    model, tokenizer = source.model, source.tokenizer
    encoder = model.encoder
    carries = encoder.direction != "both" and encoder.max_length is None and encoder.remembers(WHOLE)
    most = WHOLE if carries else min(window, encoder.max_length or window)
    windows, _ = word_windows(tokenizer, sentences, most, direction=encoder.direction)
    answer = _Answer(model, read)
    lengths = [len(words) for words in sentences]
    was_training = model.training
    model.eval()
    with computing_in(precision, model.device):
        if carries:
            found = [np.zeros((length, answer.width), dtype=np.float32) for length in lengths]
            _carried(windows, found, answer=answer, pad_id=tokenizer.pad_id, window=window)
        else:
            piece = encoder.piece or chosen_piece(encoder.direction)
            found = read_words(windows, lengths, tokenizer.pad_id, answer, piece=piece)
    model.train(was_training)
    return found


class _Answer:
    """What an encoder says of a batch, (B, T, D), through a readout if there is one; the state that it hands on."""

    def __init__(self, model: Model, read: Readout | None) -> None:
        self.encoder, self.device, self.read = model.encoder, model.device, read
        self.width = model.encoder.output_dim if read is None else read.output_dim
        self.state: State | None = None

    def __call__(self, batch: Batch, state: State | None = None) -> Tensor:
        keep: Literal["top", "all"] = "top" if self.read is None else "all"
        encoded: Encoded = self.encoder(batch.to(self.device), state, keep=keep)
        self.state = encoded.state
        return encoded.top if self.read is None else self.read(encoded.layers)


def _carried(
    windows: Sequence[WordWindow], found: list[np.ndarray], *, answer: _Answer, pad_id: int, window: int
) -> None:
    """Fill in the vectors of whole sentences, which are read `window` tokens at a time."""
    sizes = [min(window, len(w.ids)) for w in windows]
    for indices in budget_batches(sizes, tokens=TOKENS_PER_BATCH, rows=512):
        _carry([windows[i] for i in indices], found, answer=answer, pad_id=pad_id, window=window)


def _carry(
    windows: Sequence[WordWindow], found: list[np.ndarray], *, answer: _Answer, pad_id: int, window: int
) -> None:
    """Read a batch of sentences in the order of the encoder, the states handed on."""
    encoder = answer.encoder
    piece = chosen_piece(encoder.direction)
    # Those that end early leave the batch, and their states with them.
    rest = sorted(windows, key=lambda w: -len(w.ids))
    state = encoder.initial_state(len(rest))
    for step in count():
        rest = [w for w in rest if len(w.ids) > step * window]
        if not rest:
            return
        borders = [_stretch(len(w.ids), step * window, window, encoder.direction) for w in rest]
        batch = pad([w.ids[a:b] for w, (a, b) in zip(rest, borders, strict=True)], pad_id)
        read = answer(batch, tuple(tuple(t[: len(rest)] for t in layer) for layer in state))
        assert answer.state is not None
        state = answer.state
        for row, (one, (a, b)) in enumerate(zip(rest, borders, strict=True)):
            places = one.positions(piece)
            words = np.flatnonzero((places >= a) & (places < b))
            vectors = read[row, torch.from_numpy(places[words] - a).long().to(answer.device)]
            found[one.sentence][one.start + words] = vectors.float().cpu().numpy()


def _stretch(length: int, read: int, window: int, direction: Direction) -> tuple[int, int]:
    """[first, last) of the next `window` tokens of a text of which `read` have been read."""
    if direction == "right":
        return max(0, length - read - window), length - read
    return read, min(length, read + window)
