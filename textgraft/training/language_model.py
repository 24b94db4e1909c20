"""How good a language model is on held-out text, in figures that can be compared across vocabularies."""

from __future__ import annotations

import math
from collections.abc import Callable

from textgraft.data.stream import CountedTokens, LanguageModelStream
from textgraft.encoders.base import State
from textgraft.model import Model
from textgraft.training.loop import Scores


def language_model_validator(
    corpus: CountedTokens, *, tokens: float = math.inf, rows: int = 32, window: int = 140
) -> Callable[[Model], Scores]:
    """A function that scores a model on `corpus`, for the training loop and for model cards.

    `tokens` are enough, taken from the beginnings of `rows` equal stretches; by default all are read.

    `loss` is nats per token; `perplexity_per_word` spreads the same nats over whitespace-separated words and
    `bits_per_character` over characters, so that neither depends on the vocabulary. The state is carried along each
    of the stretches, whose first windows start from nothing: on a short text the figures are pessimistic. So they are
    for an encoder without one, each of whose windows, as long as it can look at, starts from nothing.
    """
    characters_per_token = corpus.num_characters / corpus.num_tokens
    tokens_per_word = corpus.num_tokens / max(1, corpus.num_words)

    def validate(model: Model) -> Scores:
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
            if count >= tokens:
                break
        nats = total / count
        return {
            "loss": nats,
            "score": -nats,
            "perplexity": math.exp(min(700.0, nats)),
            "perplexity_per_word": math.exp(min(700.0, nats * tokens_per_word)),
            "bits_per_character": nats / math.log(2) / characters_per_token,
        }

    return validate
