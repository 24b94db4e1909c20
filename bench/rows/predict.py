"""Labels of film reviews by a fine-tuned MiniLM, up to 512 tokens each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from given import Given
from race import Measure, Quality, Row, Turn
from reviewer import NAMES, multiplied
from timing import clocks, since

ROW = Row(
    title="predict reviews by a fine-tuned MiniLM",
    peer="Hugging Face pipeline, batches of 32",
    environment="huggingface",
    measures={"speed": Measure("texts/s", 3, 6), "memory": Measure("MB")},
    quality=Quality("agreement", "same", 0.995),
    means="batches of so many tokens, sorted by length; bfloat16 products where the processor has them",
)


def prepare(given: Given) -> dict[str, Any]:
    texts, _ = given.reviews(given.size(200, 20), "test")
    return {"model": str(given.classifier), "theirs": str(given.theirs), "texts": texts}


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    from transformers import pipeline

    answer = pipeline("text-classification", model=task["theirs"], device="cpu")
    encoded = answer.tokenizer(task["texts"], truncation=True, max_length=512)["input_ids"]
    flop = 2 * multiplied(answer.model) * sum(map(len, encoded))

    def turn(number: int) -> Turn:
        start = clocks()
        said = answer(task["texts"], batch_size=32, truncation=True, max_length=512)
        answers = [named(answer, one) for one in said]
        return {"speed": {"units": len(answers), **since(start), "flop": flop}, "answers": answers}

    return turn


def named(pipeline: Any, said: dict[str, Any]) -> str:
    """Our name of the label that Hugging Face's pipeline gave."""
    return NAMES[pipeline.model.config.label2id[said["label"]]]


def ours(task: dict[str, Any], precision: str = "auto") -> Callable[[int], Turn]:
    from textgraft.data.sequences import encode_texts
    from textgraft.tasks.classification.predictor import load_classifier

    model = load_classifier(task["model"], precision=precision)
    (member,) = model.members
    encoded, _ = encode_texts(member.tokenizer, task["texts"], 512)
    flop = 2 * multiplied(member.model) * sum(map(len, encoded))

    def turn(number: int) -> Turn:
        start = clocks()
        answers = [said.label for said in model.predict(task["texts"])]
        return {"speed": {"units": len(answers), **since(start), "flop": flop}, "answers": answers}

    return turn
