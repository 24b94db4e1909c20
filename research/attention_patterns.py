"""Perplexity of GPT's attention patterns at equal steps: `python research/attention_patterns.py TRAIN --valid VALID`.

Small GPTs that differ in their `attention` alone start from one seed and see the same batches in the same order. For
each: held-out perplexity, parameters, scores per token and layer of one window, and processor seconds of the training.
Table on the screen; attention-patterns.json in research/results/.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from textgraft.core.files import write_atomically
from textgraft.data.readers import read_texts
from textgraft.data.streams.base import ScatteredStream
from textgraft.data.streams.shards import Corpus
from textgraft.encoders.gpt import PATTERNS, GPTConfig
from textgraft.models.model import Model, build
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.loop import Run
from textgraft.training.perplexity import language_model_validator
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

HERE = Path(__file__).parent
SHAPE = {"embedding_dim": 128, "num_layers": 4, "num_heads": 4}
NO_DROPOUT = dict.fromkeys(("embedding_dropout", "hidden_dropout", "attention_dropout"), 0.0)


@dataclass(frozen=True)
class Result:
    """One pattern after its training."""

    attention: str
    perplexity: float
    parameters: int
    scores_per_token: float
    seconds: float


def new_model(attention: str, vocab_size: int, length: int, window: int, seed: int) -> Model:
    """A GPT with random weights; those that patterns have in common are alike in distribution, not in value."""
    torch.manual_seed(seed)
    encoder = {"name": "gpt", "vocab_size": vocab_size, "max_length": length, "attention": attention, "window": window}
    head = {"name": "language_model", "vocab_size": vocab_size, "input_dim": SHAPE["embedding_dim"], "bias": False}
    head |= {"output_dropout": 0.0, "alpha": 0.0, "beta": 0.0}
    return build({"encoder": {**encoder, **SHAPE, **NO_DROPOUT}, "head": head})


def scores_per_token(config: GPTConfig, length: int) -> float:
    """Scores that are computed for a token, as the mean over the layers and the positions of a window.

    A band is computed as a mask over all positions, here and in torch's fused attention.
    """
    costs = {"dense": length, "banded": length, "local": min(config.window, length)}
    costs["compressed"] = length // config.compression
    return sum(costs[config.layer_attention(index)] for index in range(config.num_layers)) / config.num_layers


def trained(model: Model, train: Corpus, held: Corpus, asked: argparse.Namespace) -> Result:
    """Train for `asked.steps` steps and evaluate."""
    stream = ScatteredStream(train, rows=asked.rows, bptt=asked.length, seed=asked.seed)
    epochs = asked.steps / stream.length(0)
    phase = Phase("all", epochs=epochs, lr=asked.lr, schedule="cosine", warmup=0.1)
    settings = Settings(precision=asked.precision, clip=1.0, seed=asked.seed, device="cpu")
    started = time.process_time()
    for step in Run(model, [phase], stream, settings).steps():
        if step.step % 50 == 0:
            print(f"  {step.step}: {step.loss:.3f}", file=sys.stderr)
    seconds = time.process_time() - started
    with torch.no_grad():
        scores = language_model_validator(held, rows=8, window=asked.length)(model.eval())
    config: Any = model.encoder.config
    parameters = sum(p.numel() for p in model.parameters())
    return Result(config.attention, scores["perplexity"], parameters, scores_per_token(config, asked.length), seconds)


def corpora(asked: argparse.Namespace) -> tuple[Tokenizer, Corpus, Corpus]:
    """The tokenizer of the training text, that text, and the held-out one."""
    train, valid = list(read_texts(asked.train)), list(read_texts(asked.valid))[: asked.held_out]
    tokenizer = Tokenizer.train(train, kind="subword", vocab_size=asked.vocab_size)
    parts = []
    for texts in (train, valid):
        ids = tokenizer.encode_batch(texts)
        words, characters = sum(len(t.split()) for t in texts), sum(map(len, texts))
        parts.append(Corpus.from_ids(ids, tokenizer, words=words, characters=characters))
    return tokenizer, parts[0], parts[1]


def table(results: Sequence[Result]) -> str:
    """A row for each pattern, as Markdown."""
    names = ("attention", "perplexity", "parameters", "scores a token and layer", "processor seconds")
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += [
        f"| `{r.attention}` | {r.perplexity:.1f} | {r.parameters:,} | {r.scores_per_token:.0f} | {r.seconds:.0f} |"
        for r in results
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", nargs="+", help="training text, one text a line")
    parser.add_argument("--valid", nargs="+", required=True, help="held-out text")
    parser.add_argument("--held-out", type=int, help="texts of the held-out file to use, from its start; else all")
    parser.add_argument("--patterns", default=",".join(PATTERNS), help="with commas, of: " + ", ".join(PATTERNS))
    parser.add_argument("--vocab-size", type=int, default=4000)
    parser.add_argument("--length", type=int, default=256, help="tokens of a window")
    parser.add_argument("--window", type=int, default=64, help="positions of a band or a local block")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    tokenizer, train, held = corpora(asked)
    results = []
    for attention in asked.patterns.split(","):
        print(attention, file=sys.stderr)
        model = new_model(attention, tokenizer.vocab_size, asked.length, asked.window, asked.seed)
        results.append(trained(model, train, held, asked))
    print(table(results))
    print(f"\n{held.num_tokens:,} held-out tokens; {asked.steps} steps of {asked.rows} x {asked.length} tokens.")
    kept = {"results": [asdict(r) for r in results], "held_out_tokens": held.num_tokens}
    kept |= {"settings": {**vars(asked), "out": None}}
    write_atomically(asked.out / "attention-patterns.json", json.dumps(kept, indent=1).encode())


if __name__ == "__main__":
    main()
