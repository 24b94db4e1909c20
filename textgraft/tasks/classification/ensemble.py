"""Several models that answer as one, in one folder: config.json names the members, each a model folder inside.

What a kind of model needs is imported with the first of them: an exported graph does without torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textgraft.core.errors import UserError
from textgraft.models import model_folder
from textgraft.models.card import model_card
from textgraft.models.model_folder import is_foreign

if TYPE_CHECKING:
    from textgraft.models.artifact import Artifact, Predictor


@dataclass(frozen=True)
class Ensemble:
    """Models, and how much each one's answer counts: the mean of `weights` is 1."""

    members: list[Predictor]
    weights: list[float]


def save_ensemble(
    members: Mapping[str, Predictor],
    run: Mapping[str, Any],
    folder: Path | str,
    *,
    weights: Sequence[float] | None = None,
    overwrite: bool = False,
    documents: Mapping[str, bytes] | None = None,
) -> Path:
    """Write the members, by their names, and what `run` says of all of them: a whole folder or nothing.

    `weights` are those of the members' answers in the mean (None: equal). Replaces a folder that holds the very same
    weights. Raises UserError and takes `documents` as artifact.save does.
    """
    from textgraft.models import artifact

    folder = Path(folder)
    own = {name: member.files() for name, member in members.items()}
    again = all(artifact.has_weights(folder / name, files["model.safetensors"]) for name, files in own.items())
    model_folder.refuse_existing(folder, overwrite or again)
    files = {"run.json": model_folder.to_json(dict(run))}
    for name, inside in own.items():
        files |= {f"{name}/{file}": data for file, data in inside.items()}
    description: dict[str, Any] = {"members": list(members)}
    if weights is not None:
        description["weights"] = [float(weight) for weight in weights]
    shown = {"config.json": model_folder.config(description, files), "README.md": model_card(run).encode()}
    return model_folder.write_folder(folder, {**files, **shown, **(documents or {})})


def load_ensemble(name: str | Path, *, device: str = "cpu") -> Ensemble:
    """The models in a folder: the members of an ensemble, or the one model that it is, networks on `device`.

    That is one of core.device.DEVICES; linear classifiers and word vectors are always read by the processor. Raises
    UserError as loading.load does, for files of an ensemble that are missing or altered, and for a device that is not
    there.
    """
    if device not in ("auto", "cpu"):
        _resolved(device)  # a wrong one is told before anything is read
    if is_foreign(name):
        return Ensemble([_network(name, device)], [1.0])
    folder = model_folder.find(name)
    config = model_folder.read_config(folder)
    if "members" not in config:
        return Ensemble([_load(folder, config, device)], [1.0])
    model_folder.read_files(folder, config)
    weights, inside = _weights(config, folder / "config.json"), [folder / member for member in config["members"]]
    return Ensemble([_load(member, model_folder.read_config(member), device) for member in inside], weights)


def load_members(name: str | Path, *, device: str = "cpu") -> list[Predictor]:
    """The models in a folder, without their weights. Raises UserError as load_ensemble does."""
    return load_ensemble(name, device=device).members


def _load(folder: Path, config: Mapping[str, Any], device: str) -> Predictor:
    if "vectors" in config:
        from textgraft.word_embeddings.text_means import MeanOfWords

        return MeanOfWords.load(folder)
    if "linear" in config:
        from textgraft.linear import artifact as linear_artifact

        return linear_artifact.load(folder)
    if "onnx" in config:
        from textgraft.models import graph_loading as graphs

        return graphs.load(folder, config)
    return _network(folder, device)


def _network(name: str | Path, device: str) -> Artifact:
    from textgraft.models import loading

    loaded, chip = loading.load_network(name), _resolved(device)
    loaded.model.to(chip)
    return loaded


def _resolved(device: str) -> Any:
    from textgraft.core.device import resolve_device

    return resolve_device(device)


def _weights(config: Mapping[str, Any], path: Path) -> list[float]:
    """The members' weights, scaled to a mean of 1. Raises UserError where they are not one positive number each."""
    members = config["members"]
    given = config.get("weights", [1] * len(members) if isinstance(members, list) else None)
    sound = (
        isinstance(members, list)
        and isinstance(given, list)
        and len(given) == len(members) > 0
        and all(isinstance(name, str) for name in members)
        and all(isinstance(w, int | float) and math.isfinite(w) and w > 0 for w in given)
    )
    if not sound:
        message = "this describes no ensemble: it takes names of members, and a positive weight each or none."
        raise UserError(message, where=str(path), remedy=model_folder.RESTORE)
    return [weight * len(given) / sum(given) for weight in given]
