"""Perplexity of language models on held-out text, in units that are comparable across vocabularies."""

from __future__ import annotations

import math
from collections import Counter
from typing import Protocol

import numpy as np

from textgraft.data.streams.base import BothEndsStream, CountedTokens, LanguageModelStream
from textgraft.encoders.base import State
from textgraft.heads.bidirectional_language_model import DIRECTIONS
from textgraft.models.inference import ProgressCallback, no_progress
from textgraft.models.model import Model
from textgraft.training.loop import Scores

MAX_CHARACTERS_PER_WORD = 15
"""Largest mean number of characters between spaces for text whose words are separated by spaces: six in English, eleven
in languages of long words; twenty in Thai, which has spaces between clauses."""


LONGEST_WINDOW = 1024
"""Most tokens of a window, for models that allow much longer texts than fit into memory in rows."""


class Validator(Protocol):
    """A function that scores a language model on held-out text; `on_progress` gets the number of tokens so far."""

    def __call__(self, model: Model, on_progress: ProgressCallback = no_progress) -> Scores: ...


def language_model_validator(
    corpus: CountedTokens, *, tokens: float = math.inf, rows: int = 32, window: int = 140
) -> Validator:
    """A validator of language models on `corpus`, for the training loop and for model cards.

    The state is carried along each of `rows` contiguous streams, whose first windows start without one: on a short text
    the scores are pessimistic. So they are for an encoder without a state, whose windows, of its maximum length, all
    start without context.

    Args:
        corpus: The held-out text.
        tokens: Number of tokens to score, from the beginnings of the streams; by default all.
        rows: Number of contiguous streams.
        window: Tokens in a window, for encoders of unlimited length; others have their maximum length, at most
            LONGEST_WINDOW.

    Returns:
        A function of the model. Of its scores `loss` is nats per token; `perplexity_per_word` is of the same nats per
        whitespace-separated word and `bits_per_character` per character, so that neither depends on the vocabulary. The
        former is left out where spaces do not separate words (MAX_CHARACTERS_PER_WORD), as in Thai.
    """

    def validate(model: Model, on_progress: ProgressCallback = no_progress) -> Scores:
        bptt = min(model.encoder.max_length or window, LONGEST_WINDOW)
        stream = LanguageModelStream(
            corpus, rows=rows, bptt=bptt, direction=model.encoder.direction, variable=False, shuffle=False
        )
        total, count = 0.0, 0
        state: State | None = None
        for batch in stream.batches(0):
            loss = model.loss(batch, state)
            state = loss.state
            total, count = total + loss.parts["nll"], count + loss.count
            on_progress(count)
            if count >= tokens:
                break
        return _scores(corpus, total / count)

    return validate


def bidirectional_validator(
    corpus: CountedTokens, character_ids: np.ndarray, *, tokens: float = math.inf, rows: int = 32, window: int = 140
) -> Validator:
    """`language_model_validator` for bidirectional language models, over windows from both ends (data.streams.base).

    Args:
        corpus: The held-out text.
        character_ids: (V, 50) the characters of each word of the vocabulary.
        tokens: Number of tokens to score in each direction.
        rows: Number of contiguous streams.
        window: Tokens in a window.

    Returns:
        A function of the model. Of its scores `loss` is the mean of both directions in nats per token, unknown words
        included, and `perplexity` its exponential; `perplexity_forward` and `perplexity_backward` are of one direction.
    """

    def validate(model: Model, on_progress: ProgressCallback = no_progress) -> Scores:
        stream = BothEndsStream(corpus, character_ids, rows=rows, bptt=window, variable=False, shuffle=False)
        sums: Counter[str] = Counter()
        state: State | None = None
        for batch in stream.batches(0):
            loss = model.loss(batch, state)
            state = loss.state
            sums.update(loss.parts)
            on_progress(int(sums["forward"]))
            if sums["forward"] >= tokens:
                break
        by_direction = {f"perplexity_{side}": _perplexity(sums[f"{side}_nll"] / sums[side]) for side in DIRECTIONS}
        return _scores(corpus, sums["nll"] / sum(sums[side] for side in DIRECTIONS)) | by_direction

    return validate


def _scores(corpus: CountedTokens, nats: float) -> Scores:
    """The scores of a mean loss of `nats` per token."""
    scores = {
        "loss": nats,
        "score": -nats,
        "perplexity": _perplexity(nats),
        "bits_per_character": nats / math.log(2) / (corpus.num_characters / corpus.num_tokens),
    }
    if corpus.num_characters <= MAX_CHARACTERS_PER_WORD * corpus.num_words:
        scores["perplexity_per_word"] = _perplexity(nats * corpus.num_tokens / corpus.num_words)
    return scores


def _perplexity(nats: float) -> float:
    return math.exp(min(700.0, nats))
