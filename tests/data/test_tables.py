"""Every format of a table gives the same examples, and says what is wrong with a file that is none."""

import gzip
import json
import sqlite3
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas
import pytest

from textgraft.core.errors import UserError
from textgraft.data.fingerprint import fingerprints
from textgraft.data.readers import read, read_texts
from textgraft.data.tables import FORMATS
from textgraft.data.text_rows import read_rows

pytest.importorskip("openpyxl")
FRAME = pandas.DataFrame({"id": ["a", "b", "c"], "text": ["one", "two\nlines", "ü🙂"], "label": ["x", "y", "x"]})
OTHER = pandas.DataFrame({"text": ["other"], "label": ["z"]})


def to_sqlite(path: Path, **tables: pandas.DataFrame) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        for name, frame in tables.items():
            frame.to_sql(name, connection, index=False)
    return path


def to_excel(path: Path, **sheets: pandas.DataFrame) -> Path:
    with pandas.ExcelWriter(path) as writer:
        for name, frame in sheets.items():
            frame.to_excel(writer, sheet_name=name, index=False)
    return path


def to_zip(path: Path, **frames: pandas.DataFrame) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__MACOSX/._x.csv", "nothing")
        archive.writestr("README.txt", "about")
        for name, frame in frames.items():
            archive.writestr(f"data/{name}.csv", frame.to_csv(index=False))
    return path


CONTAINERS: dict[str, tuple[Callable[..., Path], str, str]] = {
    "a.db": (to_sqlite, "table", "{}"),
    "a.xlsx": (to_excel, "sheet", "{}"),
    "a.zip": (to_zip, "table", "data/{}.csv"),
}


def test_every_format_gives_the_same_examples(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    FRAME.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    FRAME.to_parquet(tmp_path / "a.parquet")
    FRAME.to_feather(tmp_path / "a.feather")
    FRAME.to_feather(tmp_path / "old.feather", version=1)
    (tmp_path / "a.arrow").write_bytes((tmp_path / "a.feather").read_bytes())
    FRAME.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    FRAME.to_json(tmp_path / "a.json", orient="records")
    (tmp_path / "a.ndjson").write_bytes((tmp_path / "a.jsonl").read_bytes())
    for name in ("a.db", "a.sqlite", "a.sqlite3"):
        to_sqlite(tmp_path / name, reviews=FRAME)
    to_excel(tmp_path / "a.xlsx", Sheet1=FRAME)
    (tmp_path / "a.xlsm").write_bytes((tmp_path / "a.xlsx").read_bytes())
    assert {path.suffix for path in tmp_path.iterdir()} == set(FORMATS) - {".txt"}
    for path in sorted(tmp_path.iterdir()):
        with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
            archive.write(path, f"x/{path.name}")
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        for one in (path, tmp_path / "packed.zip", tmp_path / f"{path.name}.gz"):
            examples = read(one)
            assert (examples.texts, examples.labels) == (FRAME["text"].to_list(), FRAME["label"].to_list()), one
            assert examples.ids == ["a", "b", "c"]
            assert list(read_texts(str(one))) == examples.texts
            rows = list(read_rows(one))
            assert [row.text for row in rows] == examples.texts
            assert rows[2].cells == {"id": "c", "text": "ü🙂", "label": "x"}
        (tmp_path / f"{path.name}.gz").unlink()


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize(
    "written",
    [
        *(FRAME.to_json(orient=orient) for orient in ("columns", "index", "split", "records", "table")),
        json.dumps(FRAME.to_dict(orient="list")),
        json.dumps({row.pop("id"): row for row in FRAME.to_dict(orient="records")}),
        json.dumps({"version": "1", "data": FRAME.to_dict(orient="records")}),
        json.dumps({"rows": [{"row_idx": i, "row": row} for i, row in enumerate(FRAME.to_dict(orient="records"))]}),
    ],
)
def test_json_tables_of_pandas_and_of_services(tmp_path: Path, written: str, indent: int | None) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(json.loads(written), indent=indent), "utf-8")
    examples = read(path)
    assert (examples.texts, examples.labels) == (FRAME["text"].to_list(), FRAME["label"].to_list())
    assert examples.ids == ["a", "b", "c"]
    assert [(row.unit, row.number) for row in read_rows(path)] == [("item", 1), ("item", 2), ("item", 3)]


def test_objects_over_several_lines(tmp_path: Path) -> None:
    rows = FRAME.to_dict(orient="records")
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps(row, indent=2) for row in rows), "utf-8")
    assert read(path).texts == FRAME["text"].to_list()
    path.write_text(json.dumps(rows[0]), "utf-8")  # one row, not a table
    assert [(row.unit, row.number) for row in read_rows(path)] == [("line", 1)]
    path.write_text(json.dumps(rows[0], indent=2), "utf-8")
    assert read(path).texts == ["one"]


@pytest.mark.parametrize(
    ("written", "texts"),
    [
        ('{"review": "great", "label": "pos", "items": [{"sku": 1}, {"sku": 2}]}', ["great"]),
        ('{"question": "who?", "documents": [{"text": "one"}, {"text": "two"}], "label": "x"}', ["who?"]),
        ('{"0": {"0": "text a", "1": "text b"}, "1": {"0": "x", "1": "y"}}', ["text a", "text b"]),
        ('{"columns": [0, 1], "index": [0, 1], "data": [["text a", "x"], ["text b", "y"]]}', ["text a", "text b"]),
        ('{"r1": {"summary": "a", "label": "x"}, "r2": {"label": "y", "summary": "b"}}', ["a", "b"]),
        ('{"text": {"post": "a", "dog": "b"}, "label": {"dog": "y", "post": "x"}}', ["a", "b"]),
        ('{"-N1": {"text": "a", "label": "x"}, "-N2": {"text": "b"}}', ["a", "b"]),
        ('{"data":\n[{"text": "a"}, {"text": "b"}]\n}', ["a", "b"]),
        ('{"data": [\n{"text": "a"},\n{"text": "b"}\n]}', ["a", "b"]),
        ('{"text": ["only one"], "label": ["x"]}', ["only one"]),
        ('{"text": ["a", "b"], "meta": [{"n": 1}, {"n": 2}]}', ["a", "b"]),
    ],
)
def test_rows_and_columns_are_told_apart(tmp_path: Path, written: str, texts: list[str]) -> None:
    path = tmp_path / "a.json"
    path.write_text(written, "utf-8")
    column = next((name for name in ("summary", "0") if f'"{name}"' in written or f"[{name}," in written), None)
    assert read(path, text=column).texts == texts


def test_tables_in_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for encoding in ("big5", "shift_jis", "utf-16-le", "utf-16"):
        path.write_bytes(
            json.dumps({"text": ["許功", "能"], "label": ["x", "y"]}, indent=1, ensure_ascii=False).encode(encoding)
        )
        assert [(row.text, row.unit) for row in read_rows(path, encoding=encoding)] == [
            ("許功", "item"),
            ("能", "item"),
        ]


@pytest.mark.parametrize("damaged", ['{"text": "a", "label": "x"},', '{"text": "a", "label": "x"'])
def test_a_damaged_line_does_not_make_the_rest_one_value(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{damaged}\n" * 500_000, "utf-8")
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=r"a.jsonl line 1: not valid JSON"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("written", ['{"text": {}, "label": {}}', '{"columns": ["text"], "index": [], "data": []}'])
def test_an_empty_frame_has_no_text(tmp_path: Path, written: str) -> None:
    (tmp_path / "a.json").write_text(written, "utf-8")
    with pytest.raises(UserError, match="contains no text"):
        read(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('{"text": ["a", "b"], "label": ["x"]}', "a.json: the columns have different lengths: 'text: 2', 'label: 1'"),
        ('{"text": "a",\n "label":', "a.json line 2: not valid JSON"),
        ('{"text": "a", "label":\n{"text": "b", "label": "x"}', "a.json line 1: not valid JSON"),
        ('{"text": "a"}\n{\n"text": "b"}', "a.json line 2: not valid JSON"),
        ('["a", "x"]\n["b", "y"]', "a.json line 2: not valid JSON"),
        ('{\r"text": "a",\r"label": y\r}', "a.json line 3: not valid JSON"),
        ('[{"text": "a"}]\n\n]', "a.json line 3: not valid JSON"),
        ('{"columns": ["text"], "data": [["a", "b"]]}', "no column looks like the text"),
    ],
)
def test_json_that_is_no_table(tmp_path: Path, written: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(written, "utf-8")
    with pytest.raises(UserError) as caught:
        read(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", CONTAINERS)
def test_one_of_several_tables_is_named(tmp_path: Path, name: str) -> None:
    write, noun, naming = CONTAINERS[name]
    path = write(tmp_path / name, reviews=FRAME, other=OTHER)
    reviews, other = naming.format("reviews"), naming.format("other")
    with pytest.raises(UserError) as caught:
        read(path)
    for part in (f"there are 2 {noun}s in it: {reviews}, {other}", f"Name one, as in {path}::{reviews}."):
        assert part in str(caught.value)
    assert read(f"{path}::{other}").texts == ["other"]
    assert list(read_texts(f"{path}::{reviews}")) == FRAME["text"].to_list()
    assert fingerprints([f"{path}::{reviews}"])[0]["name"] == name
    with pytest.raises(UserError, match=r"there is no (sheet|table|file) '.*reviws.*Did you mean '.*reviews"):
        read(f"{path}::{naming.format('reviws')}")
    with pytest.raises(UserError, match=r"no such file or folder. Did you mean"):
        read(f"{tmp_path / ('b' + name[1:])}::{reviews}")


@pytest.mark.parametrize(("name", "empty"), [("a.db", OTHER.head(0)), ("a.xlsx", pandas.DataFrame())])
def test_a_table_without_rows_is_not_one_of_several(tmp_path: Path, name: str, empty: pandas.DataFrame) -> None:
    assert len(read(CONTAINERS[name][0](tmp_path / name, reviews=FRAME, other=empty))) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.xlsx", "not an Excel workbook that can be read.*without a password"),
        ("a.db", "not an SQLite database that can be read"),
        ("a.feather", "not a Feather file"),
        ("a.zip", "not a zip archive"),
        ("a.zip::a.csv", "not a zip archive"),
        ("a.xls", r"the suffix '.xls'. Save it as .xlsx or .csv"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name.partition("::")[0]).write_bytes(b"neither this nor that, but long enough" * 40)
    for use in (lambda: read(tmp_path / name), lambda: list(read_texts(tmp_path / name))):
        with pytest.raises(UserError, match=f"{tmp_path}/{name}.*{message}"):
            use()


@pytest.mark.parametrize("name", ["a.xlsx", "a.db", "a.feather", "a.zip"])
def test_a_file_that_is_cut_short_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.feather":
        FRAME.to_feather(path)
    else:
        CONTAINERS[name][0](path, reviews=FRAME)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(UserError, match=str(path)):
        read(path)


@pytest.mark.parametrize(("name", "package"), [("a.xlsx", "openpyxl"), ("a.feather", "pyarrow")])
def test_the_package_that_is_missing_is_named_with_its_extra(
    tmp_path: Path, name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(b"x")
    for module in [one for one in sys.modules if one == package or one.startswith(f"{package}.")]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    extra = {"openpyxl": "excel", "pyarrow": "arrow"}[package]
    with pytest.raises(UserError, match=rf"needs the package {package}.*textgraft\[{extra}\]"):
        read(tmp_path / name)


def test_rows_of_a_sheet_have_their_numbers_and_types(tmp_path: Path) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append([])
    for row in (["Text", "Score", None], ["one", 0.5, None], [], ["two", "dear", None]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    with pytest.raises(UserError, match=r"a\.xlsx row 5: label 'dear' is not a finite number"):
        read(tmp_path / "a.xlsx", kind="numeric")
    examples = read(tmp_path / "a.xlsx", label="Score")
    assert (examples.texts, examples.labels, examples.lines) == (["one", "two"], ["0.5", "dear"], [3, 5])
    assert examples.where(1) == f"{tmp_path / 'a.xlsx'} row 5"


def test_a_database_is_not_written_to(tmp_path: Path) -> None:
    path = to_sqlite(tmp_path / "a.db", **{'odd "name"': FRAME})
    before = path.read_bytes()
    assert read(f'{path}::odd "name"').labels == ["x", "y", "x"]
    assert path.read_bytes() == before
    with pytest.raises(UserError, match="no such file"):
        read(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


def test_a_place_in_a_json_array_is_an_item_and_in_lines_a_line(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": {}}]
    array, lines = tmp_path / "a.json", tmp_path / "b.json"
    array.write_text("\n" + json.dumps(rows, indent=4), encoding="utf-16")
    lines.write_text("\n\n" + "\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=r"a\.json item 2: the label is an object"):
        read(array)
    with pytest.raises(UserError, match=r"b\.json line 4: the label is an object"):
        read(lines)
    assert [row.key for row in read_rows(array)] == [{"item": 1}, {"item": 2}]


def test_labels_in_front_of_a_text_are_those_of_fasttext(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("__label__pos A fine film .\n\n__label__neg\tDull .\nno label here\n")
    examples = read(path)
    assert (examples.texts, examples.kind) == (["A fine film .", "Dull .", "no label here"], "single")
    assert (examples.labels, examples.lines) == (["pos", "neg", ""], [1, 3, 4])
    assert list(read_texts(path)) == examples.texts
    path.write_text("__label__pos __label__short Fine .\n__label__neg Dull .\nNothing .\n")
    several = read(path)
    assert (several.texts, several.labels) == (["Fine .", "Dull .", "Nothing ."], [("pos", "short"), ("neg",), ()])
    assert several.kind == "multi"
    path.write_text("plain\n__label__ is written here\n")
    assert read(path).texts == ["plain", "__label__ is written here"]


def test_a_title_above_the_names_is_said(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for cells in (["Survey of 2024"], [], ["text", "label"], ["Lovely", "good"]):
        book.active.append(cells)
    book.save(tmp_path / "a.xlsx")
    with pytest.warns(UserWarning, match=r"2 rows \(3, 4\) have values in columns without a name.*a title above"):
        assert read(tmp_path / "a.xlsx").labels is None


@pytest.mark.parametrize("row", [1, 2])
def test_a_row_that_no_sheet_has_is_refused(tmp_path: Path, row: int) -> None:
    to_excel(tmp_path / "right.xlsx", Sheet1=FRAME)
    with zipfile.ZipFile(tmp_path / "right.xlsx") as right, zipfile.ZipFile(tmp_path / "a.xlsx", "w") as wrong:
        for name in right.namelist():
            content = right.read(name).decode()
            content = (
                content.replace(f'<row r="{row}"', '<row r="200000000"') if name.endswith("sheet1.xml") else content
            )
            wrong.writestr(name, content)
    with pytest.raises(UserError, match=r"sheet 'Sheet1' has rows after 1,048,576"):
        read(tmp_path / "a.xlsx")


def test_a_folder_of_classes_in_a_zip_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("films/good/1.txt", "Lovely")
        archive.writestr("films/bad/1.txt", "Dull")
    with pytest.raises(UserError, match=r"a\.zip: there are 2 files of text in it, and no table\. Unpack them"):
        read(tmp_path / "a.zip")


@pytest.mark.parametrize("around", [{}, {"version": "1.1"}])
def test_squad_is_sent_to_question_answering(tmp_path: Path, around: dict[str, str]) -> None:
    path = tmp_path / "a.json"
    paragraphs = [{"context": "Ann sings.", "qas": [{"id": "1", "question": "Who sings?", "answers": []}]}]
    path.write_text(json.dumps({"data": [{"title": "x", "paragraphs": paragraphs}], **around}), "utf-8")
    with pytest.raises(UserError, match="This looks like SQuAD; textgraft qa reads it"):
        read(path)
