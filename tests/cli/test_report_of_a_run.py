"""The report that `finetune` leaves: every section there is to show, about the run that left it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from programs import Desk, Program

SECTIONS = ("results", "mistakes", "confusion", "classes", "calibration", "curves", "schedule", "data", "run")


@pytest.mark.slow
def test_the_report_tells_all_that_there_is_to_tell(desk: Desk, tmp_path: Path, run: Program) -> None:
    out = tmp_path / "clf"
    head, *rows = (desk / "test.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    for name, part in (("valid", rows[::2]), ("test", rows[1::2])):  # which must not be in one another
        (tmp_path / f"{name}.csv").write_text("".join([head, *part]), encoding="utf-8")
    data = ["--valid", tmp_path / "valid.csv", "--test", tmp_path / "test.csv", "--max-tokens", "16"]
    quick = ["--model", desk.lm, "--recipe", desk / "quick.toml", "--seeds", "2", "--quiet", "--json"]
    shown = run("finetune", desk / "train.csv", "--out", out, *data, *quick).json()
    page = Path(shown["report"]).read_text(encoding="utf-8")
    assert re.findall(r'<section id="(\w+)">', page) == [*SECTIONS]
    assert page.count("<svg") == 6  # methods, confusion, reliability, learning curves of each seed, schedule
    for told in (
        html.escape(shown["verdict"]),
        "Scores are means over 2 seeds",
        "<h3>seed 0</h3>",
        "<h3>seed 1</h3>",
        "validation loss",
        "temperature-scaled",
        "accuracy",
        "logistic regression",
        "were lost to truncation (44 of 44 texts were cut)",
        "nothing suspicious was found",
        "textgraft",
        "sha256",
    ):
        assert told in page, told
    assert not re.search(r"(?:src|href)=\"(?!#)", page)  # nothing is fetched


@pytest.mark.slow
def test_the_report_of_folds_says_so(desk: Desk, tmp_path: Path, run: Program) -> None:
    quick = ["--model", desk.lm, "--recipe", desk / "quick.toml", "--folds", "2", "--no-baselines", "--quiet"]
    done = run("finetune", desk / "train.csv", "--out", tmp_path / "clf", *quick)
    assert (done.code, done.err) == (0, "")
    assert "\nTime: " in done.out  # with --quiet too
    page = (tmp_path / "clf" / "report.html").read_text(encoding="utf-8")
    assert "On 24 texts, each predicted by a model that was not trained on it (2 folds)." in page
    assert '<th scope="col" class="place">line of train.csv</th>' in page  # where the mistakes are, named once
    assert str(desk / "train.csv") not in page
    assert re.search(r'<p class="verdict" dir="auto">\d+ of 24 texts are right.</p>', page)
