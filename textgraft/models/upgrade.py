"""Names in saved folders that have changed since: folders of earlier versions open as if written today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

PARTS = ("encoder", "head", "stack", "onnx")
"""The parts of config.json whose settings have been renamed; nothing that a user names is in them."""
RENAMED_SETTINGS = {"readout": "layer_aggregation", "piece": "subword_pooling"}
RENAMED_IN_RUN = {
    "readout": "layer_aggregation",
    "suits": "recommended_recipe",
    "piece": "subword_pooling",
    "blend": "ensemble",
    "examined": "evaluation_split",
}
RENAMED_WEIGHTS = {"readout.": "layer_aggregation."}
"""Beginnings of the names of weights."""

Value = TypeVar("Value")


def upgraded_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with the present names of the settings of its parts."""
    return {name: _renamed(value) if name in PARTS else value for name, value in config.items()}


def upgraded_run(run: Mapping[str, Any]) -> dict[str, Any]:
    """run.json with the present names of its keys."""
    return {RENAMED_IN_RUN.get(name, name): value for name, value in run.items()}


def upgraded_weights(values: Mapping[str, Value]) -> dict[str, Value]:
    """Weights by their present names."""

    def present(name: str) -> str:
        old = next((old for old in RENAMED_WEIGHTS if name.startswith(old)), "")
        return RENAMED_WEIGHTS.get(old, "") + name.removeprefix(old)

    return {present(name): value for name, value in values.items()}


def _renamed(part: Any) -> Any:
    """A part's settings, or the settings of each of several."""
    if isinstance(part, list):
        return [_renamed(one) for one in part]
    return {RENAMED_SETTINGS.get(k, k): v for k, v in part.items()} if isinstance(part, Mapping) else part
