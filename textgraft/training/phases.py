"""Staged fine-tuning as data: stages of phases, and a phase trains some layer groups. Recipes name them (recipes)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, get_args

from textgraft.core.errors import UserError, did_you_mean
from textgraft.encoders.base import LayerGroup
from textgraft.nn.pooling import POOLINGS
from textgraft.training.schedules import SCHEDULES, group_rates

OptimizerName = Literal["adamw", "adam", "sgd", "ntasgd", "muon"]
LEAST = {"rows": 1, "bptt": 1, "dropout": 0, "clip": 0, "min_steps": 0, "auxiliary": 0}  # of a stage's settings
KINDS = {"multi": "any number", "numeric": "a number", "choice": "options"}
"""What examples have that do not have one label each."""
STRICT: Any = {"extra": "forbid", "strict": True}  # what pydantic is to make of the dataclasses below


@dataclass(frozen=True)
class Anneal:
    """Multiply the rate by `factor` after more than `patience` validations in a row without a gain.

    The phase ends once its rate is below `least` (Akbik et al. 2018, §3.2, and its code; torch's ReduceLROnPlateau).
    """

    factor: float = 0.5
    patience: int = 3
    least: float = 1e-4

    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        wrong = [
            (not 0 < self.factor < 1, "factor", "above 0 and below 1"),
            (not self.patience >= 0, "patience", "0 or more"),
            (not self.least >= 0, "least", "0 or more"),
        ]
        for is_wrong, key, remedy in wrong:
            if is_wrong:
                raise UserError(f"{key} is {getattr(self, key)}.", remedy=f"It must be {remedy}.")


@dataclass(frozen=True)
class Phase:
    """One stretch of training: which layer groups, for how long, at which rates.

    `trainable` is how many groups train, counted from the top (the head); None or more than there are: all.
    `only` trains a single group instead, by its index from the bottom (-1 is the head), or "each" below the
    head in turn, bottom first, as one phase a group (chain-thaw). A group's peak rate is lr / lr_decay **
    (distance from the top). For sgd the first of `betas` is the momentum; for muon they are AdamW's, which has the
    embedding, the head and all vectors, while the matrices between are Muon's. With `anneal` the rate falls where
    validations stop gaining. `contrast`, if not 0, is the temperature at which the encoder learns which texts have the
    same label (heads.contrastive) in place of the labels themselves; the head waits.
    """

    name: str
    epochs: float
    lr: float
    trainable: int | None = None
    only: int | Literal["each"] | None = None
    lr_decay: float = 1.0
    schedule: str = "linear"
    warmup: float = 0.1
    optimizer: OptimizerName = "adamw"
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.99)
    anneal: Anneal | None = field(default=None, repr=False)  # younger than runs that are known by the rest's repr
    contrast: float = field(default=0.0, repr=False)  # so is this

    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        for key, known in (("schedule", tuple(SCHEDULES)), ("optimizer", get_args(OptimizerName))):
            name = str(getattr(self, key))
            if name not in known:
                raise UserError(f"unknown {key} '{name}'.", remedy=did_you_mean(name, known))
        if self.trainable is not None and self.only is not None:
            raise UserError("'trainable' and 'only' are both set.", remedy="Keep one of them.")
        wrong = [
            (not 0 < self.epochs < math.inf, "epochs", "above 0"),
            (not 0 < self.lr < math.inf, "lr", "above 0"),
            (not self.lr_decay >= 1, "lr_decay", "1 or more (ULMFiT: 2.6)"),
            (not 0 <= self.warmup < 1, "warmup", "a share of the steps, at least 0 and below 1"),
            (not self.weight_decay >= 0, "weight_decay", "0 or more"),
            (not 0 <= self.contrast < math.inf, "contrast", "0 (none) or a temperature, such as 0.1"),
            (self.trainable is not None and self.trainable < 1, "trainable", "1 (the head alone) or more"),
            (
                bool(self.contrast) and (self.trainable == 1 or self.only == -1),
                "trainable" if self.only is None else "only",
                "a part of the encoder too where a phase contrasts, from which the head learns nothing",
            ),
            (not all(0 <= beta < 1 for beta in self.betas), "betas", "two numbers at least 0 and below 1"),
        ]
        for is_wrong, key, remedy in wrong:
            if is_wrong:
                raise UserError(f"{key} is {getattr(self, key)}.", remedy=f"It must be {remedy}.")

    def steps(self, steps_per_epoch: int) -> int:
        """How many optimizer steps the phase lasts, at least one."""
        return max(1, round(self.epochs * steps_per_epoch))

    def rates(self, num_groups: int) -> list[float | None]:
        """Each group's peak learning rate, bottom -> top; None for a group that does not train."""
        if self.only == "each":
            raise ValueError(f"phase '{self.name}' stands for several; Stage.plan writes them out")
        rates = group_rates(self.lr, self.lr_decay, num_groups)
        if self.only is not None:
            trained = {range(num_groups)[self.only]}
        else:
            count = num_groups if self.trainable is None else min(self.trainable, num_groups)
            trained = set(range(num_groups - count, num_groups))
        return [rate if i in trained else None for i, rate in enumerate(rates)]


@dataclass(frozen=True)
class Stage:
    """The phases of one stage (adapt or finetune) and what holds for all of them; no phases: nothing to do.

    `rows` is the batch size in texts (streams, for a language model), `bptt` the mean window of a language
    model in tokens, `dropout` multiplies every dropout of the model, `clip` bounds the gradient's norm (0:
    as the settings say). `min_steps` lengthens the phases of a fine-tuning, all by the same factor, where
    texts are so few that they would come to fewer optimizer steps in all. `auxiliary` is how much the language model's
    own loss counts beside a classifier's while that is fine-tuned (λ of Radford et al. 2018, equation 5; 0: not).
    `label_smoothing` is the share of each label that belongs to all classes alike (ε of Szegedy et al. 2016, §7), for
    classifiers of one label a text; what they answer for validation and tests is measured as it is. `pooling` is a name
    of nn.pooling.POOLINGS, by which a classifier makes one vector of a text's positions in place of its family's own
    way; what is no classifier has no use for it.
    """

    phases: tuple[Phase, ...] = ()
    rows: int = 32
    bptt: int = 70
    dropout: float = 1.0
    clip: float = 0.0
    min_steps: int = 0
    auxiliary: float = field(default=0.0, repr=False)  # younger than runs that are known by the rest's repr
    label_smoothing: float = field(default=0.0, repr=False)  # so is this
    pooling: str | None = field(default=None, repr=False)  # and this

    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        for key, least in LEAST.items():
            if not least <= getattr(self, key) < math.inf:
                raise UserError(f"{key} is {getattr(self, key)}.", remedy=f"It must be {least} or more.")
        if not 0 <= self.label_smoothing < 1:
            remedy = "It must be a share, at least 0 and below 1, such as 0.1."
            raise UserError(f"label_smoothing is {self.label_smoothing}.", remedy=remedy)
        if self.pooling is not None and self.pooling not in POOLINGS:
            raise UserError(f"unknown pooling '{self.pooling}'.", remedy=did_you_mean(self.pooling, POOLINGS))

    @property
    def identity(self) -> str:
        """What a run is known by: of two stages that train differently it is not the same."""
        annealed = {phase.name: phase.anneal for phase in self.phases if phase.anneal}
        text = repr(self) + (f" with auxiliary={self.auxiliary}" if self.auxiliary else "")
        text += f" with anneal={annealed}" if annealed else ""
        text += f" with label_smoothing={self.label_smoothing}" if self.label_smoothing else ""
        text += f" with pooling={self.pooling}" if self.pooling else ""
        contrasts = {
            phase.name: phase.contrastive_temperature for phase in self.phases if phase.contrastive_temperature
        }
        return text + (f" with contrast={contrasts}" if contrasts else "")

    def refuse_kind(self, kind: str) -> None:
        """Raises UserError where this stage needs one label a text, and the labels are of another kind."""
        if kind == "single":
            return
        remedy = "Take another recipe."
        if any(phase.contrastive_temperature for phase in self.phases):
            message = f"this recipe contrasts texts by their label, and these have {KINDS[kind]}."
            raise UserError(message, where="contrast", remedy=remedy)
        if self.label_smoothing:
            message = f"this recipe smooths one label a text, and these have {KINDS[kind]}."
            raise UserError(message, where="label_smoothing", remedy=remedy)

    def refuse_for_classifiers(self, where: str) -> None:
        """Raises UserError, with the name of the recipe, where this stage wants what only labels of texts can give."""
        contrasts = any(phase.contrastive_temperature for phase in self.phases)
        wanted = {
            "auxiliary": (self.auxiliary, "the auxiliary loss is", "texts, pairs and choices"),
            "contrast": (contrasts, "phases that contrast are", "texts and pairs"),
            "label_smoothing": (self.label_smoothing, "label_smoothing is", "one label a text"),
        }
        for key, (is_wanted, it, whose) in wanted.items():
            if is_wanted:
                message = f"{it} for classifiers of {whose} that learn from labels."
                raise UserError(message, where=where, remedy=f"Leave '{key}' out, or name another recipe.")

    def plan(self, num_groups: int, steps_per_epoch: int | None = None) -> list[Phase]:
        """The phases as they run on a model of `num_groups` layer groups: `only = "each"` written out.

        With `steps_per_epoch` they last `min_steps` or more. Raises UserError where a phase names a group that the
        model does not have.
        """
        plan: list[Phase] = []
        for phase in self.phases:
            if phase.only == "each":
                plan += [replace(phase, name=f"{phase.name} {i + 1}", only=i) for i in range(num_groups - 1)]
            elif phase.only is not None and not -num_groups <= phase.only < num_groups:
                raise UserError(
                    f"phase '{phase.name}' trains only layer group {phase.only}; the model has {num_groups}.",
                    remedy=f'Name a group from 0 (the bottom) to {num_groups - 1} (the head), or "each".',
                )
            else:
                plan.append(phase)
        if steps_per_epoch is not None and plan:
            factor = self.min_steps / sum(phase.epochs * steps_per_epoch for phase in plan)
            if factor > 1:
                plan = [replace(phase, epochs=phase.epochs * factor) for phase in plan]
        return plan


def set_trainable(groups: Sequence[LayerGroup], phase: Phase) -> list[LayerGroup]:
    """Freeze and thaw so that exactly the groups of `phase` train; returns those.

    `groups` are the model's, bottom -> top, the head last. To be called before a model is wrapped for
    distributed training and before its optimizer is made.
    """
    trained = []
    for group, rate in zip(groups, phase.rates(len(groups)), strict=True):
        for parameter in group.parameters:
            parameter.requires_grad_(rate is not None)
        if rate is not None:
            trained.append(group)
    return trained


def with_frozen_bottom(stage: Stage, frozen: int, num_groups: int) -> Stage:
    """`stage` for a model of `num_groups` layer groups of which the lowest `frozen` never train.

    Every other group trains when and as fast as before. A phase that trained nothing else is left out.

    Raises UserError if that leaves no phase.
    """
    phases: list[Phase] = []
    for phase in stage.plan(num_groups):
        if phase.only is None:
            most = num_groups - frozen
            phases.append(replace(phase, trainable=most if phase.trainable is None else min(most, phase.trainable)))
        elif isinstance(phase.only, int) and range(num_groups)[phase.only] >= frozen:
            phases.append(phase)
    if not phases:
        remedy = "Take a recipe that trains the head too."
        raise UserError(f"this recipe trains nothing above the lowest {frozen} layer groups.", remedy=remedy)
    return replace(stage, phases=tuple(phases))


@dataclass(frozen=True)
class ScheduleRow:
    """One line of `textgraft schedule`: one group's learning rates over one epoch, 0 while it is frozen.

    `epoch` counts from 1 across the phases of the stage; a phase of less than an epoch has a line of its own.
    """

    phase: str
    epoch: int
    group: str
    trainable: bool
    start: float
    peak: float
    end: float


def schedule_curve(stage: Stage, num_groups: int, steps_per_epoch: int) -> list[list[float]]:
    """The learning rate of every step of `stage` for each group, bottom -> top; 0 while frozen. For plots."""
    curves: list[list[float]] = [[] for _ in range(num_groups)]
    for phase in stage.plan(num_groups, steps_per_epoch):
        total = phase.steps(steps_per_epoch)
        multipliers = [SCHEDULES[phase.schedule](step, total, phase.warmup) for step in range(total)]
        for curve, rate in zip(curves, phase.rates(num_groups), strict=True):
            curve += [(rate or 0.0) * m for m in multipliers]
    return curves


def schedule_table(stage: Stage, group_names: Sequence[str], steps_per_epoch: int) -> list[ScheduleRow]:
    """What each epoch trains, and how fast: a row for each epoch and group (bottom -> top, head last)."""
    rows: list[ScheduleRow] = []
    curves = schedule_curve(stage, len(group_names), steps_per_epoch)
    begin = epoch = 0
    for phase in stage.plan(len(group_names), steps_per_epoch):
        total = phase.steps(steps_per_epoch)
        rates = phase.rates(len(group_names))
        for first in range(begin, begin + total, steps_per_epoch):
            epoch += 1
            window = slice(first, min(first + steps_per_epoch, begin + total))
            for name, curve, rate in zip(group_names, curves, rates, strict=True):
                part = curve[window]
                rates_of_epoch = part[0], max(part), part[-1]
                rows.append(ScheduleRow(phase.name, epoch, name, rate is not None, *rates_of_epoch))
        begin += total
    return rows
