"""How time and memory grow with labels, classes, the corpus, the vocabulary, and threads: `python research/scaling.py`.

    labels      a classifier's training, so many texts of 64 tokens (en-gpt-small, the recipe frozen)
    classes     the same with 120 texts in so many classes
    corpus      so many megabytes to token shards on disk, by en-ulmfit's tokenizer
    vocabulary  a training step of an LSTM language model of 128 and 256 units, for each output layer
    threads     reading 64 texts of 128 tokens (en-bert-small), with so many threads

The texts are the demo's; labels are dealt out in turn, for only the cost is looked at. What lengths and rows cost is in
research/cost.py. Each cell runs in a process of its own; seconds are the processor's, but for `threads` the wall's;
memory is what the process held at its peak beyond what it held before. Table on the screen; scaling.json and
scaling.svg in research/results/. Cut short, the same command goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from textgraft.core.context import QUIET
from textgraft.core.resource_meter import Meter
from textgraft.data.examples import Examples

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from record import Record, in_own_process, write_json

HERE = Path(__file__).parent
DEMO = HERE.parent / "demo" / "data" / "pool.txt.xz"
TOKENS, TEXTS = 64, 120
Work = Callable[[], None]


@dataclass(frozen=True)
class Curve:
    """What is measured, `prepare` (series, value) -> the work, for each value on the axis and each series."""

    axis: str
    values: tuple[int, ...]
    tiny: tuple[int, ...]
    prepare: Callable[[str, int], Work]
    series: tuple[str, ...] = ("",)
    clock: Callable[[], float] = time.process_time


def texts() -> list[str]:
    from textgraft import read

    return list(read(DEMO).texts)


def trained(count: int, classes: int) -> Work:
    from textgraft import FinetuneOptions, finetune

    some = list(itertools.islice(itertools.cycle(texts()), count))
    train = Examples(some, [f"class {n % classes}" for n in range(count)], "single")
    test = train.take(range(min(count, 2 * classes)))
    options = FinetuneOptions(recipe="frozen", max_tokens=TOKENS, baselines=False)

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            finetune(train, Path(folder, "out"), model="en-gpt-small", test=test, options=options, context=QUIET)

    return work


def encoded(megabytes: int) -> Work:
    from textgraft.data.streams.shards import build_corpus
    from textgraft.models.loading import load_network

    tokenizer, pool = load_network("en-ulmfit").tokenizer, texts()

    def so_much() -> Iterator[str]:
        left = megabytes * 1_000_000
        for text in itertools.cycle(pool):
            yield text[:left]
            left -= len(text)
            if left <= 0:
                return

    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            build_corpus(so_much(), tokenizer, Path(folder, "corpus"), source_description="bench", progress=False)

    return work


def stepped(output_layer: str, words: int) -> Work:
    from textgraft.data.batch import Batch
    from textgraft.models.model import build

    torch.manual_seed(0)
    encoder = {"name": "awd_lstm", "vocab_size": words, "embedding_dim": 128, "hidden_dim": 256, "num_layers": 2}
    head = {"name": "language_model", "vocab_size": words, "input_dim": 128, "output_layer": output_layer}
    model = build({"encoder": encoder, "head": head}).train()
    ids = torch.randint(4, words, (16, 70), generator=torch.Generator().manual_seed(0))
    batch = Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool), targets=ids.roll(-1, dims=1))

    def work() -> None:
        model.zero_grad()
        loss = model.loss(batch)
        (loss.total / loss.count).backward()

    work()  # what the first step alone pays for
    return work


def read_by(threads: int) -> Work:
    from textgraft.models.loading import open_models
    from textgraft.tasks.classification.predictor import embed

    torch.set_num_threads(threads)
    members = open_models("en-bert-small").members
    some = [" ".join(text.split()[:90]) for text in texts()[:64]]

    def work() -> None:
        embed(members, some)

    return work


CURVES = {
    "labels": Curve("labels", (50, 100, 200, 400), (8, 16), lambda _, n: trained(n, 2)),
    "classes": Curve("classes", (2, 5, 15, 40), (2,), lambda _, n: trained(TEXTS, n)),
    "corpus": Curve("megabytes", (1, 2, 4, 8, 16), (1,), lambda _, n: encoded(n)),
    "vocabulary": Curve(
        "words", (2_000, 8_000, 32_000, 128_000), (200, 400), stepped, ("full", "chunked", "sampled", "adaptive")
    ),
    "threads": Curve(
        "threads", tuple(range(1, (os.cpu_count() or 1) + 1)), (1,), lambda _, n: read_by(n), clock=time.perf_counter
    ),
}


def measured(curve: Curve, series: str, value: int, repeats: int) -> dict[str, float]:
    """The least seconds of some repeats, and megabytes beyond those that are held when all is prepared."""
    work = curve.prepare(series, value)
    with Meter() as idle:
        time.sleep(0.1)
    seconds = []
    with Meter() as meter:
        for _ in range(repeats):
            began = curve.clock()
            work()
            seconds.append(curve.clock() - began)
    return {"seconds": min(seconds), "mb": meter.peak_mb - idle.peak_mb}


Point = tuple[str, str, int]
"""Which curve, which of its series, where on its axis."""


def table(points: dict[Point, dict[str, float]]) -> str:
    lines = ["| curve | | seconds | MB |", "|---|---|---|---|"]
    for (name, series, value), found in points.items():
        at = f"{value:,} {CURVES[name].axis}" + (f", {series}" if series else "")
        lines.append(f"| {name} | {at} | {found['seconds']:.3g} | {found['mb']:.0f} |")
    return "\n".join(lines)


def drawn(points: dict[Point, dict[str, float]], path: Path) -> None:
    """Time above, memory below, a column for each curve."""
    # Here, because a cell's own process needs no matplotlib.
    from matplotlib.figure import Figure

    from textgraft.report.plots import Plot, laid_out, style

    def thousands(value: float, _: int) -> str:
        return f"{value / 1000:,.0f}k" if value >= 10_000 else f"{value:,.0f}"

    names = list(dict.fromkeys(name for name, _, _ in points))
    with style():
        figure = Figure(figsize=(3.2 * len(names), 5.2))
        for row, (key, label) in zip(figure.subplots(2, len(names), squeeze=False), (("seconds", "s"), ("mb", "MB"))):
            for axis, name in zip(row, names, strict=True):
                for series in CURVES[name].series:
                    line = sorted((at[2], found[key]) for at, found in points.items() if at[:2] == (name, series))
                    axis.plot(*zip(*line, strict=True), marker="o", label=series)
                # From zero on both: what grows in proportion is a straight line, what is flat looks flat.
                axis.set(xlabel=CURVES[name].axis, ylabel=label, xlim=(0, None), ylim=(0, 1.1 * axis.get_ylim()[1]))
                axis.xaxis.set_major_formatter(thousands)
                axis.locator_params(axis="x", nbins=4, integer=True)
                if len(CURVES[name].series) > 1:
                    axis.legend(fontsize=7)
    plot: Plot = laid_out(figure, "How time (above) and memory (below) grow with the size of the work.")
    plot.save(path)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curves", nargs="*", metavar="CURVE", help="of: " + ", ".join(CURVES) + " (default: all)")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes, once: does it run?")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--cell", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args(given)
    if asked.cell:
        name, series, value = asked.cell
        torch.set_num_threads(1)
        print(json.dumps(measured(CURVES[name], series, value, asked.repeats)))
        return
    for name in asked.curves:
        if name not in CURVES:
            parser.error(f"unknown curve '{name}'; there are {', '.join(CURVES)}")
    settings: dict[str, Any] = {"tiny": asked.tiny, "repeats": 1 if asked.tiny else asked.repeats}
    record = Record(asked.out / "scaling-unfinished.json", settings)
    points: dict[Point, dict[str, float]] = {}
    for name in asked.curves or CURVES:
        curve = CURVES[name]
        for series, value in itertools.product(curve.series, curve.tiny if asked.tiny else curve.values):
            cell, repeats = json.dumps([name, series, value]), ["--repeats", str(settings["repeats"])]
            found = record.once(cell, lambda more=repeats, cell=cell: in_own_process(__file__, cell, more))
            points[name, series, value] = found
            print(f"  {name} {series} {value:,}: {found['seconds']:.3g} s", file=sys.stderr, flush=True)
    print(table(points))
    shown = [{"curve": n, "series": s, "value": v, **found} for (n, s, v), found in points.items()]
    write_json(asked.out / "scaling.json", {"settings": settings, "points": shown})
    drawn(points, asked.out / "scaling.svg")
    record.path.unlink()


if __name__ == "__main__":
    main()
