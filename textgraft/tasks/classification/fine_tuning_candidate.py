"""A language model as a candidate of `finetune`'s ladder, before it is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from textgraft.tasks.classification.costs import Costs
from textgraft.tasks.classification.early_rejection import EarlyRejection
from textgraft.tasks.classification.fine_tuned import EncodedData, Member


@dataclass(frozen=True)
class Adaptation:
    """The adaptation of a language model to the unlabelled texts.

    Attributes:
        tokens: Number of tokens that it trains on.
        adapted: Adapts the model and encodes the data for it.
        try_out: Trains the first fold before it, if that is cheap beside adapting; returns seconds, raises
            EarlyRejected. Adapting takes long, and seldom makes up for what a model lacks that is significantly worse
            than the candidates before it (research/lab-notes.md).
    """

    tokens: float
    adapted: Callable[[], EncodedData]
    try_out: Callable[[EarlyRejection], float] | None = None


@dataclass(frozen=True)
class FineTuningCandidate:
    """A language model as a candidate: the encoded parts of the data, and its training.

    Attributes:
        name: Its name in tables and files.
        reading: The language model and the encoded parts of the data.
        train: Trains it with so many of the folds, within so many seconds (None: any), with a share of the steps;
            raises EarlyRejected. None for a model that is not fine-tuned.
        seconds: Estimated duration of `train` with so many folds.
        record: The part of run.json that differs between classifiers.
        adaptation: The adaptation to the unlabelled texts, if there is one.
    """

    name: str
    reading: EncodedData
    train: Callable[[EncodedData, EarlyRejection, int, float | None, float], Member] | None
    seconds: Callable[[Costs, int], float] = lambda costs, folds: 0.0
    record: Callable[[Member], Mapping[str, Any]] = lambda member: {}
    adaptation: Adaptation | None = None

    @property
    def favoured(self) -> bool:
        """True for sentence encoders: few labels make them good (ensemble_weights.py)."""
        return self.reading.source.compares

    @property
    def may_be_shortened(self) -> bool:
        """True for sentence encoders; how others do with fewer steps at higher rates has not been measured."""
        return self.reading.source.compares
