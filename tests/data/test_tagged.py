"""Tagged sentences in every format that annotation tools write: the same entities, or an error with its place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import textgraft
from textgraft.core.errors import UserError
from textgraft.data.conll import read_conll
from textgraft.data.tagged import format_name, read_tagged

TEXT = "Anna Novak left Bern."
WORDS = ("Anna", "Novak", "left", "Bern", ".")
TAGS = ("B-PER", "I-PER", "O", "B-LOC", "O")
SPANS: list[list[Any]] = [[0, 10, "PER"], [16, 20, "LOC"]]
TOKENS = [{"text": "Anna", "start": 0, "end": 4}, {"text": "Novak", "start": 5, "end": 10}]
TOKENS += [{"text": "left", "start": 11, "end": 15}, {"text": "Bern", "start": 16, "end": 20}]
TOKENS += [{"text": ".", "start": 20, "end": 21}]


def named(start: str = "start", end: str = "end", label: str = "label", **more: Any) -> list[dict[str, Any]]:
    return [{start: a, end: b, label: kind, **more} for a, b, kind in SPANS]


STUDIO = {"start": 0, "end": 10, "text": "Anna Novak", "labels": ["PER"]}
STUDIO_2 = {"start": 16, "end": 20, "text": "Bern", "labels": ["LOC"]}
RESULTS = [{"type": "labels", "value": STUDIO}, {"type": "labels", "value": STUDIO_2}]
BILUO = [{"orth": w, "ner": t} for w, t in zip(WORDS, ("B-PER", "L-PER", "O", "U-LOC", "O"), strict=True)]
RECORDS: dict[str, Any] = {
    "Hugging Face": {"tokens": list(WORDS), "ner_tags": list(TAGS)},
    "words": {"words": list(WORDS), "labels": list(TAGS)},
    "doccano": {"id": 1, "text": TEXT, "label": SPANS},
    "doccano, labels": {"id": 1, "text": TEXT, "labels": SPANS},
    "doccano, relations": {"text": TEXT, "entities": named("start_offset", "end_offset"), "relations": []},
    "Prodigy": {"text": TEXT, "tokens": TOKENS, "spans": named(token_start=0), "answer": "accept"},
    "spaCy's to_json": {"text": TEXT, "ents": named(), "tokens": [{"id": i, **t} for i, t in enumerate(TOKENS)]},
    "spaCy's pairs": [TEXT, {"entities": SPANS}],
    "spaCy's training data": {"id": 0, "paragraphs": [{"raw": TEXT, "sentences": [{"tokens": BILUO}]}]},
    "Label Studio": {"id": 7, "data": {"text": TEXT}, "annotations": [{"result": RESULTS}]},
    "Label Studio, short": {"text": TEXT, "id": 7, "ner": [STUDIO, STUDIO_2], "annotator": 1},
}


def write(folder: Path, records: Sequence[Any], name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.mark.parametrize("layout", ["lines", "list", "indented"])
@pytest.mark.parametrize("kind", RECORDS)
def test_every_tool_s_json_has_these_entities(tmp_path: Path, kind: str, layout: str) -> None:
    path = write(tmp_path, [RECORDS[kind]] * 2)
    if layout != "lines":
        path = tmp_path / "a.json"
        path.write_text(json.dumps([RECORDS[kind]] * 2, indent=2 if layout == "indented" else None))
    data = textgraft.read_tagged(path)
    assert [(s.words, s.tags) for s in data.sentences] == [(WORDS, TAGS)] * 2
    has_text = "text" in str(RECORDS[kind]) or kind == "spaCy's pairs"
    assert (data.scheme, data.sentences[0].text) == ("IOB2", TEXT if has_text else " ".join(WORDS))
    assert data.sentences[1].where(0) == ("line 2" if layout == "lines" else "item 2")


@pytest.mark.parametrize("name", ["a.conll", "a.txt", "a"])
def test_json_is_json_whatever_its_suffix(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, [RECORDS["doccano"]], name)
    assert read_tagged(path).sentences[0].tags == TAGS
    with pytest.raises(UserError, match=r"line 1: this is JSON, not columns of words\. Use textgraft\.read_tagged"):
        read_conll(path)


@pytest.mark.parametrize("line", ["{ O", "[ O", "{\tO", '" O', "[\tO"])
def test_words_that_begin_like_json_are_words(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.conll"
    path.write_text(f"{line}\nBern B-LOC\n".replace(" ", "\t" if "\t" in line else " "))
    assert read_tagged(path).sentences[0].tags == ("O", "B-LOC")


def test_numbers_need_names(tmp_path: Path) -> None:
    path = write(tmp_path, [{"tokens": list(WORDS), "ner_tags": [1, 2, 0, 3, 0]}])
    with pytest.raises(UserError, match=r"a.jsonl line 1: tags are numbers \(1\).*Name them .* with tag_names=…"):
        read_tagged(path)
    assert read_tagged(path, tag_names=["O", "B-PER", "I-PER", "B-LOC"]).sentences[0].tags == TAGS
    with pytest.raises(UserError, match="there is no name for the tag 3, but 3 names"):
        read_tagged(path, tag_names=["O", "B-PER", "I-PER"])


def test_a_data_set_and_its_parquet_have_the_names(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    strings = datasets.Sequence(datasets.Value("string"))
    classes = datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER", "I-PER", "B-LOC"]))
    data = {"tokens": [list(WORDS)], "ner_tags": [[1, 2, 0, 3, 0]]}
    made = datasets.Dataset.from_dict(data, features=datasets.Features({"tokens": strings, "ner_tags": classes}))
    made.save_to_disk(str(tmp_path / "saved"))
    made.to_parquet(str(tmp_path / "a.parquet"))
    for path in (tmp_path / "saved", tmp_path / "a.parquet"):
        assert [(s.words, s.tags) for s in read_tagged(path).sentences] == [(WORDS, TAGS)]


@pytest.mark.parametrize("orient", ["columns", "index", "split", "records"])
def test_a_frame_of_pandas_is_its_rows(tmp_path: Path, orient: Any) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"tokens": [["Rome", "fell"], ["Ann"]], "tags": [["B-LOC", "O"], ["B-PER"]]})
    frame.to_json(tmp_path / "a.json", orient=orient)
    read = read_tagged(tmp_path / "a.json")
    assert [(list(s.words), list(s.tags)) for s in read.sentences] == list(
        zip(frame["tokens"], frame["tags"], strict=True)
    )


def test_of_several_fields_of_tags_one_is_named(tmp_path: Path) -> None:
    record = {"tokens": ["Bern"], "pos_tags": ["NOUN"], "ner_tags": ["B-LOC"]}
    path = write(tmp_path, [record])
    with pytest.warns(UserWarning, match="the tags are read from 'ner_tags', and not from 'pos_tags'. Name another"):
        assert read_tagged(path).sentences[0].tags == ("B-LOC",)
    assert read_tagged(path, tag="pos_tags").sentences[0].tags == ("NOUN",)
    with pytest.raises(UserError, match=r"line 1: there is no 'pos'\. Name one of 'tokens', 'pos_tags', 'ner_tags'"):
        read_tagged(path, tag="pos")


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([[0, 7, "PER"]], r"'Anna No' \(0 to 7, PER\) cuts the word 'Novak'"),
        ([[1, 10, "PER"]], r"'nna Novak' \(1 to 10, PER\) cuts the word 'Anna'"),
        ([[0, 10, "PER"], [5, 15, "ORG"]], r"'Novak left' \(5 to 15, ORG\) overlaps 'Anna Novak' \(0 to 10, PER\)"),
        ([[0, 10, "PER"], [0, 10, "ORG"]], "overlaps"),
        ([[16, 40, "LOC"]], r"16 to 40 \(LOC\) is no part of the text of 21 characters"),
        ([[-4, 3, "LOC"]], "is no part of the text"),
        ([[3, 3, "LOC"]], "is no part of the text"),
        ([[4, 5, "LOC"]], "covers no word"),
        (
            [{"start": 0, "end": 4, "label": "PER", "text": "Bern"}],
            "the annotation says 'Bern' at 0 to 4, where",
        ),
    ],
)
def test_spans_that_do_not_fit_are_reported(tmp_path: Path, spans: list[Any], message: str) -> None:
    path = write(tmp_path, [RECORDS["doccano"], {"text": TEXT, "spans": spans}])
    with pytest.raises(UserError, match=message) as caught:
        read_tagged(path)
    assert caught.value.where == f"{path} line 2"
    assert 'illegal_spans="repair"' in caught.value.remedy


def test_repaired_spans_are_counted(tmp_path: Path) -> None:
    cut = {"text": TEXT, "spans": [[1, 7, "PER"], [16, 20, "LOC"], [17, 19, "LOC"], [30, 31, "LOC"]]}
    path = write(tmp_path, [cut, RECORDS["doccano"]])
    with pytest.warns(UserWarning, match="spans that do not fit") as warned:
        data = read_tagged(path, illegal_spans="repair")
    assert [s.tags for s in data.sentences] == [TAGS, TAGS]
    messages = [str(w.message) for w in warned]
    assert any(
        m.startswith("2 spans that do not fit the words were extended to whole words; the first:") for m in messages
    )
    assert any(m.startswith("2 spans that do not fit the words were left out; the first:") for m in messages)
    assert all(f"{path} line 1: " in message for message in messages)


def test_spaces_at_the_ends_of_a_span_cut_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, [{"text": TEXT, "spans": [[0, 11, "PER"], [15, 20, "LOC"], [15, 20, "LOC"]]}])
    assert read_tagged(path).sentences[0].tags == TAGS


def test_an_emoji_is_one_character(tmp_path: Path) -> None:
    path = write(tmp_path, [{"text": "🎉 Bern", "spans": [[2, 6, "LOC"]]}])
    assert read_tagged(path).sentences[0].tags == ("O", "B-LOC")


def test_examples_that_were_not_accepted_are_left_out(tmp_path: Path) -> None:
    records = [RECORDS["Prodigy"], {**RECORDS["Prodigy"], "answer": "reject"}]
    with pytest.warns(UserWarning, match="1 examples are left out: not accepted by the annotator; .* line 2"):
        assert len(read_tagged(write(tmp_path, records))) == 1
    records = [RECORDS["Label Studio"], {**RECORDS["Label Studio"], "annotations": []}]
    with pytest.warns(UserWarning, match="1 examples are left out: not annotated"):
        assert len(read_tagged(write(tmp_path, records, "b.jsonl"))) == 1


def test_texts_without_a_field_of_spans_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, [RECORDS["doccano"], {"text": "Nobody came."}])
    with pytest.warns(UserWarning, match="1 of 2 texts have no field of spans and count as without entities"):
        assert read_tagged(path).sentences[1].tags == ("O", "O", "O")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"text": TEXT}, "line 1: there are words or a text, and neither tags nor spans. .*textgraft finetune"),
        ({"text": TEXT, "label": "news"}, "neither tags nor spans"),
        ({"text": TEXT, "label": ["news", "sport"]}, "neither tags nor spans"),
        ({"question": TEXT}, "there are no words and no text"),
        ({"tokens": ["a", "b"], "tags": ["O"]}, "line 1: 2 words have 1 tags"),
        ({"text": TEXT, "spans": [[0, "4", "PER"]]}, "is no span with a label"),
        ({"text": TEXT, "spans": [{"start": 0, "end": 4}]}, "is no span with a label"),
        (5, "a JSON int where an object is expected"),
    ],
)
def test_json_without_tags_is_an_error(tmp_path: Path, record: Any, message: str) -> None:
    path = write(tmp_path, [record])
    with pytest.raises(UserError, match=message) as caught:
        read_tagged(path)
    assert str(path) in caught.value.where


def test_damaged_json_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(RECORDS["doccano"]) + '\n{"text": "Ann\n')
    with pytest.raises(UserError, match="line 2: not valid JSON"):
        read_tagged(path)
    path.write_text('[\n{"text": "Ann"},\n{"text" 5}\n]')
    with pytest.raises(UserError, match="line 3: not valid JSON"):
        read_tagged(path)


BRAT = "Anna Novak left Bern.\r\n\r\nShe came back to New Delhi.\r\n"
ANN = "T1\tPER 0 10\tAnna Novak\nT2\tLOC 16 20\tBern\nT3\tLOC 42 45;46 51\tNew Delhi\nR1\tlives Arg1:T1 Arg2:T2\n"


def write_brat(folder: Path, ann: str = ANN, name: str = "a") -> Path:
    (folder / f"{name}.txt").write_bytes(BRAT.encode())
    (folder / f"{name}.ann").write_text(ann)
    return folder / f"{name}.ann"


def test_brat(tmp_path: Path) -> None:
    path = write_brat(tmp_path)
    for source in (path, tmp_path / "a.txt", tmp_path):
        data = read_tagged(source)
        assert [s.words for s in data.sentences] == [WORDS, ("She", "came", "back", "to", "New", "Delhi", ".")]
        assert [s.tags for s in data.sentences] == [TAGS, (*"OOOO", "B-LOC", "I-LOC", "O")]
        assert data.sentences[1].where(0) == "a.txt line 3"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("T9\tLOC 16 20;25 28\tBern She", "'Bern She' .LOC. is in several pieces"),
        ("T9\tLOC 16 28\tBern. She", r"16 to 28 \(LOC\) is not within one line"),
        ("T9\tLOC 900 902\tNo", "is not within one line"),
        ("T9\tPER 12 15\teft", "cuts the word 'left'"),
        ("T9\tPER 11 15\twent", "the annotation says 'went' at 11 to 15, where the text has 'left'"),
        ("T9\tPER zero", "this is no entity with start and end"),
    ],
)
def test_brat_with_spans_that_do_not_fit(tmp_path: Path, line: str, message: str) -> None:
    path = write_brat(tmp_path, f"{ANN}{line}\n")
    with pytest.raises(UserError, match=message) as caught:
        read_tagged(path)
    assert caught.value.where == f"{path} line 5"


def test_brat_without_its_text(tmp_path: Path) -> None:
    path = write_brat(tmp_path)
    (tmp_path / "a.txt").unlink()
    with pytest.raises(UserError, match=r"a\.txt: no such file"):
        read_tagged(path)


def test_formats_that_would_be_misread(tmp_path: Path) -> None:
    for name, message in (("a.spacy", "spaCy's binary format"), ("a.csv", "not read from tables")):
        path = write(tmp_path, [], name)
        with pytest.raises(UserError, match=message):
            read_tagged(path)
    assert format_name(write(tmp_path, [], "a.conll")) == "conll"


def test_unknown_policies(tmp_path: Path) -> None:
    path = write(tmp_path, [RECORDS["doccano"]])
    with pytest.raises(UserError, match=r"illegal_spans is 'move'\. Known: refuse, repair"):
        read_tagged(path, illegal_spans="move")  # type: ignore[arg-type]
