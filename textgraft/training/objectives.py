"""Training objectives of language models: next, masked, permuted or replaced tokens, or next and previous word."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.streams.base import BothEndsStream, CountedTokens, LanguageModelStream, ScatteredStream, Stream
from textgraft.data.streams.masking import MaskedStream, MaskingTokens
from textgraft.data.streams.permutation import PREDICTED, PermutedStream
from textgraft.data.streams.replacement import ReplacedStream
from textgraft.data.streams.translations import TranslatedStream
from textgraft.models.inference import ProgressCallback, no_progress
from textgraft.models.model import Model
from textgraft.text.character_encoding import CharacterEncodingTokenizer
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.loop import Scores
from textgraft.training.perplexity import Validator, bidirectional_validator, language_model_validator
from textgraft.training.phases import Stage


class Objective(Protocol):
    """Training batches of a corpus for a language model's head, and its validation on held-out text."""

    def stream(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, stage: Stage, seed: int) -> Stream:
        """The training batches of `corpus`."""
        ...

    def validator(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, *, tokens: float) -> Validator:
        """A function that scores a model on the first `tokens` tokens of `corpus`, or a few more."""
        ...


class NextToken:
    """Prediction of the next token in windows of text.

    Windows are consecutive, with the state carried over; for an encoder of limited context, from all over the corpus
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
    """Prediction of masked tokens in rows of `bptt` tokens (data.streams.masking).

    Rows are pairs if the head predicts the next sentence.
    """

    rows: ClassVar[Callable[..., Any]] = MaskedStream
    held_out_rate: ClassVar[float] = 0.15

    def stream(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, stage: Stage, seed: int) -> Stream:
        config: Any = model.head.config
        masking = {"rate": config.masked, "whole_words": config.whole_words}
        return self._rows(model, corpus, tokenizer, length=stage.bptt, rows=stage.batch_size, seed=seed, **masking)

    def validator(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, *, tokens: float) -> Validator:
        """A validator on the same tokens each time, 15 %: `loss` in nats per predicted token, and `perplexity`."""

        def validate(model: Model, on_progress: ProgressCallback = no_progress) -> Scores:
            stream = self._rows(model, corpus, tokenizer, length=128, rows=32, seed=0, rate=self.held_out_rate)
            nats, pair_nats, count, encoded = 0.0, 0.0, 0, 0
            for batch in stream.batches(0):
                loss = model.loss(batch)
                nats, count = nats + loss.parts["nll"], count + loss.count
                pair_nats += loss.parts.get("next_sentence_nll", 0.0)
                encoded += int(batch.mask.sum())
                on_progress(encoded)
                if encoded >= tokens:
                    break
            scores = self._scores(nats / count)
            if pair_nats:
                scores["next_sentence_loss"] = pair_nats / count
            return {**scores, "score": -(nats + pair_nats) / count}

        return validate

    def _scores(self, loss: float) -> dict[str, float]:
        return {"loss": loss, "perplexity": math.exp(min(700.0, loss))}

    def _rows(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, *, length: int, **settings: Any) -> Any:
        max_length = model.encoder.max_length or length
        if getattr(model.head.config, "next_sentence", False):
            settings["pairs"] = True
        tokens = MaskingTokens.of(tokenizer)
        return type(self).rows(corpus, tokens, length=min(length, max_length), **settings)


class PermutedTokens(MaskedTokens):
    """Prediction of the last sixth of each row's tokens in a random factorisation order (data.streams.permutation)."""

    rows: ClassVar[Callable[..., Any]] = PermutedStream
    held_out_rate: ClassVar[float] = PREDICTED


class ReplacedTokens(MaskedTokens):
    """Detection of tokens that were drawn anew, 15 % of them (data.streams.replacement); its loss is of all tokens."""

    rows: ClassVar[Callable[..., Any]] = ReplacedStream

    def stream(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, stage: Stage, seed: int) -> Stream:
        settings = {"length": stage.bptt, "rows": stage.batch_size, "seed": seed, "rate": model.head.config.replaced}
        return self._rows(model, corpus, tokenizer, **settings)

    def _scores(self, loss: float) -> dict[str, float]:
        return {"loss": loss}


class TranslatedTokens(MaskedTokens):
    """Prediction of masked tokens of a sentence and its translation, each in sight of the other (streams.translations).

    The corpus is a TranslatedCorpus.
    """

    rows: ClassVar[Callable[..., Any]] = TranslatedStream


class BothDirections:
    """Prediction of the next and of the previous word, in windows from both ends of the text (data.streams.base).

    Both states are carried over; words are encoded by their characters.
    """

    def stream(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, stage: Stage, seed: int) -> Stream:
        character_ids = _character_ids(tokenizer)
        return BothEndsStream(corpus, character_ids, rows=stage.batch_size, bptt=stage.bptt, seed=seed)

    def validator(self, model: Model, corpus: CountedTokens, tokenizer: Tokenizer, *, tokens: float) -> Validator:
        return bidirectional_validator(corpus, _character_ids(tokenizer), tokens=tokens)


def _character_ids(tokenizer: Tokenizer) -> np.ndarray:
    if not isinstance(tokenizer, CharacterEncodingTokenizer):
        message = "a bidirectional language model needs character-encoded words, which this tokenizer does not produce."
        raise UserError(message, where="tokenizer", remedy='Set kind = "word" and model = "spelling".')
    return tokenizer.character_ids


OBJECTIVES: dict[str, Objective] = {
    "language_model": NextToken(),
    "masked_language_model": MaskedTokens(),
    "bidirectional_language_model": BothDirections(),
    "replaced_tokens": ReplacedTokens(),
}
"""The objective of each language-model head, by the head's name."""
PERMUTED = PermutedTokens()
"""The objective of a head of masked tokens whose encoder hides tokens by an order in place of a mask."""


def objective(model: Model, where: str) -> Objective:
    """The objective of a language model.

    Args:
        model: The model.
        where: Its name, for the message.

    Raises:
        UserError: The model has no language-model head.
    """
    name = model.describe()["head"]["name"]
    if name not in OBJECTIVES:
        fine_tuned = "has been fine-tuned for a task and lost its language-model head"
        state = "is an encoder without a language-model head" if name in ("features", "translation") else fine_tuned
        raise UserError(
            f"this model {state}.",
            where=where,
            remedy="Adapt the language model first, then fine-tune the adapted one.",
        )
    return PERMUTED if model.encoder.permuted else OBJECTIVES[name]
