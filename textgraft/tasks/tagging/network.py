"""Logits of words by a network, and the tags decoded from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.sequences import budget_batches
from textgraft.data.streams.words import Vectors
from textgraft.data.tags import TagPredictions
from textgraft.data.text_forms import words_in_form
from textgraft.data.words import UNLIMITED_TOKENS, Coverage, WordWindow, word_windows
from textgraft.heads.tagging import TaggingHead
from textgraft.metrics.agreement import SAMPLE_SIZE, Agreement
from textgraft.models.artifact import Artifact
from textgraft.models.inference import casts_of
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import computing_in
from textgraft.word_embeddings.contextual import carries_state, read_carried, read_words

MIN_WORDS = 1_000
"""Number of words on which the tags in int8 are compared with the usual ones."""
READ_IN = "read_in"
"""Key of run.json with the precision that `auto` uses for a tagger, set once the tags have been compared."""
BatchTagger = Callable[[Sequence[Sequence[str]]], tuple[list[TagPredictions], Coverage]]


def tagging_head(model: Model) -> TaggingHead:
    """The model's head.

    Raises:
        UserError: The model is of another task.
    """
    if not isinstance(model.head, TaggingHead):
        raise UserError("this model does not tag words.", remedy="Make one with textgraft tag finetune.")
    return model.head


@torch.no_grad()
def word_logits(
    model: Model,
    windows: Sequence[WordWindow],
    lengths: Sequence[int],
    pad_id: int,
    precision: str = "auto",
    *,
    vectors: Vectors | None = None,
    carried: int | None = None,
) -> list[np.ndarray]:
    """Logits (W, C), float32, of the words of each sentence, put together from its windows.

    Args:
        model: A tagger.
        windows: The windows of all sentences.
        lengths: Number of words of each sentence.
        pad_id: Id of the padding token.
        precision: "auto", "fp32", "bf16" or "int8".
        vectors: Vectors of a stack by sentence, for a network over a stack.
        carried: Windows are whole sentences, encoded this many tokens at a time with the state carried over.
    """

    def forward(batch: Batch) -> Tensor:
        with computing_in(precision, model.device, casts=casts_of(model)):
            logits: Tensor = model(batch)
            return logits

    subword_pooling = tagging_head(model).config.subword_pooling
    if carried is not None:
        with computing_in(precision, model.device, casts=casts_of(model)):
            return read_carried(
                model.encoder,
                windows,
                lengths,
                pad_id,
                model.forward_with_state,
                subword_pooling=subword_pooling,
                window=carried,
            )
    return read_words(windows, lengths, pad_id, forward, subword_pooling=subword_pooling, vectors=vectors)


def decoded(model: Model, logits: Sequence[np.ndarray]) -> list[TagPredictions]:
    """The best legal tags of each sentence and their probabilities, from its logits (W, C)."""
    head = tagging_head(model)
    tags, predictions = head.config.tags, {}
    for indices in budget_batches([len(one) for one in logits], tokens=4096, rows=64):
        width = len(logits[indices[0]])
        block = torch.zeros(len(indices), width, len(tags), device=model.device)
        lengths = torch.tensor([len(logits[i]) for i in indices], device=model.device)
        for row, index in enumerate(indices):
            block[row, : len(logits[index])] = torch.from_numpy(logits[index])
        best, probabilities = head.decode(block, torch.arange(width, device=model.device) < lengths[:, None])
        for row, index in enumerate(indices):
            count = len(logits[index])
            numbers = best[row, :count].tolist()
            predictions[index] = [tags[i] for i in numbers], probabilities[row, :count].clamp(0, 1).tolist()
    return [predictions[i] for i in range(len(logits))]


class NetworkTagger:
    """A network that tags words, with its tokenizer and its stack; a WordTagger (predictor.py).

    Args:
        artifact: The tagger.
        precision: Precision of the network.
        trusted: int8 needs no comparison with the usual precision.

    Raises:
        UserError: The model is of another task.
    """

    def __init__(self, artifact: Artifact, precision: str = "auto", *, trusted: bool = False) -> None:
        self.artifact, self.precision = artifact, precision
        self._agreement = Agreement("words", MIN_WORDS) if precision == "int8" and not trusted else None
        self.config = tagging_head(artifact.model).config

    @classmethod
    def of(cls, artifact: Artifact, precision: str) -> NetworkTagger:
        """The tagger of an artifact, with its stack at this precision too.

        `auto` is int8, without another comparison, for a tagger whose tags in int8 were the same in training
        (tasks.tagging.stacked.validated_in_int8).
        """
        trusted = precision == "auto" and artifact.run.get(READ_IN) == "int8"
        if trusted:
            precision = "int8"
        if artifact.stack is not None:
            artifact = replace(artifact, stack=artifact.stack.computing_in(precision))
        return cls(artifact, precision, trusted=trusted)

    def batch_tagger(self, max_tokens: int) -> BatchTagger:
        """A function that tags a batch of sentences in windows of at most `max_tokens` tokens.

        In int8 the first sentences are tagged in the usual precision too, and keep the usual tags.

        Raises:
            UserError: By the function, where too many of the tags in int8 differ.
        """
        tag_fast, agreement = self._batch_tagger(max_tokens), self._agreement
        if agreement is None or agreement.passed:
            return tag_fast
        run = {name: value for name, value in self.artifact.run.items() if name != READ_IN}
        tag_usual = NetworkTagger.of(replace(self.artifact, run=run), "auto").batch_tagger(max_tokens)

        def tag(sentences: Sequence[Sequence[str]]) -> tuple[list[TagPredictions], Coverage]:
            predictions, coverage = tag_fast(sentences)
            if not agreement.passed:
                usual, _ = tag_usual(sentences[:SAMPLE_SIZE])
                agreement.compare(_all_tags(usual), _all_tags(predictions[: len(usual)]))
                predictions[: len(usual)] = usual
            return predictions, coverage

        return tag

    def _batch_tagger(self, max_tokens: int) -> BatchTagger:
        """`batch_tagger` in the tagger's own precision, without a comparison.

        An encoder with a state to carry over (contextual.carries_state) encodes a sentence whole, `max_tokens` at a
        time; for others each word is taken from the window with the most context around it.
        """
        model, tokenizer = self.artifact.model, self.artifact.tokenizer
        max_tokens = min(max_tokens, model.encoder.max_length or max_tokens)
        carried = max_tokens if carries_state(model.encoder) else None
        stack = None if self.artifact.stack is None else self.artifact.stack.reading()

        def tag(sentences: Sequence[Sequence[str]]) -> tuple[list[TagPredictions], Coverage]:
            sentences = words_in_form(sentences, self.artifact.text_form)
            most = max_tokens if carried is None else UNLIMITED_TOKENS
            windows, coverage = word_windows(tokenizer, sentences, most, direction=model.encoder.direction)
            vectors = None if stack is None else _lookup(stack.vectors(sentences))
            was_training = model.training
            model.eval()
            options: dict[str, Any] = {"vectors": vectors, "carried": carried}
            logits = word_logits(model, windows, list(map(len, sentences)), tokenizer.pad_id, self.precision, **options)
            model.train(was_training)
            return decoded(model, logits), coverage

        return tag


def _all_tags(predictions: Sequence[TagPredictions]) -> list[str]:
    return [tag for tags, _ in predictions for tag in tags]


def _lookup(vectors: Sequence[np.ndarray]) -> Vectors:
    return lambda numbers: [vectors[number] for number in numbers]
