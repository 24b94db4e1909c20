"""Parts of an ensemble's members that are equal, such as a frozen encoder: stored once, in a folder beside them.

A part is a tensor of model.safetensors or a whole file. Under "shared" a member's config.json says where its own are,
and its list of files has the shared ones with their hashes: one that is missing or altered is an error like any other.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SHARED, WEIGHTS, CONFIG, CARD = "shared", "model.safetensors", "config.json", "README.md"
MIN_BYTES = 1 << 16
"""Smaller parts stay with each member."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a safetensors file: its entry in the header, without offsets, and its bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def digest(self) -> str:
        """Equal for equal tensors alone."""
        return hashlib.sha256(f"{self.dtype} {self.shape} ".encode() + self.data).hexdigest()


def tensors_of(data: bytes) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file by name."""
    begin = 8 + int.from_bytes(data[:8], "little")
    header = {name: entry for name, entry in json.loads(data[8:begin]).items() if name != "__metadata__"}
    spans = {name: [begin + offset for offset in entry["data_offsets"]] for name, entry in header.items()}
    return {
        name: StoredTensor(entry["dtype"], tuple(entry["shape"]), data[slice(*spans[name])])
        for name, entry in header.items()
    }


def safetensors_of(tensors: Mapping[str, StoredTensor]) -> bytes:
    """The safetensors file of tensors; those of wide elements come first, so that all are aligned."""
    header, parts, end = {}, [], 0
    width = {name: len(t.data) // max(1, math.prod(t.shape)) for name, t in tensors.items()}
    for name in sorted(tensors, key=lambda name: (-width[name], name)):
        tensor = tensors[name]
        begin, end = end, end + len(tensor.data)
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
        parts.append(tensor.data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *parts])


def without_repeats(
    members: Mapping[str, Mapping[str, bytes]], config_of: Callable[[Mapping[str, Any], Mapping[str, str]], bytes]
) -> tuple[dict[str, dict[str, bytes]], dict[str, bytes]]:
    """Each member's own files, with "shared" in its config.json, and the files that several members share.

    Args:
        members: The files of each member by name.
        config_of: models.model_folder.config_of.

    Returns:
        The files of each member without the shared parts, and the shared files by their paths from the ensemble's
        folder. A member that shares nothing is unchanged.
    """
    own = {name: dict(files) for name, files in members.items()}
    places: dict[str, dict[str, Any]] = {name: {"tensors": {}, "files": {}} for name in members}
    shared = _without_repeated_tensors(own, places) | _without_repeated_files(own, places)
    hashes = {f"../{path}": hashlib.sha256(data).hexdigest() for path, data in shared.items()}
    for member, found in places.items():
        used = {path for path, _ in found["tensors"].values()} | set(found["files"].values())
        if used:
            files, content = own[member], json.loads(own[member][CONFIG])
            description = {key: value for key, value in content.items() if key not in ("files", "format", "sha256")}
            kept = {name: hashlib.sha256(files[name]).hexdigest() for name in content["files"] if name in files}
            kept |= {f"../{path}": hashes[f"../{path}"] for path in sorted(used)}
            files[CONFIG] = config_of({**description, SHARED: found}, kept)
    return own, shared


def _without_repeated_tensors(
    own: Mapping[str, dict[str, bytes]], places: Mapping[str, dict[str, Any]]
) -> dict[str, bytes]:
    """Move the tensors that several members have to files, one for each set of members; returns these."""
    tensors = {name: tensors_of(files[WEIGHTS]) for name, files in own.items() if WEIGHTS in files}
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    large = {name: {n: t.digest for n, t in of.items() if len(t.data) >= MIN_BYTES} for name, of in tensors.items()}
    for holders in _repeated(large):
        groups.setdefault(tuple(holders), []).append(holders)
    shared = {}
    for number, ((first, *_), repeated) in enumerate(groups.items(), start=1):
        path = f"{SHARED}/{number}.safetensors"
        shared[path] = safetensors_of({holders[first]: tensors[first][holders[first]] for holders in repeated})
        for holders in repeated:
            for member, name in holders.items():
                places[member]["tensors"][name] = [path, holders[first]]
    for member, found in places.items():
        if moved := found["tensors"]:
            own[member][WEIGHTS] = safetensors_of({n: t for n, t in tensors[member].items() if n not in moved})
    return shared


def _without_repeated_files(
    own: Mapping[str, dict[str, bytes]], places: Mapping[str, dict[str, Any]]
) -> dict[str, bytes]:
    """Move the other files that several members have; returns these."""
    large = {
        member: {
            name: hashlib.sha256(data).hexdigest()
            for name, data in files.items()
            if name not in (WEIGHTS, CONFIG, CARD) and len(data) >= MIN_BYTES
        }
        for member, files in own.items()
    }
    shared = {}
    for number, holders in enumerate(_repeated(large), start=1):
        path = f"{SHARED}/{number}-{next(iter(holders.values()))}"
        for member, name in holders.items():
            shared[path] = own[member].pop(name)
            places[member]["files"][name] = path
    return shared


def names_of_files(config: Mapping[str, Any]) -> set[str]:
    """The names of a folder's files by its config.json, with those that it shares with other members."""
    shared = config.get(SHARED)
    return {*config["files"], *(shared["files"] if isinstance(shared, dict) else ())}


def with_shared(files: Mapping[str, bytes], config: Mapping[str, Any]) -> dict[str, bytes]:
    """A member's files as they were before `without_repeats`.

    Args:
        files: Its own files, and the shared ones as its config.json lists them, from "../".
        config: Its config.json.

    Raises:
        KeyError, ValueError or TypeError: The config names parts that the files do not have.
    """
    places = config[SHARED]
    found = {name: data for name, data in files.items() if not name.startswith(f"../{SHARED}/")}
    found |= {name: files[f"../{path}"] for name, path in places["files"].items()}
    if places["tensors"]:
        stored = {path: tensors_of(files[f"../{path}"]) for path in {path for path, _ in places["tensors"].values()}}
        tensors = {name: stored[path][other] for name, (path, other) in places["tensors"].items()}
        found[WEIGHTS] = safetensors_of(tensors_of(found[WEIGHTS]) | tensors)
    return found


def _repeated(digests: Mapping[str, Mapping[str, str]]) -> Iterator[dict[str, str]]:
    """For each digest of several members the name of the part that has it, by member."""
    holders: dict[str, dict[str, str]] = {}
    for member, parts in digests.items():
        for name, digest in parts.items():
            holders.setdefault(digest, {}).setdefault(member, name)
    return (names for names in holders.values() if len(names) > 1)
