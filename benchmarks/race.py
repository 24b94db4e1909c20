"""A row of `make bench`: two sides do the same work in turns, and what is said of them. Needs only Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev
from typing import Any, Literal

PEER, OURS = "peer", "ours"
Turn = dict[str, Any]
"""What a side did once: a measure's name with {"units", "wall", "cpu"} (seconds; of the products' operations "flop"),
and, where the row has such a thing, "quality" (a number) or "answers" (a list)."""
Ask = Callable[[str, int], Turn]


@dataclass(frozen=True)
class Measure:
    """A figure: a rate, if `unit` ends with "/s", else a cost; `floor` and `goal` are times better than the peer's."""

    unit: str
    floor: float | None = None
    goal: float | None = None

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")


@dataclass(frozen=True)
class Quality:
    """What must not be worse for a row to count: of each side's number the `better` one, or how many answers agree.

    Numbers may differ by `slack`, or by two standard errors of the rounds' differences.
    """

    name: str
    better: Literal["lower", "higher", "same"]
    slack: float = 0.0


@dataclass(frozen=True)
class Row:
    """What is measured beside whom, in which environment of `peers/` (None: the project's own)."""

    title: str
    peer: str
    environment: str | None
    measures: Mapping[str, Measure]
    quality: Quality | None = None
    means: str = ""
    rounds: int = 3


def race(row: Row, sides: Sequence[str], ask: Ask, rounds: int, clock: str) -> dict[str, Any]:
    """Every side's turns, the first of which does not count, and what they come to; `ask(side, number)` makes one."""
    turns: dict[str, list[Turn]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides:
            turn = ask(side, number)
            if number:
                turns[side].append(turn)
    measured = {name: _measured(name, measure, turns, clock) for name, measure in row.measures.items()}
    return {"title": row.title, "peer": row.peer, "means": row.means, "measures": measured, **_judged(row, turns)}


def _measured(name: str, measure: Measure, turns: Mapping[str, list[Turn]], clock: str) -> dict[str, Any]:
    """Median, lowest and highest of each side, and of the ratios within a round."""
    found: dict[str, Any] = {"unit": measure.unit, "floor": measure.floor, "goal": measure.goal}
    cost = {side: [turn[name][clock] / turn[name]["units"] for turn in own] for side, own in turns.items()}
    for side, own in cost.items():
        found[side] = spread([1 / value for value in own] if measure.is_rate else own)
        operations = [turn[name]["flop"] / turn[name][clock] for turn in turns[side] if turn[name].get("flop")]
        if operations:
            found[side]["flops"] = median(operations)
    if PEER in cost:
        found["ratio"] = spread([theirs / ours for theirs, ours in zip(cost[PEER], cost[OURS], strict=True)])
    return found


def _judged(row: Row, turns: Mapping[str, list[Turn]]) -> dict[str, Any]:
    """The quality of each side, and whether the row counts."""
    if row.quality is None or not all("quality" in turn or "answers" in turn for turn in turns[OURS]):
        return {}
    if row.quality.better == "same":
        if PEER not in turns:
            return {}
        pairs = zip(turns[PEER], turns[OURS], strict=True)
        shares = [agreement(theirs["answers"], ours["answers"]) for theirs, ours in pairs]
        return {"quality": {"name": row.quality.name, "share": min(shares)}, "counts": min(shares) >= row.quality.slack}
    values = {side: [turn["quality"] for turn in own] for side, own in turns.items()}
    found: dict[str, Any] = {"name": row.quality.name} | {side: mean(own) for side, own in values.items()}
    if PEER not in values:
        return {"quality": found}
    sign = 1 if row.quality.better == "higher" else -1
    gains = [sign * (ours - theirs) for theirs, ours in zip(values[PEER], values[OURS], strict=True)]
    noise = 2 * stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    return {"quality": found, "counts": mean(gains) >= -max(row.quality.slack, noise)}


def agreement(theirs: Sequence[Any], ours: Sequence[Any]) -> float:
    """The share of answers that are equal."""
    return sum(a == b for a, b in zip(theirs, ours, strict=True)) / len(theirs)


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": median(values), "low": min(values), "high": max(values)}


def verdict(measure: Mapping[str, Any], *, counts: bool) -> str:
    """What a ratio is worth beside the floor and the goal."""
    if "ratio" not in measure or measure["floor"] is None:
        return ""
    if not counts:
        return "worse quality"
    ratio = measure["ratio"]["median"]
    return "goal" if ratio >= measure["goal"] else "floor" if ratio >= measure["floor"] else "missed"


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """All rows as Markdown."""
    lines = ["| row | peer | theirs | ours | times better | spread | floor, goal | quality |", "|---" * 8 + "|"]
    for name, row in results.items():
        for measure, found in row["measures"].items():
            theirs, ours = (_value(found[side], found["unit"]) if side in found else "" for side in (PEER, OURS))
            ratio = found.get("ratio")
            cells = [f"{name}: {measure}", row["peer"], theirs, ours]
            cells += [f"{ratio['median']:.2f}", f"{ratio['low']:.2f}–{ratio['high']:.2f}"] if ratio else ["", ""]
            said = verdict(found, counts=row.get("counts", True))
            cells += [f"{found['floor']:.2g}, {found['goal']:.2g}: {said}" if said else "", _quality(row)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _value(found: Mapping[str, float], unit: str) -> str:
    middle = found["median"]
    shown = f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"
    share = f" ({found['share_of_peak']:.0%} of peak)" if "share_of_peak" in found else ""
    return f"{shown} {unit}{share}"


def _quality(row: Mapping[str, Any]) -> str:
    quality = row.get("quality")
    if not quality:
        return ""
    if "share" in quality:
        return f"{quality['name']} {quality['share']:.2%}"
    sides = [f"{quality[side]:.3f}" for side in (PEER, OURS) if side in quality]
    return f"{quality['name']} {' / '.join(sides)}"
