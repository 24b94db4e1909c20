"""The graph in a model's folder, of whatever task."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.models import model_folder
from textgraft.models.graph import OnnxModel

TASKS = {
    "classification": ("textgraft.tasks.classification.graph", "OnnxClassifier"),
    "tagging": ("textgraft.tasks.tagging.graph", "OnnxTagger"),
    "span": ("textgraft.tasks.question_answering.graph", "OnnxSpanModel"),
}


def load(folder: Path, config: Mapping[str, Any]) -> OnnxModel:
    """The graph in a folder with this config.json. Raises UserError for missing or altered files."""
    about = config["onnx"]
    task = about.get("task", "classification") if isinstance(about, dict) else None
    if task not in TASKS:
        message = f"this describes no graph: '{task}' is no task that has one."
        raise UserError(message, where=str(folder / "config.json"), remedy=model_folder.RESTORE)
    module, name = TASKS[task]
    loaded: OnnxModel = getattr(import_module(module), name).load(folder, config)
    return loaded


def graph_in(name: str | Path) -> OnnxModel | None:
    """The graph of that name, a folder; None for a network. Raises UserError where there is neither."""
    if model_folder.is_foreign(name):
        return None
    folder = model_folder.find(name)
    config = model_folder.read_config(folder)
    return load(folder, config) if "onnx" in config else None
