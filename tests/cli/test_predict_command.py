"""What predict reads and writes: the columns of the input beside the prediction, in the input's own CSV."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from programs import Desk, Program, call

TABLE = 'review_id;review;label;"a b"\nr1;"great; superb";pos;1\nr2;awful;;"x ""y"""\n'


ANSWER = ["label", "confidence", "known"]


def write(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(content.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_predictions_stand_beside_the_columns_of_the_input_in_its_own_csv(
    desk: Desk, tmp_path: Path, run: Program, encoding: str
) -> None:
    content = TABLE.replace("awful", "awful café, größer")
    source, out = write(tmp_path / "in.csv", content, encoding), tmp_path / "out.csv"
    assert run("predict", desk.classifier, source, "--out", out, "--probabilities").code == 0
    written = out.read_bytes()
    assert written.startswith(b"\xef\xbb\xbf") == (encoding in ("utf-8-sig", "utf-16"))
    header, *rows = csv.reader(io.StringIO(written.decode("utf-8-sig")), delimiter=";")
    assert header == ["review_id", "review", "input_label", "a b", *ANSWER, "p(neg)", "p(pos)"]
    assert [row[:4] for row in rows] == [
        ["r1", "great; superb", "pos", "1"],
        ["r2", "awful café, größer", "", 'x "y"'],
    ]
    for row in rows:
        assert row[4] in ("neg", "pos")
        assert row[6] in ("True", "False")
        assert all(len(number) <= len("0.1234") for number in (row[5], *row[7:]))
        assert float(row[5]) == max(map(float, row[7:]))


def test_columns_to_keep_are_named_or_none(desk: Desk, tmp_path: Path, run: Program) -> None:
    source = write(tmp_path / "in.csv", TABLE)

    def rows(*options: str) -> list[dict]:
        found = run("predict", desk.classifier, source, "--json", *options).json()["predictions"]
        return [{name: row[name] for name in row if name not in ANSWER} for row in found]

    assert rows("--keep", "none") == [{"review_id": "r1"}, {"review_id": "r2"}]
    assert rows("--keep", "a b, review_id")[1] == {"a b": 'x "y"', "review_id": "r2"}
    assert rows("--keep", "a b")[0] == {"review_id": "r1", "a b": "1"}
    assert list(rows("--id", "a b", "--keep", "none")[0]) == ["a b"]
    assert list(rows()[0]) == ["review_id", "review", "input_label", "a b"]
    run("predict", desk.classifier, source, "--keep", "reviw").mistake("keep", "no column 'reviw'", "'review'?")
    run("predict", desk.classifier, source, "--id", "uid").mistake("no column 'uid' for the id")
    plain = write(tmp_path / "b.csv", "review,score\ngreat,1\n")
    (row,) = run("predict", desk.classifier, plain, "--json").json()["predictions"]
    assert list(row) == ["line", "review", "score", *ANSWER]


def test_a_tsv_is_written_with_tabs_and_json_keeps_its_types(desk: Desk, tmp_path: Path, run: Program) -> None:
    source = write(tmp_path / "in.jsonl", '{"text": "great", "n": 1.5, "more": {"a": [1]}}\n{"text": "awful"}\n')
    assert run("predict", desk.classifier, source, "--out", tmp_path / "out.tsv").code == 0
    header, first, second = (tmp_path / "out.tsv").read_text().splitlines()
    assert header.split("\t") == ["line", "text", "n", "more", *ANSWER]
    assert next(csv.reader([first], delimiter="\t"))[:4] == ["1", "great", "1.5", '{"a": [1]}']
    assert second.split("\t")[:4] == ["2", "awful", "", ""]
    assert run("predict", desk.classifier, source, "--out", tmp_path / "out.jsonl").code == 0
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert (first["n"], first["more"]) == (1.5, {"a": [1]})
    ragged = write(tmp_path / "b.jsonl", '{"text": "great"}\n{"text": "awful", "n": 1}\n')
    run("predict", desk.classifier, ragged, "--out", tmp_path / "b.csv").mistake("no 'n'", ".jsonl", "--keep")


def test_a_table_of_a_database_is_predicted_with_its_columns(desk: Desk, tmp_path: Path, run: Program) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE reviews (id INTEGER, text TEXT, at BLOB)")
        connection.executemany("INSERT INTO reviews VALUES (?, ?, ?)", [(7, "great", b"\0\1"), (9, "awful", None)])
        connection.execute("CREATE TABLE others AS SELECT * FROM reviews")
        connection.commit()
    run("predict", desk.classifier, tmp_path / "a.db").mistake("2 tables in it: reviews, others", "a.db::reviews")
    rows = run("predict", desk.classifier, f"{tmp_path / 'a.db'}::reviews", "--json").json()["predictions"]
    assert [(row["id"], row["text"]) for row in rows] == [(7, "great"), (9, "awful")]


def test_text_is_a_column_in_every_command_and_a_text_itself_has_another_option(
    desk: Desk, tmp_path: Path, run: Program
) -> None:
    source = write(tmp_path / "in.csv", "text,title\ngreat,awful\n")
    alone = run("predict", desk.classifier, "--input-text", "awful", "--json").json()["predictions"]
    (row,) = run("predict", desk.classifier, source, "--text", "title", "--json").json()["predictions"]
    assert row["confidence"] == alone[0]["confidence"]
    assert "awful" in run("explain", desk.classifier, source, "--text", "title").out
    for command in ("predict", "explain"):
        run(command, desk.classifier, "--text", "great film").mistake("--text", "names a column", "with --input-text")
    for command in (("tag", "predict"), ("cove", "translate")):
        run(*command, tmp_path, "--text", "A film.").mistake("--text", "Give a text itself with --input-text")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "utf-8"])
def test_stdin_is_read_in_the_encoding_that_it_begins_with(desk: Desk, encoding: str) -> None:
    stdin = "great\r\nawful, and a longer line of plain text\n".encode(encoding)
    plain = call("predict", desk.classifier, "-", stdin=stdin.decode(encoding).encode())
    assert call("predict", desk.classifier, "-", stdin=stdin).out == plain.out
    assert len(plain.out.splitlines()) == 2


def test_a_tab_is_a_delimiter_as_it_is_typed(desk: Desk, tmp_path: Path, run: Program) -> None:
    source = write(tmp_path / "in.dat", "text\tn\ngreat\t1\n")
    (row,) = run("predict", desk.classifier, source, "--delimiter", "\\t", "--json").json()["predictions"]
    assert (row["text"], row["n"]) == ("great", "1")


def test_a_folder_that_is_made_is_named(desk: Desk, tmp_path: Path, run: Program) -> None:
    for out in (tmp_path / "a" / "b" / "out.csv", tmp_path / "c" / "vectors.npy"):
        options = ["predict", desk.classifier] if out.suffix == ".csv" else ["embed", desk.lm]
        done = run(*options, desk / "test.csv", "--out", out)
        assert (done.code, f"the folder {out.parent} does not exist, and is made" in done.err) == (0, True)
        assert "is made" not in run(*options, desk / "test.csv", "--out", out).err
