"""CSV as Excel, pandas and people write it."""

import warnings
from pathlib import Path

import pytest

from textgraft.core.errors import UserError
from textgraft.data.csv_files import Dialect, dialect_of
from textgraft.data.readers import read, read_texts
from textgraft.data.text_rows import read_rows

CASES = Path(__file__).parents[2] / ".." / "shared" / "cases"
ROWS = [("the room was clean", "good"), ("cold food", "bad"), ("kind staff", "good"), ("a rude waiter", "bad")]


def write(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(content.encode(encoding))
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
def test_excel_says_its_delimiter_in_a_first_line(tmp_path: Path, first: str, encoding: str) -> None:
    path = write(tmp_path / "a.csv", f'{first}\r\ntext;label\r\n"one, two";x\r\n"three\n";y\r\n;;\r\n', encoding)
    with pytest.raises(UserError, match="line 6: 3 columns where the header has 2"):
        read(path)
    path = write(path, f'{first}\r\ntext;label\r\n"one, two";x\r\n"three\n";y\r\n', encoding)
    examples = read(path)
    assert (examples.texts, examples.labels, examples.lines) == (["one, two", "three\n"], ["x", "y"], [3, 4])
    assert list(read_texts(path)) == ["one, two", "three\n"]


def test_a_text_that_begins_with_sep_is_a_text(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.csv", "text\nsep=;\n")).texts == ["sep=;"]


@pytest.mark.parametrize("typed", ["\\t", "\t", "tab"])
def test_a_tab_as_it_is_typed_in_a_shell(tmp_path: Path, typed: str) -> None:
    path = write(tmp_path / "a.data", "text\tlabel\nfine, really\tx\n")
    assert read(path, delimiter=typed).texts == ["fine, really"]
    assert next(read_rows(path, delimiter=typed)).text == "fine, really"


@pytest.mark.parametrize("typed", ["\\n", ";;", '"', "\n", ""])
def test_a_delimiter_is_one_character(tmp_path: Path, typed: str) -> None:
    with pytest.raises(UserError, match="the delimiter must be one character"):
        read(write(tmp_path / "a.csv", "text;label\nfine;x\n"), delimiter=typed)


def test_a_space_after_each_delimiter_is_no_part_of_a_value(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text, label\n"cold, and late", "bad"\n"fine", good\n')
    assert dialect_of(path, "utf-8") == Dialect(",", spaces=True)
    examples = read(path)
    assert (examples.texts, examples.labels) == (["cold, and late", "fine"], ["bad", "good"])
    spaced = read(write(tmp_path / "b.csv", "text,label\nfine, good\nbad,bad \n"))
    assert spaced.labels == ["good", "bad"]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("v1,v2,,,", "{label},{text},,,"),
        (",v1,v2", "{i},{label},{text}"),
        ("index,v1,v2", "{i},{label},{text}"),
        ("Unnamed: 0,v1,v2", "{i},{label},{text}"),
        ("v1,notes,v2", "{label},,{text}"),
    ],
)
def test_columns_without_content_leave_the_guess_open_for_the_others(tmp_path: Path, header: str, row: str) -> None:
    lines = [row.format(i=7 * i, text=text, label=label) for i, (text, label) in enumerate(ROWS)]
    path = write(tmp_path / "a.csv", "\n".join([header, *lines]))
    with pytest.warns(UserWarning, match="'v1' are read as the labels"):
        examples = read(path)
    assert (examples.texts, examples.labels) == tuple(map(list, zip(*ROWS)))
    assert list(read_texts(path)) == examples.texts


def test_values_in_columns_without_a_name_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "label,text,,\nx,one,,\ny,two, and more,\n")
    with pytest.warns(UserWarning, match=r"1 rows \(3\) have values in columns without a name, which are not read"):
        assert read(path).texts == ["one", "two"]


@pytest.mark.parametrize("name", ["de_sep", "de_macroman", "spam", "labelspace", "ints15", "floats15"])
def test_tables_as_people_have_them(name: str) -> None:
    if not CASES.exists():
        pytest.skip("the cases are not here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        examples = read(CASES / f"{name}.csv")
    labels = {"de": {"gut", "schlecht"}, "sp": {"good", "bad"}, "la": {"good", "Good", "bad"}}
    assert set(examples.labels or ()) == labels.get(name[:2], set("12345"))
    first = {"de": "Schlechter Ton, müde Schauspieler; Fall 0 kostet 0,0 €"}
    assert examples.texts[0] == first.get(name[:2], "The room was clean and the staff were kind, case 0")
