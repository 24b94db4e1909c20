"""Several trainings of classifiers at a time: under torchrun, each of the folds and seeds on one of the processes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from textgraft.core.context import QUIET, RunContext
from textgraft.core.processes import current
from textgraft.tasks.classification.training import EncodedTexts, Plan, TrainedClassifier, keep, train_classifier
from textgraft.training.followers import each


@dataclass(frozen=True)
class Training:
    """A training of `train_classifier`.

    Attributes:
        title: Its name in the folder.
        seed: Of the training.
        train: Texts to train on.
        evaluated: Sets of texts to predict, by name.
    """

    title: str
    seed: int
    train: EncodedTexts
    evaluated: Mapping[str, EncodedTexts]


def train_ahead(plan: Plan, trainings: Sequence[Training], context: RunContext) -> None:
    """Train classifiers that `train_classifier` then finds finished, one at a time on each process.

    Without other processes, or for fewer than two trainings, nothing is done; and a model in parts is trained on all
    processes together.

    Args:
        plan: What all trainings share.
        trainings: Those that do not depend on one another's results.
        context: Folder of the results.

    Raises:
        UserError: As `train_classifier`.
    """
    unfinished = [one for one in trainings if not (context.work / f"{one.title}.safetensors").exists()]
    if not current().several or len(unfinished) < 2 or plan.settings.sharding != "none":
        return
    results = each(_trained, [(plan, one, context) for one in unfinished])
    for one, result in zip(unfinished, results, strict=True):
        keep(result, context.work, one.title)


def _trained(plan: Plan, training: Training, context: RunContext, rank: int) -> TrainedClassifier:
    """Train on this process; another than the first one shows nothing and leaves no file."""
    with tempfile.TemporaryDirectory() as folder:
        own = context if rank == 0 else QUIET.at(Path(folder))
        return train_classifier(
            plan, training.train, dict(training.evaluated), context=own.with_seed(training.seed), title=training.title
        )
