"""A tagger over two published-size character language models (2,048 cells), its tags for sentences of WNUT 2017."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from given import Given
from race import Measure, Row, Turn

ROW = Row(
    title="tagging over Flair embeddings, 2,048 cells each way",
    peer="flair 0.15",
    environment="flair",
    measures={"speed": Measure("sentences/s", 5, 15), "memory": Measure("MB")},
    means="sentences of like length together, each direction once; bfloat16 where it is native. Weights are random, "
    "so no quality is measured: tests/parity compares the vectors with Flair's; scores are in docs/how-to/tagging.md",
)


def prepare(given: Given) -> dict[str, Any]:
    from tagger_speed import language_models, tagger_of

    from textgraft.data.conll import read_conll
    from textgraft.tasks.tagging.predictor import Tagger

    if given.smoke:
        path = given.work / "made-up.conll"
        path.write_text("\n".join(f"Anna B-PER\nsaw O\nParis B-LOC\n{n} O\n" for n in range(80)), "utf-8")
    else:
        path = given.data / "wnut17" / "emerging.test.annotated"
    data, width = read_conll(path), given.size(2048, 8)
    ours, theirs = language_models(width, given.work)
    tagger = tagger_of(ours, data.sample(64), width, given.work)
    sentences = [s.words for s in data.sample(given.size(96, 8)).sentences]
    return {"flair": theirs, "tagger": str(tagger), "tags": sorted(Tagger(tagger).config.tags), "sentences": sentences}


def peer(task: dict[str, Any]) -> Callable[[int], Turn]:
    from tagger_flair import tagger_of, tagging

    return _turns(tagging(tagger_of(task["flair"], task["tags"]), task["sentences"], 32), task)


def ours(task: dict[str, Any]) -> Callable[[int], Turn]:
    from tagger_speed import tagging

    from textgraft.tasks.tagging.predictor import Tagger

    return _turns(tagging(Tagger(task["tagger"]), task["sentences"]), task)


def _turns(speed: Callable[[], dict[str, float]], task: dict[str, Any]) -> Callable[[int], Turn]:
    return lambda number: {"speed": {"units": len(task["sentences"]), **speed()}}
