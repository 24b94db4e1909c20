"""The wall-clock budget of a fine-tuning: which steps of its ladder are begun, and with how much data.

A step is begun only if its estimated duration fits into what is left. Estimates depend on the machine, so every
decision is recorded; a run that is given the record (`--rungs`) consults no clock and repeats the earlier one to the
bit.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textgraft.core import formatting
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.files import write_atomically

FILE = "rungs.json"
DEFAULT_MINUTES = 5.0
"""Budget on a processor where none is given."""


@dataclass(frozen=True)
class Decision:
    """Whether a rung of the ladder was begun.

    Attributes:
        amount: Size of the step: texts of the pool, folds, or 1; 0: it was not begun.
        reason: Why it was not begun, or what was done of it; empty where it was all.
    """

    amount: int
    reason: str = ""


class Budget:
    """Decisions about the rungs of a ladder within a time limit.

    Args:
        seconds: Wall-clock limit from now on; None: no limit.
        repeat: Amounts by rung of an earlier run, which are repeated; other rungs are not begun. None: decide.
        folder: Folder for unfinished work: decisions are kept there, so that a resumed run makes the same ones.
    """

    def __init__(
        self, seconds: float | None = None, *, repeat: Mapping[str, int] | None = None, folder: Path | None = None
    ) -> None:
        self._began, self._seconds, self._repeat = time.monotonic(), seconds, repeat
        self._reserved = 0.0
        self._path = None if folder is None else folder / FILE
        self.decisions: dict[str, Decision] = {}
        if self._path is not None and self._path.exists():
            saved = json.loads(self._path.read_text(encoding="utf-8"))
            self.decisions = {name: Decision(**decision) for name, decision in saved.items()}

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    @property
    def remaining(self) -> float:
        """Seconds left, without those that are reserved; infinite without a limit or while repeating a run."""
        if self._seconds is None or self._repeat is not None:
            return math.inf
        return max(0.0, self._seconds - self._reserved - self.elapsed)

    def reserve(self, seconds: float) -> None:
        """Keep time for the last steps, such as the evaluation; at most half of what is left."""
        self._reserved += min(seconds, self.remaining / 2) if self.remaining < math.inf else 0.0

    def choose(
        self, rung: str, amounts: Sequence[int], seconds: Callable[[int], float], *, share: float = 1.0
    ) -> Decision:
        """The first amount whose estimated duration fits into a share of the time left.

        Args:
            rung: Name of the step.
            amounts: Sizes to choose from, the preferred one first.
            seconds: Estimated duration of a size.
            share: Share of the time left that the step may take.

        Returns:
            The decision, which is recorded; an earlier one for the same rung is repeated.
        """
        if rung not in self.decisions:
            self._record(rung, self._decided(rung, amounts, seconds, share))
        return self.decisions[rung]

    def decided(self, rung: str) -> int:
        """The amount of a rung in the run that this one repeats or resumes; 0 if it was not there."""
        if self._repeat is not None:
            return self._repeat.get(rung, 0)
        return self.decisions[rung].amount if rung in self.decisions else 0

    def correct(self, rung: str, amount: int, reason: str = "") -> None:
        """Record what a rung has done in the end, where the clock stopped it or less was enough; 0: nothing."""
        self._record(rung, Decision(amount, reason))

    def validate_repeated(self, known: Sequence[str]) -> None:
        """Raise UserError for a rung to repeat that is not among the names of all that there are."""
        for name in self._repeat or ():
            if name not in known:
                raise UserError(f"there is no rung '{name}' here.", where="rungs", remedy=did_you_mean(name, known))

    def _decided(self, rung: str, amounts: Sequence[int], seconds: Callable[[int], float], share: float) -> Decision:
        if self._repeat is not None:
            amount = self._repeat.get(rung, 0)
            return Decision(amount, "" if amount else "not among the rungs to repeat")
        limit = share * self.remaining
        if math.isinf(limit):
            return Decision(amounts[0])
        for amount in amounts:
            if seconds(amount) <= limit:
                return Decision(amount, "" if amount == amounts[0] else f"{rung} {amount:,} of {amounts[0]:,}")
        took, left = formatting.minutes(seconds(amounts[-1])), formatting.minutes(self.remaining)
        return Decision(0, f"not begun: it would take about {took} min, and {left} min are left")

    def _record(self, rung: str, decision: Decision) -> None:
        self.decisions[rung] = decision
        if self._path is not None:
            values = {name: vars(one) for name, one in self.decisions.items()}
            write_atomically(self._path, json.dumps(values, indent=1).encode())

    def record(self) -> dict[str, Any]:
        """The decisions as in run.json: amounts by rung, and the time limit."""
        amounts = {name: decision.amount for name, decision in self.decisions.items() if decision.amount}
        return {"rungs": amounts, "minutes": None if self._seconds is None else self._seconds / 60}

    @property
    def skipped(self) -> dict[str, str]:
        """Reasons for the rungs that were not begun, by name."""
        skipped = {name: decision.reason for name, decision in self.decisions.items() if not decision.amount}
        return {name: reason for name, reason in skipped.items() if reason}

    @property
    def limited(self) -> list[str]:
        """What was done of the rungs that were begun, but not with everything: `bert-co-training 5,000 of 8,561`."""
        return [decision.reason for decision in self.decisions.values() if decision.amount and decision.reason]


def parse_rungs(value: str) -> dict[str, int]:
    """Amounts by rung from `linear,linear-probe,co-training:5000,fine-tuned:2`; 1 where no amount is given.

    >>> parse_rungs("linear, co-training:5000")
    {'linear': 1, 'co-training': 5000}
    """
    rungs: dict[str, int] = {}
    for part in value.split(","):
        name, _, amount = part.strip().partition(":")
        if not name or not (amount or "1").isdigit() or int(amount or 1) < 1:
            remedy = "Write NAME or NAME:NUMBER, several separated by commas, as in run.json."
            raise UserError(f"'{part.strip()}' is not a rung.", where="rungs", remedy=remedy)
        rungs[name] = int(amount or 1)
    return rungs
