"""Checkpoints of a model in parts: each process writes its own, through torch.distributed.checkpoint.

The checkpoint is a file as every run's (training.checkpoint), with the state and what all processes have alike. Beside
it is a folder with a safetensors file for each process, which the state names. The next checkpoint is written into
another folder, and the file that names that one replaces the first at once: there is a whole checkpoint at every
moment. It can be opened on any number of processes, and by one alone.

The own format of torch.distributed.checkpoint has a pickle; its safetensors writer, used here, has none.
"""

from __future__ import annotations

import platform
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata

from textgraft.core.errors import UserError
from textgraft.core.files import cannot_write
from textgraft.core.processes import Processes
from textgraft.training.checkpoint import PARTS, damaged, new_part_folder, remove_part_folders, save_checkpoint


def save_in_parts(
    path: Path, whole: dict[str, Tensor], divided: dict[str, Tensor], state: dict[str, Any], processes: Processes
) -> None:
    """Write a checkpoint. All processes have to call it at the same time.

    Args:
        path: The checkpoint.
        whole: Tensors that all processes have, by name.
        divided: DTensors, by name.
        state: JSON values.
        processes: Of the training.

    Raises:
        UserError: A process cannot write, or does not see the folder. The checkpoint before this one is as it was.
    """
    folder = _new_folder(path, processes)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # of one process
            writer = dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True)
            dcp.save(divided, storage_writer=writer, process_group=processes.control)
    except dcp.CheckpointException as error:
        if processes.first:
            shutil.rmtree(folder, ignore_errors=True)
        rank, (failure, _) = next(iter(error.failures.items()))
        if isinstance(failure, KeyboardInterrupt) and processes.first:
            raise failure from error
        why = cannot_write(folder, failure) if isinstance(failure, OSError) else UserError(f"cannot write ({failure}).")
        raise UserError(f"process {rank} {why.message}", where=str(folder), remedy=why.remedy) from error
    if processes.first:
        save_checkpoint(path, whole, state | {PARTS: {"folder": folder.name, "files": processes.size}})
        remove_part_folders(path, but=folder)


class Parts(Mapping[str, Tensor]):
    """The tensors of a checkpoint in parts, each of which is put together as it is read.

    Args:
        path: The checkpoint.
        folder: Name of the folder beside it, with a file for each process that wrote it.
        files: Their number.

    Raises:
        UserError: The folder is not here, or a file is missing or damaged.
    """

    def __init__(self, path: Path, folder: str, files: int) -> None:
        self._path, self._folder, self._files = path, path.with_name(folder), files
        self._metadata = self._read_metadata()

    def __reduce__(self) -> Any:
        return Parts, (self._path, self._folder.name, self._files)

    def __getitem__(self, name: str) -> Tensor:
        entry: Any = self._metadata.state_dict_metadata[name]
        tensor = torch.empty(entry.size, dtype=entry.properties.dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # each reads for itself
            try:
                dcp.load({name: tensor}, storage_reader=_Reader(self._folder, self._metadata), no_dist=True)
            except dcp.CheckpointException as error:
                raise self._damaged(next(iter(error.failures.values()))[0]) from error
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._metadata.state_dict_metadata)

    def __len__(self) -> int:
        return len(self._metadata.state_dict_metadata)

    def _read_metadata(self) -> Metadata:
        if not self._folder.is_dir():
            remedy = (
                "Give an output path on a drive that all machines share; if it was deleted, delete the checkpoint too."
            )
            raise UserError(f"its parts in {self._folder.name} are not here.", where=str(self._path), remedy=remedy)
        found = len(list(self._folder.glob("*.safetensors")))
        if found != self._files:
            raise self._damaged(f"{found} of {self._files} files are there")
        try:
            return dcp.HuggingFaceStorageReader(str(self._folder)).read_metadata()
        except (SafetensorError, OSError, KeyError, ValueError) as error:
            raise self._damaged(error) from error

    def _damaged(self, reason: object) -> UserError:
        return damaged(self._path, f"{self._folder.name}: {reason}")


class _Reader(dcp.HuggingFaceStorageReader):
    """A reader that has read the headers of the files already."""

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        super().__init__(str(folder))
        self._metadata = metadata

    def read_metadata(self) -> Metadata:
        return self._metadata


def _new_folder(path: Path, processes: Processes) -> Path:
    """A new folder for the parts, which process 0 makes and all see. Raises UserError on all if one does not."""
    folder, trouble = None, None
    if processes.first:
        try:
            folder = new_part_folder(path)
        except UserError as error:
            trouble = error.message, error.where, error.remedy
    folder, trouble = processes.from_first((folder, trouble))
    if trouble is not None:
        message, where, remedy = trouble
        raise UserError(message, where=where, remedy=remedy)
    assert folder is not None
    for rank, unseen in enumerate(processes.gather("" if folder.is_dir() else platform.node())):
        if unseen:
            message = f"process {rank} on {unseen} does not see this folder, into which it has to write its part."
            remedy = "Give an output path on a drive that all machines share."
            raise UserError(message, where=str(folder), remedy=remedy)
    return folder
