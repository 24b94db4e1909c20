"""A served model answers what the same model answers in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from textgraft import QAModel, Tagger, explain, load
from textgraft.core.errors import UserError
from textgraft.data.examples import Choice, Pair
from textgraft.serving.services import open_service

TEXTS = ["river stone how many?", "lamp 42 . garden", "", "cloud " * 60]
CONTEXT = "river stone 42 lamp. garden 17 bread. " * 3


def told(folder: Path, body: dict[str, Any]) -> Any:
    service = open_service(folder, precision="fp32")
    request = service.Request.model_validate(body)
    answer = service.to_response(request, service.answer(service.to_items(request)))
    (found,) = answer.values()
    return found


def near(value: Any) -> Any:
    """`value` with a tolerance on every float in it: what stands beside a row in a batch moves its last bits, and how
    far depends on the processor's instructions."""
    if isinstance(value, dict):
        return {key: near(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(near(one) for one in value)
    return pytest.approx(value, rel=1e-5, abs=1e-5) if isinstance(value, float) else value


@pytest.mark.parametrize("name", ["single", "multi", "numeric"])
def test_texts(models: dict[str, Path], name: str) -> None:
    expected = list(load(models[name], precision="fp32").predict(TEXTS))
    wanted = [
        {"label": one.label, "confidence": one.confidence, "known": one.known, "probabilities": one.probabilities}
        for one in expected
    ]
    assert told(models[name], {"texts": TEXTS}) == near(wanted)


def test_pairs_and_questions_with_options(models: dict[str, Path]) -> None:
    pairs = load(models["pairs"], precision="fp32").predict([Pair("a river", "a stone"), Pair("lamp", "cloud .")])
    found = told(models["pairs"], {"texts": [["a river", "a stone"], ["lamp", "cloud ."]]})
    assert [answer["probabilities"] for answer in found] == near([one.probabilities for one in pairs])
    (choice,) = load(models["choices"], precision="fp32").predict([Choice("river .", ["a lamp", "bread"], "how many?")])
    asked = {"context": "river .", "options": ["a lamp", "bread"], "question": "how many?"}
    (found,) = told(models["choices"], {"texts": [asked]})
    assert (found["label"], found["option"]) == (choice.label, choice.option)
    assert list(found["probabilities"]) == ["1", "2"]


def test_who_is_less_sure_than_asked_gives_no_label(models: dict[str, Path]) -> None:
    sure = [one.confidence for one in load(models["single"], precision="fp32").predict(TEXTS)]
    threshold = sorted(c for c in sure if c is not None)[2]
    found = told(models["single"], {"texts": TEXTS, "abstain_below": threshold, "probabilities": False})
    assert [answer["label"] is None for answer in found] == [c is not None and c < threshold for c in sure]
    assert {answer["label"] is None for answer in found} == {True, False}
    assert all("probabilities" not in answer for answer in found)
    body = {"texts": [{"context": "river .", "options": ["a lamp", "bread"]}], "abstain_below": 1.0}
    assert {told(models["choices"], body)[0][name] for name in ("label", "option")} == {None}


@pytest.mark.parametrize(
    ("name", "texts"),
    [("single", TEXTS[:2]), ("numeric", TEXTS[:2]), ("pairs", [["a river", "a stone"], ["lamp", "cloud ."]])],
)
def test_why(models: dict[str, Path], name: str, texts: list[Any]) -> None:
    asked = [Pair(*text) if isinstance(text, list) else text for text in texts]
    expected = explain(models[name], asked, precision="fp32")
    plain = told(models[name], {"texts": texts})
    for answer, one, alone in zip(told(models[name], {"texts": texts, "explain": True}), expected, plain, strict=True):
        explanation, wanted = answer.pop("explanation"), one.as_json()
        assert (explanation["label"], len(explanation["parts"])) == (wanted["label"], len(wanted["parts"]))
        for part, own in zip(explanation["parts"], wanted["parts"], strict=True):
            assert part.pop("weight") == pytest.approx(own.pop("weight"), abs=0.02)
            assert part == own
        assert answer["label"] == near(alone["label"])
    with pytest.raises(UserError, match="11 texts are to be explained"):
        told(models[name], {"texts": texts[:1] * 11, "explain": True})


def test_tags(models: dict[str, Path]) -> None:
    expected = Tagger(models["tagger"], precision="fp32").tag_texts(TEXTS)
    assert told(models["tagger"], {"texts": TEXTS}) == near([prediction.as_json() for prediction in expected])


def test_answers(models: dict[str, Path]) -> None:
    prediction = QAModel(models["reader"], precision="fp32").ask("how many stone?", CONTEXT)
    body = {"questions": [{"context": CONTEXT, "question": "how many stone?"}] * 2, "n_best": 2}
    for found in told(models["reader"], body):
        assert found["answer"] == prediction.text
        assert found["best"] == near(prediction.as_json()[:2])
        best = found["best"][0]
        assert CONTEXT[best["start"] : best["end"]] == best["text"]


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("single", {"reads": "texts", "kind": "single", "labels": ["a", "b", "c"]}),
        ("pairs", {"reads": "pairs", "kind": "single", "labels": ["no", "yes"]}),
        ("choices", {"reads": "choices", "kind": "choice", "labels": []}),
        ("tagger", {"reads": "texts", "entities": True, "tags": ["O", "B-x", "I-x"]}),
        ("reader", {"reads": "questions", "may_be_none": False}),
    ],
)
def test_what_a_page_wants_to_know(models: dict[str, Path], name: str, about: dict[str, Any]) -> None:
    assert open_service(models[name]).about() == about


def test_what_a_model_does_in_a_word(models: dict[str, Path]) -> None:
    classifiers = dict.fromkeys(("single", "multi", "pairs"), "classification")
    others = {"numeric": "regression", "choices": "multiple choice", "tagger": "tagging"}
    others["reader"] = "question answering"
    assert {name: open_service(folder).task for name, folder in models.items()} == classifiers | others


@pytest.mark.parametrize("name", ["single", "tagger", "reader"])
def test_a_graph_answers_as_what_it_was_made_of(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    from textgraft import export

    export(models[name], tmp_path / "graph")
    body = {"questions": [{"context": CONTEXT, "question": "how many?"}]} if name == "reader" else {"texts": TEXTS}
    ours, theirs = told(tmp_path / "graph", body), told(models[name], body)
    for own, other in zip(ours, theirs, strict=True):
        for key in ("label", "answer"):
            assert own.get(key) == other.get(key)
        assert [w["tag"] for w in own.get("words", ())] == [w["tag"] for w in other.get("words", ())]


def test_a_model_without_a_task_is_refused(tiny_lm: Path) -> None:
    with pytest.raises(UserError, match="it is a language model"):
        open_service(tiny_lm)
    with pytest.raises(UserError, match="no model"):
        open_service("nowhere")
