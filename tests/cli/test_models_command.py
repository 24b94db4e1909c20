"""textgraft models: the table, one model in full, and JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import Program

COLUMNS = 101
"""Columns of the widest line."""


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)


def test_the_table_fits_and_says_what_is_here(run: Program) -> None:
    result = run("models")
    rows = {line.split()[0]: line.split() for line in result.out.splitlines() if line.strip()}
    assert max(len(line.rstrip()) for line in result.out.splitlines()) <= COLUMNS
    assert rows["en-ulmfit"][-1] == "bundled"
    assert rows["bge-small"][-1] == "no"
    assert rows["bge-small"][1:6] == ["33", "M", "133", "en", "MIT"]
    assert "textgraft fetch MODEL" in result.err
    thai = run("models", "--language", "th").out
    assert "wangchanberta" in thai
    assert "bge-small" not in thai


def test_one_model_in_full(run: Program) -> None:
    out = run("models", "bge-small").out
    assert "licence:     MIT" in out
    assert "https://huggingface.co/BAAI/bge-small-en-v1.5" in out
    assert "no; get it with: textgraft fetch bge-small" in out
    assert "not stated on its card" in run("models", "scibert").out
    assert "bundled: " in run("models", "en-ulmfit").out
    assert "--model en-ulmfit" in run("models", "en-ulmfit").out
    assert "tag finetune --stack en-vectors" in run("models", "en-vectors").out


def test_json_has_all_of_it(run: Program) -> None:
    (model,) = run("models", "bge-small", "--json").json()["models"]
    expected = {"name": "bge-small", "place": "not here", "path": None, "command": "textgraft fetch bge-small"}
    assert model.items() >= (expected | {"parameters": 33_000_000, "megabytes": 133, "languages": ["en"]}).items()
    names = [model["name"] for model in run("models", "--json", "--task", "generation").json()["models"]]
    assert "en-gpt-small" in names
    run("models", "--task", "no-task").mistake("no task 'no-task'")
