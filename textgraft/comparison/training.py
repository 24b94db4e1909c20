"""The trainings of a comparison: the data that they share, and the work of one of them, in whatever process it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from textgraft.comparison.cells import Cell, CellKey, Cells
from textgraft.comparison.methods import Method, MethodOptions, new_method
from textgraft.core.errors import UserError
from textgraft.core.resource_meter import Meter
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels


@dataclass(frozen=True)
class ComparisonPlan:
    """The data, label budgets and seeds that all methods share.

    `orders` has the order of the training texts by seed.
    """

    train: Examples
    test: Examples
    held_out: bool
    labels: Labels
    pool: Sequence[str]
    budgets: tuple[int, ...]
    orders: Mapping[int, Sequence[int]]

    @cached_property
    def test_labels(self) -> Labels:
        """The labels to measure by: those of the training texts, and those that only the test texts have."""
        return self.labels.covering(self.test)

    @cached_property
    def test_targets(self) -> np.ndarray:
        """Targets of the test texts."""
        return self.test_labels.encode(self.test)

    def sample(self, count: int, seed: int) -> Examples:
        """The first `count` texts of the seed's order, in file order: the sample of 100 contains that of 50."""
        return self.train.take(sorted(self.orders[seed][:count]))

    def keys(self, method: str, counts: Sequence[int] | None = None) -> list[CellKey]:
        """Keys of the trainings of one method, fewest labels first."""
        return [CellKey(method, count, seed) for count in counts or self.budgets for seed in self.orders]


@dataclass(frozen=True)
class CellTrainer:
    """Work for an engine: from a key to the key and its cell.

    Attributes:
        name: The method's name.
        plan: Its data.
        options: Its options.
        folder: The folder for unfinished work of the comparison; absolute, with what Method.prepare has left.
        method: The method, prepared in this process; another process prepares its own from `folder`.
    """

    name: str
    plan: ComparisonPlan
    options: MethodOptions
    folder: Path
    method: Method | None = None

    on_gpu: ClassVar[bool] = True

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"method": None}

    def open(self) -> Callable[[CellKey], tuple[CellKey, Cell]]:
        """Prepare the method. Raises UserError where the folder of the comparison is not here."""
        return partial(self._train, self.method or self._prepared())

    def _prepared(self) -> Method:
        cells = Cells(self.folder)
        if not cells.has_cost(self.name):
            remedy = "Write into a folder that every machine of the cluster shares, under the same path."
            raise UserError("the folder of the comparison is not here.", where=str(self.folder), remedy=remedy)
        method = new_method(self.name, self.options)
        method.prepare(self.plan.pool, cells.prepared)
        return method

    def _train(self, method: Method, key: CellKey) -> tuple[CellKey, Cell]:
        plan, sample = self.plan, self.plan.sample(key.labels, key.seed)
        # The scale of a numeric target is fitted on the sample: no other labels would be known.
        labels = Labels.fit(sample) if plan.labels.num_classes is None else plan.labels
        with Meter() as meter:
            work = Cells(self.folder).work(key)
            predictions = method.train_and_predict(sample, plan.test.texts, labels, key.seed, work)
        outputs, seconds = _rescaled(predictions.outputs, labels, plan.labels), max(predictions.seconds, meter.seconds)
        return key, Cell(outputs, seconds, meter.peak_mb, predictions.model_bytes, predictions.about)


def _rescaled(outputs: np.ndarray, fitted: Labels, common: Labels) -> np.ndarray:
    return outputs if fitted == common else (outputs * fitted.std + fitted.mean - common.mean) / common.std
