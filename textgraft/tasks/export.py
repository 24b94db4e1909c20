"""A fine-tuned network as an ONNX graph, which is checked against the original before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.data.examples import TargetKind
from textgraft.metrics.agreement import MIN_AGREEMENT
from textgraft.models import loading, model_folder
from textgraft.models.artifact import Artifact
from textgraft.models.graph import OnnxModel
from textgraft.tasks.classification.spec import CLASSIFICATION
from textgraft.tasks.export_check import largest_difference
from textgraft.tasks.registry import task_of

TOLERANCE = 1e-4
"""Probabilities may differ by so much; sums in another order do, by far less."""
MIN_TEXTS = 50


@dataclass(frozen=True)
class Export:
    """Where the graph is, how large, and the largest difference from the original's answers.

    With int8 that is one on `texts` texts, of which (or of whose words) the share `same` kept their answer, and
    `products` says which products are computed so.
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
    """Write a model's folder with a graph from token ids to answers in the place of its weights.

    `int8` stores weights as whole numbers, and asks for `texts` on which at least AGREEMENT of the answers must stay.
    Raises UserError for a model that cannot be a graph, and for a graph whose answers differ from the original's.
    """
    out = Path(out)
    model_folder.validate_new_path(out, overwrite)
    artifact = loading.load_network(model)
    made = graph_of(artifact, str(model))
    difference = largest_difference(artifact, made)
    if difference > TOLERANCE:
        message = f"the graph's answers differ from the model's by up to {difference:.2g}, so it is not written."
        raise UserError(message, where=str(model), remedy="Please report this with the model's config.json.")
    found = Export(out, len(made.graph) / 1e6, difference)
    if int8:
        made, found = _in_int8(made, texts, found, str(model))
    model_folder.write_folder(out, made.files())
    return found


def _in_int8(whole: OnnxModel, texts: Sequence[str], found: Export, name: str) -> tuple[OnnxModel, Export]:
    """The graph with int8 weights, as many of its products in int8 as leave the answers, and what that does to them.

    Raises UserError where even the weights alone move too many.
    """
    if len(texts) < MIN_TEXTS:
        message = f"{len(texts)} texts are too few to see what int8 does to the answers."
        raise UserError(message, remedy=f"Name {MIN_TEXTS} or more with --texts; they need no labels.")
    from textgraft.onnx.int8 import LADDER, in_int8

    if (path := task_of(whole.head_name).graph_outputs) is None:
        raise UserError("there is no int8 for QA models.", where=name, remedy="Export it without --int8.")
    outputs = resolve(path)
    before, stayed = outputs(whole, texts), []
    for products in LADDER:
        made = replace(whole, graph=in_int8(whole.graph, products))
        after = outputs(made, texts)
        stay = _staying(whole, before, after)
        stayed.append(f"{stay:.1%}")
        if stay >= MIN_AGREEMENT:
            moved = float(np.abs(before[1] - after[1]).max())
            size = len(made.graph) / 1e6
            return made, Export(found.out, size, moved, texts=len(texts), same=stay, products=products)
    message = f"with int8 {', '.join(stayed)} of the answers stay, where {MIN_AGREEMENT:.0%} should: it is not written."
    raise UserError(message, where=name, remedy="Export it without --int8.")


def _staying(model: OnnxModel, before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray]) -> float:
    """The share of answers, or of words' tags, that are as before."""
    if model.labels is None:
        return float((before[0] == after[0]).mean())
    return agreement(model.labels.kind, before[0], after[0])


def agreement(kind: TargetKind, before: np.ndarray, after: np.ndarray) -> float:
    """The share of texts (N, C) that keep their label, or all of many labels; of numbers (N,) their correlation."""
    if kind == "numeric":
        return float(np.corrcoef(before, after)[0, 1])
    if kind == "multi":
        return float(((before >= 0.5) == (after >= 0.5)).all(axis=1).mean())
    return float((before.argmax(1) == after.argmax(1)).mean())


def graph_of(artifact: Artifact, name: str = "") -> OnnxModel:
    """The network as a graph in float32. Raises UserError for a family or a task of which there is none."""
    task = task_of(artifact.head_name)
    without_labels = artifact.labels is None and task is CLASSIFICATION
    if task.exporter is None or without_labels:
        message = "only classifiers, taggers and QA models can be exported, and this is none."
        raise UserError(message, where=name, remedy="Fine-tune one first (textgraft finetune, or tag or qa finetune).")
    try:
        from textgraft.onnx.encoders import ENCODERS
    except ModuleNotFoundError as error:
        raise UserError("exporting needs onnx.", remedy='Install it by: pip install "textgraft[onnx]"') from error
    family = type(artifact.model.encoder)
    if family not in ENCODERS:
        known = ", ".join(sorted(one.__name__ for one in ENCODERS))
        message = f"there is no graph of the family {family.__name__}."
        raise UserError(message, where=name, remedy=f"These have one: {known}.")
    graph: OnnxModel = resolve(task.exporter)(artifact)
    return graph
