"""Upgrade of model folders of earlier versions: renamed settings, keys and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

PARTS = ("encoder", "head", "stack", "onnx")
"""The parts of config.json with renamed settings; none contains names that users choose."""
RENAMED_SETTINGS = {"readout": "layer_aggregation", "piece": "subword_pooling"}
RENAMED_IN_RUN = {
    "readout": "layer_aggregation",
    "piece": "subword_pooling",
    "suits": "recommended_recipe",
    "blend": "ensemble",
    "examined": "evaluation_split",
}
RENAMED_WEIGHTS = {"readout.": "layer_aggregation."}
"""Prefixes of the names of weights."""

Value = TypeVar("Value")


def upgraded_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json with the current names and places of its settings."""
    return _with_sentence_embedding(
        {name: _renamed(value) if name in PARTS else value for name, value in config.items()}
    )


def upgraded_run(run: Mapping[str, Any]) -> dict[str, Any]:
    """run.json with the current names of its keys."""
    return {RENAMED_IN_RUN.get(name, name): value for name, value in run.items()}


def upgraded_weights(values: Mapping[str, Value]) -> dict[str, Value]:
    """Weights by their current names."""

    def current(name: str) -> str:
        prefix = next((prefix for prefix in RENAMED_WEIGHTS if name.startswith(prefix)), "")
        return RENAMED_WEIGHTS.get(prefix, "") + name.removeprefix(prefix)

    return {current(name): value for name, value in values.items()}


def _with_sentence_embedding(config: dict[str, Any]) -> dict[str, Any]:
    """The pooling of a sentence encoder, once a setting of the BERT, as the description of the artifact."""
    encoder = config.get("encoder")
    if not isinstance(encoder, Mapping) or encoder.get("name") != "bert" or "pooling" not in encoder:
        return config
    pooling = encoder["pooling"]
    described = {} if pooling is None else {"sentence_embedding": {"pooling": pooling}}
    return {**config, **described, "encoder": {name: value for name, value in encoder.items() if name != "pooling"}}


def _renamed(part: Any) -> Any:
    """The settings of a part, or of each of a list of parts."""
    if isinstance(part, list):
        return [_renamed(element) for element in part]
    return {RENAMED_SETTINGS.get(k, k): v for k, v in part.items()} if isinstance(part, Mapping) else part
