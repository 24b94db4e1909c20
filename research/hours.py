"""What further minutes of pretraining buy, by the histories of models: `python research/hours.py NAME…`.

A model's run.json says how well it predicted held-out text on the way, and after how many minutes. A power law over a
floor is put through the first half of the minutes at the full rate, and what it says of their end stands beside what
came; then through all of them, and drawn to ten hours. What the last fifth of a run adds, where the rate falls, is a
column of its own: no law of the way there knows of it. Rates that fall from the beginning (schedule "linear") bend a
curve that is drawn so, and histories in several legs have no common clock: such models are refused. The run.json of
English models that were bundled before lie in research/kept/hours.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from budget import fitted
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.models.model_folder import find

HERE = Path(__file__).parent
FLOOR = 0.8
"""Bits a character that no model will save, given: so few points cannot tell it from the rest of the law."""
FALLS = 0.2
"""The share of a run, by its minutes, in which the schedule "wsd" lets the rate fall."""
TEN_HOURS = 600.0


@dataclass(frozen=True)
class History:
    """Bits a character (N,) after so many minutes (N,) at the full rate, and at the end of the run.

    Of a model that was trained in several goes, those of the first, which alone began with nothing.
    """

    name: str
    minutes: NDArray[np.float64]
    bits: NDArray[np.float64]
    end: tuple[float, float]

    @classmethod
    def of(cls, name: str) -> Self:
        """Of a model by its name or folder, or of a .json file that was a model's run.json.

        Raises UserError for one that is not there, and for one without a history of this kind.
        """
        path = Path(name) if name.endswith(".json") else find(name) / "run.json"
        if not path.is_file():
            raise UserError("there is no such file.", where=name, remedy="Check the path.")
        try:
            run = dict(json.loads(path.read_text("utf-8")))
        except (ValueError, TypeError) as error:
            remedy = "Name the run.json of a pretrained model."
            raise UserError(f"this is no record of a run ({error}).", where=str(path), remedy=remedy) from error
        points = [run, *run.get("earlier", [])[:1]][-1].get("history", [])
        bits = np.array([point.get("bits_per_character", np.nan) for point in points])
        minutes = np.array([point.get("seconds", np.nan) for point in points]) / 60
        full = minutes <= (1 - FALLS) * minutes[-1] if len(minutes) else minutes > 0
        if full.sum() < 4 or not np.isfinite(bits).all() or (np.diff(minutes) <= 0).any():
            remedy = "Pretrain with a smaller validate_every, in one run."
            raise UserError(
                "too few measurements in bits a character at the full rate, or several legs.", where=name, remedy=remedy
            )
        return cls(
            Path(name).name.removesuffix(".json"), minutes[full], bits[full], (float(minutes[-1]), float(bits[-1]))
        )

    def law(self, until: float = np.inf) -> tuple[float, float]:
        """(b, c) of FLOOR + b t^-c, t in minutes, through what was measured `until` then."""
        seen = self.minutes <= until
        return fitted(self.minutes[seen], self.bits[seen], FLOOR)


def said(law: tuple[float, float], minutes: float | NDArray) -> float | NDArray:
    """Bits a character that the law gives after so many minutes."""
    return FLOOR + law[0] * minutes ** -law[1]


def table(histories: list[History]) -> str:
    """A row a model."""
    heads = (
        "model",
        "law, t in minutes",
        "minutes seen",
        "said of",
        "said",
        "came",
        "at the end, rate fallen",
        "10 hours, not checked",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for h in histories:
        law, last = h.law(), h.minutes[-1]
        half = max(last / 2, h.minutes[1])
        foretold, far = said(h.law(half), last), said(law, TEN_HOURS)
        lines.append(
            f"| {h.name} | {FLOOR:g} + {law[0]:.2f} t^-{law[1]:.3f} | {half:.0f} | {last:.0f} | {foretold:.3f} "
            f"| {h.bits[-1]:.3f} | {h.end[1]:.3f} after {h.end[0]:.0f} | {far:.3f} |"
        )
    return "\n".join(lines)


def plot(histories: list[History], path: Path) -> None:
    """Bits a character against minutes, logarithmic, with each law to ten hours; a cross where the rate had fallen."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.5, 4))
    for h in histories:
        (line,) = axes.semilogx(h.minutes, h.bits, "o", label=h.name)
        far = np.geomspace(h.minutes[0], TEN_HOURS, 50)
        axes.semilogx(far, said(h.law(), far), "--", color=line.get_color())
        axes.semilogx(*h.end, "x", color=line.get_color())
    axes.set(xlabel="minutes of one core", ylabel="held-out bits a character")
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="names, folders, or a run.json")
    parser.add_argument("--plot", type=Path, default=HERE / "results" / "hours.svg")
    asked = parser.parse_args()
    try:
        histories = [History.of(name) for name in asked.models]
    except UserError as error:
        parser.error(str(error))
    asked.plot.parent.mkdir(parents=True, exist_ok=True)
    plot(histories, asked.plot)
    print(table(histories))


if __name__ == "__main__":
    main()
