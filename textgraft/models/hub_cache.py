"""The user's Hugging Face cache: where it is, and what is in it. Nothing here needs a library or a network.

The layout is the one that `huggingface_hub` documents: `models--OWNER--MODEL` holds `blobs/HASH` (contents),
`snapshots/COMMIT/FILE` (links to them) and `refs/BRANCH` (a commit).
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""Files of weights in order of preference: files without code before pickles."""
MAIN = "main"
_COMMIT = re.compile("[0-9a-f]{40}")


def cache_folder() -> Path:
    """The folder of the cache, by the variables that the hub's own programs know."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return _expanded(os.environ[variable])
    if os.environ.get("HF_HOME"):
        return _expanded(os.environ["HF_HOME"]) / "hub"
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def model_folder(name: str) -> Path:
    """The folder of OWNER/MODEL in the cache, whether it exists or not."""
    return cache_folder() / f"models--{name.replace('/', '--')}"


def snapshot(name: str, revision: str = MAIN) -> Path | None:
    """The files of OWNER/MODEL at a branch, tag or commit, complete or not; None where there are none."""
    folder = model_folder(name)
    try:
        commit = (folder / "refs" / revision).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        commit = revision if _COMMIT.fullmatch(revision) else ""
    files = folder / "snapshots" / commit
    return files if commit and files.is_dir() else None


def missing_file(folder: Path) -> str:
    """The first file that `folder` lacks of a config, weights and their shards; empty if it is complete."""
    if not (folder / CONFIG).is_file():
        return CONFIG
    weights = next((name for name in WEIGHTS if (folder / name).is_file()), None)
    if weights is None:
        return WEIGHTS[0]
    if not weights.endswith(".index.json"):
        return ""
    try:
        shards = sorted(set(json.loads((folder / weights).read_bytes())["weight_map"].values()))
        return next((shard for shard in shards if not (folder / shard).is_file()), "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return weights


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(path)).expanduser()
