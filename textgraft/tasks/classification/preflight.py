"""What can be known to go wrong before a long fine-tuning begins, found before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.nn.layer_aggregation import new_layer_aggregation
from textgraft.tasks.classification.finetune import FinetuneOptions, chosen_folds, refuse_single_texts
from textgraft.tasks.classification.sources import language_models
from textgraft.tasks.classification.training import refuse_unpredictive
from textgraft.training.recipes import load_recipe


def check_finetune(
    train: Examples,
    *,
    model: str | Path,
    held_out: Sequence[Examples] = (),
    options: FinetuneOptions,
) -> dict[str, str]:
    """Everything that `finetune` would refuse later: models, recipe, layer aggregation, labels, class weights, folds.

    `model` may be several, as there; `held_out` are the validation and the test set. Returns where each language model
    lies, by what its classifiers will be called. Raises the UserError that is due.
    """
    stage = load_recipe(options.language_recipe).finetune
    if not stage.phases:
        message = "this recipe has no phases to fine-tune in."
        raise UserError(message, where=options.language_recipe, remedy="Name one that has.")
    sources = language_models(model)
    for source in sources.values():
        network = source.model.model
        stage.plan(len(network.encoder.layer_groups()) + 1)  # and the head
        new_layer_aggregation(options.layer_aggregation, network.encoder.widths)
        refuse_unpredictive(network, stage)
    refuse_single_texts(train, options)
    labels = Labels.fit(train)
    stage.validate_label_kind(labels.kind)
    labels.class_weights(train, options.class_weights)
    for part in held_out:
        labels.encode(part)
    chosen_folds(train, options, measured=bool(held_out))
    return {name: source.place for name, source in sources.items()}
