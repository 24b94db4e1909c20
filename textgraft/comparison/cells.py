"""Predictions of a comparison: a file for each training, in one file when all are there.

A cell is one method with one number of labels and one seed. While the comparison runs, each lies in a file of its own,
so that a killed run keeps it; the results have all of them in `answers.safetensors`. From either a later comparison on
the same texts takes what it asks again.
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
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint
from textgraft.training.driver import content_hash, work_path

ANSWERS = "answers.safetensors"


class Place(NamedTuple):
    """Which training: a method's name, a number of labels, a seed."""

    method: str
    labels: int
    seed: int

    @property
    def key(self) -> str:
        """The name of its predictions among all."""
        return f"{self.method}, {self.labels} labels, seed {self.seed}"


@dataclass(frozen=True)
class Cell:
    """One training: what it answered on the test texts (N, C) or (N,), and what it cost."""

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

    def has(self, place: Place) -> bool:
        return self._path(place).exists()

    def read(self, place: Place) -> Cell:
        tensors, facts = load_checkpoint(self._path(place))
        return Cell(outputs=tensors["outputs"].numpy(), **facts)

    def write(self, place: Place, cell: Cell) -> None:
        outputs = torch.from_numpy(np.ascontiguousarray(cell.outputs))
        save_checkpoint(self._path(place), {"outputs": outputs}, cell.facts)

    def work(self, place: Place) -> Path:
        """Where the training of `place` keeps unfinished work."""
        return self.folder / "work" / self._path(place).stem

    @property
    def prepared(self) -> Path:
        """Where methods keep what they do once, before any training."""
        return self.folder / "prepared"

    def has_cost(self, method: str) -> bool:
        return self._cost_path(method).exists()

    def cost(self, method: str) -> dict[str, float]:
        """Costs of a method before any training: seconds and peak_mb."""
        return dict(json.loads(self._cost_path(method).read_text(encoding="utf-8")))

    def write_cost(self, method: str, cost: Mapping[str, float]) -> None:
        write_atomically(self._cost_path(method), json.dumps(cost).encode())

    def all_in_one(self, places: Sequence[Place], asked: Mapping[str, Any]) -> bytes:
        """The file with all cells of `places`, their methods' costs, and what was `asked`."""
        cells = {place: self.read(place) for place in places}
        tensors = {place.key: torch.from_numpy(cell.outputs) for place, cell in cells.items()}
        costs = {method: self.cost(method) for method in dict.fromkeys(place.method for place in places)}
        facts = [[*place, cell.facts] for place, cell in cells.items()]
        save_checkpoint(self.folder / ANSWERS, tensors, {"asked": asked, "cells": facts, "costs": costs})
        return (self.folder / ANSWERS).read_bytes()

    def take(self, known: Known, places: Sequence[Place]) -> list[Place]:
        """Copy what is `known` of `places`; which that were."""
        found = [place for place in places if place in known.cells]
        for place in found:
            if not self.has_cost(place.method):
                self.write_cost(place.method, known.costs[place.method])
            if not self.has(place):
                self.write(place, known.cells[place])
        return found

    def _path(self, place: Place) -> Path:
        return self.folder / "cells" / f"{_file_name(place.method)}-{place.labels}-{place.seed}.safetensors"

    def _cost_path(self, method: str) -> Path:
        return self.prepared / f"{_file_name(method)}.json"


@dataclass(frozen=True)
class Known:
    """The answers of another comparison, by the name of its folder: its cells, and what methods did once."""

    name: str
    cells: Mapping[Place, Cell]
    costs: Mapping[str, Mapping[str, float]]

    @classmethod
    def open(cls, folder: Path, asked: Mapping[str, Any]) -> Known:
        """The predictions of the comparison at `folder`, finished or killed, that serve one with the plan `asked`.

        A method whose model or recipe is another by now is left out. Raises UserError where there are no answers, or
        answers on other texts or by other settings.
        """
        before, cells, costs = _found(folder)
        changed = [key for key in before if key not in ("methods", "labels", "seeds") and before[key] != asked.get(key)]
        if changed:
            raise UserError(
                f"these answers are of a comparison that differs in: {', '.join(sorted(changed))}.",
                where=str(folder),
                remedy="Compare on the same texts by the same settings, or anew.",
            )
        same = {method for method, known in before["methods"].items() if asked["methods"].get(method) == known}
        return cls(folder.name, {place: cell for place, cell in cells.items() if place.method in same}, costs)


Found = tuple[dict[str, Any], dict[Place, Cell], dict[str, dict[str, float]]]
"""The plan of a comparison, its cells so far, and the costs of its methods before any training."""


def _found(folder: Path) -> Found:
    """Of the comparison at `folder`. Raises UserError where there is none, or it is damaged."""
    answers, plan = folder / ANSWERS, work_path(folder) / "plan.json"
    if not answers.is_file() and plan.is_file():
        with suppress(FileNotFoundError):
            so_far = _so_far(plan)
            if not answers.is_file():
                return so_far
        # It ended while it was read: its cells are gone, or go, and all of them are in the answers.
    if not answers.is_file():
        remedy = "Name a comparison's --out, finished or not, or leave it out."
        raise UserError("there are no answers of a comparison.", where=str(folder), remedy=remedy)
    return _of_finished(answers)


def _of_finished(path: Path) -> Found:
    tensors, state = load_checkpoint(path)
    facts = {Place(*place): known for *place, known in state["cells"]}
    cells = {place: Cell(tensors[place.key].numpy(), **known) for place, known in facts.items()}
    return state["asked"], cells, state["costs"]


def _so_far(plan: Path) -> Found:
    """Of a comparison that was killed, or still runs. Raises UserError where its plan is damaged."""
    try:
        asked = dict(json.loads(plan.read_text(encoding="utf-8")))
        places = [Place(m, n, seed) for m in asked["methods"] for n in asked["labels"] for seed in asked["seeds"]]
    except (ValueError, TypeError, KeyError) as error:
        remedy = "Delete its folder, and compare anew."
        raise UserError("this is no plan of a comparison.", where=str(plan), remedy=remedy) from error
    cells = Cells(plan.parent)
    there = {place: cells.read(place) for place in places if cells.has(place)}
    return asked, there, {method: cells.cost(method) for method in {place.method for place in there}}


def _file_name(method: str) -> str:
    """The method's name without the slashes and colons that a model's may have."""
    return method if "@" not in method else f"{method.partition('@')[0]}-{content_hash([method])[:12]}"
