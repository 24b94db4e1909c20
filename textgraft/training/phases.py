"""Staged fine-tuning as data: a stage is a list of phases, and a phase trains some layer groups (training.recipes)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.identity import identity_of
from textgraft.data.examples import TargetKind
from textgraft.data.targets import TARGETS
from textgraft.encoders.base import LayerGroup
from textgraft.heads.classification import POOLED
from textgraft.nn.pooling import POOLINGS
from textgraft.training.schedules import SCHEDULES, group_rates

OptimizerName = Literal["adamw", "adam", "sgd", "ntasgd", "muon"]
MINIMUM = {"batch_size": 1, "bptt": 1, "dropout": 0, "clip": 0, "min_steps": 0, "auxiliary_lm_weight": 0}
"""The smallest value of each of a stage's settings."""
STRICT: Any = {"extra": "forbid", "strict": True}  # pydantic's configuration of the dataclasses below


@dataclass(frozen=True)
class Anneal:
    """Annealing on a plateau (Akbik et al. 2018, §3.2, and its code; torch's ReduceLROnPlateau).

    Attributes:
        factor: Factor of the learning rate after more than `patience` validations in a row without an improvement.
        patience: Number of validations.
        least: The phase ends once its learning rate is below this.
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
    """A part of a training: the layer groups that it trains, its length and its learning rates.

    Attributes:
        name: For messages and tables.
        epochs: Length in epochs.
        lr: Peak learning rate of the top group; that of another is lr / lr_decay ** (distance from the top).
        trainable: Number of groups to train, from the top (the head); None, or more than the model has: all.
        only: The single group to train instead, by its index from the bottom (-1 is the head), or "each": all below the
            head in turn, bottom first, in a phase each (chain-thaw).
        lr_decay: Ratio of the learning rates of adjacent groups.
        schedule: A name of training.schedules.SCHEDULES.
        warmup: Share of the steps in which the learning rate rises.
        optimizer: Its name.
        weight_decay: Of matrices only.
        betas: Of Adam and AdamW; the first is the momentum of sgd. For muon those of AdamW, which trains the embedding,
            the head and all vectors, while Muon trains the matrices between.
        anneal: Lower the learning rate where validations stop improving.
        contrastive_temperature: Train the encoder, and not the head, with a supervised contrastive loss
            (heads.contrastive) at this temperature; 0: no contrastive loss.
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
    anneal: Anneal | None = None
    contrastive_temperature: float = 0.0

    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        for key, names in (("schedule", tuple(SCHEDULES)), ("optimizer", get_args(OptimizerName))):
            name = str(getattr(self, key))
            if name not in names:
                raise UserError(f"unknown {key} '{name}'.", remedy=did_you_mean(name, names))
        if self.trainable is not None and self.only is not None:
            raise UserError("'trainable' and 'only' are both set.", remedy="Keep one of them.")
        wrong = [
            (not 0 < self.epochs < math.inf, "epochs", "above 0"),
            (not 0 < self.lr < math.inf, "lr", "above 0"),
            (not self.lr_decay >= 1, "lr_decay", "1 or more (ULMFiT: 2.6)"),
            (not 0 <= self.warmup < 1, "warmup", "a share of the steps, at least 0 and below 1"),
            (not self.weight_decay >= 0, "weight_decay", "0 or more"),
            (
                not 0 <= self.contrastive_temperature < math.inf,
                "contrastive_temperature",
                "0 (none) or a temperature, such as 0.1",
            ),
            (self.trainable is not None and self.trainable < 1, "trainable", "1 (the head alone) or more"),
            (
                bool(self.contrastive_temperature) and (self.trainable == 1 or self.only == -1),
                "trainable" if self.only is None else "only",
                "a part of the encoder too in a contrastive phase, which does not train the head",
            ),
            (not all(0 <= beta < 1 for beta in self.betas), "betas", "two numbers at least 0 and below 1"),
        ]
        for is_wrong, key, remedy in wrong:
            if is_wrong:
                raise UserError(f"{key} is {getattr(self, key)}.", remedy=f"It must be {remedy}.")

    def steps(self, steps_per_epoch: int) -> int:
        """Number of optimizer steps of the phase, at least one."""
        return max(1, round(self.epochs * steps_per_epoch))

    def rates(self, num_groups: int) -> list[float | None]:
        """Each group's peak learning rate, bottom -> top; None for a group that does not train."""
        if self.only == "each":
            raise ValueError(f"phase '{self.name}' stands for several; Stage.plan expands it")
        rates = group_rates(self.lr, self.lr_decay, num_groups)
        if self.only is not None:
            trained = {range(num_groups)[self.only]}
        else:
            count = num_groups if self.trainable is None else min(self.trainable, num_groups)
            trained = set(range(num_groups - count, num_groups))
        return [rate if i in trained else None for i, rate in enumerate(rates)]

    def relative_cost(self, num_groups: int) -> float:
        """Duration of a step over that of encoding its texts: gradients take twice that for each group they pass."""
        trained = sum(rate is not None for rate in self.rates(num_groups)) - 1  # the head costs nothing
        return 1 + 2 * max(0, trained) / max(1, num_groups - 1)


@dataclass(frozen=True)
class Stage:
    """The phases of one stage (adapt or finetune) and the settings that they share.

    Attributes:
        phases: In order; none: the recipe does nothing in this stage.
        batch_size: In texts; for a language model, the number of contiguous streams.
        bptt: Mean window of a language model, in tokens.
        dropout: Factor of every dropout rate of the model.
        clip: Bound of the gradient's norm; 0: that of the settings.
        min_steps: Minimum number of optimizer steps in all: where texts are too few for that, all phases are lengthened
            by the same factor.
        auxiliary_lm_weight: Weight of a language-model loss beside a classifier's (λ of Radford et al. 2018, equation
            5; 0: none).
        label_smoothing: Share of each label that is spread over all classes (ε of Szegedy et al. 2016, §7), for
            classifiers of one label per text; evaluation uses the labels as they are.
        pooling: A name of nn.pooling.POOLINGS, or "pooled" for the encoder's own (BERT's), in place of the default
            pooling of a family's classifier; other heads ignore it.
    """

    phases: tuple[Phase, ...] = ()
    batch_size: int = 32
    bptt: int = 70
    dropout: float = 1.0
    clip: float = 0.0
    min_steps: int = 0
    auxiliary_lm_weight: float = 0.0
    label_smoothing: float = 0.0
    pooling: str | None = None

    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        for key, least in MINIMUM.items():
            if not least <= getattr(self, key) < math.inf:
                raise UserError(f"{key} is {getattr(self, key)}.", remedy=f"It must be {least} or more.")
        if not 0 <= self.label_smoothing < 1:
            remedy = "It must be a share, at least 0 and below 1, such as 0.1."
            raise UserError(f"label_smoothing is {self.label_smoothing}.", remedy=remedy)
        known = (*POOLINGS, POOLED)
        if self.pooling is not None and self.pooling not in known:
            raise UserError(f"unknown pooling '{self.pooling}'.", remedy=did_you_mean(self.pooling, known))

    def identity(self) -> dict[str, Any]:
        """The entries that identify the stage: stages that train differently differ in it."""
        return identity_of(self)

    def validate_label_kind(self, kind: TargetKind) -> None:
        """Raise UserError if this stage needs one label per text and the labels are of another kind."""
        target, remedy = TARGETS[kind], "Take another recipe."
        if target.has_one_label:
            return
        need = f"needs one label per text; these have {target.labels_each}"
        if any(phase.contrastive_temperature for phase in self.phases):
            message = f"this recipe has a contrastive phase, which {need}."
            raise UserError(message, where="contrastive_temperature", remedy=remedy)
        if self.label_smoothing:
            message = f"label smoothing {need}."
            raise UserError(message, where="label_smoothing", remedy=remedy)

    def validate_no_classifier_settings(self, where: str) -> None:
        """Raise UserError if this stage has a setting that only classifiers trained on labels support.

        Args:
            where: Name of the recipe, for the message.
        """
        contrastive = any(phase.contrastive_temperature for phase in self.phases)
        settings = {
            "auxiliary_lm_weight": (self.auxiliary_lm_weight, "the auxiliary loss is", "texts, pairs and choices"),
            "contrastive_temperature": (contrastive, "contrastive phases are", "texts and pairs"),
            "label_smoothing": (self.label_smoothing, "label_smoothing is", "one label per text"),
        }
        for key, (is_set, subject, targets) in settings.items():
            if is_set:
                message = f"{subject} for classifiers of {targets} that are trained on labels."
                raise UserError(message, where=where, remedy=f"Leave '{key}' out, or name another recipe.")

    def plan(self, num_groups: int, steps_per_epoch: int | None = None) -> list[Phase]:
        """The phases of a training, with `only = "each"` expanded.

        Args:
            num_groups: Number of the model's layer groups.
            steps_per_epoch: Lengthen the phases to `min_steps` in all; None: leave them as they are.

        Raises:
            UserError: A phase names a group that the model does not have.
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

    def shortened(self, share: float) -> Stage:
        """The stage with a share of the steps, at rates that are higher by the same factor, so that it goes as far.

        Phases that train the head alone stay as they are: they cost little.

        Args:
            share: Of the steps, above 0 and at most 1.
        """
        phases = tuple(
            phase
            if phase.trainable == 1 or phase.only == -1
            else replace(phase, epochs=share * phase.epochs, lr=phase.lr / share)
            for phase in self.phases
        )
        kept = sum(phase.epochs for phase in phases) / (sum(phase.epochs for phase in self.phases) or 1)
        return replace(self, phases=phases, min_steps=round(kept * self.min_steps))

    def plan_of_tokens(self, num_groups: int, corpus_tokens: int, tokens: float | None) -> list[Phase]:
        """The phases of a training on text, scaled by one factor to `tokens` tokens in all, if that is given.

        Args:
            num_groups: Number of the model's layer groups.
            corpus_tokens: Tokens of an epoch.
            tokens: Tokens to train on.
        """
        phases = self.plan(num_groups)
        if tokens is None:
            return phases
        total = sum(phase.epochs for phase in phases) * corpus_tokens
        return [replace(phase, epochs=phase.epochs * tokens / total) for phase in phases]


def set_trainable(groups: Sequence[LayerGroup], phase: Phase) -> list[LayerGroup]:
    """Set `requires_grad` so that exactly the groups of a phase are trained.

    To be called before a model is wrapped for distributed training and before its optimizer is built.

    Args:
        groups: The model's layer groups, bottom -> top, the head last.
        phase: The phase.

    Returns:
        The trainable groups.
    """
    trained = []
    for group, rate in zip(groups, phase.rates(len(groups)), strict=True):
        for parameter in group.parameters:
            parameter.requires_grad_(rate is not None)
        if rate is not None:
            trained.append(group)
    return trained


def with_frozen_bottom(stage: Stage, frozen: int, num_groups: int) -> Stage:
    """The stage with the lowest layer groups frozen; all others are trained in the same phases at the same rates.

    Args:
        stage: The stage.
        frozen: Number of groups to freeze; a phase that trains no other is left out.
        num_groups: Number of the model's layer groups.

    Raises:
        UserError: No phase is left.
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
    """One row of `textgraft schedule`: a group's learning rates over one epoch, 0 while it is frozen.

    `epoch` counts from 1 across the phases of the stage; a phase of less than an epoch has a row of its own.
    """

    phase: str
    epoch: int
    group: str
    trainable: bool
    start: float
    peak: float
    end: float


def schedule_curve(stage: Stage, num_groups: int, steps_per_epoch: int) -> list[list[float]]:
    """The learning rate of each group (bottom -> top) at every step of a stage, 0 while frozen, for plots."""
    curves: list[list[float]] = [[] for _ in range(num_groups)]
    for phase in stage.plan(num_groups, steps_per_epoch):
        total = phase.steps(steps_per_epoch)
        multipliers = [SCHEDULES[phase.schedule](step, total, phase.warmup) for step in range(total)]
        for curve, rate in zip(curves, phase.rates(num_groups), strict=True):
            curve += [(rate or 0.0) * m for m in multipliers]
    return curves


def schedule_table(stage: Stage, group_names: Sequence[str], steps_per_epoch: int) -> list[ScheduleRow]:
    """The learning rates of each epoch and group: a row for each (groups bottom -> top, head last)."""
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
