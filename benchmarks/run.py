"""textgraft beside its peers, row by row: the same data, weights, tokens and machine, the sides in turns.

    python benchmarks/run.py                  # every row; makes the peers' environments on first use; an hour or two
    python benchmarks/run.py predict latency  # these rows
    python benchmarks/run.py --smoke          # tiny, ours only, made-up texts: does it run? Its figures mean nothing

A table on the screen, all figures in benchmarks/results/peers.json, a plot in peers.svg. Figures are medians over
rounds, ratios are taken round by round. A row is kept as soon as it is measured: the same command again goes on where
one that was cut short stood. On a machine that does other things too, `--clock cpu --threads 1` counts the processor's
seconds instead of the wall's.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from given import Given
from race import OURS, PEER, Row, race, table
from record import Record, machine, write_json
from rows import ROWS
from sides import Side, peers_python

HERE = Path(__file__).parent


def main() -> None:
    arguments = _arguments()
    settings = {name: getattr(arguments, name) for name in ("rounds", "threads", "clock", "smoke")}
    name = "peers-smoke" if arguments.smoke else "peers"
    record = Record(arguments.out / f"{name}-unfinished.json", settings)
    with tempfile.TemporaryDirectory() as work:
        given = Given(arguments.data, Path(work), arguments.smoke)
        for row in arguments.rows or ROWS:
            record.once(row, lambda row=row: measured(row, given, arguments))
    rows = {row: record.measured[row] for row in ROWS if row in record.measured}
    print(table(rows))
    result = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "settings": settings, "rows": rows}
    write_json(arguments.out / f"{name}.json", result)
    plot(rows, arguments.out / f"{name}.svg")
    if not arguments.rows:
        record.path.unlink()
    print(f"written: {arguments.out / name}.json")


def measured(name: str, given: Given, arguments: argparse.Namespace) -> dict[str, Any]:
    """One row: what both sides need is made, each is started, they take turns."""
    module = importlib.import_module(f"rows.{name}")
    row: Row = module.ROW
    print(f"{name}: {row.title}", file=sys.stderr)
    task = given.work / f"{name}.json"
    task.write_text(json.dumps({"threads": arguments.threads} | module.prepare(given)), "utf-8")
    sides = {side: Side(command(name, side, row, task), arguments.threads) for side in _names(arguments)}

    def ask(side: str, number: int) -> dict[str, Any]:
        began = time.perf_counter()
        turn: dict[str, Any] = sides[side].ask("turn", number=number)
        print(f"  round {number} {side}: {time.perf_counter() - began:.1f} s", file=sys.stderr)
        return turn

    try:
        found = race(row, list(sides), ask, min(arguments.rounds, row.rounds), arguments.clock)
        _add_shares(found, sides, arguments)
    finally:
        for side in sides.values():
            side.close()
    print(table({name: found}), file=sys.stderr)
    return found


def _names(arguments: argparse.Namespace) -> list[str]:
    return [OURS] if arguments.smoke else [PEER, OURS]


def command(name: str, side: str, row: Row, task: Path) -> list[str]:
    """What starts a side, in the peer's environment if it has one."""
    own = side == OURS or row.environment is None
    python = sys.executable if own else str(peers_python(str(row.environment)))
    return [python, str(HERE / "row_side.py"), name, side, str(task)]


def _add_shares(found: dict[str, Any], sides: dict[str, Side], arguments: argparse.Namespace) -> None:
    """Beside each rate of operations its share of what matrix products reach in the faster number format."""
    if not any("flops" in measure.get(OURS, {}) for measure in found["measures"].values()):
        return
    peaks = sides[OURS].ask("peaks")
    found["matmul_peaks"] = peaks
    threads = arguments.threads if arguments.clock == "cpu" else 1
    for measure in found["measures"].values():
        for side in sides:
            if "flops" in measure.get(side, {}):
                measure[side]["share_of_peak"] = measure[side]["flops"] * threads / max(peaks.values())


def plot(rows: dict[str, Any], path: Path) -> None:
    """How many times better each figure is than the peer's, on a logarithmic axis, with its floor and goal."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    found = [
        (f"{name}: {measure}", m)
        for name, row in rows.items()
        for measure, m in row["measures"].items()
        if "ratio" in m
    ]
    if not found:
        return
    figure, axes = pyplot.subplots(figsize=(8, 0.35 * len(found) + 1.2), layout="constrained")
    for y, (_, measure) in enumerate(reversed(found)):
        ratio = measure["ratio"]
        axes.plot([ratio["low"], ratio["high"]], [y, y], color="tab:blue", linewidth=3, alpha=0.4)
        axes.plot(ratio["median"], y, "o", color="tab:blue")
        if measure["floor"] is not None:
            axes.plot(measure["floor"], y, "|", color="tab:orange", markersize=14)
            axes.plot(measure["goal"], y, "|", color="tab:green", markersize=14)
    axes.axvline(1, color="gray", linewidth=0.8)
    axes.set_xscale("log")
    ticks = [0.5, 1, 2, 3, 5, 10, 15]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axes.minorticks_off()
    axes.set_yticks(range(len(found)), [label for label, _ in reversed(found)])
    axes.set_xlabel("times better than the peer (orange: floor, green: goal)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="of: " + ", ".join(ROWS))
    parser.add_argument("--smoke", action="store_true", help="tiny and without peers: a test that it runs")
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data", help="folder of the texts")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each side, at most (default 3)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for the figures")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.rows) - set(ROWS)):
        parser.error(f"no row '{unknown[0]}'; there are {', '.join(ROWS)}.")
    if arguments.clock == "cpu" and arguments.threads > 1:
        parser.error("--clock cpu adds up the seconds of all threads; give --threads 1 with it.")
    if not arguments.smoke and not arguments.data.exists():
        parser.error(f"{arguments.data}: no such folder; name the one of the texts with --data.")
    if arguments.smoke:
        arguments.rounds = 1
    return arguments


if __name__ == "__main__":
    main()
