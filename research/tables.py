"""The tables of docs/results.md from what `research/curves.py --keep` has kept: `python research/tables.py`.

A comment in the document says what a table shows:

    <!-- table of imdb: 100, 500, 1000
    linear: n-grams, linear
    ulmfit by lstm-many: `ulmfit` by `lstm-many`
    -->

after the colon the numbers of labels, then a line for each row: the method as `curves.py` was asked for it, with its
recipe where one was named, and what the table calls it. Another model than a data set's usual one belongs in the
method's name (`default@en-gpt-small`), since --model is no part of it. What lies between the comment and
`<!-- end of table -->` is written anew: means over draws with their intervals, how many draws where that differs, and
the commands. A cell that was never run is said to be so. Where two runs have a cell, the one with more draws counts,
then the later one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from record import write_json

HERE = Path(__file__).parent
KEPT = HERE / "kept"
DOCUMENT = HERE.parent / "docs" / "results.md"
TABLE = re.compile(
    r"(?P<asked><!-- table of (?P<name>[\w-]+): (?P<labels>[\d, ]+)\n(?P<rows>.*?)-->\n)"
    r".*?(?P<end><!-- end of table -->)",
    re.DOTALL,
)
Run = dict[str, Any]
Cell = dict[str, Any]
Cells = dict[tuple[str, int], Cell]
"""What was measured, by method and number of labels."""


def keep(results: dict[str, Any], command: str, path: Path, recipe: str | None = None) -> None:
    """Adds a comparison's figures to those kept in `path`; a run of the same command makes way.

    `recipe`, where one was asked for, becomes part of the names of the methods that follow it.
    """
    runs = json.loads(path.read_text("utf-8"))["runs"] if path.exists() else []
    rows = [
        {
            "method": f"{method} by {recipe}" if recipe and "recipe " in figures["about"] else method,
            "labels": budget["labels"],
            **{name: round(figures[results["metric"]][name], 5) for name in ("mean", "low", "high")},
            **{name: figures[name] for name in ("minutes", "peak_mb")},
        }
        for budget in results["budgets"]
        for method, figures in budget["methods"].items()
    ]
    run = {
        "command": command,
        "metric": results["metric"],
        "draws": results["seeds"],
        "tests": results["test_n"],
        "rows": rows,
    }
    write_json(path, {"runs": [*(other for other in runs if other["command"] != command), run]})


def runs_of(name: str, kept: Path = KEPT) -> list[Run]:
    """What was kept of a data set. ValueError where that is nothing."""
    path = kept / f"{name}.json"
    if not path.exists():
        raise ValueError(f"{path}: no such record; python research/curves.py {name} --keep writes it")
    runs: list[Run] = json.loads(path.read_text("utf-8"))["runs"]
    return runs


def measured(runs: Sequence[Run]) -> Cells:
    cells: Cells = {}
    for run in runs:
        about = {"draws": run["draws"], "tests": run["tests"], "command": run["command"]}
        for row in run["rows"]:
            before = cells.get((row["method"], row["labels"]))
            if before is None or before["draws"] <= run["draws"]:
                cells[row["method"], row["labels"]] = row | about
    return cells


def table(cells: Cells, labels: Sequence[int], rows: Sequence[tuple[str, str]]) -> str:
    """Markdown: a line for each row, then what its cells have in common, then their commands."""
    shown = [cell for method, _ in rows for count in labels if (cell := cells.get((method, count)))]
    draws = Counter(cell["draws"] for cell in shown).most_common(1)[0][0]
    tests = Counter(cell["tests"] for cell in shown).most_common(1)[0][0]

    def text(cell: Cell | None) -> str:
        if cell is None:
            return "not run"
        other = [f"{cell['draws']} sample{'s' * (cell['draws'] > 1)}"] if cell["draws"] != draws else []
        other += [f"{cell['tests']:,} test texts"] if cell["tests"] != tests else []
        return f"{100 * cell['mean']:.1f} [{100 * cell['low']:.1f}, {100 * cell['high']:.1f}]" + (
            f" ({', '.join(other)})" if other else ""
        )

    lines = [
        "| labels | " + " | ".join(f"{count:,}" for count in labels) + " | minutes |",
        "|---" * (len(labels) + 2) + "|",
    ]
    for method, called in rows:
        own = [cells.get((method, count)) for count in labels]
        lines.append(f"| {called} | " + " | ".join(map(text, own)) + f" | {minutes([cell for cell in own if cell])} |")
    commands = sorted({cell["command"] for cell in shown})
    about = f"Means over {draws} training samples" if draws > 1 else "One training sample"
    return "\n".join(
        [*lines, "", f"{about}, {tests:,} test texts, 95 % intervals.", "", *(f"    {line}" for line in commands), ""]
    )


def minutes(cells: Sequence[Cell]) -> str:
    """From the shortest to the longest training of a row."""
    taken = sorted(cell["minutes"] for cell in cells)
    if not taken:
        return ""
    low, high = (f"{value:.1f}" if value < 10 else f"{value:.0f}" for value in (taken[0], taken[-1]))
    return low if low == high else f"{low} to {high}"


def filled(document: str, kept: Path = KEPT) -> str:
    """The document with its tables written anew. ValueError where a table's record or rows are not there."""

    def fill(found: re.Match[str]) -> str:
        cells = measured(runs_of(found["name"], kept))
        labels = [int(count) for count in found["labels"].split(",")]
        rows = []
        for line in found["rows"].strip().splitlines():
            method, named, called = line.partition(": ")
            if not named or not any((method, count) in cells for count in labels):
                known = sorted({method for method, count in cells if count in labels})
                raise ValueError(
                    f"table of {found['name']}: no row {method!r}; {kept} has {', '.join(known) or 'none'} of it"
                )
            rows.append((method, called))
        return found["asked"] + table(cells, labels, rows) + found["end"]

    return TABLE.sub(fill, document)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=Path, nargs="?", default=DOCUMENT)
    document = parser.parse_args().document
    document.write_text(filled(document.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
