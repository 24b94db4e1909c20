"""What enemies and accidents feed to a reader: each case is read rightly or refused with its place and a remedy."""

import contextlib
import gzip
import json
import lzma
from pathlib import Path

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.data.checks import check
from textgraft.data.labels import Labels
from textgraft.data.readers import read, read_texts

SOUND = {
    "a.csv": 'text,label\n"a, ""b""\nc",x\nd,y\né€,z\n'.encode(),
    "a.tsv": b'text\tlabel\n"a" b\tx\nd\ty\n',
    "a.jsonl": b'{"text": "a\\u00e9", "label": ["x"]}\n{"text": null, "label": null}\n',
    "a.json": b'[{"text": "a", "label": 1}, {"text": "b", "label": 0.5}]',
    "a.txt": "plain words\nвторая\n".encode("utf-16"),
    "a.csv.gz": gzip.compress(b"text,label\n" + b"a,x\nb,y\n" * 20),
    "a.txt.xz": lzma.compress(b"some words\n" * 20),
}

DAMAGE = st.tuples(st.integers(0, 99), st.integers(0, 3), st.binary(max_size=3))  # where (%), bytes lost, bytes put


def refuse(source: object, *parts: str, **options: object) -> None:
    """`read` must raise one UserError that says each of `parts`."""
    with pytest.raises(UserError) as caught:
        read(source, **options)
    for part in parts:
        assert part in str(caught.value)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.txt", "a.csv.gz", "a.txt.xz"])
@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\n\n  \n"])
def test_an_empty_file(tmp_path: Path, name: str, content: bytes) -> None:
    pack = {".gz": gzip.compress, ".xz": lzma.compress}.get(Path(name).suffix, bytes)
    path = write(tmp_path / name, pack(content))
    refuse(path, str(path))
    with pytest.raises(UserError, match="contains no text"):
        list(read_texts(path))


def test_an_empty_csv_is_told_from_a_header_only(tmp_path: Path) -> None:
    refuse(write(tmp_path / "a.csv", ""), "the file is empty")
    refuse(write(tmp_path / "b.csv", "text,label\n"), "header but no row below")


def test_one_row_reads_and_cannot_be_learnt_from(tmp_path: Path) -> None:
    examples = read(write(tmp_path / "a.csv", "text,label\nfine,pos"))
    assert examples.texts == ["fine"]
    with pytest.raises(UserError, match="every label is 'pos'"):
        Labels.fit(examples)


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "review_body,label,n\nfine,pos,1\n")
    refuse(
        path,
        "no column 'review_bdy' for the text",
        "review_body, label, n",
        "'review_body'?",
        text="review_bdy",
    )
    refuse(path, "no column 'klass' for the label", label="klass")
    refuse(path, "no column looks like the text", "Name it with text=")
    assert read(path, text=" Review_Body").texts == ["fine"]


def test_a_column_named_twice(tmp_path: Path) -> None:
    refuse(write(tmp_path / "a.csv", "text,text,label\na,b,c\n"), "line 1: the header names 'text' twice")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (
            'text,label\nok,x\n"open and never closed,y\nmore,z\n',
            ["line 3: a stray double quote", "never closed"],
        ),
        ('text,label\nok,x\n"bad" ending,y\n', ["line 3: a stray double quote", "goes wrong at line 3"]),
        ('text,label\n"two\nlines",x\n"bad"q,y\n', ["line 4: a stray double quote"]),
        ("text,label\nWell, it goes,pos\n", ["line 2: 3 columns where the header has 2", "double quotes"]),
        ('text,label\n"a\nb",x\nonly one\n', ["line 4: 1 columns where the header has 2"]),
    ],
)
def test_a_csv_that_does_not_parse_names_its_line(tmp_path: Path, content: str, parts: list[str]) -> None:
    refuse(write(tmp_path / "a.csv", content), *parts)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ('{"text": "a"}\n{"text": "b"\n', "line 2: not valid JSON"),
        ('{"text": "a"}\n"b"\n', "line 2: a JSON str where an object is expected"),
        ('{"text": "a"}\n\n[1, 2]\n{"text": "b"}\n', "line 3: a JSON list where an object is expected"),
        ('[{"text": "a"},\n2]\n', "item 2: a JSON int where an object is expected"),
        ('{"text": ["a"]}\n', "line 1: the text is a list"),
        ('{"text": "a", "label": {"b": "c"}}\n', "line 1: the label is an object"),
        ('[{"text": "a"},\n{"text": }]', "line 2: not valid JSON"),
        ('{"text": "a", "n": ' + "9" * 5000 + "}\n", "line 1: JSON that cannot be read"),
        ("[" * 100_000, "line 1"),
    ],
)
def test_json_that_does_not_parse_names_its_line(tmp_path: Path, content: str, part: str) -> None:
    refuse(write(tmp_path / "a.json", content), part)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt"])
def test_a_line_of_ten_megabytes(tmp_path: Path, name: str) -> None:
    long = "word " * 2_000_000
    row = {
        "a.csv": f"text,label\n{long},x\nshort,y\n",
        "a.tsv": f"text\tlabel\n{long}\tx\nshort\ty\n",
        "a.jsonl": json.dumps({"text": long}) + '\n{"text": "short"}\n',
        "a.txt": f"{long}\nshort\n",
    }[name]
    examples = read(write(tmp_path / name, row))
    assert [len(text) for text in examples.texts] == [len(long), 5]
    assert "too-long" in {problem.name for problem in check(examples)}


def test_nul_bytes_are_kept_and_reported(tmp_path: Path) -> None:
    examples = read(write(tmp_path / "a.csv", "text,label\na\0b,x\nc,y\n"))
    assert examples.texts == ["a\0b", "c"]
    (problem,) = [p for p in check(examples) if p.name == "control-characters"]
    assert problem.lines == (2,)


@pytest.mark.parametrize("bad", [b"\xff\xfe", b"\xe2\x28\xa1", b"\xc3\x28", b"\xf0\x9f\x98", b"\x81"])
def test_invalid_utf8_names_line_and_byte(tmp_path: Path, bad: bytes) -> None:
    head = b"text,label\nfine,x\n"
    path = write(tmp_path / "a.csv", head + b"broken " + bad + b" text of some length,y\n")
    refuse(path, f"{path} line 3", f"offset {len(head) + 7} is not utf-8", "encoding=")
    refuse(path, "line 3", encoding="utf-8")


def test_damaged_utf8_is_not_taken_for_another_encoding(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "é à ü ö\n".encode() * 3 + b"caf\xe9\n")
    refuse(path, "line 4", "byte 0xe9")


@pytest.mark.slow
def test_an_error_past_the_sniffed_start_of_a_stream_is_found(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"plain words\n" * 400_000 + b"caf\xe9\n")
    with pytest.raises(UserError, match="line 400001: byte 0xe9 at offset 4800003"):
        list(read_texts(path))


def test_an_encoding_that_does_not_exist(tmp_path: Path) -> None:
    refuse(write(tmp_path / "a.txt", "x"), "unknown encoding 'latin-one'", encoding="latin-one")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.xz"])
def test_a_compressed_file_that_is_cut_short_or_not_one(tmp_path: Path, name: str) -> None:
    pack = gzip.compress if name.endswith("gz") else lzma.compress
    whole = pack(b'{"text": "a"}\n' * 5000)
    refuse(write(tmp_path / name, whole[:-20]), "damaged or cut short")
    refuse(write(tmp_path / name, b"not compressed at all, though it says so"), "damaged or cut short")


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", "text\nx\n")
    refuse(tmp_path / "trian.csv", "no such file", "'train.csv'?")
    refuse(tmp_path / "none" / "a.csv", "no such file", "folder does not exist")
    refuse(write(tmp_path / "a.docx", "x"), "cannot tell the format of a file with the suffix '.docx'", ".jsonl")
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "empty", "no subfolders")
    refuse(write(tmp_path / "a.parquet", "not parquet"), "not a Parquet file")
    for path in (tmp_path / "none.txt", tmp_path / "*.jsonl", tmp_path / "empty", []):
        with pytest.raises(UserError):
            read_texts(path)


def test_values_from_python_that_are_no_texts() -> None:
    refuse([], "contains no text")
    refuse((["a", "b"], ["x"]), "2 texts but 1 labels")
    refuse(["a", b"b"], "row 2: the text is a bytes")
    refuse(7, "cannot read texts from a int")
    refuse((["a", "b"], ["x", "0.5"]), "row 1: label 'x' is not a finite number", kind="numeric")
    refuse((["a"], [float("inf")]), "not a finite number")
    refuse(["a"], "unknown kind of label 'binary'", kind="binary")
    assert read(["a", None, float("nan"), 5]).texts == ["a", "", "", "5"]


@settings(max_examples=150)
@given(
    st.sampled_from(sorted(SOUND)),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3), st.binary(max_size=3))),
)
@pytest.mark.filterwarnings("ignore:.*is not UTF-8")
def test_no_damage_gets_past_the_one_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, damage: list[tuple[int, int, bytes]]
) -> None:
    content = bytearray(SOUND[name])
    for place, length, replacement in damage:
        start = place * len(content) // 100
        content[start : start + length] = replacement
    path = write(tmp_path_factory.mktemp("damage") / name, bytes(content))
    for use in (lambda: check(read(path)), lambda: list(read_texts(path))):
        with contextlib.suppress(UserError):
            use()


def test_half_a_surrogate_pair_becomes_the_replacement_character(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", r'{"text": "a\ud83d"}' + "\n" + r'{"text": "\ud83d\ude00"}')
    assert read(path).texts == ["a\ufffd", "😀"]


def test_nan_labels_are_missing_and_named(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"text": ["a", "b", "c", "d"], "label": ["x", float("nan"), "y", pandas.NA]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    for examples, place in [(read(frame), "<frame> row 2"), (read(tmp_path / "a.csv"), "a.csv line 3")]:
        assert examples.labels == ["x", "", "y", ""]
        with pytest.raises(UserError, match=rf"{place}: the label is missing \(2 texts have none\)"):
            Labels.fit(examples)
    refuse((["a"], [None]), "label column 'label' is empty", label="label")


def test_five_thousand_classes() -> None:
    names = [f"class {i:04}" for i in range(5000)]
    labels = Labels.fit(read((["t"] * 5000, names)))
    assert len(labels.names) == 5000
    assert labels.encode(read((["t"], ["class 4999"]))).tolist() == [4999]
    with pytest.raises(UserError) as caught:
        labels.encode(read((["t"], ["klass 4999"])))
    assert len(str(caught.value)) < 500


def test_scripts_emoji_and_marks_come_through(tmp_path: Path) -> None:
    texts = [
        "مرحبا بالعالم",
        "שלום עולם",
        "e\u0301te\u0301",
        "👩‍👩‍👧‍👦 ok",
        "นี่",
        "\u202eabc\u202c",
        "line\u2028sep\x85",
    ]
    for name, content in [
        ("a.csv", "text,label\n" + "".join(f"{t},{t[:2]}\n" for t in texts)),
        (
            "a.jsonl",
            "".join(json.dumps({"text": t, "label": t[:2]}, ensure_ascii=False) + "\n" for t in texts),
        ),
        ("a.txt", "\n".join(texts)),
    ]:
        examples = read(write(tmp_path / name, content))
        assert examples.texts == texts
        assert not {"mis-decoded", "control-characters"} & {problem.name for problem in check(examples)}
