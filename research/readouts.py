"""Which layers make the best features? `textgraft inspect layers` with a study's options.

    python research/readouts.py TRAIN.conllu --test TEST.conllu --model hf:FOLDER --sentences 600 --seeds 3 --out
    FOLDER

Table 7 of Devlin et al. 2019 on any file of sentences with tags and any encoder; see
textgraft/experiments/layer_aggregation.py. The table is in OUT/results.json and OUT/report.html too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from textgraft.data.conll import read_conll
from textgraft.experiments.layer_aggregation import inspect_layers, sampled
from textgraft.experiments.layer_aggregation_report import table_rows
from textgraft.experiments.layer_tasks import LayerOptions
from textgraft.nn.layer_aggregation import LAYER_AGGREGATIONS
from textgraft.training.settings import Settings

HERE = Path(__file__).parent


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    options = LayerOptions(
        recipe=arguments.recipe,
        layer_aggregations=arguments.layer_aggregations,
        seeds=arguments.seeds,
        max_tokens=arguments.max_tokens,
        settings=Settings(precision=arguments.precision, device=arguments.device),
    )
    train = sampled(read_conll(arguments.train), arguments.sentences)
    test = sampled(read_conll(arguments.test), arguments.test_sentences)
    results = inspect_layers(train, arguments.out, test=test, model=arguments.model, options=options)
    for why in results["left_out"].values():
        print(f"left out: {why}")
    print(f"{results['sizes']['train']:,} sentences to learn from, {results['sizes']['test']:,} to measure on")
    head, rows = table_rows(results)
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for line in [head, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path, help="sentences with tags: CoNLL columns or CoNLL-U")
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--layer-aggregations", type=lambda text: tuple(text.split(",")), default=tuple(LAYER_AGGREGATIONS)
    )
    parser.add_argument("--sentences", type=int, help="learn from so many (default: all)")
    parser.add_argument("--test-sentences", type=int, help="measure on so many (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--recipe", default="frozen")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "layers", help="must not exist")
    return parser.parse_args()


if __name__ == "__main__":
    main()
