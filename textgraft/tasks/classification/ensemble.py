"""An ensemble of classifiers as a folder: config.json names the members, each a model folder inside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textgraft.models import model_folder, shared_files
from textgraft.models.card import model_card

if TYPE_CHECKING:
    from textgraft.models.artifact import Predictor


def save_ensemble(
    members: Mapping[str, Predictor],
    run: Mapping[str, Any],
    folder: Path | str,
    *,
    weights: Sequence[float] | None = None,
    overwrite: bool = False,
    documents: Mapping[str, bytes] | None = None,
) -> Path:
    """Write an ensemble: a whole folder or nothing. What several members have, such as an encoder, is stored once.

    Args:
        members: The members, by name.
        run: run.json of the ensemble.
        folder: Folder to write. One with the very same weights is replaced.
        weights: Weights of the members' predictions in the mean (None: equal).
        overwrite: Replace an existing folder.
        documents: Further files, by name.

    Raises:
        UserError: As artifact.save.
    """
    folder = Path(folder)
    files = ensemble_files(members, run, weights)
    same = all(_is_saved(folder / name, files[f"{name}/config.json"]) for name in members)
    model_folder.validate_new_path(folder, overwrite or same)
    return model_folder.write_folder(folder, {**files, **(documents or {})})


def ensemble_files(
    members: Mapping[str, Predictor], run: Mapping[str, Any], weights: Sequence[float] | None = None
) -> dict[str, bytes]:
    """The files of an ensemble's folder by name."""
    own, shared = shared_files.without_repeats(
        {name: member.files() for name, member in members.items()}, model_folder.config_of
    )
    files = {"run.json": model_folder.to_json(dict(run)), **shared}
    for name, inside in own.items():
        files |= {f"{name}/{file}": data for file, data in inside.items()}
    description: dict[str, Any] = {"members": list(members)}
    if weights is not None:
        description["weights"] = [float(weight) for weight in weights]
    card = model_card(run).encode()
    return {**files, "config.json": model_folder.config(description, files), "README.md": card}


def _is_saved(folder: Path, config: bytes) -> bool:
    """True if `folder` is a member with the weights and shared parts of this config.json."""
    if not (folder / "config.json").is_file():
        return False
    saved, expected = model_folder.read_config(folder)["files"], json.loads(config)["files"]
    names = [name for name in expected if name == shared_files.WEIGHTS or name.startswith("../")]
    return {name: saved.get(name) for name in names} == {name: expected[name] for name in names}
