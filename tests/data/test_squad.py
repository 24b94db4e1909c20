"""Files of questions: what is read, written, split, and how mistakes in them are told."""

from __future__ import annotations

import copy
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from textgraft.core.errors import UserError
from textgraft.data.squad import parse_squad, read_squad, split_articles, squad_json

CONTEXT = "The tower is 330 metres tall. It was built in 1889, and painted in 1892."


def content() -> dict[str, Any]:
    height = {"id": "a", "question": "How tall?", "answers": [{"text": "330 metres", "answer_start": 13}]}
    when = {"id": "b", "question": "When?", "answers": [{"text": "1889", "answer_start": 46}]}
    return {"version": "1.1", "data": [{"title": "Tower", "paragraphs": [{"context": CONTEXT, "qas": [height, when]}]}]}


def many(count: int) -> dict[str, Any]:
    """`count` articles of one question each."""
    articles = []
    for number in range(count):
        one = copy.deepcopy(content()["data"][0])
        one["title"] = f"Tower {number}"
        one["paragraphs"][0]["qas"] = [one["paragraphs"][0]["qas"][0] | {"id": str(number)}]
        articles.append(one)
    return {"data": articles}


def test_reads_what_it_writes(tmp_path: Path) -> None:
    squad = parse_squad(content())
    assert [(c, q.id, q.answers[0].text) for c, q in squad.asked()] == [
        (CONTEXT, "a", "330 metres"),
        (CONTEXT, "b", "1889"),
    ]
    assert squad_json(squad) == content()
    path = tmp_path / "tower.json.xz"
    path.write_bytes(lzma.compress(json.dumps(squad_json(squad)).encode("utf-8-sig")))
    again = read_squad(path)
    assert again.articles == squad.articles
    assert again.content_hash() == squad.content_hash()


def test_impossible_questions_stay_so() -> None:
    data = content()
    asked = data["data"][0]["paragraphs"][0]["qas"]
    asked[0]["is_impossible"] = False
    asked[1] |= {"is_impossible": True, "answers": [], "plausible_answers": [{"text": "1892", "answer_start": 67}]}
    squad = parse_squad(data)
    assert squad.has_impossible
    assert [q.impossible for _, q in squad.asked()] == [False, True]
    written = squad_json(squad)["data"][0]["paragraphs"][0]["qas"]
    assert [q["is_impossible"] for q in written] == [False, True]
    assert parse_squad(squad_json(squad)).articles == squad.articles


def wrong(change: Any) -> UserError:
    data = content()
    change(data, data["data"][0]["paragraphs"][0], data["data"][0]["paragraphs"][0]["qas"][1])
    with pytest.raises(UserError) as caught:
        parse_squad(data, source="f.json")
    return caught.value


@pytest.mark.parametrize(
    ("change", "where", "says"),
    [
        (lambda d, p, q: d.pop("data"), "f.json", "'data' is missing"),
        (lambda d, p, q: d.update(data={}), "f.json", "'data' is not a list"),
        (lambda d, p, q: d.update(data=[]), "f.json", "contains no question"),
        (lambda d, p, q: d.update(data=["x"]), "f.json article 1", "not a JSON object"),
        (lambda d, p, q: p.pop("context"), "f.json article 1 'Tower', paragraph 1", "'context' is missing"),
        (lambda d, p, q: q.pop("id"), "f.json article 1 'Tower', paragraph 1, question 2", "'id' is missing"),
        (lambda d, p, q: q.update(question=3), "paragraph 1, question 2 'b'", "'question' is not a string"),
        (
            lambda d, p, q: q.update(id="a"),
            "question 2 'a'",
            "paragraph 1, question 1 'a'",
        ),
        (lambda d, p, q: q.update(is_impossible=1), "question 2 'b'", "is not true or false"),
        (lambda d, p, q: q.update(is_impossible=True), "question 2 'b'", "it is impossible and has answers"),
        (lambda d, p, q: q["answers"][0].update(answer_start=True), "'b', answer 1", "is not a whole number"),
        (lambda d, p, q: q["answers"][0].update(text=""), "'b', answer 1", "the answer is empty"),
    ],
)
def test_mistakes_have_a_place(change: Any, where: str, says: str) -> None:
    error = wrong(change)
    assert where in error.where
    assert says in error.message


def test_an_answer_that_stands_elsewhere_is_told_with_what_is_there() -> None:
    error = wrong(lambda d, p, q: q["answers"][0].update(answer_start=45))
    assert "question 2 'b', answer 1" in error.where
    assert error.message == "'1889' is not at 45, where the context has ' 188'."
    assert error.remedy.startswith("It is at 46.")
    nowhere = wrong(lambda d, p, q: q["answers"][0].update(text="1890"))
    assert "'1890' is not at 46, where the context has '1889'." in nowhere.message
    assert "nowhere in the context" in nowhere.remedy
    before = wrong(lambda d, p, q: q["answers"][0].update(answer_start=-4))
    assert "the context has ''" in before.message


def test_remedies_name_what_is_wrong() -> None:
    misplaced = wrong(lambda d, p, q: q["answers"][0].update(answer_start=45)).remedy
    assert misplaced == 'It is at 46. Correct answer_start. misplaced="drop" leaves them out.'
    empty = wrong(lambda d, p, q: q["answers"][0].update(text="", answer_start=-1)).remedy
    assert empty.startswith("Give its text; a question without an answer has is_impossible: true")
    assert "answer_start" not in empty
    number = wrong(lambda d, p, q: q.update(id=2.0))
    assert number.message == "the id 2.0 is not a whole number."
    assert "whole numbers" in number.remedy


def test_misplaced_answers_can_be_left_out() -> None:
    data = content()
    data["data"][0]["paragraphs"][0]["qas"][1]["answers"] += [{"text": "1892", "answer_start": 3}]
    with pytest.warns(UserWarning, match="1 misplaced answers were left out; the first: .*question 2 'b', answer 2"):
        squad = parse_squad(data, misplaced="drop")
    assert [len(q.answers) for _, q in squad.asked()] == [1, 1]


def test_files_that_are_no_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for data in (b"{", b"\xff\xfe\x00", b"question,answer"):
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"a\.json line 1: (not valid JSON|byte 0x00 at offset 2 is not utf-16)"):
            read_squad(path)
    for text, message in (("[]", "contains no question"), ("5", "not a JSON object with 'data'")):
        path.write_text(text)
        with pytest.raises(UserError, match=message):
            read_squad(path)
    with pytest.raises(UserError, match=r"Did you mean 'a\.json'"):
        read_squad(tmp_path / "b.json")


def test_numbers_are_ids() -> None:
    data = content()
    for number, asked in enumerate(data["data"][0]["paragraphs"][0]["qas"]):
        asked["id"] = number
    assert [q.id for _, q in parse_squad(data).asked()] == ["0", "1"]
    data["data"][0]["paragraphs"][0]["qas"][1]["id"] = "0"
    with pytest.raises(UserError, match="the id '0' is also that of"):
        parse_squad(data)


def rows() -> list[dict[str, Any]]:
    questions = content()["data"][0]["paragraphs"][0]["qas"]
    flat = []
    for question in questions:
        answers = {key: [answer[key] for answer in question["answers"]] for key in ("text", "answer_start")}
        flat.append({"title": "Tower", "context": CONTEXT, **question, "answers": answers})
    return flat


def test_hugging_face_s_rows_paragraphs_and_articles_are_one(tmp_path: Path) -> None:
    expected = parse_squad(content())
    paragraphs = content()["data"][0]["paragraphs"]
    for name, records in {"rows": rows(), "articles": content()["data"], "paragraphs": paragraphs}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(records))
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        in_memory = parse_squad(records)
        for squad in (in_memory, *(read_squad(tmp_path / f"{name}.{suffix}") for suffix in ("json", "jsonl"))):
            assert list(squad.asked()) == list(expected.asked())
            assert (len(squad.articles), squad.rules) == (1, "1.1")
    assert parse_squad({"version": "v2.0", "data": rows()}).rules == "2.0"


@pytest.mark.parametrize("orient", ["columns", "index", "split", "records"])
def test_a_frame_of_pandas_is_its_rows(tmp_path: Path, orient: Any) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame(rows()).to_json(tmp_path / "a.json", orient=orient)
    assert read_squad(tmp_path / "a.json").articles == parse_squad(rows()).articles


def test_rows_of_a_data_set_or_of_parquet(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_list(rows())
    made.to_parquet(str(tmp_path / "a.parquet"))
    made.save_to_disk(str(tmp_path / "saved"))
    for path in (tmp_path / "a.parquet", tmp_path / "saved"):
        assert list(read_squad(path).asked()) == list(parse_squad(content()).asked())


def test_a_row_without_answers_is_impossible_and_counted() -> None:
    flat = rows()
    flat[1]["answers"] = {"text": [], "answer_start": []}
    with pytest.warns(UserWarning, match="1 questions with an empty list of answers are read as impossible"):
        squad = parse_squad(flat)
    assert [q.impossible for _, q in squad.asked()] == [False, True]
    assert (squad.version, squad.rules) == ("2.0", "2.0")


def test_null_counts_as_missing(tmp_path: Path) -> None:
    """A table writes it for every key that only other rows have."""
    asked, impossible = rows()
    flat = [asked | {"is_impossible": None}, impossible | {"answers": None, "is_impossible": True, "title": None}]
    flat.append(rows()[0] | {"id": "c", "answers": None, "is_impossible": None})
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in flat))
    squad = read_squad(path)
    assert {q.id: (len(q.answers), q.impossible) for _, q in squad.asked()} == {
        "a": (1, False),
        "b": (0, True),
        "c": (0, False),
    }
    data = content() | {"version": None}
    data["data"][0]["title"] = None
    assert parse_squad(data).version == "1.1"
    assert "'question' is missing" in wrong(lambda d, p, q: q.update(question=None)).message


def test_mistakes_in_rows_have_their_line(tmp_path: Path) -> None:
    flat = rows()
    flat[1]["answers"]["answer_start"] = [3]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in flat))
    with pytest.raises(UserError, match=r"a\.jsonl line 2 'b', answer 1: '1889' is not at 3"):
        read_squad(path)
    flat[1]["answers"]["answer_start"] = []
    with pytest.raises(UserError, match="1 answers have 0 starts"):
        parse_squad(flat)


def test_splits_are_by_article_and_stable() -> None:
    squad = parse_squad(many(20))
    left, held = split_articles(squad, 0.25, seed=3)
    assert (len(left), len(held)) == (15, 5)
    titles = {a.title for a in held.articles}
    assert titles.isdisjoint(a.title for a in left.articles)
    backwards = parse_squad({"data": many(20)["data"][::-1]})
    assert {a.title for a in split_articles(backwards, 0.25, seed=3)[1].articles} == titles
    more = parse_squad(many(24))  # six of them
    assert len({a.title for a in split_articles(more, 0.25, seed=3)[1].articles} & titles) >= 4
    assert {a.title for a in split_articles(squad, 0.25, seed=4)[1].articles} != titles


def test_articles_of_one_title_stay_together() -> None:
    data = many(6)
    for article in data["data"][::2]:
        article["title"] = "the same"
    for seed in range(8):
        sides = split_articles(parse_squad(data), 0.4, seed)
        assert sum("the same" in {a.title for a in side.articles} for side in sides) == 1


def test_what_cannot_be_split() -> None:
    with pytest.raises(UserError, match="cannot be split"):
        split_articles(parse_squad(content()), 0.5)
    with pytest.raises(UserError, match="cannot be held out"):
        split_articles(parse_squad(many(3)), 1.0)


def test_a_larger_sample_holds_a_smaller_one() -> None:
    squad = parse_squad(many(30))
    small, large = ({q.id for _, q in squad.sample(n).asked()} for n in (5, 12))
    assert (len(small), len(large)) == (5, 12)
    assert small < large
    assert len(squad.sample(100)) == 30
    assert len(squad.sample(5).articles) == 5
