"""A network of any task as an ONNX graph in float32, or the reason why it cannot be one."""

from __future__ import annotations

from collections.abc import Collection

from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.models.artifact import Artifact
from textgraft.models.graph import OnnxModel
from textgraft.tasks.classification.spec import CLASSIFICATION
from textgraft.tasks.registry import task_of


def graph_of(artifact: Artifact, name: str = "") -> OnnxModel:
    """The network as a graph in float32. Raises UserError for a family or a task without an exporter."""
    task = task_of(artifact.head_name)
    without_labels = artifact.labels is None and task is CLASSIFICATION
    if task.exporter is None or without_labels:
        message = "only classifiers, taggers and QA models can be exported."
        raise UserError(message, where=name, remedy="Fine-tune one first (textgraft finetune, or tag or qa finetune).")
    validate_family(artifact, name)
    graph: OnnxModel = resolve(task.exporter)(artifact)
    return graph


def families() -> Collection[type]:
    """The families of encoders with an exporter. Raises UserError where onnx is not installed."""
    try:
        from textgraft.onnx.encoders import ENCODERS
    except ModuleNotFoundError as error:
        remedy = 'Install it by: pip install "textgraft[onnx]"'
        raise UserError("exporting needs onnx.", remedy=remedy) from error
    return ENCODERS.keys()


def validate_family(artifact: Artifact, name: str = "") -> None:
    """Raise UserError for an encoder of a family without an exporter, or where onnx is not installed."""
    known = families()
    family = type(artifact.model.encoder)
    if artifact.model.family == "transformers":
        kind = artifact.model.encoder.config.model_type
        message = f"'{kind}' runs through the transformers library, and its operators cannot be exported."
        remedy = "Serve it as it is, or distil it into a model that can be (textgraft distil), and export that."
        raise UserError(message, where=name, remedy=remedy)
    if family not in known:
        supported = ", ".join(sorted(encoder.__name__ for encoder in known))
        message = f"the family {family.__name__} cannot be exported."
        raise UserError(message, where=name, remedy=f"These can: {supported}.")
