"""Learning rates: those of a recipe (`schedule`), and those that a range test suggests (`lr_find`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.examples import Examples, Pair, validate_not_single_text
from textgraft.data.labels import Labels
from textgraft.data.streams.base import ExampleStream, Stream
from textgraft.data.unlabelled import labelled_only
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import default_models_for
from textgraft.models.model import Model
from textgraft.tasks.classification.training import Plan, classifier_to_train
from textgraft.tasks.language_modeling.adapt import held_out, with_dropout_of
from textgraft.training.lr_finder import HIGHEST, STEPS, RangeTestResult, range_test, suggest_rates
from textgraft.training.objectives import objective
from textgraft.training.phases import Phase, ScheduleRow, Stage, schedule_curve, schedule_table
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

StageName = Literal["finetune", "adapt"]
MODEL_GROUPS: dict[StageName, tuple[str, ...]] = {
    "finetune": ("embedding", "layer 1", "layer 2", "layer 3", "head"),
    "adapt": ("layer 1", "layer 2", "layer 3", "head"),
}
"""Layer groups of the three-layer AWD-LSTM; in a language model the tied table is in the head's group."""


@dataclass(frozen=True, repr=False)
class RecipeSchedule(Brief):
    """Learning rates of a stage.

    Attributes:
        rows: A row for each epoch and group.
        curves: The learning rate at every step, by group.
        steps_per_epoch: Number of optimizer steps in an epoch.
    """

    rows: list[ScheduleRow]
    curves: dict[str, list[float]]
    steps_per_epoch: int


def schedule(
    recipe: str = "default",
    *,
    stage: StageName = "finetune",
    groups: Sequence[str] | None = None,
    steps_per_epoch: int = 100,
) -> RecipeSchedule:
    """The learning rates of a recipe in each epoch.

    Args:
        recipe: Name or path.
        stage: "finetune" or "adapt".
        groups: Names of the model's layer groups, bottom -> top; None: those of the AWD-LSTM.
        steps_per_epoch: Number of optimizer steps in an epoch.

    Raises:
        UserError: An unknown recipe or stage, or one without phases.
    """
    chosen = stage_of(recipe, stage)
    names = MODEL_GROUPS[stage] if groups is None else groups
    curves = dict(zip(names, schedule_curve(chosen, len(names), steps_per_epoch), strict=True))
    return RecipeSchedule(schedule_table(chosen, names, steps_per_epoch), curves, steps_per_epoch)


def stage_of(recipe: str, stage: str) -> Stage:
    """One stage of a recipe. Raises UserError for an unknown name, and for a stage without phases."""
    if stage not in MODEL_GROUPS:
        raise UserError(f"unknown stage '{stage}'.", remedy=did_you_mean(stage, MODEL_GROUPS))
    chosen: Stage = getattr(load_recipe(recipe), stage)
    if not chosen.phases:
        raise UserError(f"this recipe has no phases in the stage {stage}.", where=recipe, remedy="Name one that has.")
    return chosen


def groups_of(model: str | Path, stage: StageName) -> list[str]:
    """The names of a model's layer groups in a stage, bottom -> top."""
    source = loading.load_network(model)
    if stage == "adapt":
        return [group.name for group in source.model.layer_groups()]
    return [*(group.name for group in source.model.encoder.layer_groups()), "head"]


def lr_find(
    data: Examples | Sequence[str],
    *,
    model: str | Path | None = None,
    recipe: str = "default",
    phase: str | None = None,
    max_tokens: int = 512,
    steps: int = STEPS,
    highest: float = HIGHEST,
    settings: Settings | None = None,
) -> RangeTestResult:
    """Run a learning-rate range test (Smith 2017) of a classifier or a language model.

    Nothing is saved.

    Args:
        data: Labelled examples, for the recipe's finetune stage; texts, for its adapt stage. Either may be pairs, whose
            texts the adapt stage takes one by one.
        model: Name or folder; None: the default model of the texts (textgraft.models.default_models).
        recipe: Name or path.
        phase: Name of the phase whose trainable groups, optimizer and discriminative rates are used; None: the first.
        max_tokens: Maximum length of a text.
        steps: Number of steps at most.
        highest: Learning rate of the last step.
        settings: Of the training.

    Raises:
        UserError: As `adapt` and `finetune`.
    """
    validate_not_single_text(
        data, name="data", remedy="Pass a list of texts, or what textgraft.read gives for labelled ones."
    )
    settings = settings or Settings()
    data = labelled_only(data) if isinstance(data, Examples) else data
    source = loading.load_network(model or default_models_for(data.texts if isinstance(data, Examples) else data).alone)
    recipe = source.recommended_recipe(recipe)
    stage = stage_of(recipe, "finetune" if isinstance(data, Examples) else "adapt")
    if isinstance(data, Examples):
        tested, stream = _classifier(source, data, stage, max_tokens, settings)
    else:
        tested, stream = _language_model(source, data, stage, settings)
    chosen = _phase(stage.plan(len(tested.layer_groups())), phase)
    return suggest_rates([*range_test(tested, stream, chosen, settings.of(stage), steps=steps, highest=highest)])


def _phase(plan: Sequence[Phase], name: str | None) -> Phase:
    if name is None:
        return plan[0]
    by_name = {phase.name: phase for phase in plan}
    if name not in by_name:
        raise UserError(f"no phase '{name}'.", remedy=did_you_mean(name, by_name))
    return by_name[name]


def _classifier(
    source: Artifact, train: Examples, stage: Stage, max_tokens: int, settings: Settings
) -> tuple[Model, Stream]:
    labels = Labels.fit(train)
    pad_id = source.tokenizer.pad_id
    plan = Plan(
        language_model=source.model,
        from_scratch=False,
        stage=stage,
        settings=settings,
        labels=labels,
        class_weights=None,
        pad_id=pad_id,
        pooling=source.pooling,
    )
    sequences, _ = source.encoded(train.texts, max_tokens)
    targets = torch.from_numpy(labels.encode(train))
    stream = ExampleStream(sequences, targets, pad_id=pad_id, rows=stage.batch_size, seed=settings.seed)
    return classifier_to_train(plan, settings.seed), stream


def _language_model(source: Artifact, texts: Sequence[str], stage: Stage, settings: Settings) -> tuple[Model, Stream]:
    singles = [part for text in texts for part in ((text.first, text.second) if isinstance(text, Pair) else (text,))]
    train, _ = held_out(singles, source.tokenizer)
    model = with_dropout_of(stage, source.model)
    return model, objective(model, "model").stream(model, train, source.tokenizer, stage, settings.seed)
