"""`textgraft.fetch`: download a model from a hub, into the user's Hugging Face cache or into a folder.

Nothing else in the package but `serve` and the engine of clusters opens a socket. An interrupted download is resumed by
a later call.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from textgraft.conversion import model_cards
from textgraft.conversion.download_targets import Cache, PlainFolder, Target, exclusive
from textgraft.conversion.downloads import Hub, RemoteFile, Repository
from textgraft.conversion.huggingface import READERS, validate_type
from textgraft.core.errors import UserError
from textgraft.models import catalogue
from textgraft.models.hub_cache import CONFIG, MAIN, WEIGHTS
from textgraft.models.model_folder import TRANSFORMERS, validate_new_path

OPTIONAL_FILES = (
    model_cards.CARD,
    *("LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE"),
    *("added_tokens.json", "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
    *("sentencepiece.bpe.model", "spiece.model", "spm.model", "tokenizer.model"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("generation_config.json", "chat_template.jinja"),
)
"""Files that are downloaded beside config.json and the weights, if they exist."""
MODULE = re.compile(r"(\d+_[A-Za-z]+)/(config\.json|model\.safetensors|pytorch_model\.bin)")
"""Files of the modules that follow an encoder in a sentence-transformers folder: pooling, dense layers."""
SAFE, PICKLE = "model.safetensors", "pytorch_model.bin"
NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
REVISION = re.compile(r"[\w.-]+(/[\w.-]+)*")
MIN_FREE = 1 << 20
"""Bytes that must stay free on the disk."""

Advance = Callable[[int], object]


@dataclass(frozen=True)
class Fetched:
    """A fetched model: its folder, the name that opens it, and its record (name, commit, licence, files)."""

    folder: Path
    name: str
    record: Mapping[str, Any]


def fetch(
    name: str,
    out: Path | str | None = None,
    *,
    revision: str = MAIN,
    endpoint: str | None = None,
    overwrite: bool = False,
    show: bool = True,
) -> Path:
    """Download a model of a Hugging Face hub with `huggingface_hub`; `hf:NAME` (or `hf:OUT`) then loads it.

    Only files that a model needs are taken, and each is verified by the hub's hash: sha256, or git's sha1 for small
    files. After an interruption the same call resumes; the model is there when it is complete. Warns where the weights
    are a pickle.

    Args:
        name: OWNER/MODEL, or a name of `textgraft models`; `@REVISION` may follow.
        out: Folder to write, with a run.json of the files, commit and licence (None: the user's Hugging Face cache).
        revision: Branch, tag or commit; it is resolved to a commit before anything is downloaded.
        endpoint: Address of another hub (None: HF_ENDPOINT, else huggingface.co). The user's token is sent to it.
        overwrite: Replace an existing folder `out`.
        show: Show progress on stderr.

    Returns:
        The folder.

    Raises:
        UserError: The model type is not supported, or hub, network or disk fail.
    """
    return fetch_model(name, out, revision=revision, endpoint=endpoint, overwrite=overwrite, show=show).folder


def fetch_model(
    name: str,
    out: Path | str | None = None,
    *,
    revision: str = MAIN,
    endpoint: str | None = None,
    overwrite: bool = False,
    show: bool = True,
) -> Fetched:
    """`fetch`, with what it has found out about the model."""
    short, at, named_revision = name.removeprefix(TRANSFORMERS).partition("@")
    revision = named_revision if at and revision == MAIN else revision
    known = catalogue.find(short)
    name = known.hub if known else short
    if out is not None:
        validate_new_path(Path(out), overwrite)
    if not NAME.fullmatch(name) or ".." in name:
        raise UserError(f"'{name}' is not the name of a model on a hub.", remedy="Write it as OWNER/MODEL.")
    if not REVISION.fullmatch(revision) or ".." in revision:
        raise UserError(f"'{revision}' is not a branch, a tag or a commit.", where=name, remedy="Check the revision.")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise UserError("HF_HUB_OFFLINE is set, so nothing is fetched.", remedy="Unset it to fetch.")
    hub = Hub(endpoint)
    repository = hub.repository(name, revision)
    target: Target = PlainFolder(Path(out)) if out is not None else Cache(name, revision, repository.commit)
    with exclusive(target.work):
        files, record = _download(hub, repository, revision, target, show)
        folder = target.finish(files, record)
    suffix = "" if revision == MAIN else f"@{revision}"
    return Fetched(folder, f"{TRANSFORMERS}{folder if out is not None else name + suffix}", record)


def _download(
    hub: Hub, repository: Repository, revision: str, target: Target, show: bool
) -> tuple[list[RemoteFile], dict[str, Any]]:
    """Download all that a model needs; return the files and the record of their origin."""
    try:
        files = _files_to_fetch(hub, repository, target)
    except UserError:
        small = (CONFIG, *(name for name in WEIGHTS if name.endswith(".json")))
        target.give_up([repository.files[name] for name in small if name in repository.files])
        raise
    target.keep_only(files)
    _validate_free_space(target, files)
    with _progress(sum(file.size for file in files), show) as (name_file, advance):
        for file in files:
            name_file(file.name)
            hub.download(repository, file, target.whole(file), target.part(file), advance)
    card = next((target.whole(file).read_bytes() for file in files if file.name == model_cards.CARD), b"")
    return files, {
        "stage": "fetch",
        "name": repository.name,
        "endpoint": hub.endpoint,
        "revision": revision,
        "commit": repository.commit,
        **model_cards.facts(card),
        "files": {file.name: {"bytes": file.size, file.algorithm: file.digest} for file in files},
    }


def can_open(model_type: str) -> bool:
    """True if this installation opens checkpoints of this model_type, as far as is known without their files."""
    return model_type in READERS or find_spec("transformers") is not None


def _validate_type(config: Mapping[str, Any], where: str) -> None:
    """Raise UserError if a model of this config.json cannot be opened."""
    kind = str(config.get("model_type"))
    try:
        validate_type(config, where)
    except UserError as error:
        message = f"this is a model of the kind '{kind}', which cannot be read, so it is not fetched: {error.message}"
        remedy = error.remedy or "Choose another: `textgraft models` lists some."
        raise UserError(message, where=where, remedy=remedy) from error


def _files_to_fetch(hub: Hub, repository: Repository, target: Target) -> list[RemoteFile]:
    """Files to download. Downloads those that determine them: config.json and an index of shards.

    Raises:
        UserError: The model cannot be loaded.
    """
    where = f"{repository.name} at {repository.commit}"
    files = repository.files
    if CONFIG not in files:
        raise UserError(f"there is no {CONFIG}, so this is no model that can be read.", where=where)

    def content_of(name: str) -> dict[str, Any]:
        file = files[name]
        hub.download(repository, file, target.whole(file), target.part(file), _ignore)
        return _json(target.whole(file), name, where)

    _validate_type(content_of(CONFIG), where)
    first = next((weights for weights in WEIGHTS if weights in files), None)
    if first is None:
        remedy = f"It should hold one of: {', '.join(WEIGHTS)}."
        raise UserError("there are no weights of PyTorch here.", where=where, remedy=remedy)
    names = [first]
    if first.endswith(".index.json"):
        shards = content_of(first).get("weight_map")
        if not isinstance(shards, Mapping):
            raise UserError(f"{first} has no weight_map of file names.", where=where)
        names += sorted({str(shard) for shard in shards.values()})
    absent = [shard for shard in names if shard not in files or Path(shard).name != shard]
    if absent:
        raise UserError(f"{first} names '{absent[0]}', which is not there.", where=where)
    names = [*_module_files(files), *names]
    pickles = [name for name in names if name.endswith(".bin")]
    if pickles:
        warnings.warn(f"{where}: there are no safetensors, so the weights are a pickle ({pickles[-1]}).", stacklevel=4)
    return [files[n] for n in (CONFIG, *OPTIONAL_FILES, *names) if n in files]


def _module_files(names: Iterable[str]) -> list[str]:
    """Files of modules in subfolders; a pickle only where there are no safetensors beside it."""
    modules = sorted(name for name in names if MODULE.fullmatch(name))
    return [name for name in modules if not (name.endswith(PICKLE) and name.replace(PICKLE, SAFE) in modules)]


def _ignore(_: int) -> None:
    pass


def _json(path: Path, name: str, where: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{name} is damaged ({error}).", where=where) from error
    if not isinstance(content, dict):
        raise UserError(f"{name} is no JSON object.", where=where)
    return content


def _validate_free_space(target: Target, files: Sequence[RemoteFile]) -> None:
    missing = sum(file.size - _size(target, file) for file in files)
    free = shutil.disk_usage(target.work).free
    if missing + MIN_FREE > free:
        message = f"{missing / 1e9:.2f} GB are still to be fetched, and {free / 1e9:.2f} GB are free on this disk."
        remedy = "Make room, or choose another folder (of the cache with HF_HOME)."
        raise UserError(message, where=str(target.work), remedy=remedy)


def _size(target: Target, file: RemoteFile) -> int:
    """Number of bytes of the file that are already downloaded."""
    sizes = [path.stat().st_size for path in (target.whole(file), target.part(file)) if path.is_file()]
    return min(max(sizes, default=0), file.size)


@contextlib.contextmanager
def _progress(total: int, show: bool) -> Iterator[tuple[Callable[[str], object], Advance]]:
    """Progress bar over all files on stderr: functions to set a file's name, and to add bytes."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from textgraft.core.progress_bar import Bar

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, TimeRemainingColumn(), show=show) as bar:
        task = bar.add_task("", total=total)
        yield lambda name: bar.update(task, description=name), lambda count: bar.advance(task, count)
