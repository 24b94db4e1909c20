"""Prediction and fine-tuning with encoders of the newer families, beside the same checkpoints in transformers.

    python benchmarks/family_speed.py roberta mpnet modernbert llama --texts 200 --rounds 3

The checkpoints have random weights and the shape of a distilled model: six layers of width 768. The texts are random
ids of lengths as sentences and paragraphs have them. Both programs get the same ids: for prediction all of them, sorted
by length in batches of 32 in transformers; for fine-tuning the same batches of 16, with AdamW. They take turns;
processor time, medians of the rounds, ratios of transformers' time to ours: above 1 textgraft is faster. textgraft
computes as it does by default ("auto": bfloat16 where the processor is faster with it), and with int8; transformers in
float32, its default.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from tiny_checkpoints import save_checkpoint

from textgraft.data.streams.base import ExampleStream
from textgraft.models import loading
from textgraft.models.inference import embed_sequences
from textgraft.models.model import graft
from textgraft.training.loop import Run
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

WIDE = {"hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12, "max_position_embeddings": 514}
FAMILIES: dict[str, dict[str, Any]] = {
    "roberta": {**WIDE, "intermediate_size": 3072},
    "mpnet": {**WIDE, "intermediate_size": 3072},
    "modernbert": {**WIDE, "intermediate_size": 1152},
    "llama": {**WIDE, "intermediate_size": 2048, "num_key_value_heads": 4, "head_dim": 64},
}
PREDICTED, TRAINED = 32, 16


def examples(count: int) -> list[np.ndarray]:
    """Random ids of `count` texts, half of them as long as sentences."""
    generator = np.random.default_rng(0)
    lengths = np.where(np.arange(count) % 2, generator.integers(8, 40, count), generator.integers(40, 200, count))
    return [generator.integers(10, 300, length) for length in lengths]


def padded(texts: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
    """Inputs of transformers."""
    width = max(map(len, texts))
    ids = torch.tensor([[*text.tolist(), *[1] * (width - len(text))] for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts])
    return {"input_ids": ids, "attention_mask": mask}


def peer_predicts(model: Any, texts: Sequence[np.ndarray]) -> np.ndarray:
    """Means of the last layer by transformers."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    vectors = np.zeros((len(texts), 768), dtype=np.float32)
    with torch.inference_mode():
        for start in range(0, len(order), PREDICTED):
            indices = order[start : start + PREDICTED]
            batch = padded([texts[i] for i in indices])
            mask = batch["attention_mask"][..., None].float()
            top = model(**batch).last_hidden_state
            vectors[indices] = ((top * mask).sum(1) / mask.sum(1)).numpy()
    return vectors


def peer_trains(model: Any, texts: Sequence[np.ndarray]) -> None:
    """An epoch of transformers' classifier."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    model.train()
    for start in range(0, len(texts), TRAINED):
        batch = padded(texts[start : start + TRAINED])
        labels = torch.tensor([len(text) % 2 for text in texts[start : start + TRAINED]])
        model(**batch, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def ours_trains(network: Any, texts: Sequence[np.ndarray]) -> None:
    """An epoch of textgraft's classifier."""
    direction = "left" if network.model.encoder.direction == "left" else "both"
    head = {"name": "classification", "input_dim": network.model.encoder.output_dim, "outputs": 2}
    description = network.model.describe() | {"head": head | {"direction": direction}}
    model = graft(network.model.encoder, description, 0)
    targets = torch.tensor([len(text) % 2 for text in texts])
    stream = ExampleStream(list(texts), targets, pad_id=1, rows=TRAINED)
    for _ in Run(model, [Phase("all", 1, 1e-5)], stream, Settings()).steps():
        pass


def seconds(call: Callable[[], Any]) -> float:
    """Processor time of a call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def worst_cosine(one: np.ndarray, other: np.ndarray) -> float:
    """The least cosine of two vectors of a text."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    return float(((one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)).min())


def measure(family: str, texts: list[np.ndarray], rounds: int, folder: Path) -> dict[str, Any]:
    """Ratios of one family."""
    from transformers import AutoModel, AutoModelForSequenceClassification

    checkpoint = save_checkpoint(family, folder / family, **FAMILIES[family])
    network, peer = loading.load_network(f"hf:{checkpoint}"), AutoModel.from_pretrained(checkpoint).eval()
    classifier = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=2, pad_token_id=1)
    few = texts[: 4 * TRAINED]

    def predicts(precision: str) -> np.ndarray:
        return embed_sequences(network.model, texts, 1, "mean", precision)

    calls: dict[str, Callable[[], Any]] = {
        "transformers": lambda: peer_predicts(peer, texts),
        "predict": lambda: predicts("auto"),
        "predict in int8": lambda: predicts("int8"),
        "transformers trains": lambda: peer_trains(classifier, few),
        "fine-tune": lambda: ours_trains(network, few),
    }
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(seconds(call))
    middle = {name: statistics.median(values) for name, values in times.items()}
    theirs, exact, rounded = peer_predicts(peer, texts), predicts("fp32"), predicts("int8")
    return {
        "family": family,
        "predict": middle["transformers"] / middle["predict"],
        "predict in int8": middle["transformers"] / middle["predict in int8"],
        "fine-tune": middle["transformers trains"] / middle["fine-tune"],
        "1 - worst cosine": 1 - worst_cosine(theirs, exact),
        "1 - worst cosine of int8": 1 - worst_cosine(exact, rounded),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    texts = examples(asked.texts)
    print("| family | predict | predict in int8 | fine-tune | 1 - worst cosine, fp32 | the same of int8 |")
    print("|---|---|---|---|---|---|")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for family in asked.families:
            row = measure(family, texts, asked.rounds, Path(folder))
            found.append(row)
            print(
                f"| {family} | {row['predict']:.2f} | {row['predict in int8']:.2f} | {row['fine-tune']:.2f} "
                f"| {row['1 - worst cosine']:.0e} | {row['1 - worst cosine of int8']:.0e} |",
                flush=True,
            )
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
