"""What the models that ship weigh, how fast they read, and what smaller number formats cost them.

    python bench/models.py en-ulmfit --text valid.jsonl.xz [--tokens 200000] [--json out.json]

For each model, in a process of its own: parameters, megabytes on disk, seconds to load, memory, and how many tokens and
texts a second the encoder reads (mean vectors of texts sorted by length, as `textgraft embed` makes them). Then loss,
bits a character and perplexity a word of held-out text for each way of storing and computing: as saved and computed in
float32 (the reference), computed in bfloat16, and all matrices rounded to bfloat16 or to int8 with one scale a row
(computed in float32, so that only the rounding is seen).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor

from textgraft.data.readers import read_texts
from textgraft.data.sequences import encode_texts
from textgraft.data.streams.shards import Corpus
from textgraft.models import loading, model_folder
from textgraft.models.inference import embed_sequences
from textgraft.models.model import Model
from textgraft.nn.cpu.precision import computing_in
from textgraft.training.perplexity import language_model_validator

CHARACTERS_A_TOKEN = 3
"""Fewer than any vocabulary here has, so that enough texts are read."""
MAX_TOKENS = 512


def as_it_is(weight: Tensor) -> Tensor:
    return weight


def bfloat16(weight: Tensor) -> Tensor:
    return weight.bfloat16().float()


def int8(weight: Tensor) -> Tensor:
    """Each row as whole multiples, from -127 to 127, of a 127th of its largest value."""
    scale = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return (weight / scale).round() * scale


LINEAR_METHODS: dict[str, tuple[Callable[[Tensor], Tensor], str, float]] = {
    "float16 weights, float32 products (as saved)": (as_it_is, "fp32", 2),
    "float16 weights, bfloat16 products": (as_it_is, "bf16", 2),
    "bfloat16 weights": (bfloat16, "fp32", 2),
    "int8 weights, one scale a row": (int8, "fp32", 1),
}
"""How matrices are rounded, what they are multiplied in, bytes a weight."""


@torch.no_grad()
def rounded(model: Model, way: Callable[[Tensor], Tensor]) -> Model:
    """The model with its matrices rounded in place."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.copy_(way(parameter))
    return model


def measure(name: str, text: str, tokens: int) -> dict[str, Any]:
    """One model's figures."""
    process = psutil.Process()
    before, began = process.memory_info().rss, time.perf_counter()
    source = loading.load_network(name)
    loaded = time.perf_counter() - began
    texts = list(islice(_enough(text, tokens), 100_000))
    row: dict[str, Any] = {
        "model": Path(name).name,
        "parameters": sum(p.numel() for p in source.model.parameters()),
        "disk_mb": sum(f.stat().st_size for f in model_folder.find(name).iterdir()) / 2**20,
        "load_seconds": loaded,
        "memory_mb": (process.memory_info().rss - before) / 2**20,
    }
    sequences, _ = encode_texts(source.tokenizer, texts[: max(20, len(texts) // 10)], MAX_TOKENS)
    for precision in ("fp32", "auto"):
        embed_sequences(source.model, sequences[:5], source.tokenizer.pad_id, precision=precision)
        began = time.perf_counter()
        embed_sequences(source.model, sequences, source.tokenizer.pad_id, precision=precision)
        seconds = time.perf_counter() - began
        row[f"tokens_a_second_{precision}"] = sum(map(len, sequences)) / seconds
        row[f"texts_a_second_{precision}"] = len(sequences) / seconds
    ids = source.tokenizer.encode_batch(texts)
    words, characters = sum(len(t.split()) for t in texts), sum(map(len, texts))
    held = Corpus.from_ids(ids, source.tokenizer, words=words, characters=characters)
    row["held_out_tokens"] = held.num_tokens
    row["ways"] = {}
    for way, (rounding, precision, size) in LINEAR_METHODS.items():
        model = rounded(loading.load_network(name).model, rounding)
        with torch.no_grad(), computing_in(precision):
            scores = language_model_validator(held)(model)
        matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)
        rest = sum(p.numel() for p in model.parameters()) - matrices
        row["ways"][way] = {**scores, "weights_mb": (size * matrices + 2 * rest) / 2**20}
    return row


def _enough(text: str, tokens: int) -> Any:
    """Held-out texts, until their characters are as many as so many tokens could have."""
    characters = 0
    for one in read_texts([text]):
        yield one
        characters += len(one)
        if characters > CHARACTERS_A_TOKEN * tokens:
            return


def table(rows: list[dict[str, Any]]) -> str:
    """The figures as two Markdown tables."""
    lines = [
        "| model | parameters | MB on disk | loads in | memory | tokens/s fp32 | tokens/s auto |",
        "|---" * 7 + "|",
    ]
    for r in rows:
        lines.append(
            f"| {r['model']} | {r['parameters'] / 1e6:.1f} M | {r['disk_mb']:.1f} | {r['load_seconds']:.2f} s "
            f"| {r['memory_mb']:.0f} MB | {r['tokens_a_second_fp32']:,.0f} | {r['tokens_a_second_auto']:,.0f} |"
        )
    lines += [
        "",
        "| model, format | MB of weights | nats a token | bits a character | more than as saved |",
        "|---" * 5 + "|",
    ]
    for r in rows:
        reference = next(iter(r["ways"].values()))["loss"]
        for way, s in r["ways"].items():
            lines.append(
                f"| {r['model']}, {way} | {s['weights_mb']:.1f} | {s['loss']:.4f} | {s['bits_per_character']:.4f} "
                f"| {s['loss'] / reference - 1:+.3%} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="names or folders of language models")
    parser.add_argument("--text", action="append", required=True, help="held-out text; once, or once for each model")
    parser.add_argument("--tokens", type=int, default=200_000, help="about how many of them to read")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.models[0], asked.text[0], asked.tokens)))
        return
    if len(asked.text) not in (1, len(asked.models)):
        parser.error("give --text once, or once for each model")
    rows = []
    for index, name in enumerate(asked.models):
        text = asked.text[index if len(asked.text) > 1 else 0]
        command = [sys.executable, __file__, name, "--text", text, "--tokens", str(asked.tokens), "--one"]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print(table(rows))
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
