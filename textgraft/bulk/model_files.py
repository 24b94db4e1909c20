"""The files of a model by its name: where they are for other processes, and whether they are the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

from textgraft.core.lazy import resolve
from textgraft.data.fingerprint import fingerprint
from textgraft.models import model_folder
from textgraft.models.model_folder import ELMO, TENSORFLOW, TRANSFORMERS

FIND_CHECKPOINT = "textgraft.conversion.hub:find"
CONFIG = "config.json"
PREFIXES = (TRANSFORMERS, TENSORFLOW, ELMO)


def absolute_name(name: str | Path) -> str:
    """The name with a folder in it as seen from the root: other processes have other working directories.

    >>> absolute_name("en-ulmfit"), absolute_name("hf:/models/bert")
    ('en-ulmfit', 'hf:/models/bert')
    """
    prefix = next((prefix for prefix in PREFIXES if str(name).startswith(prefix)), "")
    folder = Path(str(name).removeprefix(prefix))
    return f"{prefix}{folder.absolute()}" if folder.exists() else str(name)


def model_identity(name: str) -> str:
    """A hash of a model's files.

    A model folder's config.json has the hashes of all other files; of other libraries' folders the names, sizes and
    both ends of the files count.

    Raises:
        UserError: There is no such model.
    """
    if not model_folder.is_checkpoint_name(name):
        folder = model_folder.find(name)
        files = sorted(folder.rglob(CONFIG))
        parts = [(file.relative_to(folder).as_posix(), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]
    else:
        folder = _checkpoint_folder(name)
        files = sorted(file for file in folder.rglob("*") if file.is_file() and file.suffix != ".md")
        parts = [(file.relative_to(folder).as_posix(), str(fingerprint(file))) for file in files]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _checkpoint_folder(name: str) -> Path:
    for prefix in (TENSORFLOW, ELMO):
        if name.startswith(prefix):
            folder = Path(name.removeprefix(prefix))
            return folder if folder.is_dir() else folder.parent
    found: Path = resolve(FIND_CHECKPOINT)(name)
    return found
