"""Estimates of how long the steps of a fine-tuning take on this machine, from short measurements.

They only have to tell a step of seconds from one of minutes: a training that turns out slower is stopped by its own
limit (training.driver.drive).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from textgraft.linear.ngrams import Counts, is_space_separated
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.fine_tuned import EncodedData
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.training import Plan
from textgraft.tasks.classification.training_config import TrainingConfig

OVERHEAD = 1.3
"""Duration of a training step over that of its products: padding, dropout, the optimizer."""
TRAINING = 3 * OVERHEAD
"""Duration of a training step of all layers over that of encoding its texts: forward, and twice that for gradients."""
LINEAR_METHOD = {"lsa": 5.0, "co-training": 16.0}
"""Duration of fitting a linear method's feature maps to unlabelled texts over that of counting their n-grams."""
FIT = 3.5e-7
"""Seconds a text, dimension and class ** 0.6 of the logistic regressions of a co-training."""
SAMPLE = 200
"""Unlabelled texts whose counting is timed."""
ENCODED = 32
"""Texts whose encoding is timed after the first time that they are encoded."""
REPEATS = 5
"""The shortest of so many measurements counts: whatever else the machine does can only make one longer."""
ENOUGH = 0.5
"""Seconds of measurements after which there are no more."""
MIN_SECONDS = 0.5


def sample_of(texts: Sequence[str], count: int) -> list[str]:
    """At most `count` texts, spread evenly."""
    return [texts[i] for i in np.linspace(0, len(texts) - 1, min(count, len(texts))).astype(int)] if texts else []


class Costs:
    """Estimated seconds of the steps of a fine-tuning.

    Args:
        selection: The data, the folds and the run.
    """

    def __init__(self, selection: SelectionContext) -> None:
        self._selection = selection
        self._encoding: dict[int, float] = {}
        self._counting: float | None = None

    def encoding(self, source: Artifact, texts: Sequence[str]) -> float:
        """Seconds to encode texts."""
        if id(source) not in self._encoding:
            self._encoding[id(source)] = self._measured_encoding(source)
        sample = sample_of(texts, 1_000)
        characters = sum(map(len, sample)) / max(1, len(sample))
        return self._encoding[id(source)] * characters * len(texts)

    def linear(self, method: str, texts: int) -> float:
        """Seconds of a linear method with feature maps on so many of the unlabelled texts, its folds included."""
        if self._counting is None:
            self._counting = self._measured_counting()
        return MIN_SECONDS + LINEAR_METHOD[method] * self._counting * texts + self.co_training(texts, 400)

    def co_training(self, texts: int, dimensions: int) -> float:
        """Seconds of the regressions of co-training on so many unlabelled texts, its folds included."""
        selection = self._selection
        fits, classes = 1 + len(selection.splits), max(2, selection.labels.num_outputs)
        return MIN_SECONDS + fits * FIT * texts * dimensions * classes**0.6

    def training(self, plan: Plan, reading: EncodedData, config: TrainingConfig, folds: int) -> float:
        """Seconds of a fine-tuning: so many folds, and the trainings on all texts."""
        sequences = reading.parts["train"].sequences
        a_token = self.encoding(reading.source, self._selection.train.texts) / (sum(map(len, sequences)) or 1)
        kept = config.splits[0][0] if config.splits else range(len(sequences))
        return a_token * training_tokens(plan, [len(sequences[i]) for i in kept]) * (folds + config.seeds)

    def _measured_encoding(self, source: Artifact) -> float:
        """Seconds a character."""
        texts = sample_of(self._selection.train.texts, ENCODED)
        precision = self._selection.run.precision or "auto"
        source.embed(texts, precision=precision)
        took: list[float] = []
        while len(took) < REPEATS and sum(took) < ENOUGH:
            began = time.perf_counter()
            source.embed(texts, precision=precision)
            took.append(time.perf_counter() - began)
        return min(took) / max(1, sum(map(len, texts)))

    def _measured_counting(self) -> float:
        """Seconds a text."""
        texts = sample_of(self._selection.unlabelled, SAMPLE)
        if not texts:
            return 0.0
        kind = "word 1-2-grams" if is_space_separated(texts) else "character 1-3-grams"
        began = time.perf_counter()
        Counts.of(texts, kind, max_features=100_000, min_df=1)
        return (time.perf_counter() - began) / max(1, len(texts))


def training_tokens(plan: Plan, lengths: Sequence[int]) -> float:
    """Number of tokens that take as long to encode as one training takes.

    A phase that trains the upper layers only needs no gradients of those below, and one of the head alone encodes the
    texts once.

    Args:
        plan: The configuration of the classifiers.
        lengths: Numbers of tokens of the training texts.
    """
    groups = len(plan.language_model.encoder.layer_groups()) + 1  # and the head
    per_epoch = math.ceil(len(lengths) / plan.stage.batch_size)
    a_step = plan.stage.batch_size * float(np.mean(lengths))
    total = 0.0
    for phase in plan.stage.plan(groups, per_epoch):
        cost = phase.relative_cost(groups)
        total += sum(lengths) if cost == 1 else OVERHEAD * phase.steps(per_epoch) * a_step * cost
    return total
