"""The tables of the results are what the kept runs say, and say so where a cell was not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def script_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "research"))


def results(methods: dict[str, float], labels: int = 100, draws: int = 5, tests: int = 500) -> dict[str, Any]:
    rows = {
        name: {
            "accuracy": {"mean": mean, "low": mean - 0.1, "high": mean + 0.1},
            "minutes": 10 * mean,
            "peak_mb": 400,
            "about": "Counts." if name == "linear" else "Learns (recipe quick).",
        }
        for name, mean in methods.items()
    }
    budget = {"labels": labels, "methods": rows}
    return {"metric": "accuracy", "seeds": draws, "test_n": tests, "budgets": [budget]}


def document(labels: str, *rows: str) -> str:
    asked = "\n".join([f"<!-- table of trec: {labels}", *rows, "-->"])
    return f"Before.\n\n{asked}\nwhat was there\n<!-- end of table -->\n\nAfter.\n"


def test_a_table_has_what_was_kept_and_its_command(tmp_path: Path) -> None:
    import tables

    tables.keep(results({"linear": 0.598, "ulmfit": 0.61}), "python research/curves.py trec", tmp_path / "trec.json")
    tables.keep(
        results({"linear": 0.79}, 500, draws=1), "python research/curves.py trec --seeds 1", tmp_path / "trec.json"
    )
    made = tables.filled(document("100, 500", "linear: n-grams", "ulmfit: `ulmfit`"), tmp_path)
    assert "what was there" not in made
    assert made.startswith("Before.\n\n<!-- table of trec: 100, 500\n")
    assert made.endswith("<!-- end of table -->\n\nAfter.\n")
    assert "| labels | 100 | 500 | minutes |\n|---|---|---|---|\n" in made
    assert "| n-grams | 59.8 [49.8, 69.8] | 79.0 [69.0, 89.0] (1 sample) | 6.0 to 7.9 |" in made
    assert "| `ulmfit` | 61.0 [51.0, 71.0] | not run | 6.1 |" in made
    assert "Means over 5 training samples, 500 test texts, 95 % intervals." in made
    assert "\n    python research/curves.py trec\n    python research/curves.py trec --seeds 1\n" in made
    assert tables.filled(made, tmp_path) == made


def test_more_draws_count_and_of_as_many_the_later_run(tmp_path: Path) -> None:
    import tables

    path = tmp_path / "trec.json"
    tables.keep(results({"linear": 0.5}, draws=5), "five", path)
    tables.keep(results({"linear": 0.6}, draws=3), "three", path)
    assert "| n-grams | 50.0" in tables.filled(document("100", "linear: n-grams"), tmp_path)
    tables.keep(results({"linear": 0.7}, draws=5), "five again", path)
    made = tables.filled(document("100", "linear: n-grams"), tmp_path)
    assert "| n-grams | 70.0" in made
    assert "    five again\n" in made
    assert "    five\n" not in made


def test_the_same_command_takes_its_own_place_and_a_recipe_is_part_of_the_name(tmp_path: Path) -> None:
    import tables

    path = tmp_path / "trec.json"
    tables.keep(results({"ulmfit": 0.5}), "asked", path)
    tables.keep(results({"linear": 0.5, "ulmfit": 0.6}), "asked", path, recipe="lstm-many")
    (run,) = json.loads(path.read_text())["runs"]
    assert [(row["method"], row["mean"]) for row in run["rows"]] == [("linear", 0.5), ("ulmfit by lstm-many", 0.6)]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (document("100", "bert: `bert`"), "no row 'bert'; .* has linear"),
        (document("100", "linear"), "no row 'linear'"),
        (document("999", "linear: n-grams"), "no row 'linear'; .* has none"),
        (document("100", "linear: n-grams").replace("trec", "imdb"), "imdb.json: no such record"),
    ],
)
def test_what_was_never_kept_is_not_made_up(tmp_path: Path, asked: str, said: str) -> None:
    import tables

    tables.keep(results({"linear": 0.5}), "asked", tmp_path / "trec.json")
    with pytest.raises(ValueError, match=said):
        tables.filled(asked, tmp_path)


def test_the_results_say_what_was_kept() -> None:
    import tables

    text = tables.DOCUMENT.read_text("utf-8")
    assert "<!-- table of " in text
    assert tables.filled(text) == text


def test_the_command_leaves_out_what_only_says_where_files_lie() -> None:
    import curves

    parser = curves.options()
    given = [
        "trec",
        "--labels",
        "100",
        "--keep",
        "--out",
        "x",
        "--reuse",
        "y",
        "--adapt-minutes",
        "10",
        "--tested",
        "all",
    ]
    assert (
        curves.command(parser.parse_args(given), parser)
        == "python research/curves.py trec --labels 100 --adapt-minutes 10 --tested all"
    )
