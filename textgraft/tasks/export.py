"""Export of a fine-tuned network as an ONNX graph, verified against the original before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.metrics.agreement import MIN_AGREEMENT
from textgraft.models import loading, model_folder
from textgraft.models.artifact import Artifact
from textgraft.models.graph import OnnxModel
from textgraft.tasks.classification.spec import CLASSIFICATION
from textgraft.tasks.export_check import largest_difference
from textgraft.tasks.registry import task_of

TOLERANCE = 1e-4
"""Largest accepted difference of probabilities; another order of summation causes far smaller ones."""
MIN_TEXTS = 50
TRAIN_ONE = 'Fine-tune a language model alone, with recipe="default", and export that.'


@dataclass(frozen=True, repr=False)
class Export(Brief):
    """Facts on an exported graph.

    Attributes:
        out: Its folder.
        megabytes: Size of the graph.
        difference: Largest difference from the original's outputs; with int8, on `texts`.
        texts: Number of texts that int8 was evaluated on.
        same: Share of the texts (or words) with the same prediction in int8.
        products: The matrix products in int8.
    """

    out: Path
    megabytes: float
    difference: float
    texts: int = 0
    same: float | None = None
    products: str | None = None


def export(
    model: str | Path,
    out: str | Path,
    *,
    int8: bool = False,
    texts: Sequence[str] = (),
    overwrite: bool = False,
) -> Export:
    """Write a model folder with an ONNX graph, from token ids to outputs, in place of the weights.

    Args:
        model: Name or folder of a classifier, tagger or QA model.
        out: The new folder.
        int8: Store the weights in int8, and compute as many products in int8 as the predictions allow.
        texts: For int8: unlabelled texts, of which a share of MIN_AGREEMENT must keep their prediction.
        overwrite: Replace an existing model folder.

    Raises:
        UserError: The model cannot be exported, or the graph's outputs differ from the original's.
    """
    out = Path(out)
    model_folder.validate_new_path(out, overwrite)
    validate_network(model)
    artifact = loading.load_network(model)
    graph = graph_of(artifact, str(model))
    difference = largest_difference(artifact, graph)
    if difference > TOLERANCE:
        message = f"the graph's outputs differ from the model's by up to {difference:.2g}, so it is not written."
        raise UserError(message, where=str(model), remedy="Please report this with the model's config.json.")
    facts = Export(out, len(graph.graph) / 1e6, difference)
    if int8:
        graph, facts = _in_int8(graph, texts, facts, str(model))
    model_folder.write_folder(out, graph.files())
    return facts


def validate_network(model: str | Path) -> None:
    """Raise UserError for the classifiers without a network of their own that `finetune` saves, with a way to one."""
    if model_folder.is_checkpoint_name(model):
        return
    folder = model_folder.find(model)
    config = model_folder.read_config(folder)
    kind = loading.kind_of(config)
    if kind not in ("linear", loading.ENSEMBLE):
        return
    message, remedy = "this is a linear classifier, and only networks can be exported.", TRAIN_ONE
    if kind == loading.ENSEMBLE:
        kinds = loading.members_by_kind(folder, config)
        networks = [str(folder / name) for name in kinds.get(loading.NETWORK, ())]
        message = f"this is {loading.ensemble_of(kinds)}, and networks are exported one at a time."
        alone = "alone, it predicts otherwise than the ensemble"
        remedy = f"Export a member that is one: {', '.join(networks)}; {alone}." if networks else TRAIN_ONE
    raise UserError(message, where=str(folder), remedy=remedy)


def _in_int8(whole: OnnxModel, texts: Sequence[str], facts: Export, name: str) -> tuple[OnnxModel, Export]:
    """The graph with int8 weights and as many int8 products as the agreement allows, and its evaluation.

    Raises UserError if int8 weights alone change too many predictions.
    """
    if len(texts) < MIN_TEXTS:
        message = f"{len(texts)} texts are too few to evaluate int8 on."
        raise UserError(message, remedy=f"Give {MIN_TEXTS} or more with texts=…; labels are not needed.")
    from textgraft.onnx.int8 import LADDER, in_int8

    if (path := task_of(whole.head_name).graph_outputs) is None:
        raise UserError("int8 is not supported for QA models.", where=name, remedy="Export it without int8=True.")
    outputs = resolve(path)
    before, shares = outputs(whole, texts), []
    for products in LADDER:
        graph = replace(whole, graph=in_int8(whole.graph, products))
        after = outputs(graph, texts)
        same = _share_of_same(whole, before, after)
        shares.append(f"{same:.1%}")
        if same >= MIN_AGREEMENT:
            difference = float(np.abs(before[1] - after[1]).max())
            size = len(graph.graph) / 1e6
            return graph, Export(facts.out, size, difference, texts=len(texts), same=same, products=products)
    message = f"in int8 {', '.join(shares)} of the predictions are the same, below {MIN_AGREEMENT:.0%}: not written."
    raise UserError(message, where=name, remedy="Export it without int8=True.")


def _share_of_same(
    model: OnnxModel, before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray]
) -> float:
    """Share of predictions, or of words' tags, that are the same."""
    if model.labels is None:
        return float((before[0] == after[0]).mean())
    return model.labels.target.agreement(before[0], after[0])


def graph_of(artifact: Artifact, name: str = "") -> OnnxModel:
    """The network as a graph in float32. Raises UserError for a family or a task without an exporter."""
    task = task_of(artifact.head_name)
    without_labels = artifact.labels is None and task is CLASSIFICATION
    if task.exporter is None or without_labels:
        message = "only classifiers, taggers and QA models can be exported."
        raise UserError(message, where=name, remedy="Fine-tune one first (textgraft finetune, or tag or qa finetune).")
    try:
        from textgraft.onnx.encoders import ENCODERS
    except ModuleNotFoundError as error:
        raise UserError("exporting needs onnx.", remedy='Install it by: pip install "textgraft[onnx]"') from error
    family = type(artifact.model.encoder)
    if artifact.model.family == "transformers":
        kind = artifact.model.encoder.config.model_type
        message = f"'{kind}' runs through the transformers library, and its operators cannot be exported."
        remedy = "Serve it as it is, or distil it into a model that can be (textgraft distil), and export that."
        raise UserError(message, where=name, remedy=remedy)
    if family not in ENCODERS:
        supported = ", ".join(sorted(encoder.__name__ for encoder in ENCODERS))
        message = f"the family {family.__name__} cannot be exported."
        raise UserError(message, where=name, remedy=f"These can: {supported}.")
    graph: OnnxModel = resolve(task.exporter)(artifact)
    return graph
