"""Checkpoints of a model in parts: each process writes its own, through torch.distributed.checkpoint.

The checkpoint is a file as every run's (training.checkpoint), with the state and what all processes have alike. Beside
it is a folder with a safetensors file for each process, which the state names. The next checkpoint is written into
another folder, and the file that names that one replaces the first at once: there is a whole checkpoint at every
moment. It can be opened on any number of processes, and by one alone.

The own format of torch.distributed.checkpoint has a pickle; its safetensors writer, used here, has none.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.metadata import Metadata

from textgraft.core.errors import UserError
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
    folder = processes.from_first(new_part_folder(path) if processes.first else None)
    _validate_seen(folder, processes)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # of one process
            writer = dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True)
            dcp.save(divided, storage_writer=writer, process_group=processes.control)
    except dcp.CheckpointException as error:
        rank, (failure, _) = next(iter(error.failures.items()))
        message = f"process {rank} cannot write its part of the checkpoint ({failure})."
        remedy = "Free space there, and run the same command again."
        raise UserError(message, where=str(folder), remedy=remedy) from error
    if processes.first:
        save_checkpoint(path, whole, state | {PARTS: {"folder": folder.name, "files": processes.size}})
        remove_part_folders(path, but=folder)


class Parts(Mapping[str, Tensor]):
    """The tensors of a checkpoint in parts, each of which is put together as it is read.

    Args:
        folder: With a file for each process that wrote it.
        files: Their number.

    Raises:
        UserError: A file is missing or damaged.
    """

    def __init__(self, folder: Path, files: int) -> None:
        self._folder, self._files = folder, files
        found = len(list(folder.glob("*.safetensors")))
        if found != files:
            raise damaged(folder, f"{found} of {files} files are there")
        assert self._metadata

    def __reduce__(self) -> Any:
        return Parts, (self._folder, self._files)

    def __getitem__(self, name: str) -> Tensor:
        entry: Any = self._metadata.state_dict_metadata[name]
        tensor = torch.empty(entry.size, dtype=entry.properties.dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # each reads for itself
            try:
                dcp.load({name: tensor}, storage_reader=_Reader(self._folder, self._metadata), no_dist=True)
            except dcp.CheckpointException as error:
                raise damaged(self._folder, str(next(iter(error.failures.values()))[0])) from error
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._metadata.state_dict_metadata)

    def __len__(self) -> int:
        return len(self._metadata.state_dict_metadata)

    @cached_property
    def _metadata(self) -> Metadata:
        try:
            return dcp.HuggingFaceStorageReader(str(self._folder)).read_metadata()
        except (SafetensorError, KeyError, ValueError) as error:
            raise damaged(self._folder, error) from error


class _Reader(dcp.HuggingFaceStorageReader):
    """A reader that has read the headers of the files already."""

    def __init__(self, folder: Path, metadata: Metadata) -> None:
        super().__init__(str(folder))
        self._metadata = metadata

    def read_metadata(self) -> Metadata:
        return self._metadata


def _validate_seen(folder: Path, processes: Processes) -> None:
    """Raise UserError, on all processes, if one of them does not see the folder."""
    for rank, unseen in enumerate(processes.gather("" if folder.is_dir() else platform.node())):
        if unseen:
            message = f"process {rank} on {unseen} does not see this folder, into which it has to write its part."
            remedy = "Give an output path on a drive that all machines share."
            raise UserError(message, where=str(folder), remedy=remedy)
