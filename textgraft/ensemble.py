"""Several models that answer as one, in one folder: config.json names the members, each a model folder inside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textgraft import artifact
from textgraft.artifact import Artifact
from textgraft.errors import UserError
from textgraft.report.card import model_card


def save_ensemble(
    members: Mapping[str, Artifact],
    run: Mapping[str, Any],
    folder: Path | str,
    *,
    overwrite: bool = False,
    documents: Mapping[str, bytes] | None = None,
) -> Path:
    """Write the members, by their names, and what `run` says of all of them: a whole folder or nothing.

    Replaces a folder that holds the very same weights. Raises UserError and takes `documents` as artifact.save does.
    """
    folder = Path(folder)
    again = all(artifact.has_weights(folder / name, artifact.weights(m.model)) for name, m in members.items())
    artifact.refuse_existing(folder, overwrite or again)
    files = {"run.json": (json.dumps(run, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode()}
    for name, member in members.items():
        files |= {f"{name}/{file}": data for file, data in artifact.contents(member).items()}
    shown = {"config.json": artifact.config({"members": list(members)}, files), "README.md": model_card(run).encode()}
    return artifact.write_folder(folder, {**files, **shown, **(documents or {})})


def load_members(name: str | Path) -> list[Artifact]:
    """The models in a folder: the members of an ensemble, or the one model that it is.

    Raises UserError as artifact.load does, and for files of an ensemble that are missing or altered.
    """
    folder = artifact.find(name)
    config = artifact.read_config(folder)
    if "members" not in config:
        return [artifact.load(folder)]
    artifact.read_files(folder, config)
    return [artifact.load(folder / member) for member in config["members"]]


def load_one(name: str | Path) -> Artifact:
    """The model in a folder. Raises UserError where it is an ensemble."""
    members = load_members(name)
    if len(members) > 1:
        raise UserError(
            "this is an ensemble of several models.", where=str(name), remedy="Name the folder of one of its members."
        )
    return members[0]
