"""Files that research/fuzz.py found: each once ended the program, or left it with a traceback; now it is refused."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from pathlib import Path

import pandas
import pytest

from textgraft.core.errors import LONGEST, UserError
from textgraft.data.readers import read, read_texts
from textgraft.data.tagged import read_tagged
from textgraft.tasks.classification.label_texts import LabelTexts
from textgraft.training.recipes import load_recipe
from textgraft.word_embeddings.formats import load_vectors

FRAME = pandas.DataFrame({"text": ["a fine film", "a dull one"] * 8, "label": ["pos", "neg"] * 8})


def refused(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_feather_file_whose_offsets_point_out_of_memory(tmp_path: Path) -> None:
    """It ended the process by a bus error."""
    FRAME.to_feather(tmp_path / "a.feather", compression="uncompressed")
    sound = (tmp_path / "a.feather").read_bytes()
    at = sound.index(b"".join(number.to_bytes(8, "little") for number in (0, 11, 21, 32)))
    damaged = sound[: at + 8] + b"\xff" * 6 + b"\x7f\0" + sound[at + 16 :]
    assert "not a Feather file, or a damaged one" in refused(tmp_path / "b.feather", damaged)


def test_a_parquet_file_whose_pages_are_damaged(tmp_path: Path) -> None:
    """The footer is whole, so that only reading the rows finds it out."""
    FRAME.to_parquet(tmp_path / "a.parquet", compression="gzip")
    sound = (tmp_path / "a.parquet").read_bytes()
    at = sound.index(b"\x1f\x8b")
    assert "not a Parquet file" in refused(tmp_path / "b.parquet", sound[: at + 12] + b"\xff" * 20 + sound[at + 32 :])


def test_a_database_whose_names_are_not_utf8(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE reviews (text TEXT)")
    connection.execute("INSERT INTO reviews VALUES ('fine')")
    connection.commit()
    connection.close()
    sound = (tmp_path / "a.db").read_bytes()
    said = refused(tmp_path / "b.db", sound.replace(b"reviews", b"r\xa8views"))
    assert "not an SQLite database that can be read" in said


def archive() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("a.csv", "text,label\na,x\nb,y\n")
    return packed.getvalue()


def test_an_archive_of_a_later_version(tmp_path: Path) -> None:
    sound = archive()
    at = sound.index(b"PK\x01\x02") + 6
    said = refused(tmp_path / "a.zip", sound[:at] + b"\xa6" + sound[at + 1 :])
    assert "not a zip archive, or a damaged one (zip file version 16.6)" in said


def test_an_archive_with_a_file_without_a_name(tmp_path: Path) -> None:
    sound = archive()
    at = sound.index(b"PK\x01\x02") + 28
    refused(tmp_path / "a.zip", sound[:at] + b"\0" + sound[at + 1 :])


def test_a_label_longer_than_any_float_is_a_class(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 10**400}, {"text": "b", "label": 1}, {"text": "c", "label": 1}]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    assert read(tmp_path / "a.json").kind == "single"


@pytest.mark.parametrize("annotations", [True, ["x"], 0.5, [{"result": "/"}], [{"result": [1]}], {"text": "x"}])
def test_annotations_of_label_studio_that_are_no_objects(tmp_path: Path, annotations: object) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"data": {"text": "Anna in Rome"}, "annotations": annotations}))
    with pytest.raises(UserError, match=r"a.jsonl line 1: .* is no list of objects"):
        read_tagged(path)


def test_toml_that_is_nested_too_deeply(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[labels]\nrefund = " + "[" * 2000)
    for use in (LabelTexts.of, load_recipe):
        with pytest.raises(UserError, match="nested too deeply"):
            use(str(path))


def test_a_message_that_quotes_a_file_can_be_printed_and_is_short(tmp_path: Path) -> None:
    said = refused(tmp_path / "a.tsv", b"9" * 5000 + b"\t\x1b[2J\nx\ty\n")
    assert len(said) < 2 * LONGEST + len(str(tmp_path)) + 20
    assert "\x1b" not in said
    message = str(UserError("half a pair: \ud800", where="a\x07b"))
    assert message == "a\\x07b: half a pair: \\ud800"


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt"])
@pytest.mark.parametrize("letter", ["x", "é"])
def test_a_cell_of_more_characters_than_any_text(
    tmp_path: Path, name: str, letter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("columns", "csv_files"):
        monkeypatch.setattr(f"textgraft.data.{module}.MAX_CHARACTERS", 200)
    cells = ["fine", letter * 201]
    rows = {
        "a.csv": "text\n" + "\n".join(cells),
        "a.jsonl": "\n".join(json.dumps({"text": cell}) for cell in ["fine", *cells]),
        "a.txt": "\n".join(["fine", *cells]),
    }
    said = refused(tmp_path / name, rows[name].encode())
    assert f"{name} line 3: a " in said
    assert " characters" in said
    with pytest.raises(UserError, match=f"{name} line 3: a .* characters"):
        list(read_texts(tmp_path / name))


def test_places_of_more_digits_than_any_text_has_characters(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Anna")
    (tmp_path / "a.ann").write_text(f"T1\tPER 0 {'9' * 5000}\tAnna\n")
    with pytest.raises(UserError, match="line 1: this is no entity with start and end"):
        read_tagged(tmp_path / "a.ann")


def test_numbers_with_underscores_are_none(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("the 0.5 0_001\n")
    with pytest.raises(UserError, match="'0_001' is not a finite number"):
        load_vectors(tmp_path / "v.txt")


def test_a_recipe_whose_name_is_longer_than_a_file_name() -> None:
    with pytest.raises(UserError, match="unknown recipe 'xxx"):
        load_recipe("x" * 5000)
