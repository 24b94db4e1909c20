"""Files whose texts stay on disk are read and checked as in memory, in little of it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.data import large_files
from textgraft.data.checks import check
from textgraft.data.examples import Pair
from textgraft.data.held_out import read_held_out
from textgraft.data.large_files import read_large
from textgraft.data.overview import overview
from textgraft.data.readers import read
from textgraft.data.texts_on_disk import TextsOnDisk

CASES = Path(__file__).parents[3] / "shared" / "cases"


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_files, "LARGE", 0)


def outcome(reader: Any, path: Path, **options: Any) -> tuple[Any, ...]:
    """What is read, warned and found, or the message."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            part = reader(path, **options)
        except UserError as error:
            return (str(error),)
    values = [None if one is None else list(one) for one in (part.texts, part.labels, part.ids, part.lines)]
    found = check(part), overview(part)
    return (
        values,
        [type(text) for text in part.texts],
        part.kind,
        part.source,
        part.unit,
        found,
        sorted(str(one.message) for one in caught),
    )


def assert_read_the_same(path: Path, **options: Any) -> None:
    assert outcome(read_large, path, **options) == outcome(read, path, **options)


@pytest.mark.parametrize("path", sorted(CASES.rglob("*.*")) if CASES.is_dir() else [], ids=lambda path: path.name)
def test_cases_that_were_once_read_wrongly(path: Path) -> None:
    assert_read_the_same(path)


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([{"text": "a b", "label": "x"}, {"text": "A  b", "label": "y"}, {"text": "a b", "label": ""}], {}),
        ([{"premise": "a", "hypothesis": "b", "label": "x"}, {"premise": "c", "hypothesis": "d", "label": "y"}], {}),
        ([{"id": "7", "text": "a", "score": "1.5"}, {"id": "7", "text": "b", "score": "2"}], {}),
        ([{"text": "a", "one": "1", "two": "0"}, {"text": "b", "one": "1", "two": "1"}], {"label": "one,two"}),
        ([{"text": "a", "label": "x|y"}, {"text": "b", "label": "y"}], {"label_separator": "|"}),
        ([{"body text": "a longer one", "kind": "x"}, {"body text": "another", "kind": "x"}], {}),
        ([{"text": "a", "label": ""}, {"text": "b", "label": ""}], {"label": "label"}),
        ([{"text": "a", "label": "x"}], {"label": "nothing"}),
        ([{"text": "a", "label": "x"}], {"encoding": "klingon"}),
        ([{"text": "a", "label": "x"}], {"kind": "sort"}),
    ],
)
def test_tables(rows: list[dict[str, str]], options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert_read_the_same(path, **options)


@pytest.mark.parametrize(
    "labels", [[1, 1.0, True, "1"], [["a"], ["a", "b"], []], [0.5, None, 2], [{"start": 1}], ["a", "a", "b"]]
)
def test_labels_of_every_type_keep_theirs(labels: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": f"text {i}", "label": y}) + "\n" for i, y in enumerate(labels)))
    assert_read_the_same(path)


def test_rejected_examples_have_no_label(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": "x", "answer": "accept", "_task_hash": 1}]
    rows += [{"text": "b", "label": "y", "answer": "reject", "_task_hash": 2}]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert_read_the_same(path)


def test_columns_that_come_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_files, "HEAD", 3)
    rows: list[dict[str, Any]] = [{"text": f"pool {i}"} for i in range(5)]
    rows += [{"text": f"text {i}", "label": "ab"[i % 2], "id": 7, f"other{i}": 1} for i in range(4)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert_read_the_same(path)
    assert_read_the_same(path, label="label", id="id")
    assert read_large(path).labels == [""] * 5 + ["a", "b"] * 2


def test_a_full_disk_of_temporary_files_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"{'a text ' * 60}{i},a\n" for i in range(5000)))
    program = "import sys\nfrom textgraft.data import large_files\nlarge_files.LARGE = 0\n"
    program += "from textgraft.cli import main\nmain(['check', sys.argv[1]])"
    command = f"ulimit -f 1000; exec '{sys.executable}' -c \"$0\" '{path}'"
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(["bash", "-c", command, program], env=variables, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"textgraft: error: {tmp_path}: cannot write (File too large)."), done.stderr
    assert "ulimit" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == [path]


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.csv", tmp_path / "none" / "none.csv"):
        assert_read_the_same(path)
    (tmp_path / "empty.csv").write_text("")
    assert_read_the_same(tmp_path / "empty.csv")


def test_leaks_between_parts_on_disk(tmp_path: Path) -> None:
    for name, texts in {"train": "abcdef", "test": "exyz", "pool": "pqxr"}.items():
        rows = "".join(f"{text} {text},{'pos' if i % 2 else 'neg'}\n" for i, text in enumerate(texts))
        (tmp_path / f"{name}.csv").write_text("text,label\n" + rows)

    def found(reader: Any) -> list[Any]:
        train = reader(tmp_path / "train.csv")
        test = read_held_out(tmp_path / "test.csv", train, reader=reader)
        return check(train, test=test, unlabelled=reader(tmp_path / "pool.csv"))

    problems = found(read_large)
    assert problems == found(read)
    assert {"test-leak-training", "test-leak-unlabelled"} <= {problem.name for problem in problems}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=50))
def test_texts_come_back(texts: list[str]) -> None:
    kept = TextsOnDisk()
    for text in texts:
        kept.append(text)
    assert list(kept) == texts
    assert [kept[i] for i in range(-len(texts), len(texts))] == texts + texts
    assert kept[1:7:2] == texts[1:7:2]
    kept.append("one more")
    assert list(kept) == [*texts, "one more"]
    with pytest.raises(IndexError):
        kept[len(texts) + 1]


def test_pairs_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textgraft.data.texts_on_disk._CHUNK", 8)
    kept, pairs = TextsOnDisk(pairs=True), [Pair("a\nb", "c"), Pair("", "d" * 20), Pair("ü", "")]
    for pair in pairs:
        kept.append(pair)
    assert [(one.first, one.second) for one in kept] == [(one.first, one.second) for one in pairs]  # type: ignore[attr-defined]
    assert (len(kept), kept[2].first, kept[-3].second) == (3, "ü", "c")  # type: ignore[attr-defined]


PEAK = """
import resource, sys
from textgraft.data import large_files
large_files.LARGE = 0
from textgraft.data.checks import check
from textgraft.data.overview import overview
part = large_files.read_large(sys.argv[1])
print(overview(part).texts, len(check(part)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_texts(tmp_path: Path) -> None:
    peaks = []
    for copies in (1, 8):
        path = tmp_path / f"{copies}.csv"
        with path.open("w") as file:
            file.write("text,label\n")
            for i in range(4_000 * copies):
                file.write(f"{f'word {i} and {i * 7} ' * 120},{'pos' if i % 3 else 'neg'}\n")
        done = subprocess.run([sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True)
        texts, problems, peak = map(int, done.stdout.split())
        assert (texts, problems) == (4_000 * copies, 0)
        peaks.append(peak * 1024)
    megabytes = os.path.getsize(tmp_path / "8.csv") - os.path.getsize(tmp_path / "1.csv")
    assert peaks[1] - peaks[0] < 0.1 * megabytes
