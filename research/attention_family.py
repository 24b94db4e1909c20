"""Weights of the attention family on one sentence pair: `python research/attention_family.py train.en train.de`.

Small translators that differ in score and reach alone are trained from one seed on the same pairs, for the same steps;
each then aligns one given pair. Held-out perplexities on the screen and in research/results/attention-family.json; the
picture is docs/pictures/attention.svg, or `--plot`. `--kept` draws the weights of earlier runs without training.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from textgraft import CoVeOptions, Settings, Translator, cove_train, read_parallel
from textgraft.core.context import RunContext
from textgraft.core.files import write_atomically
from textgraft.data.parallel import Parallel
from textgraft.report import plots
from textgraft.tasks.translation.alignment_page import heat_map
from textgraft.tasks.translation.predictor import Alignment

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs" / "pictures" / "attention.svg"
VARIANTS = "additive:global,scaled_dot:global,location:global,scaled_dot:local-m,scaled_dot:local-p,additive:hard"
SENTENCES = "A man plays a guitar on the street.", "Ein Mann spielt Gitarre auf der Straße."
RECIPE = """
name = "attention-family"
description = "A small translator"
source = "Luong et al. 2015"
language = "en"
licence = "As the pairs."
tokenizer = {{vocab_size = 4000, min_frequency = 3}}
target_tokenizer = {{vocab_size = 4000, min_frequency = 3}}
model = {{embedding_dim = 96, hidden_dim = 64}}
head = {{embedding_dim = 96, hidden_dim = 128, num_layers = 1, window = 3}}
[stage]
batch_size = 64
clip = 5.0
[[stage.phases]]
name = "all"
epochs = {epochs}
lr = 0.004
schedule = "linear"
warmup = 0.05
"""


def aligned(
    variant: str, pairs: Parallel, epochs: float, sentences: Sequence[str], seed: int
) -> tuple[Alignment, dict[str, Any]]:
    """Train a translator with "SCORE:REACH" and align the sentences: the weights, and facts of the training."""
    score, reach = variant.split(":")
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.toml"
        recipe.write_text(RECIPE.format(epochs=epochs), "utf-8")
        settings = Settings(seed=seed, device="cpu")
        options = CoVeOptions(recipe=str(recipe), score=score, reach=reach, bleu=False, settings=settings)
        started = time.process_time()
        record = cove_train(pairs, Path(folder) / "cove", options=options, context=RunContext(show=False))
        seconds = time.process_time() - started
        weights = Translator(Path(folder) / "cove").align(*sentences)
    held = record["held_out"]
    facts = {"perplexity": held["after"]["perplexity"], "pairs": held["pairs"], "seconds": seconds}
    return weights, {**facts, "parameters": record["parameters"]}


def kept_alignments(paths: Sequence[Path]) -> dict[str, Alignment]:
    """The weights by variant, of the files that earlier runs wrote."""
    found = {}
    for path in paths:
        for variant, kept in json.loads(path.read_text("utf-8"))["weights"].items():
            found[variant] = Alignment(tuple(kept["source"]), tuple(kept["target"]), np.array(kept["weights"]))
    return found


def plot(alignments: Mapping[str, Alignment], columns: int = 3) -> plots.Plot:
    """A panel of weights for each variant."""
    first = next(iter(alignments.values()))
    rows = -(-len(alignments) // columns)
    size = (columns * (0.26 * len(first.source) + 1.1), rows * (0.24 * len(first.target) + 1.2))
    with plots.style():
        figure = Figure(figsize=size)
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis, (variant, alignment) in zip(panels, alignments.items(), strict=False):
            heat_map(axis, alignment)
            axis.set_title(variant.replace(":", ", "))
        for axis in panels[len(alignments) :]:
            axis.axis("off")
    said = "; ".join(
        f"{variant.replace(':', ', ')}: "
        + ", ".join(f"{word} to {a.source[int(w.argmax())]}" for word, w in zip(a.target, a.weights, strict=True))
        for variant, a in alignments.items()
    )
    return plots.laid_out(figure, f"The source word of the highest weight for each target word, by attention. {said}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", help="sentences, one a line")
    parser.add_argument("target", nargs="?", help="their translations")
    parser.add_argument("--kept", type=Path, nargs="+", help="JSON files of earlier runs, in place of training")
    parser.add_argument("--variants", default=VARIANTS, help="SCORE:REACH, with commas")
    parser.add_argument("--pairs", type=int, default=12_000, help="pairs from the start of the files")
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--sentences", nargs=2, default=SENTENCES, help="the pair to align")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plot", type=Path, default=PICTURE)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    if asked.kept:
        plot(kept_alignments(asked.kept)).save(asked.plot)
        return
    if not asked.target:
        parser.error("name two files of sentences, or --kept")
    torch.set_num_threads(asked.threads)
    pairs = read_parallel(asked.source, asked.target)
    pairs = replace(pairs, source=pairs.source[: asked.pairs], target=pairs.target[: asked.pairs])
    alignments, facts = {}, {}
    for variant in asked.variants.split(","):
        alignments[variant], facts[variant] = aligned(variant, pairs, asked.epochs, asked.sentences, asked.seed)
        print(variant, {name: round(value, 2) for name, value in facts[variant].items()}, flush=True)
    plot(alignments).save(asked.plot)
    kept = {"facts": facts, "weights": {variant: a.to_dict() for variant, a in alignments.items()}}
    write_atomically(asked.out / "attention-family.json", json.dumps(kept, indent=1).encode())


if __name__ == "__main__":
    main()
