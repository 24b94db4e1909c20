"""A classifier of TREC's questions from up to 16 labels a class and MiniLM's body: how long, how good on 500 others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from given import Given
from race import Measure, Quality, Row, Turn
from textgraft.core.context import QUIET
from timing import clocks, since

ROW = Row(
    title="up to 16 labels of each of six classes to a classifier, MiniLM's body",
    peer="setfit, its defaults",
    environment="huggingface",
    measures={"time": Measure("s", 1.5, 3), "memory": Measure("MB")},
    quality=Quality("accuracy", "higher", 0.01),
    means="textgraft finetune as it is: it tries what costs least and says what it chose",
    rounds=2,
)
PER_CLASS, TINY = 16, 6


def prepare(given: Given) -> dict[str, Any]:
    texts, labels = given.questions(given.size(4000, 200))
    held, held_labels = given.questions(given.size(500, 40), "test")
    names = sorted(set(labels))
    of = {name: [i for i, label in enumerate(labels) if label == name] for name in names}
    count = given.size(PER_CLASS, TINY)
    chosen = [[i for name in names for i in of[name][number::7][:count]] for number in range(ROW.rounds + 1)]
    draws = [([texts[i] for i in one], [labels[i] for i in one]) for one in chosen]  # one a round
    theirs = None if given.smoke else str(given.minilm)
    about = {"body": f"hf:{theirs}" if theirs else given.body, "theirs": theirs, "work": str(given.work)}
    return about | {"draws": draws, "names": names, "held": held, "held_labels": held_labels}


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    import tempfile

    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    def turn(number: int) -> Turn:
        texts, labels = task["draws"][number]
        numbers = {name: n for n, name in enumerate(task["names"])}
        train = Dataset.from_dict({"text": texts, "label": [numbers[label] for label in labels]})
        with tempfile.TemporaryDirectory() as folder:
            model = SetFitModel.from_pretrained(task["theirs"], device="cpu")
            start = clocks()
            Trainer(model, TrainingArguments(folder, seed=number, report_to="none"), train_dataset=train).train()
            spent = since(start)
        return {"time": {"units": 1, **spent}, "quality": scored(model.predict(task["held"]).tolist(), task, numbers)}

    return turn


def ours(task: dict[str, Any]) -> Callable[[int], Turn]:
    import shutil

    from textgraft import finetune, load
    from textgraft.data.examples import Examples

    folder = Path(task["work"], "few-labels")

    def turn(number: int) -> Turn:
        texts, labels = task["draws"][number]
        shutil.rmtree(folder, ignore_errors=True)
        start = clocks()
        finetune(Examples(texts, labels, "single", source="draw"), folder, model=task["body"], context=QUIET)
        spent = since(start)
        answers = [said.label for said in load(folder).predict(task["held"])]
        return {"time": {"units": 1, **spent}, "quality": scored(answers, task)}

    return turn


def scored(answers: list[Any], task: dict[str, Any], numbers: dict[str, int] | None = None) -> float:
    """Accuracy."""
    gold = task["held_labels"] if numbers is None else [numbers[label] for label in task["held_labels"]]
    return sum(a == b for a, b in zip(answers, gold, strict=True)) / len(gold)
