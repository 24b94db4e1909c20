"""What counting n-grams gives on the same tokens: a reference beside a language model's perplexity.

    python research/kneser_ney.py --model en-ulmfit --train train-*.jsonl.xz --valid valid.jsonl.xz --tokens 5e6,25e6

An interpolated modified Kneser-Ney model of the ids that the language model's own tokenizer gives, scored by the same
function as the language model on the same targets: nats a token, bits a character, perplexity a word. Files are what
`textgraft pretrain` reads; training takes the first `--tokens` tokens of them, several numbers give a curve.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from ngrams import log_probabilities

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.readers import read_texts
from textgraft.data.streams.base import LanguageModelStream
from textgraft.data.streams.shards import Corpus, build_corpus
from textgraft.heads.base import Loss
from textgraft.heads.language_model import LanguageModelHead
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.training.perplexity import language_model_validator

BYTES, BYTES_PER_TOKEN = 800_000_000, 36
"""What is needed at all, and what the longest n-grams need for each training token: rows of two orders, two tables."""


class Lanes:
    """An n-gram model in the place of a language model: it answers for each window what it gave its targets.

    `log_probs` (rows, lane) are of the targets of a LanguageModelStream in order.
    """

    encoder = SimpleNamespace(direction="left", max_length=None)

    def __init__(self, log_probs: np.ndarray) -> None:
        self._log_probs, self._done = log_probs, 0

    def loss(self, batch: Batch, state: None) -> Loss:
        assert batch.targets is not None
        rows, window = batch.targets.shape
        asked = self._log_probs[:, self._done : self._done + window]
        assert asked.shape == (rows, window), "these are not the contiguous streams that the validator reads"
        nll = -asked.sum()
        self._done += window
        return Loss(torch.tensor(nll), rows * window, {"nll": float(nll)})


def n_gram_scores(
    train: np.ndarray, held: Corpus, *, vocab_size: int, bos_id: int, order: int = 5, show: bool = False
) -> dict[str, Any]:
    """Figures of an n-gram model on the targets that a language model is scored on, in the shape of run.json.

    Contexts end where the validator's contiguous streams begin, as the language model's state does.
    """
    stream = LanguageModelStream(held, rows=32, bptt=140, variable=False, shuffle=False)
    began = time.perf_counter()
    contiguous_streams = np.stack(
        [held.read(r * stream.stream_length, (r + 1) * stream.stream_length + 1) for r in range(stream.rows)]
    )

    def say(text: str) -> None:
        if show:
            print(f"  {time.perf_counter() - began:6.0f} s  {text}", file=sys.stderr, flush=True)

    found = log_probabilities(train, contiguous_streams, vocab_size=vocab_size, bos_id=bos_id, order=order, say=say)
    scores = language_model_validator(held)(Lanes(found[:, 1:]))  # type: ignore[arg-type]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seconds = round(time.perf_counter() - began, 1)
    return {"order": order, "tokens": len(train), **scores, "seconds": seconds, "peak_gb": round(peak / 1e9, 2)}


def model_scores(loaded: Artifact, held: Corpus) -> dict[str, Any]:
    """The language model's own figures, as pretraining writes them into run.json."""
    with torch.no_grad():
        scores = language_model_validator(held)(loaded.model.eval())
    return {"tokens": loaded.run.get("tokens_seen"), **scores}


def compare(name: str, train: list[str], valid: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    loaded = loading.load_network(name)
    if not isinstance(loaded.model.head, LanguageModelHead) or loaded.model.encoder.direction != "left":
        remedy = "Give one made by textgraft pretrain or adapt."
        raise UserError("this is no language model that reads from left to right.", where=name, remedy=remedy)
    read_texts([*train, *valid])  # finds out whether all of it is there
    tokenizer, show = loaded.tokenizer, not arguments.json
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        kept = Path(arguments.work or temporary)
        held = build_corpus(read_texts(valid), tokenizer, kept / "valid", source_description=str(valid), progress=show)
        text = build_corpus(read_texts(train), tokenizer, kept / "train", source_description=str(train), progress=show)
        for tokens in arguments.tokens or [text.num_tokens]:
            size = min(int(tokens), text.num_tokens)
            if BYTES + size * BYTES_PER_TOKEN > arguments.memory * 1e9:
                most = max(0, arguments.memory * 1e9 - BYTES) / BYTES_PER_TOKEN
                fits = f"At most {most:,.0f} fit; --memory allows more."
                raise UserError(f"{size:,} tokens need more than {arguments.memory} GB.", where="--tokens", remedy=fits)
            ids = text.read(0, size)
            special = {"vocab_size": tokenizer.vocab_size, "bos_id": tokenizer.bos_id}
            results.append(n_gram_scores(ids, held, **special, order=arguments.order, show=show))
        own = model_scores(loaded, held)
    return {"held_out": {"tokens": held.num_tokens, "words": held.num_words}, "n_grams": results, name: own}


def table(rows: list[tuple[str, dict[str, Any]]]) -> str:
    lines = [f"{'':24}{'trained on':>14}{'nats/token':>12}{'bits/char':>11}{'ppl/word':>10}{'GB':>7}{'s':>7}"]
    for name, row in rows:
        line = f"{name:24}{row['tokens'] or '':>14,}" if row["tokens"] else f"{name:24}{'?':>14}"
        line += f"{row['loss']:12.4f}{row['bits_per_character']:11.4f}"
        line += f"{row['perplexity_per_word']:10,.0f}" if "perplexity_per_word" in row else f"{'–':>10}"
        lines.append(line + (f"{row['peak_gb']:7.2f}{row['seconds']:7.0f}" if "seconds" in row else ""))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-ulmfit", help="a language model, by name or folder")
    parser.add_argument(
        "--train", nargs="+", required=True, help="files, folders or globs of training text, all of which is encoded"
    )
    parser.add_argument("--valid", nargs="+", required=True, help="those of held-out text")
    parser.add_argument(
        "--tokens", type=lambda text: [float(n) for n in text.split(",")], help="read only so many training tokens"
    )
    parser.add_argument("--order", type=int, default=5, help="the longest n-gram")
    parser.add_argument("--memory", type=float, default=6.0, help="gigabytes that may be used")
    parser.add_argument("--work", help="keep the encoded text in this folder (default: a temporary one)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and no progress")
    arguments = parser.parse_args()
    try:
        result = compare(arguments.model, arguments.train, arguments.valid, arguments)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    if arguments.json:
        print(json.dumps(result))
    else:
        rows = [(f"Kneser-Ney, order {row['order']}", row) for row in result["n_grams"]]
        print(table([*rows, (arguments.model, result[arguments.model])]))


if __name__ == "__main__":
    main()
