"""The vectors that a language model gives to the words of sentences: features for whatever comes after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch, pad
from textgraft.data.sequences import Direction, budget_batches
from textgraft.data.streams.words import Vectors, word_batches
from textgraft.data.tags import SubwordPooling
from textgraft.data.words import WHOLE, WordWindow, chosen_subword_pooling, word_windows
from textgraft.encoders.base import Encoder, State
from textgraft.heads.tagging import gather_words
from textgraft.models.artifact import Artifact
from textgraft.models.inference import TOKENS_PER_BATCH, casts_of, frozen_layer_aggregation
from textgraft.nn.cpu.precision import computing_in
from textgraft.nn.layer_aggregation import LAST, Concatenation, LayerAggregation

WINDOW = 512
"""Flair reads as many characters at a time."""
SHORT, AT_ONCE = 32, 8192
"""Of many sentences no fewer tokens are read at a time, and of all of them together about so many."""
Answer = Callable[[Batch, State | None], tuple[Tensor, State | None]]
"""From a batch, and the state before it, to something at each position (B, T, D), and the state behind it."""


def read_words(
    windows: Sequence[WordWindow],
    lengths: Sequence[int],
    pad_id: int,
    answer: Callable[[Batch], Tensor],
    *,
    subword_pooling: SubwordPooling,
    vectors: Vectors | None = None,
) -> list[np.ndarray]:
    """For each sentence, of so many words, what `answer` (B, T, D) says where they are: (W, D), from all windows."""
    found: list[np.ndarray] = [np.zeros((0, 0), dtype=np.float32)] * len(lengths)
    batches = budget_batches([len(w.ids) for w in windows], tokens=TOKENS_PER_BATCH, rows=512)
    made = word_batches(windows, batches, pad_id, subword_pooling=subword_pooling, vectors=vectors)
    for indices, batch in zip(batches, made, strict=True):
        assert batch.words is not None
        positions = answer(batch)
        read = gather_words(positions, batch.words.to(positions.device)).float().cpu().numpy()
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
    layer_aggregation: str = LAST,
    precision: str = "auto",
) -> list[np.ndarray]:
    """(W, D) float32 of each sentence's W words: the encoder's top layer at the piece at which it has read the word.

    `layer_aggregation`, one of nn.layer_aggregation.LAYER_AGGREGATIONS, reads other layers than the top.

    An encoder that reads from one side and hands on its state reads sentences of any length `window` tokens at a time:
    the vectors are those that it would have read at once, and memory is bounded by the window. Others see windows that
    overlap (data.words), no longer than they can look at, of which each word has the best; of a word longer than such
    a window the rest is not read. Raises UserError for a sentence without words, and for a window without room for one.
    """
    return _words_read(source, sentences, frozen_layer_aggregation(source.model, layer_aggregation), window, precision)


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
    source: Artifact, sentences: Sequence[Sequence[str]], read: LayerAggregation | None, window: int, precision: str
) -> list[np.ndarray]:
    """(W, D) of each sentence's words as `read` reads the layers; None is the top layer."""
    if window < 1:
        raise UserError(f"{window} tokens leave no room for a word.", where="window", remedy="Give some hundreds.")
    model, tokenizer = source.model, source.tokenizer
    encoder = model.encoder
    keep: Literal["top", "all"] = "top" if read is None else "all"

    def answer(batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        encoded = encoder(batch.to(model.device), state, keep=keep)
        return encoded.top if read is None else read(encoded.layers), encoded.state

    whole = carries_state(encoder)
    most = WHOLE if whole else min(window, encoder.max_length or window)
    windows, _ = word_windows(tokenizer, sentences, most, direction=encoder.direction)
    lengths = [len(words) for words in sentences]
    subword_pooling, pad_id = encoder.subword_pooling or chosen_subword_pooling(encoder.direction), tokenizer.pad_id
    was_training = model.training
    model.eval()
    with computing_in(precision, model.device, casts=casts_of(model)):
        if whole:
            found = read_carried(
                encoder, windows, lengths, pad_id, answer, subword_pooling=subword_pooling, window=window
            )
        else:
            found = read_words(
                windows, lengths, pad_id, lambda batch: answer(batch)[0], subword_pooling=subword_pooling
            )
    model.train(was_training)
    return found


def carries_state(encoder: Encoder) -> bool:
    """Whether it reads a sentence of any length window by window as it would have read it at once."""
    return encoder.direction != "both" and encoder.max_length is None and encoder.remembers(WHOLE)


def read_carried(
    encoder: Encoder,
    windows: Sequence[WordWindow],
    lengths: Sequence[int],
    pad_id: int,
    answer: Answer,
    *,
    subword_pooling: SubwordPooling,
    window: int,
) -> list[np.ndarray]:
    """What `read_words` finds, of whole sentences that are read `window` tokens at a time, the state handed on.

    `windows` hold a sentence each; `answer` says what of a batch, and the state that it leaves. Of many sentences fewer
    tokens are read at a time: those that are over leave then, instead of being padded to the longest, and matrix
    products of many rows are quicker.
    """
    found: list[np.ndarray] = [np.zeros((0, 0), dtype=np.float32)] * len(lengths)
    window = min(window, max(SHORT, AT_ONCE // max(1, len(windows))))
    sizes = [min(window, len(w.ids)) for w in windows]
    for indices in budget_batches(sizes, tokens=TOKENS_PER_BATCH, rows=512):
        for sentence, words, vectors in _carry(
            encoder,
            [windows[i] for i in indices],
            answer,
            pad_id=pad_id,
            subword_pooling=subword_pooling,
            window=window,
        ):
            if not found[sentence].size:
                found[sentence] = np.zeros((lengths[sentence], vectors.shape[1]), dtype=np.float32)
            found[sentence][words] = vectors
    return found


def _carry(
    encoder: Encoder,
    windows: Sequence[WordWindow],
    answer: Answer,
    *,
    pad_id: int,
    subword_pooling: SubwordPooling,
    window: int,
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Of each sentence, as far as a batch of them has been read, the number, which words, and their vectors."""
    # Those that end early leave the batch, and their states with them.
    rest = sorted(windows, key=lambda w: -len(w.ids))
    state: State | None = encoder.initial_state(len(rest))
    for step in count():
        rest = [w for w in rest if len(w.ids) > step * window]
        if not rest:
            return
        borders = [_stretch(len(w.ids), step * window, window, encoder.direction) for w in rest]
        batch = pad([w.ids[a:b] for w, (a, b) in zip(rest, borders, strict=True)], pad_id)
        assert state is not None
        read, state = answer(batch, tuple(tuple(t[: len(rest)] for t in layer) for layer in state))
        for row, (one, (a, b)) in enumerate(zip(rest, borders, strict=True)):
            places = one.positions(subword_pooling)
            words = np.flatnonzero((places >= a) & (places < b))
            vectors = read[row, torch.from_numpy(places[words] - a).long().to(read.device)]
            yield one.sentence, one.start + words, vectors.float().cpu().numpy()


def _stretch(length: int, read: int, window: int, direction: Direction) -> tuple[int, int]:
    """[first, last) of the next `window` tokens of a text of which `read` have been read."""
    if direction == "right":
        return max(0, length - read - window), length - read
    return read, min(length, read + window)
