"""Provenance of a result in run.json: settings, data hashes, seeds, versions, machine."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch

from textgraft import __version__
from textgraft.training.settings import Settings

PACKAGES = ("torch", "tokenizers", "safetensors", "numpy", "scikit-learn")


WITHOUT_EFFECT = ("save_seconds", "device", "sharding", "activation_checkpointing")
"""Settings that do not change the result."""


def ancestry(base: dict[str, Any]) -> dict[str, Any] | None:
    """The entries of `base` that the run.json of a model trained from it keeps; None if it has none of them."""
    return {k: base[k] for k in ("name", "stage", "data", "tokens_seen", "licence") if k in base} or None


def provenance(
    *, stage: str, name: str, base: dict[str, Any], data: dict[str, Any], recipe: str, settings: Settings
) -> dict[str, Any]:
    """The entries of run.json that all stages share.

    Args:
        stage: Name of the stage.
        name: Name of the new model.
        base: run.json of the model that training started from.
        data: A description of the data, with hashes.
        recipe: Name of the recipe.
        settings: Of the training.
    """
    from textgraft.core.device import device_name, resolve_device
    from textgraft.core.processes import current
    from textgraft.nn.cpu.precision import resolve

    device = resolve_device(settings.device)
    return {
        "stage": stage,
        "name": name,
        "base": ancestry(base),
        **({"recommended_recipe": base["recommended_recipe"]} if "recommended_recipe" in base else {}),
        "licence": base.get("licence"),
        "language": base.get("language"),
        "data": data,
        "recipe": recipe,
        **({"processes": current().size, "sharding": settings.sharding} if current().several else {}),
        "settings": {k: v for k, v in asdict(settings).items() if k not in WITHOUT_EFFECT},
        "precision": resolve(settings.precision, device),
        "versions": {"textgraft": __version__} | {p: version(p) for p in PACKAGES},
        "machine": {
            "processor": platform.machine(),
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count(),
            "device": device_name(device),
            "python": platform.python_version(),
        },
    }
