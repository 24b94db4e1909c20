"""What a tagger (tagging.py) asks of a network: logits of words, and the tags that they stand for."""

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
from textgraft.data.words import UNLIMITED_TOKENS, Coverage, WordWindow, word_windows
from textgraft.heads.tagging import TaggingHead
from textgraft.metrics.agreement import SAMPLE_SIZE, Agreement
from textgraft.models.artifact import Artifact
from textgraft.models.inference import casts_of
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import computing_in
from textgraft.word_embeddings.contextual import carries_state, read_carried, read_words

WORDS = 1_000
"""Whose tags in int8 are looked at before those of others are believed."""
READ_IN = "read_in"
"""Where a tagger's run says in which precision it is read by `auto`, its tags having been compared."""
Reading = Callable[[Sequence[Sequence[str]]], tuple[list[TagPredictions], Coverage]]


def tagging_head(model: Model) -> TaggingHead:
    """The model's head. Raises UserError for a model of another task."""
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
    """For each sentence, of so many words, their logits (N, C), float32, put together from its windows.

    With `carried` windows are whole sentences, of which so many tokens are read at a time.
    """

    def answer(batch: Batch) -> Tensor:
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
    return read_words(windows, lengths, pad_id, answer, subword_pooling=subword_pooling, vectors=vectors)


def decoded(model: Model, logits: Sequence[np.ndarray]) -> list[TagPredictions]:
    """The best legal tags of each sentence (N, C) and their probabilities."""
    head = tagging_head(model)
    tags, found = head.config.tags, {}
    for indices in budget_batches([len(one) for one in logits], tokens=4096, rows=64):
        width = len(logits[indices[0]])
        block = torch.zeros(len(indices), width, len(tags), device=model.device)
        lengths = torch.tensor([len(logits[i]) for i in indices], device=model.device)
        for row, index in enumerate(indices):
            block[row, : len(logits[index])] = torch.from_numpy(logits[index])
        best, sure = head.decode(block, torch.arange(width, device=model.device) < lengths[:, None])
        for row, index in enumerate(indices):
            count = len(logits[index])
            numbers = best[row, :count].tolist()
            found[index] = [tags[i] for i in numbers], sure[row, :count].clamp(0, 1).tolist()
    return [found[i] for i in range(len(logits))]


class NetworkTagger:
    """A network that tags words, with its tokenizer and its stack. Raises UserError for a model of another task."""

    def __init__(self, artifact: Artifact, precision: str = "auto", *, trusted: bool = False) -> None:
        self.artifact, self.precision = artifact, precision
        self._agreement = Agreement("words", WORDS) if precision == "int8" and not trusted else None
        self.config = tagging_head(artifact.model).config

    @classmethod
    def of(cls, artifact: Artifact, precision: str) -> NetworkTagger:
        """The tagger of an artifact, its stack at this precision too.

        `auto` is int8, and nothing is compared again, for a tagger whose tags were found to stay the same
        (tasks.tagging.stacked.faster).
        """
        trusted = precision == "auto" and artifact.run.get(READ_IN) == "int8"
        if trusted:
            precision = "int8"
        if artifact.stack is not None:
            artifact = replace(artifact, stack=artifact.stack.computing_in(precision))
        return cls(artifact, precision, trusted=trusted)

    def reading(self, max_tokens: int) -> Reading:
        """What tags one part of a file after the other, in windows of so many tokens.

        In int8, where it was asked for, the first sentences are tagged in both ways, and have the usual tags; UserError
        is raised where too many differ.
        """
        faster, agreement = self._reading(max_tokens), self._agreement
        if agreement is None or agreement.passed:
            return faster
        run = {name: value for name, value in self.artifact.run.items() if name != READ_IN}
        usual = NetworkTagger.of(replace(self.artifact, run=run), "auto").reading(max_tokens)

        def tagged(sentences: Sequence[Sequence[str]]) -> tuple[list[TagPredictions], Coverage]:
            found, coverage = faster(sentences)
            if not agreement.passed:
                some, _ = usual(sentences[:SAMPLE_SIZE])
                agreement.compare(_in_a_row(some), _in_a_row(found[: len(some)]))
                found[: len(some)] = some
            return found, coverage

        return tagged

    def _reading(self, max_tokens: int) -> Reading:
        """`reading` in the tagger's own precision, nothing being compared.

        An encoder that hands on its state (contextual.carries_state) reads a sentence whole, `max_tokens` at a time; of
        others' windows each word has the best.
        """
        model, tokenizer = self.artifact.model, self.artifact.tokenizer
        max_tokens = min(max_tokens, model.encoder.max_length or max_tokens)
        carried = max_tokens if carries_state(model.encoder) else None
        stack = None if self.artifact.stack is None else self.artifact.stack.reading()

        def tagged(sentences: Sequence[Sequence[str]]) -> tuple[list[TagPredictions], Coverage]:
            most = max_tokens if carried is None else UNLIMITED_TOKENS
            windows, coverage = word_windows(tokenizer, sentences, most, direction=model.encoder.direction)
            vectors = None if stack is None else _looked_up(stack.vectors(sentences))
            was_training = model.training
            model.eval()
            about: dict[str, Any] = {"vectors": vectors, "carried": carried}
            logits = word_logits(model, windows, list(map(len, sentences)), tokenizer.pad_id, self.precision, **about)
            model.train(was_training)
            return decoded(model, logits), coverage

        return tagged


def _in_a_row(tagged: Sequence[TagPredictions]) -> list[str]:
    return [tag for tags, _ in tagged for tag in tags]


def _looked_up(vectors: Sequence[np.ndarray]) -> Vectors:
    return lambda numbers: [vectors[number] for number in numbers]
