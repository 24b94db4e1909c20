"""int8 graphs of classifiers: `python benchmarks/int8_classifiers.py DATA MODEL…`, a minute or two for a MiniLM.

DATA has texts and labels. Each MODEL, a network's folder, is exported in float32 and in each of the three variants of
int8 that `textgraft export --int8` tries. The table has, for each, the share of DATA's texts with the same prediction,
the accuracy on them, processor seconds with one thread, and the size; --out writes it as JSON too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before onnxruntime is imported

from textgraft.data.readers import read
from textgraft.models.loading import load_network
from textgraft.onnx.int8 import LADDER, in_int8
from textgraft.tasks.export import graph_of

FLOAT32 = "float32"


@dataclass(frozen=True)
class Row:
    """A graph of a model on all texts."""

    model: str
    products: str
    megabytes: float
    same: float
    accuracy: float
    seconds: float


def rows(model: str, texts: Sequence[str], labels: Sequence[str]) -> list[Row]:
    """The rows of a model: float32 first, then each variant of int8."""
    whole = graph_of(load_network(model), model)
    assert whole.labels is not None
    made, usual = [], None
    for products in (FLOAT32, *LADDER):
        graph = whole if products == FLOAT32 else replace(whole, graph=in_int8(whole.graph, products))
        began = time.process_time()
        outputs = graph.outputs(texts)
        seconds = time.process_time() - began
        usual = outputs if usual is None else usual
        predicted = whole.labels.decode(whole.labels.decisions(outputs))
        right = sum(one == label for one, label in zip(predicted, labels, strict=True)) / len(labels)
        same = whole.labels.target.agreement(usual, outputs)
        made.append(Row(model, products, len(graph.graph) / 1e6, same, right, seconds))
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse arguments, measure, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    examples = read(given.data)
    found = [row for model in given.models for row in rows(model, list(examples.texts), list(examples.labels or ()))]
    for row in found:
        shares = f"{row.same:7.1%} the same {row.accuracy:7.1%} right"
        print(f"{Path(row.model).name}: {shares} {row.seconds:6.1f} s {row.megabytes:6.1f} MB  {row.products}")
    if given.out is not None:
        given.out.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
