"""predict, embed and tag with folders: what they print and write, SIGKILL in the middle, and mistakes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs import Program, environment, snapshot
from served import made

from textgraft.models import artifact

ROWS = 120


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: artifact.save(made(name), folder / name) for name in ("single", "tagger")}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for name in ("a", "b"):
        lines = [json.dumps({"id": f"{name}{n}", "text": f"a film {n}" if n % 7 else ""}) for n in range(ROWS)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def rows_of(out: Path) -> list[dict]:
    return [json.loads(line) for path in sorted(out.glob("*.jsonl")) for line in path.read_text().splitlines()]


def test_each_command_writes_a_folder(models: dict[str, Path], texts: Path, tmp_path: Path, run: Program) -> None:
    out = tmp_path / "out"
    shown = run("predict", models["single"], texts, "--out", out, "--block-rows", "100", "--json")
    assert shown.json() == {"out": str(out), "files": 2, "blocks": 4, "texts": 2 * ROWS, "format": "jsonl"}
    assert shown.err == "textgraft: warning: 36 of 240 texts are empty: results for empty texts are meaningless.\n"
    assert list(rows_of(out)[0]) == ["id", "text", "label", "confidence", "known"]
    again = run("predict", models["single"], texts, "--out", out, "--block-rows", "100")
    assert (again.out, again.err) == ("", f"Written: {out} (240 texts of 2 files, 240 of them before)\n")
    embedded = run("embed", models["single"], texts / "*.jsonl", "--out", tmp_path / "e", "--format", "jsonl")
    assert embedded.code == 0, embedded
    assert list(rows_of(tmp_path / "e")[0]) == ["id", "text", "vector"]
    tagged = run("tag", "predict", models["tagger"], texts, "--out", tmp_path / "t", "--keep", "none")
    assert tagged.code == 0, tagged
    assert [list(row) for row in rows_of(tmp_path / "t")] == [["id", "words", "entities"]] * 2 * ROWS
    one = run("predict", models["single"], texts / "a.jsonl", "--out", tmp_path / "one")
    assert (one.code, len(rows_of(tmp_path / "one"))) == (0, ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_process_leaves_whole_files_and_is_resumed(
    number: signal.Signals, models: dict[str, Path], texts: Path, tmp_path: Path, run: Program
) -> None:
    out, options = tmp_path / "out", ("--block-rows", "4")
    run("predict", models["single"], texts, "--out", tmp_path / "whole", *options)
    command = [sys.executable, "-m", "textgraft", "predict", models["single"], texts, "--out", out, *options]
    with subprocess.Popen(list(map(str, command)), env=environment(), stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 100
        while len(list(out.glob("*.jsonl"))) < 3:
            assert process.poll() is None
            assert time.monotonic() < deadline
        process.send_signal(number)
        _, said = process.communicate(timeout=100)
    resumes = f"textgraft: stopped; what is finished is in {out}; the same command resumes it.\n"
    assert said == ("" if number == signal.SIGKILL else resumes)
    there = list(out.glob("*.jsonl"))
    assert 3 <= len(there) < ROWS
    assert all(len(path.read_text().splitlines()) == 4 for path in there)
    before = {path: path.stat().st_mtime_ns for path in there}
    assert run("predict", models["single"], texts, "--out", out, *options).code == 0
    assert {path: path.stat().st_mtime_ns for path in there} == before
    assert snapshot(out) == snapshot(tmp_path / "whole")


def test_mistakes(models: dict[str, Path], texts: Path, tmp_path: Path, run: Program) -> None:
    files = [texts / "a.jsonl", texts / "b.jsonl"]
    predict = ("predict", models["single"])
    run(*predict, *files).mistake("several files", "a folder to write with --out")
    run(*predict, *files, "--out", tmp_path / "a.csv").mistake("a.csv", "several files", "no suffix")
    run("tag", "predict", models["tagger"], *files).mistake("several files", "--out")
    run(*predict, files[0], "--engine", "ray").mistake("--engine", "folders of results", "--out")
    run(*predict, files[0], "--out", tmp_path / "a.jsonl", "--format", "csv").mistake("--format", "folders of results")
    run(*predict, "-", "--out", tmp_path / "out").mistake("stdin is no file")
    run(*predict, texts, "--out", tmp_path / "out", "--engine", "spark").mistake("engine 'spark'", "local, ray")
    run(*predict, texts, "--out", tmp_path / "out", "--address", "auto").mistake("address", "this process alone")
    run(*predict, texts, "--out", tmp_path / "out", "--format", "xml").mistake("format", "'xml'", "parquet")
    run(*predict, texts, "--out", tmp_path / "out", "--keep", "txt").mistake("keep", "no column 'txt'", "'text'?")
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_is_not_installed(
    models: dict[str, Path], texts: Path, tmp_path: Path, run: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    failed = run("predict", models["single"], texts, "--out", tmp_path / "out", "--engine", "ray")
    failed.mistake("engine", "package ray", "textgraft[ray]")
    assert list(tmp_path.iterdir()) == []
