"""Preparation of a fine-tuning: validation of the data and options, encoding, folds, the work folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from textgraft.core.context import RunContext
from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash
from textgraft.data.examples import Examples, reads
from textgraft.data.labels import Labels, kind_of_texts
from textgraft.data.sequences import Truncation
from textgraft.data.splits import Split, stratified_folds
from textgraft.nn.layer_aggregation import new_layer_aggregation
from textgraft.tasks.classification.adapted_sources import Adapted
from textgraft.tasks.classification.budget import Budget
from textgraft.tasks.classification.fine_tuned import (
    EncodedData,
    encode_parts,
)
from textgraft.tasks.classification.finetune_options import ENSEMBLE, FinetuneOptions
from textgraft.tasks.classification.model_selection import (
    selection_splits,
)
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.sources import Source
from textgraft.tasks.classification.training import validate_next_token_head
from textgraft.tasks.classification.training_config import TrainingConfig
from textgraft.tasks.finetuning import run_identity
from textgraft.training.driver import work_folder
from textgraft.training.phases import Stage
from textgraft.training.recipes import load_recipe


@dataclass(frozen=True)
class FinetuneSetup:
    """A fine-tuning before anything is trained.

    Attributes:
        parts: The parts of the data, by name.
        options: The options, completed for the data.
        readings: For each language model, without adaptation, the encoded parts.
        adapted: The language models adapted to the unlabelled texts on demand; None without adaptation.
        recipe: The recipes' names.
        stages: The stage that each language model is trained by.
        data: A description of each part.
        training_config: Seeds, folds and the run.
        selection: The data, the folds and the run.
        budget: The time limit of the model selection.
    """

    parts: Mapping[str, Examples]
    options: FinetuneOptions
    readings: Mapping[str, EncodedData]
    adapted: Adapted | None
    recipe: str
    stages: Mapping[str, Stage]
    data: Mapping[str, Any]
    training_config: TrainingConfig
    selection: SelectionContext
    budget: Budget

    def read(self, name: str) -> EncodedData:
        """The parts of the data as encoded for the adapted language model."""
        assert self.adapted is not None
        return encode_parts(self.adapted(name), self.parts, self.selection.labels, self.options.max_tokens)

    @property
    def cut(self) -> dict[str, Truncation]:
        """The truncation of each part for the first language model; nothing where there is none."""
        return next((reading.cut for reading in self.readings.values()), {})

    def adapted_readings(self) -> FinetuneSetup:
        """The same setup with adapted language models, if there is an adaptation."""
        if self.adapted is None:
            return self
        return replace(self, readings={name: self.read(name) for name in self.readings})


def prepare_setup(
    out: Path,
    parts: Mapping[str, Examples],
    sources: Mapping[str, Source],
    unlabelled: Sequence[str],
    options: FinetuneOptions,
    adapted: Adapted | None,
    context: RunContext,
) -> FinetuneSetup:
    """Validate everything that can be and make the work folder. Raises UserError as `finetune` does."""
    train = parts["train"]
    validate_pairs(train, options)
    if train.kind == "choice":  # there are no linear classifiers for it
        options = replace(options, recipe=options.language_recipe)
    labels = Labels.fit(train)
    kind, models = kind_of_texts(train, labels), {name: source.model for name, source in sources.items()}
    recipes = {name: model.recommended_recipe(options.language_recipe, kind) for name, model in models.items()}
    stages = {name: load_recipe(recipe).finetune for name, recipe in recipes.items()}
    for name, model in models.items():
        stages[name].validate_label_kind(labels.kind)
        new_layer_aggregation(options.layer_aggregation, model.model.encoder.widths)  # raises UserError
        validate_next_token_head(model.model, stages[name])
    for name, part in parts.items():
        (labels if name == "train" else labels.covering(part)).encode(part)  # raises UserError
    readings = {name: encode_parts(model, parts, labels, options.max_tokens) for name, model in models.items()}
    evaluation_split = next((name for name in ("test", "valid") if name in parts), "folds")
    splits = chosen_folds(train, options, measured=evaluation_split != "folds")
    data = {name: _described(part) for name, part in parts.items()}
    plan = run_identity("finetune", data, models.values(), stages.values(), options) | {
        "unlabelled": content_hash(unlabelled)
    }
    plan |= {"adapt": adapted.identity()} if adapted is not None else {}
    context = context.at(work_folder(out, plan))
    training_config = TrainingConfig(evaluation_split, options.seeds, splits, context)
    evaluation = parts.get(evaluation_split)
    selection = SelectionContext(train, evaluation, evaluation_split, labels, unlabelled, splits, context)
    recipe = " + ".join(dict.fromkeys(recipes.values()))
    budget = Budget(options.budget_seconds, repeat=options.rungs, folder=context.work)
    return FinetuneSetup(parts, options, readings, adapted, recipe, stages, data, training_config, selection, budget)


def validate_pairs(train: Examples, options: FinetuneOptions) -> None:
    """Raise UserError where `both_orders` is set and the texts are no pairs."""
    if options.both_orders and reads(train.texts) != "pairs":
        remedy = "Leave both_orders out."
        raise UserError("only pairs can be encoded in both orders.", where=train.source, remedy=remedy)


def chosen_folds(train: Examples, options: FinetuneOptions, *, measured: bool) -> Sequence[Split]:
    """The folds of the options; else those of model selection, or five where there is no other evaluation split.

    Raises UserError for folds that cannot be made, except those of model selection, which is then skipped.
    """
    if options.folds is None and options.selects:
        splits = selection_splits(train, options.settings.seed)
        if splits or (measured and options.method == ENSEMBLE):
            return splits
    count = options.folds if options.folds is not None else 0 if measured and not options.selects else 5
    if count == 0 and not measured:
        raise UserError(
            "there is nothing to measure on.", remedy="Give a test set, or two folds or more, or leave folds out."
        )
    return stratified_folds(train, count, options.settings.seed) if count else ()


def _described(part: Examples) -> dict[str, Any]:
    return {"source": Path(part.source).name, "texts": len(part), "sha256": part.content_hash()}
