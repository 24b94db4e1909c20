"""What a language model learns from plain text: the next token, the masked ones, or the next and the previous word."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.streams.base import BothEndsStream, CountedTokens, LanguageModelStream, ScatteredStream, Stream
from textgraft.data.streams.masking import MaskedStream, MaskingTokens
from textgraft.models.inference import ProgressCallback, no_progress
from textgraft.models.model import Model
from textgraft.text.character_encoding import CharacterEncodingTokenizer
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.loop import Scores
from textgraft.training.perplexity import Validator, bidirectional_validator, language_model_validator
from textgraft.training.phases import Stage


class Objective(Protocol):
    """How a corpus becomes batches for a model's head, and how good the model is on held-out text."""

    def stream(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, stage: Stage, seed: int) -> Stream: ...

    def validator(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, *, tokens: float) -> Validator: ...


class NextToken:
    """Windows with the state handed on; from all over where an encoder looks back no further anyway
    (data.streams.base).
    """

    def stream(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, stage: Stage, seed: int) -> Stream:
        encoder = model.encoder
        if encoder.max_length is not None:
            return ScatteredStream(corpus, rows=stage.batch_size, bptt=min(stage.bptt, encoder.max_length), seed=seed)
        direction = encoder.direction
        return LanguageModelStream(corpus, rows=stage.batch_size, bptt=stage.bptt, seed=seed, direction=direction)

    def validator(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, *, tokens: float) -> Validator:
        return language_model_validator(corpus, tokens=tokens)


class MaskedTokens:
    """Rows of `bptt` tokens, some of them hidden, in pairs if the head predicts the next sentence
    (data.streams.masking).
    """

    def stream(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, stage: Stage, seed: int) -> Stream:
        config: Any = model.head.config
        hidden = {"rate": config.masked, "whole_words": config.whole_words}
        return _masked(model, corpus, tokenizer, length=stage.bptt, rows=stage.batch_size, seed=seed, **hidden)

    def validator(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, *, tokens: float) -> Validator:
        """`loss` is nats per masked token, `perplexity` its exponential; the same tokens are masked each time, 15 %."""

        def validate(model: Model, tell: ProgressCallback = no_progress) -> Scores:
            stream = _masked(model, corpus, tokenizer, length=128, rows=32, seed=0)
            nats, of_pairs, count, read = 0.0, 0.0, 0, 0
            for batch in stream.batches(0):
                loss = model.loss(batch)
                nats, count = nats + loss.parts["nll"], count + loss.count
                of_pairs += loss.parts.get("next_sentence_nll", 0.0)
                read += int(batch.mask.sum())
                tell(read)
                if read >= tokens:
                    break
            scores = {"loss": nats / count, "perplexity": math.exp(min(700.0, nats / count))}
            if of_pairs:
                scores["next_sentence_loss"] = of_pairs / count
            return {**scores, "score": -(nats + of_pairs) / count}

        return validate


class BothDirections:
    """Windows from both ends of the text with both states handed on (data.streams.base), words spelled by the
    tokenizer.
    """

    def stream(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, stage: Stage, seed: int) -> Stream:
        character_ids = _character_ids(tokenizer)
        return BothEndsStream(corpus, character_ids, rows=stage.batch_size, bptt=stage.bptt, seed=seed)

    def validator(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, *, tokens: float) -> Validator:
        return bidirectional_validator(corpus, _character_ids(tokenizer), tokens=tokens)


def _character_ids(tokenizer: Tokenizer) -> np.ndarray:
    if not isinstance(tokenizer, CharacterEncodingTokenizer):
        message = "a language model of both directions reads spelled words, which this tokenizer does not give."
        raise UserError(message, where="tokenizer", remedy='Set kind = "word" and model = "spelling".')
    return tokenizer.character_ids


def _masked(
    model: Model, corpus: CountedTokens, tokenizer: Tokenizer, *, length: int, rows: int, seed: int, **hidden: Any
) -> MaskedStream:
    longest = model.encoder.max_length or length
    pairs = bool(getattr(model.head.config, "next_sentence", False))
    tokens = MaskingTokens.of(tokenizer)
    return MaskedStream(corpus, tokens, length=min(length, longest), rows=rows, seed=seed, pairs=pairs, **hidden)


OBJECTIVES: dict[str, Objective] = {
    "language_model": NextToken(),
    "masked_language_model": MaskedTokens(),
    "bidirectional_language_model": BothDirections(),
}
"""By the name of the head that a language model has."""


def objective(model: Model, where: str) -> Objective:
    """The objective of a language model's head. Raises UserError for a model that has no such head."""
    name = model.describe()["head"]["name"]
    if name not in OBJECTIVES:
        lost = "has been fine-tuned for a task and lost its language-model head"
        why = "is an encoder without a language-model head" if name in ("features", "translation") else lost
        raise UserError(
            f"this model {why}.",
            where=where,
            remedy="Adapt the language model first, then fine-tune the adapted one.",
        )
    return OBJECTIVES[name]
