"""The configuration that the trainings of a fine-tuning share, and the time that each of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textgraft.core import formatting
from textgraft.core.context import RunContext
from textgraft.data.splits import Split
from textgraft.tasks.classification.early_rejection import MIN_FOLDS, EarlyRejected
from textgraft.training.driver import TooSlow

FURTHER_FOLDS = 0.5
"""Share of its time that a fine-tuning may take with more than MIN_FOLDS folds: they make the weights more certain, and
seldom others, and a user waits for them."""


@dataclass(frozen=True)
class TrainingConfig:
    """The configuration that all members share.

    Attributes:
        evaluation_split: The name of the part of the data that is measured on: "test", "valid" or "folds".
        seeds: How many classifiers are trained, by consecutive seeds.
        splits: (training, held-out) indices of each fold.
        context: Folder, first seed and progress.
        seconds: Duration that the trainings of one language model may have in all; None: any. A model that would take
            longer is rejected in a fold. Each training has a share by the number of its texts.
        folds: The number of folds to train, the first ones; None: all.
        steps: Share of the recipe's steps to train with (training.phases.Stage.shortened).
    """

    evaluation_split: str
    seeds: int
    splits: Sequence[Split]
    context: RunContext
    seconds: float | None = None
    folds: int | None = None
    steps: float = 1.0

    def has_time(self, spent: float, a_training: float) -> bool:
        """True if after `spent` seconds another fold of `a_training` seconds is worth beginning.

        It and the final trainings must fit into FURTHER_FOLDS of the time.
        """
        return self.seconds is None or spent + a_training * (1 + self.seeds) <= FURTHER_FOLDS * self.seconds


@dataclass
class OverTime(EarlyRejected):
    """A language model is rejected by the time limit; `share` is that of its trainings for which there was time."""

    share: float


SLACK = 1.1
"""Time that a fold may take after the first one, over its share: for seconds, one would lose the folds before it."""


@dataclass(frozen=True)
class TimeLimit:
    """The time limit of the training of a fold: its share, by its texts, of what is left.

    The share is among the trainings to come: MIN_FOLDS folds in all, as further ones are begun only if there is time
    for them, and those on all texts.

    Attributes:
        training_config: Seeds, folds and the time limit of all trainings.
        number: Of the fold, from 1.
        texts: Number of training texts.
        spent: Seconds of the folds before.
    """

    training_config: TrainingConfig
    number: int
    texts: int
    spent: float

    @property
    def share(self) -> float:
        """Share of the time left."""
        config = self.training_config
        last = max(self.number, min(config.folds or len(config.splits), MIN_FOLDS))
        lengths = [len(kept) for kept, _ in config.splits[self.number - 1 : last]]
        return lengths[0] / (sum(lengths) + config.seeds * self.texts)

    @property
    def seconds(self) -> float | None:
        """Duration that the training may have; None: any."""
        if self.training_config.seconds is None:
            return None
        slack = SLACK if self.number > 1 else 1.0
        return slack * self.share * max(0.0, self.training_config.seconds - self.spent)

    def exceeded_by(self, slow: TooSlow) -> OverTime:
        """The rejection: of what the trainings would have taken, and for which share of them there is time now."""
        allowed = self.training_config.seconds
        assert allowed is not None
        whole, spent = self.spent + slow.seconds / self.share, self.spent + slow.spent
        return OverTime(too_slow_reason(whole, allowed), spent, 0.0, share=max(0.0, allowed - spent) / whole)


def too_slow_reason(seconds: float, allowed: float) -> str:
    """The reason for a rejection by the time limit."""
    took, limit = formatting.minutes(seconds), formatting.minutes(allowed)
    took = f"a little over {took}" if took == limit else took
    return f"rejected: its trainings would take {took} min, of {limit} allowed"
