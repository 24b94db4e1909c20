"""What run.json says of how a result came to be: settings, data hashes, seeds, versions, machine."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch

from textgraft import __version__
from textgraft.training.loop import Settings

PACKAGES = ("torch", "tokenizers", "safetensors", "numpy", "scikit-learn")


def ancestry(base: dict[str, Any]) -> dict[str, Any] | None:
    """What a model's run.json keeps of the run.json of the model that it started from."""
    return {k: base[k] for k in ("name", "stage", "data", "tokens_seen", "licence") if k in base} or None


def provenance(
    *, stage: str, name: str, base: dict[str, Any], data: dict[str, Any], recipe: str, settings: Settings
) -> dict[str, Any]:
    """The part of run.json that every stage shares; `base` is the run.json of the model that it started from."""
    from textgraft.core.device import device_name, resolve_device
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
        "settings": {k: v for k, v in asdict(settings).items() if k not in ("save_seconds", "device")},
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
