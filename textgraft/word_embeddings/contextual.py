"""Contextual word vectors of a language model, as features."""

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
from textgraft.data.words import UNLIMITED_TOKENS, WordWindow, default_subword_pooling, word_windows
from textgraft.encoders.base import Encoder, State
from textgraft.heads.tagging import gather_words
from textgraft.models.artifact import Artifact
from textgraft.models.inference import TOKENS_PER_BATCH, casts_of, frozen_layer_aggregation
from textgraft.nn.cpu.precision import computing_in
from textgraft.nn.layer_aggregation import LAST, Concatenation, LayerAggregation

WINDOW = 512
"""Number of characters per window in Flair."""
SHORT, AT_ONCE = 32, 8192
"""Minimum number of tokens per window, and approximate number of tokens of all windows together."""
Answer = Callable[[Batch, State | None], tuple[Tensor, State | None]]
"""A function of a batch and the state before it, to outputs at each position (B, T, D) and the state after it."""


def read_words(
    windows: Sequence[WordWindow],
    lengths: Sequence[int],
    pad_id: int,
    answer: Callable[[Batch], Tensor],
    *,
    subword_pooling: SubwordPooling,
    vectors: Vectors | None = None,
) -> list[np.ndarray]:
    """Outputs (W, D) of `answer` (B, T, D) at the words of each sentence, collected from all windows.

    Args:
        windows: Windows of the sentences.
        lengths: Number of words of each sentence.
        pad_id: Id of padding.
        answer: Function of a batch.
        subword_pooling: The subword that represents a word.
        vectors: Word vectors that the encoder takes, if any.
    """
    vectors_by_sentence: list[np.ndarray] = [np.zeros((0, 0), dtype=np.float32)] * len(lengths)
    batches = budget_batches([len(w.ids) for w in windows], tokens=TOKENS_PER_BATCH, rows=512)
    word_batch_iterator = word_batches(windows, batches, pad_id, subword_pooling=subword_pooling, vectors=vectors)
    for indices, batch in zip(batches, word_batch_iterator, strict=True):
        assert batch.words is not None
        positions = answer(batch)
        outputs = gather_words(positions, batch.words.to(positions.device)).float().cpu().numpy()
        for row, index in enumerate(indices):
            window = windows[index]
            if not vectors_by_sentence[window.sentence].size:
                vectors_by_sentence[window.sentence] = np.zeros(
                    (lengths[window.sentence], outputs.shape[2]), dtype=np.float32
                )
            vectors_by_sentence[window.sentence][window.start : window.start + len(window.spans)] = outputs[
                row, : len(window.spans)
            ]
    return vectors_by_sentence


def word_vectors(
    source: Artifact,
    sentences: Sequence[Sequence[str]],
    *,
    window: int = WINDOW,
    layer_aggregation: str = LAST,
    precision: str = "auto",
) -> list[np.ndarray]:
    """Vectors (W, D) float32 of each sentence's W words: the encoder's top layer at the subword that represents the
    word.

    A unidirectional encoder with state processes sentences of any length `window` tokens at a time: the vectors are the
    same as for the whole sentence, and memory is bounded by the window. Others process overlapping windows (data.words)
    of at most their maximum length, of which each word has the best; the rest of a word longer than a window is
    dropped.

    Args:
        source: The model.
        sentences: Sentences as words.
        window: Maximum number of tokens of a window.
        layer_aggregation: Name in nn.layer_aggregation.LAYER_AGGREGATIONS.
        precision: Arithmetic of the encoder.

    Raises:
        UserError: A sentence has no words, or a window has no room for one.
    """
    return _encode_words(
        source, sentences, frozen_layer_aggregation(source.model, layer_aggregation), window, precision
    )


def layer_vectors(
    source: Artifact, sentences: Sequence[Sequence[str]], *, window: int = WINDOW, precision: str = "auto"
) -> list[list[np.ndarray]]:
    """Vectors (W, D_l) float32 of every layer for each sentence of W words, bottom (embeddings) to top.

    One pass computes all layers; word positions are those of `word_vectors`. Raises UserError as that does.
    """
    widths = source.model.encoder.widths
    concatenated = _encode_words(source, sentences, Concatenation(slice(None), widths), window, precision)
    boundaries = np.cumsum(widths)[:-1]
    return [np.split(vectors, boundaries, axis=1) for vectors in concatenated]


@torch.no_grad()
def _encode_words(
    source: Artifact,
    sentences: Sequence[Sequence[str]],
    aggregation: LayerAggregation | None,
    window: int,
    precision: str,
) -> list[np.ndarray]:
    """Vectors (W, D) of each sentence's words by a layer aggregation; None is the top layer."""
    if window < 1:
        raise UserError(f"{window} tokens leave no room for a word.", where="window", remedy="Give a few hundred.")
    model, tokenizer = source.model, source.tokenizer
    encoder = model.encoder
    keep: Literal["top", "all"] = "top" if aggregation is None else "all"

    def answer(batch: Batch, state: State | None = None) -> tuple[Tensor, State | None]:
        encoded = encoder(batch.to(model.device), state, keep=keep)
        return encoded.top if aggregation is None else aggregation(encoded.layers), encoded.state

    stateful = carries_state(encoder)
    max_tokens = UNLIMITED_TOKENS if stateful else min(window, encoder.max_length or window)
    windows, _ = word_windows(tokenizer, sentences, max_tokens, direction=encoder.direction)
    lengths = [len(words) for words in sentences]
    subword_pooling, pad_id = encoder.subword_pooling or default_subword_pooling(encoder.direction), tokenizer.pad_id
    was_training = model.training
    model.eval()
    with computing_in(precision, model.device, casts=casts_of(model)):
        if stateful:
            vectors = read_carried(
                encoder, windows, lengths, pad_id, answer, subword_pooling=subword_pooling, window=window
            )
        else:
            vectors = read_words(
                windows, lengths, pad_id, lambda batch: answer(batch)[0], subword_pooling=subword_pooling
            )
    model.train(was_training)
    return vectors


def carries_state(encoder: Encoder) -> bool:
    """True if a sentence of any length can be encoded window by window with the same result as at once."""
    return encoder.direction != "both" and encoder.max_length is None and encoder.remembers(UNLIMITED_TOKENS)


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
    """The result of `read_words` for whole sentences that are encoded `window` tokens at a time, with the state passed
    on.

    `windows` contain a sentence each; `answer` returns the outputs for a batch and the new state. With many sentences,
    windows are shorter: finished sentences then leave the batch earlier, instead of being padded to the longest, and
    matrix products of many rows are faster.
    """
    vectors_by_sentence: list[np.ndarray] = [np.zeros((0, 0), dtype=np.float32)] * len(lengths)
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
            if not vectors_by_sentence[sentence].size:
                vectors_by_sentence[sentence] = np.zeros((lengths[sentence], vectors.shape[1]), dtype=np.float32)
            vectors_by_sentence[sentence][words] = vectors
    return vectors_by_sentence


def _carry(
    encoder: Encoder,
    windows: Sequence[WordWindow],
    answer: Answer,
    *,
    pad_id: int,
    subword_pooling: SubwordPooling,
    window: int,
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield sentence number, word numbers and vectors after each window."""
    # Finished sentences leave the batch, and their states with them.
    remaining = sorted(windows, key=lambda w: -len(w.ids))
    state: State | None = encoder.initial_state(len(remaining))
    for step in count():
        remaining = [w for w in remaining if len(w.ids) > step * window]
        if not remaining:
            return
        bounds = [_next_window(len(w.ids), step * window, window, encoder.direction) for w in remaining]
        batch = pad([w.ids[a:b] for w, (a, b) in zip(remaining, bounds, strict=True)], pad_id)
        assert state is not None
        outputs, state = answer(batch, tuple(tuple(t[: len(remaining)] for t in layer) for layer in state))
        for row, (sentence, (a, b)) in enumerate(zip(remaining, bounds, strict=True)):
            positions = sentence.positions(subword_pooling)
            words = np.flatnonzero((positions >= a) & (positions < b))
            vectors = outputs[row, torch.from_numpy(positions[words] - a).long().to(outputs.device)]
            yield sentence.sentence, sentence.start + words, vectors.float().cpu().numpy()


def _next_window(length: int, done: int, window: int, direction: Direction) -> tuple[int, int]:
    """[first, last) of the next `window` tokens of a text of which `done` are done."""
    if direction == "right":
        return max(0, length - done - window), length - done
    return done, min(length, done + window)
