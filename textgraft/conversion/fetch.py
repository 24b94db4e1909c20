"""`textgraft.fetch`: download a model from a hub into a folder.

Nothing else in the package opens a socket. Unfinished downloads are beside the folder, in `.OUT.fetch/`, and are
resumed by a later call; docs/decisions.md explains why the client is our own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from textgraft.conversion.hub_client import Hub, RemoteFile, Repository
from textgraft.conversion.huggingface import READERS, WEIGHTS
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.files import cannot_write, write_atomically
from textgraft.models.model_folder import TRANSFORMERS, put_in_place, to_json, validate_new_path

ENDPOINT = "https://huggingface.co"
CONFIG, CARD, RECORD = "config.json", "README.md", "run.json"
OPTIONAL_FILES = (
    CARD,
    "LICENSE",
    "LICENSE.md",
    "LICENSE.txt",
    "NOTICE",
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)
"""Files that are downloaded beside config.json and the weights, if they exist."""
MIN_FREE = 1 << 20
"""Bytes that must stay free on the disk."""

Advance = Callable[[int], object]


def fetch(
    name: str,
    out: Path | str,
    *,
    revision: str = "main",
    endpoint: str | None = None,
    overwrite: bool = False,
    show: bool = True,
) -> Path:
    """Download a model of a Hugging Face hub into the folder `out`; `hf:OUT` then loads it.

    Every file is verified by the hub's hash: sha256, or git's sha1 for small files. After an interruption the same call
    resumes; `out` appears when it is complete. Its run.json records the files, commit and licence. Warns where the
    weights are a pickle.

    Args:
        name: OWNER/MODEL.
        out: Folder to write.
        revision: Branch, tag or commit; it is resolved to a commit before anything is downloaded.
        endpoint: Address of another hub (None: HF_ENDPOINT, else huggingface.co). HF_TOKEN is sent to it if set.
        overwrite: Replace an existing folder.
        show: Show progress on stderr.

    Returns:
        The folder.

    Raises:
        UserError: The model type is not supported, or hub, network or disk fail.
    """
    out, name = Path(out), name.removeprefix(TRANSFORMERS)
    validate_new_path(out, overwrite)
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or ".." in name:
        raise UserError(f"'{name}' is not the name of a model on a hub.", remedy="Write it as OWNER/MODEL.")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise UserError("HF_HUB_OFFLINE is set, so nothing is fetched.", remedy="Unset it to fetch.")
    hub = Hub(endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT, os.environ.get("HF_TOKEN") or None)
    repository = hub.repository(name, revision)
    work = out.with_name(f".{out.name}.fetch")
    with _exclusive(work):
        try:
            files_to_fetch = _files_to_fetch(hub, repository, work)
        except UserError:
            if {path.name for path in work.iterdir()} <= {CONFIG, *WEIGHTS}:  # nothing worth resuming
                shutil.rmtree(work)
            raise
        _clear(work, files_to_fetch)
        _validate_free_space(work, files_to_fetch)
        with _progress(sum(file.size for file in files_to_fetch), show) as (name_file, advance):
            for file in files_to_fetch:
                name_file(file.name)
                hub.download(repository, file, work, advance)
        try:
            write_atomically(work / RECORD, to_json(_record(repository, revision, hub.endpoint, files_to_fetch, work)))
            put_in_place(work, out)
        except OSError as error:
            raise cannot_write(out, error) from error
    return out


def _files_to_fetch(hub: Hub, repository: Repository, work: Path) -> list[RemoteFile]:
    """Files to download. Downloads those that determine them: config.json and an index of shards.

    Raises:
        UserError: The model cannot be loaded.
    """
    where = f"{repository.name} at {repository.commit}"
    files = repository.files
    if CONFIG not in files:
        raise UserError(f"there is no {CONFIG}, so this is no model that can be read.", where=where)
    hub.download(repository, files[CONFIG], work, _ignore)
    kind = _json(work / CONFIG, where).get("model_type")
    if kind not in READERS:
        message = f"this is a model of the kind '{kind}', which cannot be read, so it is not fetched."
        raise UserError(message, where=where, remedy=did_you_mean(str(kind), READERS))
    first = next((weights for weights in WEIGHTS if weights in files), None)
    if first is None:
        remedy = f"It should hold one of: {', '.join(WEIGHTS)}."
        raise UserError("there are no weights of PyTorch here.", where=where, remedy=remedy)
    names = [first]
    if first.endswith(".index.json"):
        hub.download(repository, files[first], work, _ignore)
        shards = _json(work / first, where).get("weight_map")
        if not isinstance(shards, Mapping):
            raise UserError(f"{first} has no weight_map of file names.", where=where)
        names += sorted({str(shard) for shard in shards.values()})
    absent = [shard for shard in names if shard not in files or Path(shard).name != shard]
    if absent:
        raise UserError(f"{first} names '{absent[0]}', which is not there.", where=where)
    if names[-1].endswith(".bin"):
        warnings.warn(f"{where}: there are no safetensors, so the weights are a pickle ({names[-1]}).", stacklevel=3)
    return [files[n] for n in (CONFIG, *OPTIONAL_FILES, *names) if n in files]


def _ignore(_: int) -> None:
    pass


def _json(path: Path, where: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path.name} is damaged ({error}).", where=where) from error
    if not isinstance(content, dict):
        raise UserError(f"{path.name} is no JSON object.", where=where)
    return content


@contextlib.contextmanager
def _exclusive(work: Path) -> Iterator[None]:
    """Context with exclusive use of `work` by this process. Raises UserError if another process uses it."""
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(work, error) from error
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    folder = os.open(work, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise UserError(
            "another process is fetching here.", where=str(work), remedy="Wait until it is done."
        ) from error
    finally:
        os.close(folder)


def _clear(work: Path, files_to_fetch: Sequence[RemoteFile]) -> None:
    """Remove files of another commit or model."""
    expected = {name for file in files_to_fetch for name in (file.name, file.part)}
    for path in work.iterdir():
        if path.name not in expected:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _validate_free_space(work: Path, files_to_fetch: Iterable[RemoteFile]) -> None:
    missing = sum(file.size - _size(work, file) for file in files_to_fetch)
    free = shutil.disk_usage(work).free
    if missing + MIN_FREE > free:
        message = f"{missing / 1e9:.2f} GB are still to be fetched, and {free / 1e9:.2f} GB are free on this disk."
        raise UserError(message, where=str(work), remedy="Make room, or choose another folder.")


def _size(work: Path, file: RemoteFile) -> int:
    """Number of bytes of the file that are already downloaded."""
    sizes = [path.stat().st_size for path in (work / file.name, work / file.part) if path.is_file()]
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


def _record(
    repository: Repository, revision: str, endpoint: str, files: Sequence[RemoteFile], work: Path
) -> dict[str, Any]:
    """run.json: origin and contents of the folder."""
    card = work / CARD
    head = read_head(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else {}
    licences = head.get("license", [])
    if licences == ["other"]:
        licences = head.get("license_name", licences)
    return {
        "stage": "fetch",
        "name": repository.name,
        "endpoint": endpoint,
        "revision": revision,
        "commit": repository.commit,
        "licence": ", ".join(licences) or None,
        "language": ", ".join(head.get("language", [])) or None,
        "files": {file.name: {"bytes": file.size, file.algorithm: file.digest} for file in files},
    }


def read_head(card: str) -> dict[str, list[str]]:
    """Settings in the header of a model card with their values; nested ones are left out."""
    header = re.match(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", card, re.DOTALL | re.MULTILINE)
    head: dict[str, list[str]] = {}
    key = ""
    for line in header[1].splitlines() if header else ():
        setting = re.fullmatch(r"([\w-]+):(?:\s+(.*?))?\s*", line)
        item = re.fullmatch(r"\s*-\s+([^:]+?)\s*", line)
        if setting:
            key, value = setting[1], setting[2] or ""
            values = value[1:-1].split(",") if value.startswith("[") and value.endswith("]") else [value]
            head[key] = [v.strip(" \"'") for v in values if v.strip(" \"'")]
        elif item and key:
            head[key].append(item[1].strip("\"'"))
    return head
