"""`textgraft explain` as its users run it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from programs import Desk, Program, call

from textgraft import explain

TEXT = "a wonderful film with a dull plot"


def test_explain(desk: Desk, run: Program) -> None:
    (expected,) = explain(desk.classifier, [TEXT])
    told = run("explain", desk.classifier, "--input-text", TEXT)
    assert (told.code, told.err) == (0, "")
    head, text, *rows = told.out.splitlines()
    assert (head.split(",")[0], text) == (expected.label, TEXT)
    assert [row.split()[1] for row in rows] == [expected.text_of(part) for part in expected.ranked()]
    (shown,) = call("explain", desk.classifier, "--input-text", TEXT, "--json").json()["texts"]
    assert (shown["line"], shown["label"]) == (1, expected.label)
    assert [part["text"] for part in shown["parts"]] == TEXT.split()
    assert [part["weight"] for part in shown["parts"]] == pytest.approx([p.weight for p in expected.parts], abs=0.02)
    assert "side" not in shown["parts"][0]
    other = next(name for name in ("neg", "pos") if name != expected.label)
    (against,) = run("explain", desk.classifier, "--input-text", TEXT, "--label", other, "--json").json()["texts"]
    assert [p["weight"] for p in against["parts"]] == pytest.approx([-p.weight for p in expected.parts], abs=0.02)


def test_explain_a_file(desk: Desk, tmp_path: Path, run: Program) -> None:
    done = run("explain", desk.classifier, desk / "test.csv", "--most", "3", "--out", tmp_path / "why.html")
    assert (done.code, done.out, done.err) == (0, "", f"Written: {tmp_path / 'why.html'}\n")
    page = (tmp_path / "why.html").read_text("utf-8")
    assert page.count("<section>") == 3
    assert not {"http:", "https:"} & set(re.findall(r"https?:", page))
    run("explain", desk.classifier, desk / "test.csv", "--most", "2", "--out", tmp_path / "why.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "why.jsonl").read_text("utf-8").splitlines()]
    assert [sorted(row) for row in rows] == [["answer", "known", "label", "line", "parts"]] * 2


def test_what_cannot_be_explained(desk: Desk, tmp_path: Path, run: Program) -> None:
    run("explain", desk.classifier, "--input-text", "a", "--label", "poss").mistake(
        "no label 'poss'", "Did you mean 'pos'?"
    )
    run("explain", desk.lm, "--input-text", "a").mistake("it is a language model")
    run("explain", desk.classifier, "--input-text", "a", "--out", tmp_path / "why.csv").mistake(".html or .jsonl")
    run("explain", desk.classifier).mistake("name either a file or texts")
    run("explain", desk.classifier, desk / "test.csv", "--label", "poss", "--out", tmp_path / "x.html").mistake("poss")
    assert not (tmp_path / "x.html").exists()
