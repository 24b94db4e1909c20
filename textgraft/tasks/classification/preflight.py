"""Validation of the inputs of a fine-tuning before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.nn.layer_aggregation import new_layer_aggregation
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.classification.finetune_setup import chosen_folds, validate_pairs
from textgraft.tasks.classification.sources import language_models
from textgraft.tasks.classification.training import validate_next_token_head
from textgraft.training.recipes import load_recipe


def validate_finetune(
    train: Examples,
    *,
    model: str | Path,
    held_out: Sequence[Examples] = (),
    options: FinetuneOptions,
) -> dict[str, str]:
    """Validate what `finetune` would reject later: models, recipe, layer aggregation, labels, class weights, folds.

    Args:
        train: Labelled texts.
        model: A language model, or several, as `finetune` takes them; it is not loaded for a linear method.
        held_out: The validation and the test set.
        options: Options of the fine-tuning.

    Returns:
        {name of its classifiers: folder or name} of each language model.

    Raises:
        UserError: As `finetune`.
    """
    stage = load_recipe(options.language_recipe).finetune
    if not stage.phases:
        message = "this recipe has no phases to fine-tune in."
        raise UserError(message, where=options.language_recipe, remedy="Name one that has.")
    sources = language_models(model) if options.needs_language_model else {}
    for source in sources.values():
        network = source.model.model
        stage.plan(len(network.encoder.layer_groups()) + 1)  # and the head
        new_layer_aggregation(options.layer_aggregation, network.encoder.widths)
        validate_next_token_head(network, stage)
    validate_pairs(train, options)
    labels = Labels.fit(train)
    stage.validate_label_kind(labels.kind)
    labels.class_weights(train, options.class_weights)
    for part in held_out:
        labels.covering(part).encode(part)
    chosen_folds(train, options, measured=bool(held_out))
    return {name: source.place for name, source in sources.items()}
