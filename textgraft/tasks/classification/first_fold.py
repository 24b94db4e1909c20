"""Trial of a language model by a first fold before its adaptation to unlabelled texts, where the fold is cheaper.

A fold of a hundred labels takes a minute, and adaptation may take hours; a fold of thousands may take an hour, and
adaptation minutes. Costs are counted in tokens, so that the decision does not depend on the machine's speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.early_rejection import EarlyRejection
from textgraft.tasks.classification.fine_tuned import EncodedData, train_first_fold
from textgraft.tasks.classification.training import Plan
from textgraft.tasks.classification.training_config import TrainingConfig
from textgraft.training.phases import Stage

TOKENS_A_SECOND = 4_000
"""Tokens a second of adaptation, about those of `en-ulmfit` on one core with AMX."""
MIN_SHARE = 0.5
"""Smallest ratio of the adaptation's tokens to the fold's. The fold of a model that is not rejected is wasted."""
SAMPLE = 200


def trial(
    name: str, plan: Plan, reading: EncodedData, training_config: TrainingConfig, to_read: float
) -> Callable[[EarlyRejection], float] | None:
    """`fine_tuned.train_first_fold` of a language model without adaptation; None where the fold is too expensive.

    Args:
        name: Name of the language model.
        plan: The configuration of the classifiers.
        reading: The language model and the encoded parts of the data.
        training_config: Seeds, folds and the run.
        to_read: Number of tokens of the adaptation.
    """
    if MIN_SHARE * fold_tokens(plan, reading, training_config) > to_read:
        return None
    return partial(train_first_fold, name, plan, reading, training_config)


def fold_tokens(plan: Plan, reading: EncodedData, training_config: TrainingConfig) -> float:
    """Number of tokens that the first fold is trained on, all epochs together."""
    kept, _ = training_config.splits[0]
    lengths = [len(reading.parts["train"].sequences[i]) for i in kept]
    per_epoch = math.ceil(len(lengths) / plan.stage.batch_size)
    phases = plan.stage.plan(len(plan.language_model.encoder.layer_groups()) + 1, per_epoch)  # and the head
    return sum(phase.steps(per_epoch) for phase in phases) * plan.stage.batch_size * float(np.mean(lengths))


def count_adaptation_tokens(texts: Sequence[str], source: Artifact, stage: Stage, minutes: float | None) -> float:
    """Estimated number of tokens of an adaptation, all epochs together, by the length of some of the texts."""
    sample = [texts[i] for i in np.linspace(0, len(texts) - 1, min(SAMPLE, len(texts))).astype(int)]
    each = float(np.mean([len(ids) for ids in source.tokenizer.corpus_ids(sample)]))
    most = math.inf if minutes is None else 60 * minutes * TOKENS_A_SECOND
    return min(each * len(texts) * sum(phase.epochs for phase in stage.phases), most)
