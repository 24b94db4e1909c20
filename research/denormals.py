"""What flushing denormals saves (textgraft.nn.cpu.denormals): `python research/denormals.py imdb en-ulmfit th-ulmfit`.

Takes a batch of a data set's texts with each language model, as its first step of fine-tuning would: forward and back,
and reading alone, with denormals flushed and as the processor has them, in turns, on one thread. Prints processor
seconds without flushing, how many times as fast it is with (median of the rounds, lowest and highest), and what shares
of the gradient are denormal and zero.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from unittest.mock import patch

import curves
import torch

from textgraft.data.batch import Batch
from textgraft.data.labels import Labels
from textgraft.data.streams.base import ExampleStream
from textgraft.models import loading
from textgraft.models.inference import predict_logits
from textgraft.nn.cpu import precision
from textgraft.nn.cpu.denormals import flushed
from textgraft.tasks.classification.training import Plan, classifier_to_train
from textgraft.training.loop import Run
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from timing import clocks, since

HERE = Path(__file__).parent


def seconds(work: Callable[[], object], *, flush: bool) -> float:
    start = clocks()
    with flushed() if flush else patch.object(precision, "flushed", nullcontext):
        work()
    return since(start)["cpu"]


def compared(name: str, what: str, work: Callable[[], object], rounds: int) -> None:
    """Prints the line of one work; the first round is not counted."""
    times = [(seconds(work, flush=False), seconds(work, flush=True)) for _ in range(rounds + 1)][1:]
    ratios = [without / within for without, within in times]
    without = median(time for time, _ in times)
    print(
        f"{name:22} {what:8} {without:6.2f} s  {median(ratios):5.2f} times [{min(ratios):.2f}, {max(ratios):.2f}]",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=curves.DATA)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", type=Path, default=HERE.parents[1] / "shared" / "data")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    folder, read = curves.DATA[asked.name]
    examples = curves.examples(curves.sample(read(asked.data / folder)[0], asked.rows), asked.name)
    labels = Labels.fit(examples)
    for name in asked.models:
        source = loading.load_network(name)
        texts, pad_id = source.encoded(examples.texts, asked.max_tokens)[0], source.tokenizer.pad_id
        stage = load_recipe(source.recommended_recipe("default")).finetune
        model = classifier_to_train(Plan(source.model, False, stage, Settings(), labels, None, pad_id), 0)
        stream = ExampleStream(texts, torch.from_numpy(labels.encode(examples)), pad_id=pad_id, rows=len(texts), seed=0)
        run = Run(model, stage.plan(len(model.layer_groups()), 1), stream, Settings())
        batch: Batch = next(iter(stream.batches(0, 0)))

        def step(run: Run = run, batch: Batch = batch) -> None:
            run.model.zero_grad()
            run._backward([batch])

        compared(name, "training", step, asked.rounds)
        compared(name, "reading", partial(predict_logits, model, texts, pad_id, "auto"), asked.rounds)
        seconds(step, flush=False)
        grad = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        denormal = (grad != 0) & (grad.abs() < torch.finfo(grad.dtype).tiny)
        print(f"{name:22} gradient {denormal.double().mean():.1%} denormal, {(grad == 0).double().mean():.1%} zero")


if __name__ == "__main__":
    main()
