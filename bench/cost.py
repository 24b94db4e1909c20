"""What a token costs, by the length of texts and the number of rows: `python bench/cost.py`, a quarter of an hour.

Time and memory of reading (the encoder alone, as prediction does) and of training (language-model loss and gradients,
without the optimizer, whose cost a step is the same whatever was read) for the small shapes that our recipes pretrain,
with random weights, on one core unless `--threads` says more; and for GPT's attention patterns: dense, locally banded
(`--window`), and alternating (Brown et al. 2020, §2.1). Every cell runs in a process of its own, so that its memory is
its own: what the process held at its peak beyond what it held before the first step. Times are processor time, the
least of several steps. Table on the screen; cost.json and cost.svg in bench/results/. Cut short, the same command goes
on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from record import Record, in_own_process, write_json

from textgraft.core.resource_meter import Meter
from textgraft.data.batch import Batch
from textgraft.models.model import Model, build
from textgraft.nn.cpu.precision import computing_in
from textgraft.tasks.language_modeling.pretrain import load_pretrain_recipe

HERE = Path(__file__).parent
RECIPES = {"awd-lstm": "en-ulmfit", "bert": "en-bert-small", "gpt": "en-gpt-small", "transformer-xl": "en-xl-small"}
PATTERNS = {"gpt": "dense", "gpt banded": "banded", "gpt alternating": "alternating"}
MASKED_EVERY = 7  # BERT's 15 %


@dataclass(frozen=True)
class Cell:
    """One measurement: which network, on how many texts of how many tokens."""

    network: str
    rows: int
    length: int
    window: int
    precision: str
    threads: int
    steps: int

    def __str__(self) -> str:
        return f"{self.network}, {self.rows} x {self.length}"


Rows = list[tuple[Cell, dict[str, float]]]


def network(cell: Cell) -> Model:
    """The recipe's model with room for the cell's length and as many words as it has."""
    family = cell.network.split()[0]
    recipe = load_pretrain_recipe(RECIPES[family])
    encoder: dict[str, Any] = {"name": "awd_lstm", "vocab_size": 10_000, **recipe.model}
    if "max_length" in encoder:
        encoder["max_length"] = max(encoder["max_length"], cell.length)
    if cell.network in PATTERNS:
        encoder |= {"attention": PATTERNS[cell.network], "window": cell.window}
    head = {"name": "language_model", "vocab_size": 10_000, "input_dim": encoder["embedding_dim"], **recipe.head}
    torch.manual_seed(0)
    return build({"encoder": encoder, "head": head | ({"next_sentence": False} if family == "bert" else {})})


def batch_of(cell: Cell) -> Batch:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, 10_000, (cell.rows, cell.length), generator=generator)
    targets = ids.roll(-1, dims=1)
    if cell.network == "bert":
        targets = ids.masked_fill(torch.arange(cell.length) % MASKED_EVERY > 0, -100)
    return Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool), targets=targets)


def measured(cell: Cell) -> dict[str, float]:
    """Microseconds a token and megabytes beyond the model, for reading and for training."""
    torch.set_num_threads(cell.threads)
    model, batch = network(cell), batch_of(cell)

    def read() -> None:
        with torch.inference_mode(), computing_in(cell.precision):
            model.encoder(batch)

    def train() -> None:
        model.zero_grad()
        with computing_in(cell.precision):
            loss = model.loss(batch)
        (loss.total / loss.count).backward()

    found = {}
    for name, step in (("read", read), ("train", train)):
        model.train(name == "train")
        with Meter() as idle:
            time.sleep(0.1)
        seconds = []
        with Meter() as meter:
            for _ in range(cell.steps + 1):
                began = time.process_time()
                step()
                seconds.append(time.process_time() - began)
        found[f"{name}_us"] = min(seconds[1:]) / (cell.rows * cell.length) * 1e6
        found[f"{name}_mb"] = meter.peak_mb - idle.peak_mb
    return found


def drawn(rows: Rows, length: int, path: Path) -> None:
    """Training cost by length for each network, memory beside it, and by rows at one length."""
    # Here, because a cell's own process needs no matplotlib.
    from matplotlib.figure import Figure

    from textgraft.report.plots import Plot, laid_out, style

    panels = (
        ("train_us", "one text of so many tokens: \u00b5s a token", "length"),
        ("train_mb", "one text of so many tokens: MB", "length"),
        ("train_us", f"so many texts of {length} tokens: \u00b5s a token", "rows"),
    )
    with style():
        figure = Figure(figsize=(13, 3.4))
        for axis, (key, title, by) in zip(figure.subplots(1, 3), panels, strict=True):
            shown = [(cell, found) for cell, found in rows if _is_in(cell, by, length)]
            for name in dict.fromkeys(cell.network for cell, _ in rows):
                line = sorted((getattr(cell, by), found[key]) for cell, found in shown if cell.network == name)
                axis.plot(*zip(*line, strict=True), marker="o", label=name)
            axis.set(title=f"Training, {title}", xlabel="tokens" if by == "length" else "texts", xscale="log")
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:g}")
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    plot: Plot = laid_out(figure, "What training costs a token, by length and by rows, for each network.")
    plot.save(path)


def _is_in(cell: Cell, by: str, length: int) -> bool:
    return cell.rows == 1 if by == "length" else cell.length == length


def table(rows: Rows) -> str:
    lines = ["| network | texts x tokens | reading, \u00b5s a token | MB | training, \u00b5s a token | MB |"]
    lines.append("|---|---|---|---|---|---|")
    for cell, found in rows:
        figures = f"{found['read_us']:.1f} | {found['read_mb']:.0f} | {found['train_us']:.1f} | {found['train_mb']:.0f}"
        lines.append(f"| {cell.network} | {cell.rows} x {cell.length} | {figures} |")
    return "\n".join(lines)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(dict.fromkeys([*RECIPES, *PATTERNS]))
    parser.add_argument("--networks", default=",".join(names), help="with commas, of: " + ", ".join(names))
    parser.add_argument("--lengths", type=numbers, default=[64, 128, 256, 512, 1024, 2048])
    parser.add_argument("--rows", type=numbers, default=[1, 4, 16, 64])
    parser.add_argument("--window", type=int, default=64, help="how far a banded layer looks")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--cell", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        print(json.dumps(measured(Cell(**asked.cell))))
        return
    middle = min(asked.lengths, key=lambda length: abs(length - 128))
    sizes = dict.fromkeys([*((1, length) for length in asked.lengths), *((rows, middle) for rows in asked.rows)])
    settings = {"window": asked.window, "precision": asked.precision, "threads": asked.threads, "steps": asked.steps}
    record = Record(asked.out / "cost-unfinished.json", settings)
    rows: Rows = []
    for name in asked.networks.split(","):
        for size in sizes:
            cell = Cell(name, *size, **settings)
            rows.append(
                (cell, record.once(str(cell), lambda cell=cell: in_own_process(__file__, json.dumps(asdict(cell)))))
            )
            print(f"  {cell}: {rows[-1][1]['train_us']:.1f} \u00b5s a token", file=sys.stderr, flush=True)
    print(table(rows))
    write_json(asked.out / "cost.json", {"settings": settings, "cells": [asdict(c) | found for c, found in rows]})
    drawn(rows, middle, asked.out / "cost.svg")
    record.path.unlink()


if __name__ == "__main__":
    main()
