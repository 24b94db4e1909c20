"""Every way that texts and labels come in, and that they come in whole."""

import csv
import gzip
import json
import lzma
import tracemalloc
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas
import polars
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.data.examples import Examples, Pair
from textgraft.data.readers import read, read_texts
from textgraft.data.text_rows import read_rows
from textgraft.text.visible import visible

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SOME_TEXT = ANY_TEXT.filter(lambda s: s.strip() != "")


def write(path: Path, content: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(content.encode(encoding))
    return path


def test_csv_gives_texts_labels_ids_and_the_line_where_each_record_starts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'id,review,class\n1,"two\nlines",pos\n\n2,one,neg\n')
    examples = read(path)
    assert examples.texts == ["two\nlines", "one"]
    assert examples.labels == ["pos", "neg"]
    assert examples.ids == ["1", "2"]
    assert examples.lines == [2, 5]
    assert examples.kind == "single"
    assert examples.where(1) == f"{path} line 5"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_of_a_csv_is_the_one_that_cuts_its_header(tmp_path: Path, delimiter: str) -> None:
    path = write(
        tmp_path / "a.csv",
        f"text{delimiter}label\nfine{delimiter}x\n",
    )
    assert read(path).labels == ["x"]


def test_a_published_tsv_keeps_its_quotes_and_a_spreadsheet_one_loses_them(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw.tsv", 'text\tlabel\n"Never", he said.\tx\nan "odd one\ty\n')
    assert read(raw).texts == ['"Never", he said.', 'an "odd one']
    quoted = write(tmp_path / "quoted.tsv", 'text\tlabel\n"a ""tab""\tinside"\tx\n"two\nlines"\ty\n')
    assert read(quoted).texts == ['a "tab"\tinside', "two\nlines"]


def test_empty_columns_at_the_end_of_a_spreadsheet_do_no_harm(tmp_path: Path) -> None:
    assert read(write(tmp_path / "a.csv", "label,text,,\nham,hello,,\n")).texts == ["hello"]


def test_json_lines_arrays_and_missing_keys(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": "x"}\n\n{"text": "b"}\n{"label": "y"}\n')
    examples = read(path)
    assert (examples.texts, examples.labels, examples.lines) == (["a", "b", ""], ["x", "", "y"], [1, 3, 4])
    array = write(tmp_path / "a.json", '[{"text": "a", "label": 1},\n {"text": "b", "label": 0}]')
    assert read(array).labels == ["1", "0"]


def test_parquet_frames_and_lists_give_the_same_examples(tmp_path: Path) -> None:
    texts, labels = ["good", "bad", "ü🙂"], ["pos", "neg", "pos"]
    frame = pandas.DataFrame({"text": texts, "label": labels})
    frame.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.parquet.xz").write_bytes(lzma.compress((tmp_path / "a.parquet").read_bytes()))
    sources = [
        tmp_path / "a.parquet",
        tmp_path / "a.parquet.xz",
        frame,
        polars.from_pandas(frame),
        (texts, np.array(labels)),
        (frame["text"], frame["label"]),
        [{"text": t, "label": y} for t, y in zip(texts, labels)],
    ]
    for source in sources:
        examples = read(source)
        assert (examples.texts, examples.labels, examples.unit) == (texts, labels, "row")
    assert read(texts).labels is None
    assert read(examples) is examples


def test_a_folder_per_class_reads_one_text_a_file_in_sorted_order(tmp_path: Path) -> None:
    for name, text in [
        ("pos/2.txt", "late\nlines\n"),
        ("pos/1.txt", "early"),
        ("neg/1.txt", "bad"),
        (".git/x", "no"),
    ]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path / name, text)
    examples = read(tmp_path)
    assert examples.texts == ["bad", "early", "late\nlines"]
    assert examples.labels == ["neg", "pos", "pos"]
    assert examples.where(2) == f"{tmp_path}/pos/2.txt"
    assert examples.take([2]).where(0) == f"{tmp_path}/pos/2.txt"


@pytest.mark.parametrize("name", ["texts", "Reviews", "sentences", "bodies", "comments", "posts"])
def test_a_column_of_texts_may_be_called_by_the_plural(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"{name},source,labels\nfine,web,pos\ndull,web,neg\n")
    examples = read(path)
    assert (examples.texts, examples.labels) == (["fine", "dull"], ["pos", "neg"])
    assert list(read_texts(path)) == ["fine", "dull"]


def test_a_plural_beside_a_text_or_a_pair_is_not_the_text(tmp_path: Path) -> None:
    one = read(write(tmp_path / "a.csv", "comments,text,label\n3,fine,pos\n4,dull,neg\n"))
    assert one.texts == ["fine", "dull"]
    two = read(write(tmp_path / "b.csv", "comments,premise,hypothesis,label\n3,a,b,yes\n4,c,d,no\n"))
    assert two.texts == [Pair("a", "b"), Pair("c", "d")]


JUDGED = [("sehr gut gespielt", "gut"), ("ein Jammer", "schlecht"), ("ganz wunderbar", "gut"), ("zu lang", "schlecht")]


@pytest.mark.parametrize("header", [("Film", "Urteil"), ("ข้อความ", "หมวด"), ("Text", "Urteil"), ("Film", "Label")])
def test_labels_are_known_by_coming_back_where_no_name_says_so(tmp_path: Path, header: tuple[str, str]) -> None:
    lines = ["id;" + ";".join(header), *(f"{i};{text};{label}" for i, (text, label) in enumerate(JUDGED))]
    path = write(tmp_path / "a.csv", "\n".join(lines))
    said = nullcontext() if header[1] == "Label" else pytest.warns(UserWarning, match=f"'{header[1]}' are read as the")
    with said:
        examples = read(path)
    assert (examples.texts, examples.labels) == tuple(map(list, zip(*JUDGED)))


def test_a_first_line_that_is_a_text_is_not_lost(tmp_path: Path) -> None:
    rows = [f"{text} {i};{label}" for i, (text, label) in enumerate(JUDGED * 2)]
    path = write(tmp_path / "a.csv", "\n".join(rows))
    with pytest.raises(UserError, match="first line looks like a text with its label, 'gut'"):
        read(path)
    assert len(read(path, label="gut")) == 7


def test_a_stream_knows_its_texts_by_the_labels_beside_them(tmp_path: Path) -> None:
    rows = [f"{text} {i};{label}" for i, (text, label) in enumerate(JUDGED * 500)]
    path = write(tmp_path / "a.csv", "\n".join(["Film;Urteil", *rows]))
    texts = [row.text for row in read_rows(path)]
    assert texts == read(path, label="Urteil").texts == list(read_texts(path))
    with pytest.raises(UserError, match="no column looks like the text"):
        list(read_texts(write(tmp_path / "b.csv", "Film;Urteil\nein Jammer;gut\n")))


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([(text, i) for i, (text, _) in enumerate(JUDGED)], {}),  # every value another
        ([(text, "gut") for text, _ in JUDGED], {}),  # and only one
        ([(label, label) for _, label in JUDGED], {}),  # both come back
        ([("ja", label) for _, label in JUDGED], {}),
        ([("so", "weder noch"), ("oh", "weder noch"), ("na", "mäßig"), ("hm", "mäßig")], {}),  # the longer one
        (JUDGED, {"text2": "b"}),  # a second text, and so no label
    ],
)
def test_no_label_is_guessed_where_values_leave_it_open(rows: list, options: dict) -> None:
    table = [{"a": a, "b": b} for a, b in rows]
    with pytest.raises(UserError, match="no column looks like the text") if not options else nullcontext():
        assert read(table, **options).labels is None


def test_the_text_that_is_named_is_no_label_though_its_values_come_back() -> None:
    table = [{"a": text, "b": label} for text, label in JUDGED]
    assert read(table, text="b").labels is None


def test_two_texts_are_no_text_and_its_label_though_one_comes_back() -> None:
    table = [{"premise": text, "hypothesis": label} for text, label in JUDGED]
    examples = read(table)
    assert isinstance(examples.texts[0], Pair)
    assert examples.labels is None


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_files_read_like_plain_ones(tmp_path: Path, suffix: str, compress) -> None:  # type: ignore[no-untyped-def]
    contents = {
        "a.csv": "text,label\nä,x\n",
        "a.jsonl": '{"text": "ä", "label": "x"}\n',
        "a.txt": "\nä\r\n \n",
    }
    for name, content in contents.items():
        path = tmp_path / (name + suffix)
        path.write_bytes(compress(content.encode()))
        assert read(path).texts == ["ä"]


@pytest.mark.parametrize(
    ("values", "kind", "labels"),
    [
        (["0", "1", "1"], "single", ["0", "1", "1"]),
        ([0, 1, None], "single", ["0", "1", ""]),
        ([1.0, 2.0, float("nan")], "single", ["1", "2", ""]),
        (["007", "008", "7"], "single", ["007", "008", "7"]),
        (["E10", "E11", "E10"], "single", ["E10", "E11", "E10"]),  # codes of diseases, and no mantissa
        (["+", ".", "-e5"], "single", ["+", ".", "-e5"]),
        ([".5e1", "-2.", "1E3"], "single", [".5e1", "-2.", "1E3"]),  # few whole numbers
        ([True, False, True], "single", ["True", "False", "True"]),
        ([0.5, 1, 2], "numeric", [0.5, 1.0, 2.0]),
        (["3.5", "-4", "nan"], "numeric", [3.5, -4.0, None]),
        ([["a", "b"], [], None], "multi", [("a", "b"), (), ""]),
        ([list(range(25)), [], []], "multi", [tuple(map(str, range(25))), (), ()]),
    ],
)
def test_the_kind_of_label_is_guessed_from_its_values(values: list, kind: str, labels: list) -> None:
    examples = read((["a", "b", "c"], values))
    assert examples.kind == kind
    assert [None if y != y else y for y in examples.labels] == labels


def test_several_labels_in_one_cell_need_a_separator(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,tags\na,x | y|x\nb,\nc,z\nd,[]\n")
    assert read(path, label_separator="|").labels == [("x", "y"), "", ("z",), ()]
    with pytest.raises(UserError, match=r"line 2: several labels expected.*label_separator"):
        read(path, kind="multi")


def test_names_without_a_separator_are_one_label_each_where_several_are_possible(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "__label__x a text\n__label__y another\n")
    assert read(path, kind="multi").labels == [("x",), ("y",)]
    path = write(tmp_path / "a.csv", "text,tags\na,x\nb,\nc,zwölf_z\n")
    assert read(path, kind="multi").labels == [("x",), "", ("zwölf_z",)]
    with pytest.raises(UserError, match="several labels expected"):
        read(write(tmp_path / "b.csv", "text,tags\na,x\nb,\nc,y z\n"), kind="multi")


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8-sig", "naïve"),
        ("utf-16", "हिन्दी"),
        ("utf-16-le", "plain words, nothing but ASCII"),
        ("utf-32", "x é"),
        ("latin-1", "Der Film war schön, größer als erwartet"),
        ("cp1252", "“Très bien” – 5 €"),
        ("cp1251", "Это очень хороший фильм, мне понравилось. Рекомендую всем друзьям"),
        ("koi8_r", "Это очень хороший фильм, мне понравилось. Рекомендую всем друзьям"),
        ("cp874", "นี่เป็นหนังที่ดีมาก ฉันชอบมันจริงๆ แนะนำให้เพื่อนทุกคน"),
        ("cp1253", "Αυτή είναι μια πολύ καλή ταινία, μου άρεσε."),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy"),
        ("gb18030", "这是一部非常好的电影，我很喜欢。推荐给所有朋友。"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*is not UTF-8")
def test_encodings_are_sniffed_and_can_be_named(tmp_path: Path, encoding: str, text: str) -> None:
    path = write(tmp_path / "a.csv", "text;label\n" + f'"{text}";x\n' * 4, encoding)
    assert set(read(path).texts) == {text}
    assert set(read(path, encoding=encoding).texts) == {text}


def test_a_quoted_header_says_that_quotes_are_quotes(tmp_path: Path) -> None:
    """Without the quotes this file too has two fields on every line."""
    path = write(tmp_path / "a.csv", '"text"\t"label"\n"one"\t"0\n\t"\n')
    assert read(path, kind="single").texts == ["one"]


def test_a_guessed_encoding_is_announced(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"a\.txt is not UTF-8 and was read as cp1252"):
        assert read(write(tmp_path / "a.txt", "café", "latin-1")).texts == ["café"]


@example(pairs=[("", "NaN")], delimiter=",")
@settings(max_examples=60)
@given(st.lists(st.tuples(ANY_TEXT, SOME_TEXT), min_size=1, max_size=6), st.sampled_from([",", ";", "\t"]))
def test_any_text_survives_csv(tmp_path_factory, pairs, delimiter) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writerows([("text", "label"), *pairs])
    examples = read(path, kind="single", encoding="utf-8")
    assert examples.texts == [text for text, _ in pairs]
    expected = [visible(y) for _, y in pairs if visible(y) not in ("", "nan", "NaN")]
    assert expected == [y for y in examples.labels or () if y]
    assert (examples.labels is None) == (not expected)


@settings(max_examples=60)
@given(st.lists(st.tuples(ANY_TEXT, SOME_TEXT), min_size=1, max_size=6), st.booleans())
def test_any_text_survives_json_lines(tmp_path_factory, pairs, escaped) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(json.dumps({"text": t, "label": y}, ensure_ascii=escaped) + "\n" for t, y in pairs)
    examples = read(path, kind="single")
    assert examples.texts == [text for text, _ in pairs]
    assert examples.lines == list(range(1, len(pairs) + 1))


def test_texts_stream_from_files_folders_and_patterns_in_order(tmp_path: Path) -> None:
    write(tmp_path / "b.txt", "one\n\n  \ntwo\n")
    write(tmp_path / "a.jsonl", '{"id": 1, "title": "t", "text": "three"}\n{"text": ""}\n{"text": null}\n')
    write(tmp_path / "c.csv", 'review,label\n"four\nlines",x\n')
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(b"five"))
    write(tmp_path / "notes.md", "not a text file")
    assert list(read_texts(tmp_path)) == ["three", "one", "two", "four\nlines", "five"]
    assert list(read_texts([tmp_path / "c.csv", str(tmp_path / "[ab].*")])) == [
        "four\nlines",
        "three",
        "one",
        "two",
    ]
    assert list(read_texts(tmp_path / "a.jsonl", text="title")) == ["t"]


def test_streaming_takes_memory_for_one_text_not_for_all(tmp_path: Path) -> None:
    path = tmp_path / "big.jsonl.gz"
    line = json.dumps({"text": "word " * 2000}).encode() + b"\n"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(2_000):  # 20 MB of text
            file.write(line)
    tracemalloc.start()
    total = sum(map(len, read_texts(path)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == 20_000_000
    assert peak < 8_000_000


def test_examples_keep_their_lines_when_taken() -> None:
    examples = Examples(texts=["a", "b", "c"], labels=["x", "y", "z"], kind="single")
    assert examples.take([2, 0]).where(0) == "<memory> line 3"
    assert examples.take([2, 0]).labels == ["z", "x"]


@pytest.mark.slow
def test_the_imdb_reviews_read_whole() -> None:
    path = Path(__file__).parents[2] / ".." / "shared" / "data" / "imdb" / "train.jsonl.xz"
    if not path.exists():
        pytest.skip("the IMDb reviews are not here")
    examples = read(path)
    assert len(examples) == 25_000
    assert sorted(set(examples.labels)) == ["neg", "pos"]
