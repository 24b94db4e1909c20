"""Beginnings of reviews, one at a time, as a service is asked: the middle and the slowest hundredth of the waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from given import Given
from race import Measure, Quality, Row, Turn
from timing import clocks, since

from rows.predict import named

ROW = Row(
    title="one short text at a time, a fine-tuned MiniLM",
    peer="Hugging Face pipeline",
    environment="huggingface",
    measures={"p50": Measure("s", 1.5, 3), "p99": Measure("s", 1.5, 3)},
    quality=Quality("agreement", "same", 0.995),
    means="nothing between the text and the network: one encoding, one pass, no padding",
)

WORDS = 10


def prepare(given: Given) -> dict[str, Any]:
    texts, _ = given.reviews(given.size(200, 10), "test")
    short = [" ".join(text.split()[:WORDS]) for text in texts]
    return {"model": str(given.classifier), "theirs": str(given.theirs), "texts": short}


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    from transformers import pipeline

    answer = pipeline("text-classification", model=task["theirs"], device="cpu")
    return lambda number: _asked(task["texts"], lambda text: named(answer, answer(text)[0]))


def ours(task: dict[str, Any], precision: str = "auto") -> Callable[[int], Turn]:
    from textgraft.tasks.classification.predictor import load_classifier

    model = load_classifier(task["model"], precision=precision)
    return lambda number: _asked(task["texts"], lambda text: str(next(iter(model.predict([text]))).label))


def _asked(texts: list[str], answer: Callable[[str], str]) -> Turn:
    """Every text by itself, and how long each took."""
    answers, waits = [], []
    for text in texts:
        start = clocks()
        answers.append(answer(text))
        waits.append(since(start))
    return {
        name: {"units": 1, **{clock: _percentile([wait[clock] for wait in waits], share) for clock in ("wall", "cpu")}}
        for name, share in (("p50", 0.5), ("p99", 0.99))
    } | {"answers": answers}


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
