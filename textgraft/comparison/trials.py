"""Trials of `tune`: trainings with drawn settings on the folds of a cross-validation; the worse half ends early.

Successive halving (Jamieson & Talwalkar 2016, arXiv:1502.07943), with folds where they have training time: every trial
is trained on the first fold, and after each fold the better half goes on. The recipe as it is always goes on.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from textgraft.comparison.search_space import Values
from textgraft.core import formatting
from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.splits import Split
from textgraft.engines.base import Engine
from textgraft.engines.local import LOCAL
from textgraft.metrics.calibration import fit_temperature, outputs_from_logits
from textgraft.metrics.classification import HEADLINE, bootstrap_interval, document_scores
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.ensemble_weights import losses
from textgraft.tasks.classification.training import EncodedTexts, Plan, train_classifier
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint
from textgraft.training.divergence import Diverged
from textgraft.training.phases import Stage
from textgraft.training.settings import Settings

AS_IT_IS = 0
"""The trial of the recipe as it is."""


class TrialKey(NamedTuple):
    """A training: one trial on one fold."""

    trial: int
    fold: int


@dataclass(frozen=True)
class Trial:
    """What a training gives: logits (n, C) of the held-out texts, None where it diverged, and its duration."""

    logits: np.ndarray | None
    seconds: float


@dataclass(frozen=True)
class TrialTrainer:
    """Work for an engine: from a key to the key and what its training gives.

    Attributes:
        train: Labelled texts.
        labels: Their labels.
        splits: (training, held-out) indices of each fold.
        stages: Of each trial.
        model: The language model.
        max_tokens: Maximum length of a text.
        settings: Of all trainings.
        folder: For unfinished work; absolute, and shared by all machines of a cluster.
        show: Show progress on stderr.
    """

    train: Examples
    labels: Labels
    splits: Sequence[Split]
    stages: Sequence[Stage]
    model: str | Path
    max_tokens: int
    settings: Settings
    folder: Path
    show: bool = False

    on_gpu: ClassVar[bool] = True

    def open(self) -> Callable[[TrialKey], tuple[TrialKey, Trial]]:
        """Load the language model and encode the texts."""
        source = loading.load_network(self.model)
        sequences, _ = source.encoded(self.train.texts, self.max_tokens)
        return partial(self._train, source, EncodedTexts(sequences, self.labels.encode(self.train)))

    def _train(self, source: Artifact, texts: EncodedTexts, key: TrialKey) -> tuple[TrialKey, Trial]:
        kept, held_out = self.splits[key.fold]
        folder = self.folder / "work" / _name(key)
        plan = Plan.of(source, self.stages[key.trial], self.settings, self.labels)
        try:
            trained = train_classifier(
                plan,
                texts.take(kept),
                {"held": texts.take(held_out)},
                context=RunContext(folder, self.settings.seed, show=self.show),
                title=f"trial {key.trial}, fold {key.fold + 1} of {len(self.splits)}",
            )
        except Diverged:
            result = Trial(None, 0.0)
        else:
            result = Trial(trained.logits["held"], trained.seconds)
        shutil.rmtree(folder, ignore_errors=True)
        return key, result


@dataclass
class Search:
    """The trials of a search and their predictions so far.

    Attributes:
        trainer: The work.
        values: Values of each trial; none of the recipe as it is.
        logits: (N, C) of each trial, NaN for texts that are not predicted yet.
        seconds: Duration of each trial's trainings.
        folds: How many folds each trial was trained on.
        diverged: The trials that diverged.
    """

    trainer: TrialTrainer
    values: Sequence[Values]
    logits: np.ndarray = field(init=False)
    seconds: np.ndarray = field(init=False)
    folds: np.ndarray = field(init=False)
    diverged: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        trials, texts = len(self.values), len(self.trainer.train)
        self.logits = np.full((trials, texts, self.trainer.labels.num_outputs), np.nan, dtype=np.float32)
        self.seconds, self.folds = np.zeros(trials), np.zeros(trials, dtype=int)
        self.targets = self.trainer.labels.encode(self.trainer.train)

    def run(self, engine: Engine, show: bool) -> None:
        """All folds: after each, the better half of the trials goes on, at least two of them."""
        going = list(range(len(self.values)))
        for fold in range(len(self.trainer.splits)):
            self._train(engine, [TrialKey(trial, fold) for trial in going], show)
            ranked = sorted(set(going) - self.diverged, key=lambda trial: (self.loss(trial), trial))
            going = sorted({AS_IT_IS, *ranked[: max(2, -(-len(ranked) // 2))]} - self.diverged)
            if show and ranked:
                best = f"best so far: trial {ranked[0]}, {self.score_text(ranked[0])}"
                print(f"fold {fold + 1} of {len(self.trainer.splits)}: {best}", file=sys.stderr, flush=True)

    def _train(self, engine: Engine, keys: Sequence[TrialKey], show: bool) -> None:
        missing = [key for key in keys if not self._path(key).exists()]
        for key, trial in engine.map(replace(self.trainer, show=show and engine is LOCAL), missing):
            self._write(key, trial)
        for key in keys:
            self._take(key, self._read(key))

    def _take(self, key: TrialKey, trial: Trial) -> None:
        self.seconds[key.trial] += trial.seconds
        self.folds[key.trial] += 1
        if trial.logits is None:
            self.diverged.add(key.trial)
        else:
            self.logits[key.trial, self.trainer.splits[key.fold][1]] = trial.logits

    def predicted(self, trial: int, texts: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Targets and calibrated outputs of the texts that a trial has predicted, or of those at some indices."""
        kind, logits = self.trainer.labels.kind, self.logits[trial]
        known = np.flatnonzero(~np.isnan(logits[:, 0])) if texts is None else list(texts)
        logits, targets = logits[known], self.targets[known]
        temperature = fit_temperature(logits, targets, kind) if self.trainer.labels.target.has_classes else 1.0
        return targets, outputs_from_logits(logits, kind, temperature)

    def losses(self, trial: int) -> np.ndarray:
        """The loss of each text that a trial has predicted."""
        return losses(self.trainer.labels.kind, *self.predicted(trial))

    def loss(self, trial: int) -> float:
        """Mean loss of a trial."""
        return float(self.losses(trial).mean())

    def scores(self, trial: int) -> np.ndarray:
        """The score of each text that a trial has predicted (metrics.document_scores), in the labels' own unit."""
        labels = self.trainer.labels
        return np.asarray(labels.unscaled_errors(document_scores(labels.kind, *self.predicted(trial))))

    def score_text(self, trial: int) -> str:
        metric = HEADLINE[self.trainer.labels.kind]
        score = bootstrap_interval(self.scores(trial)[None])
        return f"{formatting.metric_name(metric)} {formatting.interval(*score, metric)}"

    def best(self) -> int:
        """The trial with the lowest loss of those that were trained on all folds.

        Raises:
            UserError: Every one diverged.
        """
        whole = [t for t in range(len(self.values)) if self.folds[t] == self.folds.max() and t not in self.diverged]
        if not whole:
            raise UserError("the loss of every trial is no finite number.", remedy="Search lower learning rates.")
        return min(whole, key=lambda trial: (self.loss(trial), trial))

    def row(self, trial: int) -> dict[str, Any]:
        """A trial as in results.json."""
        facts = {"trial": trial, "values": self.values[trial], "folds": int(self.folds[trial])}
        facts |= {"seconds": round(float(self.seconds[trial]), 2)}
        if trial in self.diverged:
            return facts | {"diverged": True}
        score = bootstrap_interval(self.scores(trial)[None])
        first = losses(self.trainer.labels.kind, *self.predicted(trial, self.trainer.splits[0][1]))
        facts |= {"loss": self.loss(trial), "first_loss": float(first.mean())}
        return facts | {"score": score._asdict(), "texts": len(self.losses(trial))}

    def _path(self, key: TrialKey) -> Path:
        return self.trainer.folder / "trials" / f"{_name(key)}.safetensors"

    def _write(self, key: TrialKey, trial: Trial) -> None:
        tensors = {} if trial.logits is None else {"logits": torch.from_numpy(np.ascontiguousarray(trial.logits))}
        save_checkpoint(self._path(key), tensors, {"seconds": trial.seconds})

    def _read(self, key: TrialKey) -> Trial:
        tensors, facts = load_checkpoint(self._path(key))
        return Trial(tensors["logits"].numpy() if tensors else None, facts["seconds"])


def _name(key: TrialKey) -> str:
    return f"trial-{key.trial}-fold-{key.fold}"
