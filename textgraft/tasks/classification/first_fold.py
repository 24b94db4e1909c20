"""Whether a language model is tried out before it reads the unlabelled texts: where that is cheap beside the reading.

A fold of a hundred labels is a minute and a pool may be hours; a fold of thousands may be an hour and a pool minutes.
Costs are counted in tokens, which are the same on every machine, so that what is done does not depend on its speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.early_rejection import EarlyRejection
from textgraft.tasks.classification.fine_tuned import Reading, TrainingConfig, try_out
from textgraft.tasks.classification.training import Plan
from textgraft.training.phases import Stage

TOKENS_A_SECOND = 4_000
"""What a minute of reading is worth in tokens: about what `en-ulmfit` adapts to on one core with AMX."""
LEAST = 0.5
"""How much of what the fold takes the reading must take. Who is not given up pays for the fold in vain."""
SAMPLE = 200


def trial(
    name: str, plan: Plan, reading: Reading, training_config: TrainingConfig, to_read: float
) -> Callable[[EarlyRejection], float] | None:
    """`members.try_out` of a language model as it is; None where the fold is dear beside `to_read` tokens of a pool.

    A fold that may take only so long is not dear: who is too slow for it is known in seconds.
    """
    if training_config.seconds is None and LEAST * fold_tokens(plan, reading, training_config) > to_read:
        return None
    return partial(try_out, name, plan, reading, training_config)


def fold_tokens(plan: Plan, reading: Reading, training_config: TrainingConfig) -> float:
    """How many tokens are trained on in the first fold, all epochs together."""
    kept, _ = training_config.splits[0]
    lengths = [len(reading.parts["train"].sequences[i]) for i in kept]
    per_epoch = math.ceil(len(lengths) / plan.stage.batch_size)
    phases = plan.stage.plan(len(plan.language_model.encoder.layer_groups()) + 1, per_epoch)  # and the head
    return sum(phase.steps(per_epoch) for phase in phases) * plan.stage.batch_size * float(np.mean(lengths))


def tokens_to_read(texts: Sequence[str], source: Artifact, stage: Stage, minutes: float | None) -> float:
    """About how many tokens an adaptation in this stage trains on, by the length of some of the texts."""
    sample = [texts[i] for i in np.linspace(0, len(texts) - 1, min(SAMPLE, len(texts))).astype(int)]
    each = float(np.mean([len(ids) for ids in source.tokenizer.corpus_ids(sample)]))
    most = math.inf if minutes is None else 60 * minutes * TOKENS_A_SECOND
    return min(each * len(texts) * sum(phase.epochs for phase in stage.phases), most)
