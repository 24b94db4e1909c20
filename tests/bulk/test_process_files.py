"""Folders in, a folder out: one row for each row, in every format, whole after whatever happened in between."""

from __future__ import annotations

import csv
import datetime
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from programs import snapshot, unchanged
from sudden import killed_at

import textgraft
from textgraft import UserError
from textgraft.bulk import blocks, workers
from textgraft.bulk.block_work import BlockWork
from textgraft.bulk.manifest import stored_run_hash
from textgraft.bulk.model_files import absolute_name, model_identity
from textgraft.bulk.process import BulkOptions, Summary, process_files
from textgraft.bulk.workers import EmbedWorker, PredictWorker, TagWorker
from textgraft.data.output_rows import ALL, Kept
from textgraft.training.run_lock import locked

NUMBER = 8  # of texts in each file


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The rows of JSON lines, in the order of the files' names."""
    return [json.loads(line) for path in sorted(out.glob("*.jsonl")) for line in path.read_text().splitlines()]


def table(out: Path, name: str = "*") -> list[dict[str, Any]]:
    """The rows of Parquet files, in the order of the files' names."""
    found = duckdb.sql(f"SELECT * FROM read_parquet({[str(p) for p in sorted(out.glob(f'{name}.parquet'))]})")
    return [dict(zip(found.columns, row)) for row in found.fetchall()]


def run(worker: Any, sources: Any, out: Path, **options: Any) -> Summary:
    options.setdefault("block_rows", 3)
    return process_files(worker, sources, out, options=BulkOptions(**options))


def test_every_row_has_one_row_in_order_whatever_the_files_are(
    models: dict[str, Path], texts: Path, tmp_path: Path
) -> None:
    summary = run(PredictWorker(str(models["single"]), probabilities=True), texts, tmp_path / "out")
    assert (summary.files, summary.blocks, summary.texts, summary.output_format) == (4, 12, 4 * NUMBER, "jsonl")
    assert summary.counts["empty"] == 4
    rows = rows_of(tmp_path / "out")
    assert len(rows) == 4 * NUMBER
    assert [row["id"] for row in rows[:NUMBER]] == [f"i{n}" for n in range(NUMBER)]
    assert list(rows[0]) == ["id", "text", "input_label", "label", "confidence", "known", "probabilities"]
    assert rows[NUMBER] | {"label": "", "probabilities": {}} == {
        "file": "a.jsonl",
        "line": 1,
        "text": "a fine film",
        "n": 0.0,
        "more": {"x": [0]},
        "label": "",
        "probabilities": {},
        "confidence": rows[0]["confidence"],
        "known": rows[0]["known"],
    }
    assert (rows[2 * NUMBER]["file"], rows[2 * NUMBER]["line"], rows[2 * NUMBER]["n"]) == ("sub/a.csv", 2, "0")
    assert (rows[3 * NUMBER]["row"], rows[3 * NUMBER]["day"], rows[3 * NUMBER]["parts"]) == (1, "2020-01-01", [0, None])
    for start in range(0, 4 * NUMBER, NUMBER):
        part = rows[start : start + NUMBER]
        expected = textgraft.predict(models["single"], [row.get("text", row.get("review")) for row in part])
        assert [row["label"] for row in part] == [one.label for one in expected]
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names[:4] == [*(f"00000-a.csv-0000{n}.jsonl" for n in range(3)), "00001-a.jsonl-00000.jsonl"]
    assert names[6] == "00002-sub_a.csv-00000.jsonl"


@pytest.mark.slow
def test_parquet_keeps_the_types_of_parquet_and_gives_results_their_own(
    models: dict[str, Path], texts: Path, tmp_path: Path
) -> None:
    source = texts / "z.parquet"
    assert run(PredictWorker(str(models["single"])), source, tmp_path / "a").output_format == "parquet"
    first = table(tmp_path / "a")[1]
    assert first["parts"] == [1, None]
    assert first["day"] == datetime.date(2020, 1, 2)
    types = dict(
        duckdb.sql(f"SELECT name, type FROM parquet_schema('{next((tmp_path / 'a').glob('*.parquet'))}')").fetchall()
    )
    assert (types["tiny"], types["known"], types["confidence"]) == ("INT32", "BOOLEAN", "DOUBLE")
    for name, kind in (("multi", list), ("numeric", float)):
        run(PredictWorker(str(models[name]), probabilities=True), source, tmp_path / name)
        rows = table(tmp_path / name)
        assert {type(row["label"]) for row in rows} == {kind}
        assert [f"p({label})" in rows[0] for label in "abc"] == [name == "multi"] * 3
    mixed = run(PredictWorker(str(models["single"])), texts, tmp_path / "mixed", output_format="parquet")
    assert mixed.texts == len(table(tmp_path / "mixed", "00000*")) * 4
    assert table(tmp_path / "mixed", "00001*")[3]["more"] == '{"x": [3]}'


def test_csv_has_the_columns_of_the_first_row(models: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    worker = PredictWorker(str(models["single"]), probabilities=True)
    assert run(worker, texts / "a.csv", tmp_path / "out", kept=Kept(["text"])).output_format == "csv"
    with (tmp_path / "out" / "00000-a.csv-00002.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["id", "text", "label", "confidence", "known", "p(a)", "p(b)", "p(c)"]
    assert [row[:2] for row in rows] == [["i6", "dull"], ["i7", "a film, no more"]]
    (tmp_path / "ragged.jsonl").write_text('{"text": "a"}\n{"text": "b", "n": 1}\n')
    for name in ("csv", "parquet"):
        with pytest.raises(UserError, match=r"no 'n'.*jsonl"):
            run(worker, tmp_path / "ragged.jsonl", tmp_path / name, output_format=name)
        assert not (tmp_path / name).exists()
    assert run(worker, tmp_path / "ragged.jsonl", tmp_path / "j").texts == 2


def test_pairs_are_told_from_texts(models: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("premise,hypothesis\na film,a plot\nfine,dull\n")
    run(PredictWorker(str(models["pairs"])), tmp_path / "pairs.csv", tmp_path / "out", output_format="jsonl")
    expected = textgraft.predict(models["pairs"], [("a film", "a plot"), ("fine", "dull")])
    assert [row["label"] for row in rows_of(tmp_path / "out")] == [one.label for one in expected]
    for model, source, message in (
        ("single", tmp_path / "pairs.csv", "trained on single texts, and here are pairs of texts"),
        ("pairs", texts, "trained on pairs of texts, and here are single texts"),
        ("choices", texts, "not predicted in bulk"),
        ("tagger", texts, "tag"),
    ):
        with pytest.raises(UserError, match=message):
            run(PredictWorker(str(models[model])), source, tmp_path / "not")
        assert not (tmp_path / "not").exists()


def test_vectors_are_those_of_embed(models: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    expected = textgraft.embed(models["single"], [row["text"] for row in table(texts, "z")])
    worker = EmbedWorker(str(models["single"]))
    assert run(worker, texts / "z.parquet", tmp_path / "p", kept=Kept([]), block_rows=100).output_format == "parquet"
    rows = table(tmp_path / "p")
    assert list(rows[0]) == ["file", "row", "vector"]
    np.testing.assert_array_equal(np.array([row["vector"] for row in rows], dtype=np.float32), expected)
    run(worker, texts / "z.parquet", tmp_path / "j", output_format="jsonl", block_rows=100)
    vectors = [row["vector"] for row in rows_of(tmp_path / "j")]
    np.testing.assert_array_equal(np.array(vectors, dtype=np.float32), expected)
    assert run(worker, texts / "a.csv", tmp_path / "c").output_format == "parquet"
    with pytest.raises(UserError, match="results of embed are not written as 'csv'"):
        run(worker, texts, tmp_path / "no", output_format="csv")


def test_tags_are_those_of_the_tagger(models: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    worker = TagWorker(str(models["tagger"]))
    run(worker, texts, tmp_path / "out", block_rows=100)  # the same batches as below
    rows = rows_of(tmp_path / "out")
    assert len(rows) == 4 * NUMBER
    assert (rows[1]["text"], rows[1]["words"], rows[1]["entities"]) == ("", [], [])
    for row, one in zip(rows, textgraft.tag_predict(models["tagger"], [row["text"] for row in rows[:NUMBER]])):
        assert [word["tag"] for word in row["words"]] == list(one.tags)
        assert row["entities"] == (one.as_json()["entities"] if one.tags else [])
    run(worker, texts / "z.parquet", tmp_path / "p", block_rows=100, output_format="parquet")
    for row, parquet in zip(rows[3 * NUMBER :], table(tmp_path / "p"), strict=True):
        assert (row["words"], row["entities"]) == (parquet["words"], parquet["entities"])


def test_a_block_ends_with_its_rows_or_its_characters(
    models: dict[str, Path], texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "BLOCK_CHARACTERS", 28)
    (source,) = blocks.find_sources([texts / "a.csv"])
    found = list(blocks.BlockReader({}, block_rows=3)(source))
    assert [len(block.rows) for block in found[:-1]] == [3, 3, 2]  # type: ignore[union-attr]
    assert (found[-1].blocks, found[-1].rows) == (3, NUMBER)  # type: ignore[union-attr]
    found = list(blocks.BlockReader({}, block_rows=100)(source))
    assert [len(block.rows) for block in found[:-1]] == [3, 4, 1]  # type: ignore[union-attr]
    done = blocks.SourceFile(source.number, source.path, source.name, frozenset([0, 2]))
    assert [block.index for block in list(blocks.BlockReader({}, block_rows=3)(done))[:-1]] == [1]  # type: ignore[union-attr]


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers of rows of the blocks that a classifier has predicted inside."""
    seen: list[int] = []
    real = workers._texts

    def texts_of(rows: Any, classifier: Any) -> list[str]:
        seen.append(len(rows))
        return real(rows, classifier)

    with monkeypatch.context() as patch:
        patch.setattr(workers, "_texts", texts_of)
        yield seen


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 5, 13, 14])
def test_a_killed_run_goes_on_with_what_is_missing(
    models: dict[str, Path], texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    worker, out = PredictWorker(str(models["single"])), tmp_path / "out"
    run(worker, texts, tmp_path / "whole")
    with killed_at(at, monkeypatch):
        run(worker, texts, out)
    (out / ".x.part").write_text("of a process that was killed while it wrote") if out.exists() else None
    there = len(list(out.glob("*.jsonl")))
    with counted(monkeypatch) as seen:
        summary = run(worker, texts, out)
    assert len(seen) == 12 - there
    assert summary.earlier == summary.texts - sum(seen)
    assert snapshot(out) == snapshot(tmp_path / "whole")


def test_a_finished_run_does_nothing_and_a_lost_file_is_made_again(
    models: dict[str, Path], texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, out = PredictWorker(str(models["single"])), tmp_path / "out"
    first = run(worker, texts, out)
    before = snapshot(out)
    with unchanged(out), counted(monkeypatch) as seen:
        again = run(worker, texts, out)
    assert (seen, again.texts, again.earlier) == ([], first.texts, first.texts)
    (out / "00001-a.jsonl-00001.jsonl").unlink()
    with counted(monkeypatch) as seen:
        run(worker, texts, out)
    assert (seen, snapshot(out)) == ([3], before)


def test_results_of_another_run_are_not_mixed_with_these(models: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    worker, out = PredictWorker(str(models["single"])), tmp_path / "out"
    run(worker, texts, out)
    other_model = shutil.copytree(models["multi"], tmp_path / "single")
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (PredictWorker(str(models["single"]), abstain_below=0.5), {}, r"differs in: options\.abstain_below\."),
        (PredictWorker(str(other_model)), {}, r"differs in: model\."),
        (TagWorker(str(models["tagger"])), {}, "verb"),
        (worker, {"block_rows": 4}, "block_rows"),
        (worker, {"kept": Kept([])}, "keep"),
        (worker, {"output_format": "csv"}, "format"),
        (worker, {"columns": {"text": "n"}}, r"columns\.text"),
    ]
    with unchanged(out):
        for other, options, message in cases:
            with pytest.raises(UserError, match=message):
                run(other, texts, out, **options)
        (texts / "a.csv").write_text("text\nnew\n")
        (texts / "b.csv").write_text("text\nnew\n")
        with pytest.raises(UserError, match=r"sources \(a\.csv changed; b\.csv new\)\. Repeat"):
            run(worker, texts, out)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    with unchanged(tmp_path / "other"), pytest.raises(UserError, match="other files in it"):
        run(worker, texts, tmp_path / "other")
    (out / "_textgraft.json").write_text("{}")
    with pytest.raises(UserError, match="not the record of a run"):
        run(worker, texts, out)


def test_a_damaged_file_is_named_and_what_was_done_before_it_stays(
    models: dict[str, Path], texts: Path, tmp_path: Path
) -> None:
    worker, out = PredictWorker(str(models["single"])), tmp_path / "out"
    (texts / "a.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n{"text": "c"}\n{"text": "d"}\n{"text": \n')
    with pytest.raises(UserError, match=r"a\.jsonl line 5: not valid JSON"):
        run(worker, texts, out)
    assert len(list(out.glob("*.jsonl"))) == 4
    assert not list(out.glob(".*"))
    with pytest.raises(UserError, match=r"a\.jsonl line 5"):
        run(worker, texts, out)
    (texts / "a.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(UserError, match=r"sources \(a\.jsonl changed\)"):
        run(worker, texts, out)
    (texts / "z.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="not a Parquet file"):
        run(worker, texts / "z.parquet", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_sources_without_texts(models: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    worker = PredictWorker(str(models["single"]))
    (tmp_path / "empty").mkdir()
    for source, message in ((tmp_path / "empty", "no file of text"), (tmp_path / "*.csv", "matches no file")):
        with pytest.raises(UserError, match=message):
            run(worker, source, tmp_path / "out")
    for source, message in (
        ([], "no files"),
        ([texts / "a.csv", texts], "named twice"),
        (tmp_path / "x", "no such file"),
    ):
        with pytest.raises(UserError, match=message):
            run(worker, source, tmp_path / "out")
    with pytest.raises(UserError, match="no model"):
        run(PredictWorker("nothing"), texts, tmp_path / "out")
    for out in (texts / "out", texts, tmp_path):
        with pytest.raises(UserError, match="in one folder"):
            run(worker, texts, out)
    assert not (tmp_path / "out").exists()
    (texts / "a.csv").write_text("text\n")
    (texts / "more.txt").write_text("")
    summary = run(worker, texts, tmp_path / "out")
    assert (summary.files, summary.texts) == (5, 3 * NUMBER)


def test_files_of_one_name_in_several_folders(models: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    sources = [texts / "sub", str(texts / "*.csv")]
    summary = run(PredictWorker(str(models["single"])), sources, tmp_path / "out", output_format="jsonl", block_rows=9)
    names = ["00000-a.csv-00000.jsonl", "00001-a.csv-00000.jsonl", "_textgraft.json"]
    assert (summary.texts, sorted(path.name for path in (tmp_path / "out").iterdir())) == (2 * NUMBER, names)


def test_two_runs_do_not_write_into_one_folder(models: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    worker, out = PredictWorker(str(models["single"])), tmp_path / "out"
    with locked(out), pytest.raises(UserError, match="another run is writing here"):
        run(worker, texts, out)


def test_the_same_command_from_another_folder(
    models: dict[str, Path], texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(models["single"], tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    run(PredictWorker("model"), "texts", Path("out"))
    monkeypatch.chdir(texts)
    with unchanged(tmp_path / "out"):
        assert run(PredictWorker("../model"), ["."], Path("../out")).earlier == 4 * NUMBER


def test_another_process_needs_the_same_folder_and_model(models: dict[str, Path], texts: Path, tmp_path: Path) -> None:
    run(PredictWorker(str(models["single"])), texts, tmp_path / "out")
    (run_hash,) = {stored_run_hash(tmp_path / "out")}
    assert run_hash is not None
    worker, model_hash = PredictWorker(str(models["single"])), model_identity(str(models["single"]))
    work = BlockWork(worker, str(tmp_path / "out"), "jsonl", ALL, run_hash, model_hash)
    work.open()
    for change, message in (
        ({"folder": str(tmp_path / "here")}, "the folder of results is not here.*shares, under the same path"),
        ({"run_hash": "another"}, "the folder of results is not here"),
        ({"model_hash": "another"}, "not the model that the run was started with"),
        ({"worker": PredictWorker(str(tmp_path / "gone"))}, "no model"),
    ):
        with pytest.raises(UserError, match=message):
            replace(work, **change).open()  # type: ignore[arg-type]


def test_the_identity_of_a_checkpoint_is_that_of_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "README.md"):
        (folder / name).write_text("{}")
    name = absolute_name(f"hf:{folder}")
    first = model_identity(name)
    (folder / "README.md").write_text("a longer card")
    assert model_identity(name) == first
    (folder / "model.safetensors").write_text("[]")
    assert model_identity(name) != first
