"""An ensemble of classifiers as a folder: config.json names the members, each a model folder inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textgraft.models import model_folder
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
    """Write an ensemble: a whole folder or nothing.

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
    from textgraft.models import artifact

    folder = Path(folder)
    member_files = {name: member.files() for name, member in members.items()}
    same = all(artifact.has_weights(folder / name, files["model.safetensors"]) for name, files in member_files.items())
    model_folder.refuse_existing(folder, overwrite or same)
    files = {"run.json": model_folder.to_json(dict(run))}
    for name, inside in member_files.items():
        files |= {f"{name}/{file}": data for file, data in inside.items()}
    description: dict[str, Any] = {"members": list(members)}
    if weights is not None:
        description["weights"] = [float(weight) for weight in weights]
    shown = {"config.json": model_folder.config(description, files), "README.md": model_card(run).encode()}
    return model_folder.write_folder(folder, {**files, **shown, **(documents or {})})
