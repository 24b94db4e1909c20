"""CoNLL files and schemes of tags: what comes in goes out, and a mistake is told with its line."""

from __future__ import annotations

import itertools
import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textgraft.core.errors import UserError
from textgraft.data.conll import (
    Sentence,
    Tagged,
    checked,
    conll_text,
    read_conll,
    sniff_columns,
    split_sentences,
    stream_sentences,
)
from textgraft.data.tags import (
    Entity,
    converted,
    detect,
    entities,
    illegal_positions,
    strict_entities,
    tag_names,
    tags_of,
)

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC
call NN I-NP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""
CONLLU = """# newdoc
# sent_id = 1
# text = Don't  go to "it"!
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
3.1\tmissing\t_\t_\t_\t_\t_\t_\t_\t_
4\tto\tto\tADP\tIN\t_\t6\tcase\t_\t_
5\t"\t"\tPUNCT\t``\t_\t6\tpunct\t_\tSpaceAfter=No
6\tit\tit\tPRON\tPRP\t_\t3\tobl\t_\tX=Y|SpaceAfter=No
7\t"\t"\tPUNCT\t''\t_\t6\tpunct\t_\tSpaceAfter=No
8\t!\t!\tPUNCT\t.\t_\t3\tpunct\t_\t_

# text = vámonos
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\t_\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\t_\t_\t1\tobj\t_\t_

"""


def write(folder: Path, text: str, name: str = "a.conll") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_columns_of_2003(tmp_path: Path) -> None:
    path = write(tmp_path, CONLL_2003)
    data = read_conll(path)
    assert [s.words for s in data.sentences] == [("EU", "rejects", "German", "call"), ("Peter", "Blackburn")]
    assert [s.tags for s in data.sentences] == [("B-ORG", "O", "B-MISC", "O"), ("B-PER", "I-PER")]
    assert (data.scheme, len(data), data.words) == ("IOB2", 2, 6)
    assert data.sentences[1].line == 8
    assert data.sentences[1].line_of(1) == 9
    assert data.sentences[0].text == "EU rejects German call"
    assert data.tags == ["O", "B-MISC", "I-MISC", "B-ORG", "I-ORG", "B-PER", "I-PER"]
    chunks = read_conll(path, tag="3")
    assert chunks.tags == ["O", "B-NP", "I-NP", "B-VP", "I-VP"]
    assert read_conll(path, tag="-3").tags == ["JJ", "NN", "NNP", "VBZ"]
    assert read_conll(path, tag="-3").scheme == "plain"


def test_conllu_knows_where_words_stand(tmp_path: Path) -> None:
    data = read_conll(write(tmp_path, CONLLU, "a.conllu"))
    first, second = data.sentences
    assert first.text == 'Don\'t go to "it"!'
    assert (
        [first.text[a:b] for a, b in first.spans] == list(first.words) == ["Do", "n't", "go", "to", '"', "it", '"', "!"]
    )
    assert (second.text, second.spans) == ("vámonos", ((0, 7), (0, 7)))
    assert first.tags[:3] == ("AUX", "PART", "VERB")
    assert data.scheme == "plain"
    assert read_conll(tmp_path / "a.conllu", tag="deprel").sentences[0].tags[:2] == ("aux", "advmod")
    assert read_conll(tmp_path / "a.conllu", word="lemma").sentences[0].text == 'do not go to " it " !'


@pytest.mark.parametrize("text", [CONLL_2003 + "\n", CONLLU, "a\tX\n\nb\tY\n\n"])
def test_what_comes_in_goes_out(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    columns = sniff_columns(path)
    found = list(stream_sentences(path, columns))
    assert conll_text(found, [s.tags for s in found], columns) == text
    changed = conll_text(found, [["T"] * len(s) for s in found], columns)
    path.write_text(changed)
    assert {tag for s in stream_sentences(path, columns) for tag in s.tags} == {"T"}
    assert [s.words for s in stream_sentences(path, columns)] == [s.words for s in found]


def test_a_file_of_words_alone(tmp_path: Path) -> None:
    path = write(tmp_path, "one\ntwo\n\n#three\n")
    columns = sniff_columns(path)
    found = list(stream_sentences(path, columns))
    assert ([s.words for s in found], columns.tag) == ([("one", "two"), ("#three",)], None)
    assert conll_text(found, [["A", "B"], ["C"]], columns) == "one A\ntwo B\n\n#three C\n\n"
    assert conll_text(found, [["A", "B"], ["C"]]) == "one\tA\ntwo\tB\n\n#three\tC\n\n"
    with pytest.raises(UserError, match="no tags"):
        read_conll(path)


def test_spaces_and_hashes_are_words_and_lines_of_tabs_are_empty(tmp_path: Path) -> None:
    path = write(tmp_path, "#tag\tO\r\n \tB-x\r\nno\u00a0break\tI-x\r\n\t\r\nend\tO")
    data = read_conll(path)
    assert [s.words for s in data.sentences] == [("#tag", " ", "no\u00a0break"), ("end",)]
    packed = tmp_path / "b.conll.xz"
    packed.write_bytes(lzma.compress(path.read_bytes()))
    assert read_conll(packed).content_hash() == data.content_hash()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a O\nb\n", ["line 2", "1 columns, and others have 2"]),
        ("a O O\n\nb O O O\n", ["line 3", "4 columns"]),
        ("", ["not one word"]),
        ("\n \n", ["not one word"]),
        (
            "a O\nb I-x\n\nc B-x\nd I-y\ne B-z\nf B-y\ng B-x\n",
            ["line 2", "I-x may not follow O in IOB2", "2 such tags"],
        ),
        ("a B-x\nb E-x\n\nc S-x\nd B-x\n", ["line 5", "the end of a sentence may not follow B-x in BIOES"]),
        ("a B-x\nb I-x\nc Bx\n", ["line 3", "'Bx' is no tag of an entity"]),
        ("1\ta\ta\tX\t_\t_\t_\t_\t_\t_\n2\tb\tb\t_\t_\t_\t_\t_\t_\t_\n", ["line 2", "'b' has no tag"]),
        ("1\ta\ta\tX\t_\t_\t_\t_\t_\t_\nx\tb\tb\tY\t_\t_\t_\t_\t_\t_\n", ["line 2", "'x' is no number"]),
    ],
)
def test_mistakes_are_told_with_their_lines(tmp_path: Path, text: str, told: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        read_conll(write(tmp_path, text))
    assert all(part in str(caught.value) for part in told), str(caught.value)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = write(tmp_path, CONLL_2003)
    for options, told in (
        ({"tag": "5"}, "there is no column 5, but 4"),
        ({"tag": "0"}, "there is no column 0"),
        ({"tag": "ner"}, "no column 'ner'"),
        ({"tag": "1"}, "words and tags are one column"),
    ):
        with pytest.raises(UserError, match=told):
            read_conll(path, **options)
    with pytest.raises(UserError, match="Did you mean 'upos'"):
        read_conll(write(tmp_path, CONLLU), tag="uposs")
    with pytest.raises(UserError, match="no such file"):
        read_conll(tmp_path / "none.conll")
    with pytest.raises(UserError, match="illegal_tags is 'x'"):
        read_conll(path, illegal_tags="x")


def test_illegal_tags_can_begin_entities(tmp_path: Path) -> None:
    path = write(tmp_path, "a O\nb I-x\nc B-y\nd B-x\n")
    with pytest.warns(UserWarning, match="1 tags that IOB2 does not allow.*line 2"):
        data = read_conll(path, illegal_tags="repair")
    assert data.sentences[0].tags == ("O", "B-x", "B-y", "B-x")


def test_schemes_are_recognised_and_converted() -> None:
    iob2 = ["B-x", "I-x", "O", "B-y", "B-y"]
    same = {
        "IOB1": ["I-x", "I-x", "O", "I-y", "B-y"],
        "IOB2": iob2,
        "BIOES": ["B-x", "E-x", "O", "S-y", "S-y"],
    }
    for scheme, tags in same.items():
        assert detect([tags]) == scheme
        assert entities(tags) == [Entity("x", 0, 1), Entity("y", 3, 3), Entity("y", 4, 4)]
        for other, expected in same.items():
            assert converted(tags, other) == expected
    bilou = Tagged((Sentence.of("abcde", ["B-x", "L-x", "O", "U-y", "U-y"]),))
    assert list(checked(bilou).sentences[0].tags) == iob2
    assert detect([["NN", "B", "O"]]) == "plain"
    assert detect([["O", "O"]]) == "IOB2"
    assert tag_names([["B", "I", "O"]], "IOB2") == ["O", "B", "I"]


spans = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("xy")), max_size=5)


@settings(max_examples=150)
@given(spans, st.sampled_from(["IOB1", "IOB2", "BIOES"]))
def test_entities_survive_every_scheme(drawn: list[tuple[int, int, str]], scheme: str) -> None:
    found, at = [], 0
    for gap, length, kind in drawn:
        found.append(Entity(kind, at + gap, at + gap + length - 1))
        at += gap + length
    tags = tags_of(found, at + 1, scheme)
    assert entities(tags) == found
    assert strict_entities(tags, scheme) == found
    assert illegal_positions(tags, scheme) == []


def test_legal_is_what_entities_can_be_written_as() -> None:
    """Of all tags of three words, the legal ones are those that come back from their entities."""
    for scheme, places in (("IOB1", "BI"), ("IOB2", "BI"), ("BIOES", "BIES")):
        names = ["O", *(f"{p}-{t}" for p in places for t in "xy")]
        for tags in itertools.product(names, repeat=3):
            comes_back = tags_of(entities(tags), 3, scheme) == list(tags)
            assert comes_back == (illegal_positions(tags, scheme) == []), (scheme, tags)


def test_samples_are_nested_and_splits_keep_twins_together() -> None:
    sentences = tuple(Sentence.of([str(i % 20), "a"], ["X", "Y"]) for i in range(40))
    data = Tagged(sentences)
    small, large = data.sample(5), data.sample(12)
    assert (len(small), len(large)) == (5, 12)
    assert {s.words for s in small.sentences} <= {s.words for s in large.sentences}
    left, held = split_sentences(data, 0.25, 3)
    assert (len(left), len(held)) == (30, 10)
    assert not {s.words for s in left.sentences} & {s.words for s in held.sentences}
    with pytest.raises(UserError, match="a share of 1"):
        split_sentences(data, 1.0)
    with pytest.raises(UserError, match="cannot be split"):
        split_sentences(Tagged(sentences[:1]), 0.5)


def test_a_stream_holds_one_sentence(tmp_path: Path) -> None:
    path = write(tmp_path, "a\tX\n\n" * 1000 + "broken\n")
    stream = stream_sentences(path, sniff_columns(path))
    assert [next(stream).line for _ in range(1000)] == list(range(1, 2001, 2))
    with pytest.raises(UserError, match="line 2001"):
        next(stream)
