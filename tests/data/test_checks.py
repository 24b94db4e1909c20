"""The check finds each thing that is wrong with data, says where, and keeps quiet about the rest."""

import io
import json
import time
from pathlib import Path

import pytest
from rich.console import Console

from textgraft.data.checks import check
from textgraft.data.examples import Examples
from textgraft.data.problems import has_errors, refusing_missing_labels, render, to_json
from textgraft.data.readers import read


def labelled(texts: list, labels: list | None = None, **options: object) -> Examples:
    """Examples that nothing is wrong with but for what the test gives."""
    clean = [f"An ordinary remark number {i} about the weather" for i in range(12)]
    classes = ["neg", "pos"] * 6
    given = labels if labels is not None else ["pos"] * len(texts)
    return read((clean + texts, classes + given), **options)


def found(problems: list) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {problem.name: (problem.severity, problem.lines) for problem in problems}


def test_many_classes_are_compared_in_time_that_grows_with_them() -> None:
    texts = [f"An ordinary remark number {i}" for i in range(20_000)]
    began = time.process_time()
    assert "joined-classes" not in found(check(read((texts, [f"class {i}" for i in range(20_000)]))))
    assert time.process_time() - began < 30  # minutes where each class is compared to each


@pytest.mark.parametrize(
    "names", [("Hypertension", "Hypertension, Pulmonary"), ("1", "1,5"), ("C", "C++"), ("a", "a|")]
)
def test_names_with_separators_are_names(names: tuple[str, str]) -> None:
    assert "joined-classes" not in found(check(read(([f"text {i}" for i in range(20)], [*names] * 10))))


def test_clean_data_has_no_problem() -> None:
    assert check(labelled([]), test=read((["Something new", "Else"], ["pos", "neg"])), unlabelled=read(["x y z"])) == []


@pytest.mark.parametrize(
    ("texts", "labels", "name", "severity", "rows"),
    [
        (["", " \n"], None, "empty-text", "warning", (13, 14)),
        (["one", "two"], [None, float("nan")], "missing-label", "warning", (13, 14)),
        (["same", "other", "same"], None, "duplicate", "warning", (15,)),
        (["Same  text", "same TEXT\n"], None, "near-duplicate", "note", (14,)),
        (["It is good", "it is  good"], ["pos", "neg"], "conflicting-labels", "warning", (13, 14)),
        (["rare one"], ["odd"], "rare-class", "warning", (13,)),
        (["one", "two"], ["Pos ", "POS"], "similar-classes", "warning", (14, 13)),
        (["both", "one", "one more"], ["pos | neg", "pos", "neg"], "joined-classes", "warning", (13,)),
        (["both", "one", "one more"], ["neg; other", "neg", "neg"], "joined-classes", "warning", (13,)),
        (["none", "one", "one more"], ["N/A", "neg", "null"], "no-label-class", "note", (13, 15)),
        (["x " * 20_000], None, "too-long", "warning", (13,)),
        (
            ["CafÃ© olÃ©", "donâ€™t", "lost \ufffd sign", "à¸ªà¸§à¸±à¸ªà¸”à¸µ"],
            None,
            "mis-decoded",
            "warning",
            (13, 14, 15, 16),
        ),
        (["a\0b"], None, "control-characters", "warning", (13,)),
        (["lo\ufeffvely", "won\u00adder", "می\u200cخواهم 👩\u200d👧"], None, "invisible-characters", "note", (13, 14)),
        (["lovely day", "lo\u200bvely\u00a0day"], None, "near-duplicate", "note", (14,)),
        (["good<br /><br />film", "salt &amp; pepper", "I <3 it; a<b"], None, "html", "note", (13, 14)),
    ],
)
def test_each_problem_is_found_where_it_is(texts: list, labels: list, name: str, severity: str, rows: tuple) -> None:
    problems = found(check(labelled(texts, labels)))
    assert problems[name][0] == severity
    assert sorted(problems[name][1]) == sorted(rows)


def test_invisible_characters_are_counted_by_name() -> None:
    texts = ["The café was lo\ufeffvely", "soft\u00adly, soft\u00adly", "he\u200cllo"]
    (problem,) = check(labelled(texts))
    assert problem.message == (
        "3 texts with invisible characters (U+00AD soft hyphen: 2, U+FEFF zero width no-break space: 1, "
        "U+200C zero width non-joiner: 1)."
    )


@pytest.mark.parametrize("text", ["NÃO É ASSIM", "Â la carte", "25 °C – “naïve” café", "สวัสดีครับ", "шутка", "à la mode"])
def test_sound_text_is_not_called_garbled(text: str) -> None:
    assert check(labelled([text])) == []


@pytest.mark.parametrize("names", [["-1", "1"], ["C", "C++"], ["1.0", "10"]])
def test_classes_that_only_look_alike_are_left_alone(names: list[str]) -> None:
    assert check(read(([f"text {i}" for i in range(10)], names * 5), kind="single")) == []


@pytest.mark.slow
def test_a_hundred_thousand_texts_of_five_thousand_classes_take_seconds() -> None:
    texts = [f"a short text number {i}" for i in range(100_000)]
    examples = read((texts, [f"class {i % 5000}" for i in range(100_000)]))
    start = time.process_time()
    assert found(check(examples, rare=25)) == {"rare-class": ("warning", tuple(range(1, 101)))}
    assert time.process_time() - start < 10


def test_one_class_no_labels_and_no_text_are_errors() -> None:
    assert found(check(read((["a", "b"], ["x", "x"]))))["one-class"][0] == "error"
    assert found(check(read((["a", "b"], [0.5, 0.5]))))["one-class"][0] == "error"
    assert found(check(read(["a", "b"])))["no-labels"][0] == "error"
    assert found(check(read((["", " "], ["x", "y"]))))["no-text"][0] == "error"


def test_duplicate_ids_are_errors_and_name_every_row() -> None:
    rows = [{"id": i, "text": f"text {i} {n}", "label": "ab"[n % 2]} for n, i in enumerate([1, 2, 1, 3, None, None])]
    assert found(check(read(rows), rare=1)) == {"duplicate-id": ("error", (1, 3))}


@pytest.mark.parametrize("ids", [["a", "A", "a ", "á", "a\u0301"], ["a?", "a\ud800", "a\ud801", "", ""]])
def test_ids_that_differ_in_any_character_are_others(ids: list[str]) -> None:
    part = Examples([f"text {i}" for i in range(5)], ["x", "y"] * 2 + ["x"], "single", ids)
    assert not found(check(part, rare=1))


def test_a_test_set_that_leaks_is_an_error_unless_it_is_a_text_in_a_hundred() -> None:
    train = labelled(["Leaked text"])
    test = read((["leaked  TEXT", *(f"new {i}" for i in range(5))], ["pos"] * 6))
    assert found(check(train, test=test)) == {"test-leak-training": ("error", (1,))}
    large = read((["leaked  TEXT", *(f"new {i}" for i in range(200))], ["pos"] * 201))
    assert found(check(train, test=large)) == {"test-leak-training": ("warning", (1,))}
    pool = read(["something", "New 3"])
    assert found(check(labelled([]), test=test, unlabelled=pool)) == {"test-leak-unlabelled": ("warning", (5,))}


def test_a_validation_set_that_leaks_is_told_as_a_test_set_is() -> None:
    train, pool = labelled(["Leaked text"]), read(["something", "New 3"])
    valid = read((["leaked  TEXT", *(f"new {i}" for i in range(5))], ["pos"] * 6))
    told = {"validation-leak-training": ("error", (1,)), "validation-leak-unlabelled": ("warning", (5,))}
    assert found(check(train, valid=valid, unlabelled=pool)) == told
    large = read((["leaked  TEXT", *(f"new {i}" for i in range(200))], ["pos"] * 201))
    assert found(check(train, valid=large)) == {"validation-leak-training": ("warning", (1,))}
    (leak,) = check(train, valid=large)
    assert "1 text of the validation set (0.5%) are in the training texts too." in leak.message


def test_a_test_text_that_chose_the_epoch_is_told() -> None:
    valid = read((["one", "two", "three"], ["pos", "neg", "pos"]))
    test = read((["four", "TWO", "five"], ["pos", "neg", "neg"]))
    assert found(check(labelled([]), valid=valid, test=test)) == {"test-leak-validation": ("warning", (2,))}
    assert found(check(labelled([]), valid=test, test=read((["six"], ["pos"])))) == {}


def test_labels_of_the_validation_set_must_be_known_and_there() -> None:
    valid = read((["one", "two", "three"], ["pos", "poss", None]))
    assert found(check(labelled([]), valid=valid)) == {
        "unseen-label": ("warning", (2,)),
        "missing-label": ("warning", (3,)),
    }
    problems = check(labelled([]), valid=read(["one"]), test=read(["two"]))
    assert [p.name for p in problems] == ["no-labels", "no-labels"]


def test_labels_of_the_test_set_must_be_known_and_there() -> None:
    test = read((["one", "two", "three"], ["pos", "poss", None]))
    assert found(check(labelled([]), test=test)) == {
        "unseen-label": ("warning", (2,)),
        "missing-label": ("warning", (3,)),
    }
    assert found(check(labelled([]), test=read(["one"])))["no-labels"][0] == "error"


def test_several_labels_and_numbers_are_checked_as_such() -> None:
    sets = [["a"], ["b"], [], ["a", "b"]] * 5 + [["a", "rare"]]
    texts = [f"text {i}" for i in range(len(sets))]
    assert found(check(read((texts, sets)))) == {"rare-class": ("warning", (21,))}
    twice = read((["same", "same", "x"], [["a", "b"], ["b", "a"], []]))
    assert "conflicting-labels" not in found(check(twice))
    assert found(check(read((["a", "b", "c"], [0.5, 1.5, None])))) == {"missing-label": ("warning", (3,))}


def test_tokens_beyond_the_limit_are_told_as_a_share() -> None:
    examples = labelled(["word " * 100])
    problems = check(examples, count_tokens=lambda texts: [len(t.split()) for t in texts], max_tokens=50)
    (problem,) = problems
    assert (problem.name, problem.lines) == ("truncated", (13,))
    assert f"{50 / (12 * 8 + 100):.1%}" in problem.message


def test_errors_come_first_and_lines_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,label\n"<p>\n\nfine</p>",pos\nbad,neg\nlost,\n')
    problems = check(read(path), rare=1)
    assert [p.severity for p in problems] == ["warning", "note"]
    assert [p.lines for p in problems] == [(6,), (2,)]
    assert not has_errors(problems)
    refused = refusing_missing_labels(problems[::-1])
    assert [p.severity for p in refused] == ["error", "note"]
    assert has_errors(refused)
    assert not has_errors(refused[1:])
    assert json.loads(json.dumps(to_json(problems)))[0]["name"] == "missing-label"


def test_the_rendering_names_severity_place_finding_and_remedy(tmp_path: Path) -> None:
    for name, text in [("pos/1.txt", "good"), ("neg/1.txt", "bad"), ("neg/2.txt", "bad")]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    out = io.StringIO()
    render(check(read(tmp_path), rare=1), Console(file=out, width=200))
    assert out.getvalue().split("\n")[:2] == [
        f"warning {tmp_path} file neg/2.txt: 1 text repeated word for word. Take the copies out.",
        "1 warning",
    ]
    out = io.StringIO()
    render([], Console(file=out))
    assert out.getvalue() == "Nothing wrong found.\n"


def test_the_places_of_a_frequent_problem_are_counted_not_listed() -> None:
    (problem,) = check(labelled([f"<br/> {i}" for i in range(500)], ["pos", "neg"] * 250))
    assert problem.count == 500
    assert len(problem.lines) == 100
    out = io.StringIO()
    render([problem], Console(file=out, width=300))
    assert "rows 13, 14, 15, 16, 17, 18, 19, 20, …: 500 texts" in out.getvalue()


@pytest.mark.slow
def test_imdb_has_the_leak_it_is_known_for() -> None:
    folder = Path(__file__).parents[2] / ".." / "shared" / "data" / "imdb"
    if not folder.exists():
        pytest.skip("the IMDb reviews are not here")
    problems = check(read(folder / "train.jsonl.xz"), test=read(folder / "test.jsonl.xz"))
    assert {p.name: p.count for p in problems}["test-leak-training"] == 123
    assert not has_errors(problems)
