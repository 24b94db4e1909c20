"""What data was read as, told in two lines for each part."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from textgraft.data.examples import Choice, Examples, Pair
from textgraft.data.overview import UNLABELLED, Overview, overview, render, to_json
from textgraft.data.readers import read

SINGLE = Examples(["bad", "good", "so good"], ["neg", "pos", "pos"], "single", source="a.csv")


def told(**parts: Examples) -> list[str]:
    out = io.StringIO()
    render({name: overview(part) for name, part in parts.items()}, Console(file=out, width=40))
    return out.getvalue().splitlines()


def test_texts_labels_and_lengths_are_counted() -> None:
    assert overview(SINGLE) == Overview(
        source="a.csv",
        texts=3,
        reads="texts",
        kind="single",
        labels={"pos": 2, "neg": 1},
        values=(),
        median=4,
        longest=7,
        first=("bad", "neg"),
    )


def test_two_lines_tell_a_person_what_was_read() -> None:
    pool = Examples(["one\ttext [b]of[/b] it\n", "x"], source="pool.txt")
    assert told(training=SINGLE, unlabelled=pool) == [
        "training    a.csv: 3 texts of 4 characters (median; at most 7); labels pos: 2, neg: 1",
        "            “bad” is neg",
        "unlabelled  pool.txt: 2 texts of 1 characters (median; at most 22)",
        "            “one text [b]of[/b] it”",
    ]


def test_a_guessed_column_shows(tmp_path: Path) -> None:
    rows = [f"Ein Film von {i} Stunden;{'gut' if i % 2 else 'schlecht'}" for i in range(8)]
    (tmp_path / "films.csv").write_text("\n".join(["Film;Urteil", *rows]))
    with pytest.warns(UserWarning, match="Urteil"):
        found = overview(read(tmp_path / "films.csv"))
    assert (found.first, found.labels) == (("Ein Film von 0 Stunden", "schlecht"), {"schlecht": 4, "gut": 4})


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (replace(SINGLE, labels=["neg", "", "pos"]), f"labels neg: 1, {UNLABELLED}: 1, pos: 1"),
        (replace(SINGLE, labels=[("a", "b"), (), ("b",)], kind="multi"), "labels (several a text) b: 2, a: 1"),
        (replace(SINGLE, labels=[1.0, float("nan"), 4.5], kind="numeric"), "numbers from 1 to 4.5 (median 2.75)"),
        (Examples([str(i) for i in range(45)], [f"c{i % 9}" for i in range(45)], "single"), "and 3 more of 5 each"),
        (Examples([Choice("Rain.", ["wet", "dry"], "Effect?")], ["1"], "choice"), "1 question of 21 characters"),
        (Examples([Pair("A man.", "One.")], ["yes"], "single"), "1 pair of 11 characters"),
    ],
)
def test_every_kind_of_label_and_text(part: Examples, said: str) -> None:
    assert said in told(training=part)[0]


def test_pairs_and_questions_show_their_parts() -> None:
    assert told(training=Examples([Pair("A man.", "One.")], ["yes"], "single"))[1].strip() == "“A man. | One.” is yes"
    choice = Examples([Choice("Rain.", ["wet", "dry"], "Effect?")], ["1"], "choice")
    assert told(training=choice)[1].strip() == "“Rain. | Effect? | wet | dry” is 1"


def test_a_long_text_is_cut_and_no_character_of_a_file_reaches_a_terminal_as_a_command() -> None:
    text, _ = overview(Examples(["\x1b[31mred " + "word " * 100_000])).first
    assert text.startswith("[31mred word")
    assert len(text) <= 80
    assert text.endswith("…")


def test_nothing_at_all() -> None:
    assert overview(Examples([])).first == ("", None)
    assert told(training=Examples([" ", ""], ["a", ""], "single"))[0].endswith(f"labels a: 1, {UNLABELLED}: 1")


def test_programs_get_the_same() -> None:
    said = json.loads(json.dumps(to_json({"training": overview(SINGLE)})))
    assert said["training"]["labels"] == {"pos": 2, "neg": 1}
    assert said["training"]["first"] == ["bad", "neg"]
