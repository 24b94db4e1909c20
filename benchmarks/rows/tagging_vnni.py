"""The tagger of `tagging` with its LSTMs in eight bits, as `--precision int8` reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from given import Given
from race import Measure, Quality, Row, Turn

from rows import tagging

ROW = Row(
    title="the same, LSTMs in int8",
    peer="flair 0.15",
    environment="flair",
    measures={"speed": Measure("sentences/s", 5, 15), "memory": Measure("MB")},
    quality=Quality("words tagged as in float32", "higher", 0.01),
    means="LSTMs' products in whole numbers where the processor has VNNI; checked in the turn that does not count",
)


def prepare(given: Given) -> dict[str, Any]:
    (folder := given.work / "int8").mkdir(exist_ok=True)
    return tagging.prepare(replace(given, work=folder))


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    turn = tagging.peer(task)
    return lambda number: {**turn(number), "quality": 1.0}


def ours(task: dict[str, Any]) -> Callable[[int], Turn]:
    from timing import clocks, since

    from textgraft.tasks.tagging.predictor import Tagger

    faster, sentences = Tagger(task["tagger"], precision="int8"), task["sentences"]
    expected = _tags(Tagger(task["tagger"], precision="fp32"), sentences)

    def turn(number: int) -> Turn:
        start = clocks()
        found = _tags(faster, sentences)
        spent = since(start)
        same = sum(a == b for a, b in zip(found, expected, strict=True)) / len(expected)
        return {"speed": {"units": len(sentences), **spent}, "quality": same}

    return turn


def _tags(tagger: Any, sentences: list[list[str]]) -> list[str]:
    return [tag for prediction in tagger.tag(sentences) for tag in prediction.tags]
