"""What transfer is worth on real data, layer by layer: `python research/transfer.py trec --labels 500 --seeds 5`.

`textgraft inspect transfer` on the texts that research/curves.py draws first, and on its tests. Prints the verdict and
the tables of docs/concepts/transfer.md; --plots writes its two pictures. The report and results.json are in --out. If
it is killed, the same command resumes it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import curves

from textgraft import inspect_transfer
from textgraft.data.splits import nested_order
from textgraft.experiments.transfer import TransferOptions
from textgraft.experiments.transfer_report import benefit_rows, benefits_plot, layers_plot, table_rows

HERE = Path(__file__).parent
PICTURES = {"layers": layers_plot, "benefits": benefits_plot}


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows))


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=curves.DATA)
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--labels", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--model", default="en-ulmfit")
    parser.add_argument("--recipe", default="transfer")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--tested", type=int, help="tests, drawn (default: all)")
    parser.add_argument("--out", type=Path, help="must not exist; default: research/results/transfer/NAME")
    parser.add_argument("--plots", type=Path, help="a folder for transfer-layers.svg and transfer-benefits.svg")
    return parser


def main() -> None:
    asked = options().parse_args()
    folder, read = curves.DATA[asked.name]
    train, test, _ = read(asked.data / folder)
    if asked.tested is not None:
        test = curves.sample(test, asked.tested)
    rows = curves.examples(train, asked.name)
    out = asked.out or HERE / "results" / "transfer" / asked.name
    results = inspect_transfer(
        rows.take(nested_order(rows, 0)[: asked.labels]),
        out,
        model=asked.model,
        test=curves.examples(test, f"{asked.name} test"),
        options=TransferOptions(recipe=asked.recipe, seeds=asked.seeds, max_tokens=asked.max_tokens),
    )
    if asked.plots:
        for name, draw in PICTURES.items():
            draw(results).save(asked.plots / f"transfer-{name}.svg")
    print("\n".join(results["verdict"]), "", markdown(*table_rows(results)), "", sep="\n")
    print(markdown(*benefit_rows(results)))


if __name__ == "__main__":
    main()
