"""Exports of annotation tools with labels of whole texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from textgraft.data.annotation_tools import as_row
from textgraft.data.readers import read

TEXTS = ["Lovely view", "Cold food", "Dull place"]


def task(number: int, *choices: str, **annotation: Any) -> dict[str, Any]:
    result = [{"from_name": "sentiment", "to_name": "text", "type": "choices", "value": {"choices": list(choices)}}]
    annotated = [{"result": result if choices else []} | annotation]
    return {"id": number, "data": {"text": TEXTS[number]}, "annotations": annotated, "created_at": "2024"}


def written(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(records) if path.suffix == ".json" else "\n".join(map(json.dumps, records)))
    return path


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_label_studios_tasks_are_read_like_its_short_export(name: str, tmp_path: Path) -> None:
    tasks = [task(0, "good"), task(1, "bad"), task(2, "bad", was_cancelled=True)]
    found = read(written(tmp_path / name, tasks))
    assert (found.texts, found.labels, found.ids) == (TEXTS, ["good", "bad", ""], ["0", "1", "2"])
    several = read(written(tmp_path / name, [task(0, "good"), task(1, "bad", "rude"), task(2)]))
    assert several.labels == [("good",), ("bad", "rude"), ""]


def test_ratings_are_labels_and_spans_are_none() -> None:
    results = [
        {"from_name": "stars", "value": {"rating": 4}},
        {"from_name": "entity", "value": {"start": 0, "end": 6, "text": "Lovely", "labels": ["X"]}},
    ]
    row = as_row({"data": {"text": "Lovely"}, "completions": [{"result": results}]})
    assert row == {"text": "Lovely", "stars": 4}
    other = {"data": {"text": "Lovely"}, "label": "good"}
    assert as_row(other) is other


def test_what_a_prodigy_annotator_rejected_is_no_label(tmp_path: Path) -> None:
    answers = ["accept", "reject", "ignore"]
    rows = [
        {"text": text, "_task_hash": i, "accept": ["good"], "answer": answer}
        for i, (text, answer) in enumerate(zip(TEXTS, answers, strict=True))
    ]
    with pytest.warns(UserWarning, match="2 examples were not accepted by their annotator"):
        assert read(written(tmp_path / "a.jsonl", rows)).labels == [("good",), "", ""]
    with pytest.warns(UserWarning, match="2 examples were not accepted"):
        binary = read([row | {"label": "GOOD"} for row in rows])
    assert binary.labels == ["GOOD", "", ""]
    plain = [{"text": "Is it?", "label": "a", "answer": "reject"}, {"text": "No.", "label": "b", "answer": "accept"}]
    assert read(plain).labels == ["a", "b"]
