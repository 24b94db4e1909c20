"""The vectors that a language model gives to the words of sentences: features for whatever comes after it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
import torch

from textgraft.artifact import Artifact
from textgraft.data.batch import budget_batches, pad
from textgraft.data.words import WordWindow, chosen_piece, word_batches, word_windows
from textgraft.encoders.base import Direction
from textgraft.errors import UserError
from textgraft.heads.tagging import at_words
from textgraft.inference import TOKENS_PER_BATCH
from textgraft.model import Model
from textgraft.nn.precision import computing_in

WINDOW = 512
"""Flair reads as many characters at a time."""
WHOLE = 1 << 40
"""More tokens than any sentence has."""


@torch.no_grad()
def word_vectors(
    source: Artifact, sentences: Sequence[Sequence[str]], *, window: int = WINDOW, precision: str = "auto"
) -> list[np.ndarray]:
    """(W, D) float32 of each sentence's W words: the encoder's top layer at the piece at which it has read the word.

    An encoder that reads from one side and hands on its state reads sentences of any length `window` tokens at a time:
    the vectors are those that it would have read at once, and memory is bounded by the window. Others see windows that
    overlap (data.words), no longer than they can look at, of which each word has the best; of a word longer than such
    a window the rest is not read. Raises UserError for a sentence without words, and for a window without room for one.
    """
    if window < 1:
        raise UserError(f"{window} tokens leave no room for a word.", where="window", remedy="Give some hundreds.")
    model, tokenizer = source.model, source.tokenizer
    encoder = model.encoder
    carries = encoder.direction != "both" and encoder.max_length is None and encoder.remembers(WHOLE)
    most = WHOLE if carries else min(window, encoder.max_length or window)
    windows, _ = word_windows(tokenizer, sentences, most, direction=encoder.direction)
    found = [np.zeros((len(words), encoder.output_dim), dtype=np.float32) for words in sentences]
    was_training = model.training
    model.eval()
    with computing_in(precision, model.device):
        read = _carried if carries else _at_once
        read(windows, found, model=model, pad_id=tokenizer.pad_id, window=window)
    model.train(was_training)
    return found


def _at_once(windows: Sequence[WordWindow], found: list[np.ndarray], *, model: Model, pad_id: int, window: int) -> None:
    """Fill in the vectors of the words that each window speaks for."""
    piece = chosen_piece(model.encoder.direction)
    batches = budget_batches([len(w.ids) for w in windows], tokens=TOKENS_PER_BATCH, rows=512)
    for indices, batch in zip(batches, word_batches(windows, batches, pad_id, piece=piece), strict=True):
        on_device = batch.to(model.device)
        assert on_device.words is not None
        read = at_words(model.encoder(on_device).top, on_device.words).float().cpu().numpy()
        for row, index in enumerate(indices):
            one = windows[index]
            found[one.sentence][one.start : one.start + len(one.spans)] = read[row, : len(one.spans)]


def _carried(windows: Sequence[WordWindow], found: list[np.ndarray], *, model: Model, pad_id: int, window: int) -> None:
    """Fill in the vectors of whole sentences, which are read `window` tokens at a time."""
    sizes = [min(window, len(w.ids)) for w in windows]
    for indices in budget_batches(sizes, tokens=TOKENS_PER_BATCH, rows=512):
        _carry([windows[i] for i in indices], found, model=model, pad_id=pad_id, window=window)


def _carry(windows: Sequence[WordWindow], found: list[np.ndarray], *, model: Model, pad_id: int, window: int) -> None:
    """Read a batch of sentences in the order of the encoder, the states handed on."""
    encoder = model.encoder
    piece = chosen_piece(encoder.direction)
    rest = sorted(
        windows, key=lambda w: -len(w.ids)
    )  # those that end early leave the batch, and their states with them
    state = encoder.initial_state(len(rest))
    for step in count():
        rest = [w for w in rest if len(w.ids) > step * window]
        if not rest:
            return
        borders = [_stretch(len(w.ids), step * window, window, encoder.direction) for w in rest]
        batch = pad([w.ids[a:b] for w, (a, b) in zip(rest, borders, strict=True)], pad_id).to(model.device)
        encoded = encoder(batch, tuple(tuple(t[: len(rest)] for t in layer) for layer in state))
        assert encoded.state is not None
        state = encoded.state
        for row, (one, (a, b)) in enumerate(zip(rest, borders, strict=True)):
            places = one.positions(piece)
            words = np.flatnonzero((places >= a) & (places < b))
            vectors = encoded.top[row, torch.from_numpy(places[words] - a).long().to(model.device)]
            found[one.sentence][one.start + words] = vectors.float().cpu().numpy()


def _stretch(length: int, read: int, window: int, direction: Direction) -> tuple[int, int]:
    """[first, last) of the next `window` tokens of a text of which `read` have been read."""
    if direction == "right":
        return max(0, length - read - window), length - read
    return read, min(length, read + window)
