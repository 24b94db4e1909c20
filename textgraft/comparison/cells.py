"""The cells of a comparison: predictions and costs of each training, in a file each, then all in one file.

A cell is one method with one number of labels and one seed. While the comparison runs, each cell has a file of its own,
so that a killed run keeps it; the finished results have all of them in `answers.safetensors`. A later comparison on the
same texts can reuse the cells of either.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from textgraft.core.errors import UserError
from textgraft.core.files import write_atomically
from textgraft.core.identity import content_hash
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint
from textgraft.training.driver import work_path

ANSWERS = "answers.safetensors"


class CellKey(NamedTuple):
    """The method's name, number of labels and seed that identify a training."""

    method: str
    labels: int
    seed: int

    @property
    def tensor_name(self) -> str:
        """Name of the cell's tensor in answers.safetensors."""
        return f"{self.method}, {self.labels} labels, seed {self.seed}"


@dataclass(frozen=True)
class Cell:
    """One training: outputs on the test texts, (N, C) or (N,), and costs."""

    outputs: np.ndarray
    seconds: float
    peak_mb: float
    model_bytes: int
    about: str

    @property
    def facts(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "outputs"}


@dataclass(frozen=True)
class Cells:
    """The cells of a comparison whose unfinished work is in `folder`."""

    folder: Path

    def has(self, key: CellKey) -> bool:
        return self._path(key).exists()

    def read(self, key: CellKey) -> Cell:
        tensors, facts = load_checkpoint(self._path(key))
        return Cell(outputs=tensors["outputs"].numpy(), **facts)

    def write(self, key: CellKey, cell: Cell) -> None:
        outputs = torch.from_numpy(np.ascontiguousarray(cell.outputs))
        save_checkpoint(self._path(key), {"outputs": outputs}, cell.facts)

    def work(self, key: CellKey) -> Path:
        """Folder for the unfinished work of one training."""
        return self.folder / "work" / self._path(key).stem

    @property
    def prepared(self) -> Path:
        """Folder for the results of `Method.prepare`, which runs once, before any training."""
        return self.folder / "prepared"

    def has_cost(self, method: str) -> bool:
        return self._cost_path(method).exists()

    def cost(self, method: str) -> dict[str, float]:
        """Seconds and peak_mb of `Method.prepare`."""
        return dict(json.loads(self._cost_path(method).read_text(encoding="utf-8")))

    def write_cost(self, method: str, cost: Mapping[str, float]) -> None:
        write_atomically(self._cost_path(method), json.dumps(cost).encode())

    def write_all(self, keys: Sequence[CellKey], identity: Mapping[str, Any]) -> bytes:
        """Write answers.safetensors with all cells of `keys`, the methods' costs and the run's `identity`; return its
        bytes.
        """
        cells = {key: self.read(key) for key in keys}
        tensors = {key.tensor_name: torch.from_numpy(cell.outputs) for key, cell in cells.items()}
        costs = {method: self.cost(method) for method in dict.fromkeys(key.method for key in keys)}
        facts = [[*key, cell.facts] for key, cell in cells.items()]
        save_checkpoint(self.folder / ANSWERS, tensors, {"asked": identity, "cells": facts, "costs": costs})
        return (self.folder / ANSWERS).read_bytes()

    def copy_from(self, reused: ReusedCells, keys: Sequence[CellKey]) -> list[CellKey]:
        """Copy the reused cells among `keys`; return the keys that were copied."""
        copied = [key for key in keys if key in reused.cells]
        for key in copied:
            if not self.has_cost(key.method):
                self.write_cost(key.method, reused.costs[key.method])
            if not self.has(key):
                self.write(key, reused.cells[key])
        return copied

    def _path(self, key: CellKey) -> Path:
        return self.folder / "cells" / f"{_file_name(key.method)}-{key.labels}-{key.seed}.safetensors"

    def _cost_path(self, method: str) -> Path:
        return self.prepared / f"{_file_name(method)}.json"


@dataclass(frozen=True)
class ReusedCells:
    """Cells and preparation costs of another comparison, and the name of its folder."""

    name: str
    cells: Mapping[CellKey, Cell]
    costs: Mapping[str, Mapping[str, float]]

    @classmethod
    def open(cls, folder: Path, identity: Mapping[str, Any]) -> ReusedCells:
        """Open a comparison, finished or interrupted, for reuse in a run with this `identity`.

        Methods whose model or recipe has changed since are left out.

        Raises:
            UserError: There are no predictions, or they are of other texts or other settings.
        """
        stored_identity, cells, costs = _stored(folder)
        changed = [
            setting
            for setting in stored_identity
            if setting not in ("methods", "labels", "seeds") and stored_identity[setting] != identity.get(setting)
        ]
        if changed:
            raise UserError(
                f"these predictions are of a comparison that differs in: {', '.join(sorted(changed))}.",
                where=str(folder),
                remedy="Use the same texts and settings, or start a new comparison.",
            )
        same = {
            method
            for method, fingerprint in stored_identity["methods"].items()
            if identity["methods"].get(method) == fingerprint
        }
        return cls(folder.name, {key: cell for key, cell in cells.items() if key.method in same}, costs)


Stored = tuple[dict[str, Any], dict[CellKey, Cell], dict[str, dict[str, float]]]
"""Identity of a stored comparison, its cells so far, and the preparation costs of its methods."""


def _stored(folder: Path) -> Stored:
    """Read the comparison at `folder`. Raises UserError where there is none, or it is damaged."""
    answers, plan = folder / ANSWERS, work_path(folder) / "plan.json"
    if not answers.is_file() and plan.is_file():
        with suppress(FileNotFoundError):
            unfinished = _read_unfinished(plan)
            if not answers.is_file():
                return unfinished
        # The run finished in the meantime: its cells have moved into answers.safetensors.
    if not answers.is_file():
        remedy = "Give the folder of a comparison, finished or not, or leave the option out."
        raise UserError("there are no predictions of a comparison.", where=str(folder), remedy=remedy)
    return _read_finished(answers)


def _read_finished(path: Path) -> Stored:
    tensors, state = load_checkpoint(path)
    facts = {CellKey(*key): cell_facts for *key, cell_facts in state["cells"]}
    cells = {key: Cell(tensors[key.tensor_name].numpy(), **cell_facts) for key, cell_facts in facts.items()}
    return state["asked"], cells, state["costs"]


def _read_unfinished(plan: Path) -> Stored:
    """Read a comparison that was killed or is still running. Raises UserError where its plan is damaged."""
    try:
        identity = dict(json.loads(plan.read_text(encoding="utf-8")))
        keys = [
            CellKey(m, n, seed) for m in identity["methods"] for n in identity["labels"] for seed in identity["seeds"]
        ]
    except (ValueError, TypeError, KeyError) as error:
        remedy = "Delete the folder and compare again."
        raise UserError("this file is not the plan of a comparison.", where=str(plan), remedy=remedy) from error
    cells = Cells(plan.parent)
    present = {key: cells.read(key) for key in keys if cells.has(key)}
    return identity, present, {method: cells.cost(method) for method in {key.method for key in present}}


def _file_name(method: str) -> str:
    """The method's name, without the slashes and colons of a model's path."""
    return method if "@" not in method else f"{method.partition('@')[0]}-{content_hash([method])[:12]}"
