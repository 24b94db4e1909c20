"""How good a language model is on held-out text, in figures that can be compared across vocabularies."""

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

LONGEST_WORDS = 15
"""Characters between spaces, on average, up to which these are words: in English six, where words are long eleven; in
Thai, which puts spaces between clauses, twenty."""


class Validator(Protocol):
    """Scores a language model on held-out text; `tell` hears how many tokens it has read."""

    def __call__(self, model: Model, tell: ProgressCallback = no_progress) -> Scores: ...


def language_model_validator(
    corpus: CountedTokens, *, tokens: float = math.inf, rows: int = 32, window: int = 140
) -> Validator:
    """A function that scores a model on `corpus`, for the training loop and for model cards.

    `tokens` are enough, taken from the beginnings of `rows` equal stretches; by default all are read.

    `loss` is nats per token; `perplexity_per_word` spreads the same nats over whitespace-separated words and
    `bits_per_character` over characters, so that neither depends on the vocabulary. The former is left out where space
    separates no words (LONGEST_WORDS), as in Thai. The state is carried along each
    of the stretches, whose first windows start from nothing: on a short text the figures are pessimistic. So they are
    for an encoder without one, each of whose windows, as long as it can look at, starts from nothing.
    """

    def validate(model: Model, tell: ProgressCallback = no_progress) -> Scores:
        bptt = model.encoder.max_length or window
        stream = LanguageModelStream(
            corpus, rows=rows, bptt=bptt, direction=model.encoder.direction, variable=False, shuffle=False
        )
        total, count = 0.0, 0
        state: State | None = None
        for batch in stream.batches(0):
            loss = model.loss(batch, state)
            state = loss.state
            total, count = total + loss.parts["nll"], count + loss.count
            tell(count)
            if count >= tokens:
                break
        return _scores(corpus, total / count)

    return validate


def bidirectional_validator(
    corpus: CountedTokens, character_ids: np.ndarray, *, tokens: float = math.inf, rows: int = 32, window: int = 140
) -> Validator:
    """The same for a language model of each direction, which read the text from both its ends (data.streams.base).

    `loss` is the mean of both, nats per word of the vocabulary, its unknown one among them, and `perplexity` its
    exponential; `perplexity_forward` and `perplexity_backward` are those of either. `tokens` counts what one reads.
    """

    def validate(model: Model, tell: ProgressCallback = no_progress) -> Scores:
        stream = BothEndsStream(corpus, character_ids, rows=rows, bptt=window, variable=False, shuffle=False)
        sums: Counter[str] = Counter()
        state: State | None = None
        for batch in stream.batches(0):
            loss = model.loss(batch, state)
            state = loss.state
            sums.update(loss.parts)
            tell(int(sums["forward"]))
            if sums["forward"] >= tokens:
                break
        of_each = {f"perplexity_{side}": _perplexity(sums[f"{side}_nll"] / sums[side]) for side in DIRECTIONS}
        return _scores(corpus, sums["nll"] / sum(sums[side] for side in DIRECTIONS)) | of_each

    return validate


def _scores(corpus: CountedTokens, nats: float) -> Scores:
    """What so many nats a token come to."""
    scores = {
        "loss": nats,
        "score": -nats,
        "perplexity": _perplexity(nats),
        "bits_per_character": nats / math.log(2) / (corpus.num_characters / corpus.num_tokens),
    }
    if corpus.num_characters <= LONGEST_WORDS * corpus.num_words:
        scores["perplexity_per_word"] = _perplexity(nats * corpus.num_tokens / corpus.num_words)
    return scores


def _perplexity(nats: float) -> float:
    return math.exp(min(700.0, nats))
