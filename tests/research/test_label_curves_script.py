"""The picture of the learning curves draws what the kept runs say."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def script_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "research"))


def run(labels: int, means: dict[str, float]) -> dict[str, Any]:
    rows = [{"method": m, "labels": labels, "mean": v, "low": v - 0.1, "high": v + 0.1} for m, v in means.items()]
    return {"command": f"{labels} labels", "metric": "accuracy", "draws": 5, "tests": 500, "rows": rows}


def test_a_method_has_a_line_where_it_was_run_and_one_colour_everywhere() -> None:
    import label_curves

    trec = label_curves.curves([run(500, {"linear": 0.79, "unknown": 0.9}), run(100, {"linear": 0.6, "default": 0.7})])
    assert {name: [labels for labels, _ in points] for name, points in trec.items()} == {
        "linear": [100, 500],
        "default": [100],
    }
    imdb = label_curves.curves([run(100, {"default": 0.88})])
    drawn = label_curves.plot({"trec": trec, "imdb": imdb})
    first, second = drawn.figure.axes[:2]
    assert [list(line.get_ydata()) for line in first.lines] == [pytest.approx([60, 79]), [70]]
    assert [line.get_color() for line in second.lines] == [first.lines[1].get_color()]
    assert first.lines[0].get_color() != first.lines[1].get_color()
    assert "Question types (TREC): TF-IDF n-grams, linear 60.0 79.0, finetune without a recipe 70.0" in drawn.alt


def test_numbers_of_labels_are_short_enough_to_stand_side_by_side() -> None:
    import label_curves

    assert [label_curves.short(count) for count in (100, 999, 1000, 2585, 12939, 25000)] == [
        *("100", "999", "1k"),
        *("2.58k", "12.9k", "25k"),
    ]


def test_a_point_by_a_named_recipe_stands_only_where_the_usual_one_was_not_run() -> None:
    import label_curves

    many = {"ulmfit by lstm-many": 0.8}
    for runs in ([run(100, many), run(100, {"ulmfit": 0.6})], [run(100, {"ulmfit": 0.6}), run(100, many)]):
        found = label_curves.curves([*runs, run(500, many)])
        assert [(labels, cell["mean"]) for labels, cell in found["ulmfit"]] == [(100, 0.6), (500, 0.8)]


@pytest.mark.slow
def test_the_picture_in_the_documents_is_of_what_is_kept() -> None:
    import label_curves
    import tables

    words = {"dc": "http://purl.org/dc/elements/1.1/"}
    said = ElementTree.parse(label_curves.PICTURE).findtext(".//dc:description", namespaces=words)
    kept = {name: label_curves.curves(tables.runs_of(name)) for name in label_curves.DATA_SETS}
    assert said == label_curves.plot(kept).alt, "python research/label_curves.py draws it anew"
    assert "(pictures/label-curves.svg)" in tables.DOCUMENT.read_text("utf-8")
