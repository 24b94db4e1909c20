"""What a fixed time of one core buys in pretraining: `en-ulmfit`'s recipe beside the same with one thing changed.

    python research/budget.py train-00.jsonl.xz --valid valid.jsonl.xz --minutes 6 [--sides recipe,one-cycle,...]

Each side first trains for some seconds to find its speed (tokens a processor second), then anew for as many tokens as
that speed gives in `--minutes`, with its schedule laid out over just these; word vectors to start from are trained in
the side's own time. Held-out loss is in nats a token of one vocabulary, so sides can be compared. Runs one after the
other, in one process and one thread; what is measured is kept in OUT at once, and the same command goes on from there.
`--vocabulary N` has sides read subwords of their own, of which only bits a character compare with those of others.
`--curve` has the sides named look at held-out text on the way, for a power law L(t) = a + b t^-c through a stay at the
top rate, and draws it; what the first quarter of the tokens says of the end stands beside what came.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from textgraft.core.files import write_atomically
from textgraft.data.readers import read_texts
from textgraft.data.streams.shards import Corpus, build_corpus
from textgraft.models import loading
from textgraft.models.model import Model
from textgraft.tasks.language_modeling.pretrain import (
    PretrainRecipe,
    initialize_model,
    load_pretrain_recipe,
    new_language_model,
)
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.loop import Run
from textgraft.training.objectives import objective
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings
from textgraft.training.token_vectors import cached_token_vectors

HERE = Path(__file__).parent
Side = Callable[[PretrainRecipe], PretrainRecipe]
FLOOR = 2.0
"""a of the power law, nats a token, given: eight points cannot tell it from b and c."""
VECTORS_FROM = 5_000_000
"""Tokens that the side which starts from skip-gram takes its vectors from, in its own time."""


def phase(**changed: Any) -> Side:
    """The recipe with one phase, changed in these settings."""
    return lambda r: replace(r, stage=replace(r.stage, phases=(replace(r.stage.phases[0], **changed),)))


def stage(rows: int, **changed: Any) -> Side:
    """The same with batches of `rows` rows."""
    return lambda r: replace(r, stage=replace(phase(**changed)(r).stage, batch_size=rows))


def shape(**changed: Any) -> Side:
    """Another network; its input scale keeps inputs at unit variance."""
    return lambda r: replace(r, model={**r.model, **changed, "input_scale": _width(r, changed) ** 0.5})


def _width(recipe: PretrainRecipe, changed: dict[str, Any]) -> int:
    return int(changed.get("embedding_dim", recipe.model["embedding_dim"]))


SIDES: dict[str, Side] = {
    "recipe": phase(),
    "no counts": lambda r: replace(r, start_from_counts=False),
    "one-cycle": phase(schedule="one_cycle", warmup=0.25, lr=0.005),
    "linear decay": phase(schedule="linear", warmup=0.1, lr=0.005),
    "rate 0.002": phase(lr=0.002),
    "rate 0.006": phase(lr=0.006),
    "12 rows": stage(12, lr=0.0025),
    "64 rows": stage(64, lr=0.005),
    "muon": phase(optimizer="muon", lr=0.002),
    "muon 64 rows": stage(64, optimizer="muon", lr=0.003),
    "label smoothing 0.1": lambda r: replace(r, head={**r.head, "label_smoothing": 0.1}),
    "sampled softmax": lambda r: replace(r, head={**r.head, "output_layer": "sampled"}),
    "adaptive softmax": lambda r: replace(r, head={**r.head, "output_layer": "adaptive"}),
    "qrnn": shape(cell="qrnn"),
    "small": shape(embedding_dim=192, hidden_dim=384),
    "large": shape(embedding_dim=400, hidden_dim=1152),
    "word vectors": lambda r: replace(r, token_vectors=VECTORS_FROM),
    "gpt": lambda r: replace(common(load_pretrain_recipe("en-gpt-small")), start_from_counts=False),  # has no biases
    "transformer-xl": lambda r: common(load_pretrain_recipe("en-xl-small")),
}
"""Each a change of the recipe, which has its phases joined into one and starts from counts; or another family's."""


def common(recipe: PretrainRecipe) -> PretrainRecipe:
    """What all sides share: one phase, and no start from word vectors, which another width could not use."""
    joined = replace(recipe.stage, phases=recipe.stage.phases[:1])
    return replace(recipe, stage=joined, token_vectors=0, start_from_counts=True)


class Bench:
    """The sides' runs on one corpus."""

    def __init__(self, folder: Path, train: Corpus, held: Corpus, tokenizer: Tokenizer) -> None:
        self.folder, self.train, self.held, self.tokenizer = folder, train, held, tokenizer

    def recipe(self, side: str) -> PretrainRecipe:
        recipe = common(load_pretrain_recipe("en-ulmfit"))
        for change in side.split("+"):
            recipe = SIDES[change](recipe)
        return recipe

    def vectors(self, side: str) -> Path:
        return self.folder / f"{side}.f32"

    def prepare(self, side: str) -> float:
        """Train the word vectors of a side that starts from such; how many processor seconds that took."""
        recipe, began = self.recipe(side), time.process_time()
        if recipe.token_vectors:
            self.vectors(side).unlink(missing_ok=True)
            size, dim = self.tokenizer.vocab_size, recipe.model["embedding_dim"]
            cached_token_vectors(self.vectors(side), self.train, dim, size, tokens=recipe.token_vectors, seed=0)
        return time.process_time() - began

    def run(self, side: str, epochs: float, *, looks: int = 0) -> Run:
        """A run of a side over `epochs` of the corpus, looking at held-out text so many times on the way."""
        recipe = self.recipe(side)
        if not self.vectors(side).exists():  # only its speed is asked
            recipe = replace(recipe, token_vectors=0)
        model = new_language_model(recipe, self.tokenizer.vocab_size, 0)
        initialize_model(model, self.train, recipe=recipe, path=self.vectors(side), seed=0)
        (one,) = recipe.stage.plan(len(model.layer_groups()))
        if looks:
            one = replace(one, schedule="constant")
        stream = objective(model, side).stream(model, self.train, self.tokenizer, recipe.stage, 0)
        phases: list[Phase] = [replace(one, epochs=epochs)]
        return Run(model, phases, stream, Settings(clip=1.0))

    def speed(self, side: str, seconds: float) -> float:
        """Tokens a processor second, the first step not counted."""
        steps = self.run(side, 1.0).steps()
        first, began = next(steps).tokens, time.process_time()
        for step in steps:
            if time.process_time() - began >= seconds:
                return (step.tokens - first) / (time.process_time() - began)
        raise SystemExit("the training text is too short for this.")

    def train_for(self, side: str, tokens: float, show: str) -> dict[str, Any]:
        """Train a side on so many tokens: tokens, seconds, held-out figures."""
        run, began = self.run(side, tokens / self.train.num_tokens), time.process_time()
        for step in run.steps():
            if step.step % 100 == 0:
                print(f"{show}: step {step.step}, {step.tokens / 1e6:.2f} M tokens, loss {step.loss:.3f}", flush=True)
        return {"tokens": run.progress.tokens, "seconds": time.process_time() - began, **self.score(run.model)}

    def score(self, model: Model) -> dict[str, Any]:
        validate = objective(model, "bench").validator(model, self.held, self.tokenizer, tokens=100_000)
        with torch.no_grad():
            scores = validate(model.eval())
        multiplied, parameters = model.multiplied(), sum(p.numel() for p in model.parameters())
        return {"parameters": parameters, "multiplied": multiplied, **scores}

    def curve(self, side: str, tokens: float) -> list[tuple[float, float]]:
        """(tokens, held-out loss) at eight points a doubling apart, the rate constant."""
        wanted = [tokens / 2**k for k in range(7, -1, -1)]
        run, points = self.run(side, 1.05 * tokens / self.train.num_tokens, looks=8), []
        for step in run.steps():
            if wanted and step.tokens >= wanted[0]:
                wanted.pop(0)
                with torch.random.fork_rng():
                    points.append((float(step.tokens), float(self.score(run.model)["loss"])))
                print(f"{side}: {step.tokens / 1e6:.2f} M tokens, held-out loss {points[-1][1]:.3f}", flush=True)
            if not wanted:
                break
        return points


def fitted(t: NDArray, loss: NDArray, floor: float) -> tuple[float, float]:
    """(b, c) of L(t) = floor + b t^-c by least squares on logarithms."""
    slope, height = np.polyfit(np.log(t), np.log(loss - floor), 1)
    return float(np.exp(height)), float(-slope)


def power_law(points: list[tuple[float, float]]) -> tuple[float, float]:
    """(b, c) of L(t) = FLOOR + b t^-c, the points of a curve's younger half left out."""
    t, loss = np.array(points[len(points) // 2 :]).T
    return fitted(t, loss, FLOOR)


def law(b: float, c: float) -> str:
    return f"{FLOOR:g} + {b:.1f} t^-{c:.3f}"


def table(rows: dict[str, Any]) -> str:
    """The sides, best first."""
    lines = ["| side | parameters | tokens/s | M tokens | held-out loss | bits a character |", "|---" * 6 + "|"]
    for side, row in sorted(rows.items(), key=lambda item: item[1]["loss"]):
        lines.append(
            f"| {side} | {row['parameters'] / 1e6:.1f} M | {row['speed']:,.0f} | {row['tokens'] / 1e6:.2f} "
            f"| {row['loss']:.3f} | {row['bits_per_character']:.3f} |"
        )
    return "\n".join(lines)


def plot(curves: dict[str, list[tuple[float, float]]], path: Path) -> None:
    """Held-out loss against tokens, both logarithmic, with each curve's power law ten times as far."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for side, points in curves.items():
        t, loss = np.array(points).T
        (line,) = axes.loglog(t, loss, "o", label=side)
        b, c = power_law(points)
        far = np.geomspace(t[len(t) // 2], 10 * t[-1], 50)
        axes.loglog(far, FLOOR + b * far**-c, "--", color=line.get_color())
    axes.set(xlabel="tokens read", ylabel="held-out loss, nats a token")
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", nargs="+")
    parser.add_argument("--valid", nargs="+", required=True)
    parser.add_argument("--model", default="en-ulmfit", help="whose tokenizer")
    parser.add_argument("--vocabulary", type=int, help="train a tokenizer of so many subwords on the text instead")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--sides", default=",".join(SIDES), help="with commas, joined by +, of: " + ", ".join(SIDES))
    parser.add_argument("--curve", default="", help="sides to draw a curve of, instead")
    parser.add_argument("--probe", type=float, default=20.0, help="seconds to find a side's speed in")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "budget")
    asked = parser.parse_args()
    unknown = [change for change in (asked.curve or asked.sides).replace("+", ",").split(",") if change not in SIDES]
    if unknown:
        parser.error(f"no side '{unknown[0]}'; there are {', '.join(SIDES)}")
    torch.set_num_threads(1)
    if asked.vocabulary:
        recipe = load_pretrain_recipe("en-ulmfit")
        sample = islice(read_texts(asked.train), 0, None, recipe.tokenizer_every)
        tokenizer = Tokenizer.train(sample, **recipe.tokenizer | {"vocab_size": asked.vocabulary})
        asked.out /= f"{asked.vocabulary}-subwords"
    else:
        tokenizer = loading.load_network(asked.model).tokenizer
    train = build_corpus(read_texts(asked.train), tokenizer, asked.out / "train", source_description="train")
    held = build_corpus(read_texts(asked.valid), tokenizer, asked.out / "valid", source_description="valid")
    bench = Bench(asked.out, train, held, tokenizer)
    path = asked.out / f"{'curve' if asked.curve else 'sides'}-{asked.minutes:g}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for side in (asked.curve or asked.sides).split(","):
        if side in found:
            continue
        speed = bench.speed(side, asked.probe)
        tokens = speed * (asked.minutes * 60 - bench.prepare(side))
        if asked.curve:
            found[side] = bench.curve(side, tokens)
        else:
            found[side] = {"speed": speed, **bench.train_for(side, tokens, side)}
        write_atomically(path, json.dumps(found, indent=1).encode())
    if asked.curve:
        plot(found, path.with_suffix(".svg"))
        for side, points in found.items():
            (b, c), (early_b, early_c), (end, loss) = power_law(points), power_law(points[:-2]), points[-1]
            said = FLOOR + early_b * end**-early_c
            print(f"{side}: {loss:.3f} at {end / 1e6:.1f} M tokens, by its first quarter {said:.3f}; {law(b, c)}")
    else:
        print(table(found))


if __name__ == "__main__":
    main()
