"""AWD-LSTM language-model training beside fastai's, in detail: four configurations of ours, and where the time goes.

    python benchmarks/lm.py              # makes the peer's environment on first use; half an hour or more
    python benchmarks/lm.py --smoke      # tiny sizes, ours only, seconds: does it run?

A table on the screen, all figures in benchmarks/results/lm.json. Speeds are medians over rounds in which the sides take
turns; ratios are taken round by round. Each measurement is kept as soon as it is made: the same command again goes on
where one that was cut short stood. On a machine that does other things too, `--clock cpu` with one thread counts the
processor's seconds instead of the wall's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from language_model import OURS, SHAPES, measure, table
from record import Record, machine, write_json
from sides import Side, peers_python
from wikitext import write_tokens

HERE = Path(__file__).parent


def main() -> None:
    arguments = _arguments()
    shape = SHAPES["smoke" if arguments.smoke else arguments.shape]
    names = ("rounds", "steps", "minutes", "lr", "threads", "clock")
    settings = {**shape, **{name: getattr(arguments, name) for name in names}}
    name = "lm-smoke" if arguments.smoke else "lm" if arguments.shape == "lm" else f"lm-{arguments.shape}"
    record = Record(arguments.out / f"{name}-unfinished.json", settings)
    with tempfile.TemporaryDirectory() as work:
        sides = _sides(_shape_file(shape | {"lr": arguments.lr}, arguments, Path(work)), arguments)
        try:
            rows = measure(sides, record.once, settings)
        finally:
            for side in sides.values():
                side.close()
    result = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "settings": settings, "rows": rows}
    print(table(rows))
    write_json(arguments.out / f"{name}.json", result)
    record.path.unlink()
    print(f"written: {arguments.out / name}.json")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="tiny and without peers: a test that it runs")
    parser.add_argument("--shape", choices=["lm", "en-ulmfit"], default="lm", help="the network's sizes (default lm)")
    parser.add_argument("--data", type=Path, help="folder of wikitext-2 (default: ../shared/data/wikitext-2)")
    parser.add_argument("--rounds", type=int, default=5, help="how many times the sides take turns (default 5)")
    parser.add_argument("--steps", type=int, default=2, help="training steps a side and round (default 2)")
    parser.add_argument(
        "--minutes", type=float, default=12, help="equal training time for the losses (default 12); 0: skip it"
    )
    parser.add_argument("--lr", type=float, default=3e-3, help="peak learning rate of all sides (default 0.003)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for the figures")
    arguments = parser.parse_args()
    if arguments.clock == "cpu" and arguments.threads > 1:
        parser.error("--clock cpu adds up the seconds of all threads; give --threads 1 with it.")
    if arguments.smoke:
        arguments.rounds, arguments.steps, arguments.minutes = 2, 2, 0.005
    return arguments


def _shape_file(shape: dict[str, Any], arguments: argparse.Namespace, work: Path) -> Path:
    """The sizes, and the token files made for them, in a file that all sides read."""
    data = arguments.data or HERE.parents[1] / "shared" / "data" / "wikitext-2"
    if not arguments.smoke and not data.exists():
        sys.exit(f"{data}: no such folder; name one that holds wikitext-2 with --data.")
    tokens = write_tokens(None if arguments.smoke else data, shape["vocab_size"], work)
    path = work / "shape.json"
    path.write_text(json.dumps(shape | tokens), "utf-8")
    return path


def _sides(shape: Path, arguments: argparse.Namespace) -> dict[str, Side]:
    """The peer first, then ours; each a process of its own, all on the same number of threads."""
    sides = {}
    if not arguments.smoke:
        sides["fastai"] = Side([str(peers_python("fastai")), str(HERE / "lm_fastai.py"), str(shape)], arguments.threads)
    for name, (output_layer, precision) in OURS.items():
        command = [sys.executable, str(HERE / "lm_textgraft.py"), str(shape)]
        sides[name] = Side([*command, "--output-layer", output_layer, "--precision", precision], arguments.threads)
    return sides


if __name__ == "__main__":
    main()
