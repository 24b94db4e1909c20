"""Templates and prompts: what a file may say, what stands in a prompt, what it loses, what a seed decides."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textgraft import Tokenizer, UserError
from textgraft.data.examples import Choice, Examples, Pair
from textgraft.generation.prompting import Prompt, Template, build, demonstrations, draw, load_template, room
from textgraft.training.recipes import recipe_names

GOOD = 'name = "mine"\ndescription = "For tests"\nexample = "Review: {text}\\nMood: {label}."\n'
MOOD = Template("mine", "", "Review: {text}\nMood: {label}.", verbaliser={"pos": ("good", "fine"), "neg": ("bad",)})
POOL = Examples([f"text {i}" for i in range(12)], ["pos"] * 9 + ["neg"] * 3, "single")
TOKENIZER = Tokenizer.train(["Review: text Mood: good bad fine . 0 1 2 3 4 5 6 7 8 9"] * 2, kind="word")


@pytest.mark.parametrize("name", recipe_names("prompts"))
def test_every_template_that_ships_can_be_used(name: str) -> None:
    template = load_template(name)
    assert template.name == name
    assert template.writes != bool(template.verbaliser or name in ("choice", "question"))
    text = Pair("one", "two") if "{text2}" in template.example else "one"
    assert "one" in template.question(text)
    assert not template.question(text).endswith((" ", "\n"))
    assert "{" not in template.question(text) + template.answer("yes")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("name = ", ["not a TOML file"]),
        (GOOD + 'seperator = " "', ["seperator", "Did you mean 'separator'"]),
        (GOOD.replace('description = "For tests"\n', ""), ["'description' is missing"]),
        (GOOD.replace("{text}", "{txt}"), ["unknown field '{txt}' in example", "Did you mean 'text'"]),
        (GOOD.replace("{text}", "it"), ["no {text} in example"]),
        (GOOD.replace("{label}", "it"), ["no {label} in example"]),
        (GOOD.replace("{label}.", "{label} {text2}"), ["a field comes after {label}"]),
        (GOOD + 'instruction = "Look at {text}"', ["only example may have fields"]),
        (GOOD + "max_tokens = -1", ["max_tokens is below 0"]),
        (GOOD + "max_tokens = 5\nverbaliser = {a = ['x'], b = ['y']}", ["both max_tokens and a verbaliser"]),
        (GOOD + 'separator = ["a"]', ["separator", "valid string"]),
        (GOOD + "[verbaliser]\npos = 'good'\nneg = ['bad']", ["verbaliser.pos"]),
        (GOOD + "[verbaliser]\npos = ['good', 3]\nneg = ['bad']", ["verbaliser.pos.2"]),
        (GOOD + "[verbaliser]\npos = [' ']\nneg = ['bad']", ["no word for 'pos'"]),
        (GOOD + "[verbaliser]\npos = []\nneg = ['bad']", ["no word for 'pos'"]),
        (GOOD + "[verbaliser]\npos = ['good']", ["one label only"]),
    ],
)
def test_a_malformed_template_is_named_with_file_and_key(tmp_path: Path, content: str, parts: list[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        load_template(str(path))
    assert caught.value.where.startswith(str(path))
    for part in parts:
        assert part in str(caught.value)


def test_a_good_template_and_an_unknown_name(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD + "[verbaliser]\npos = ['good', 'fine']\nneg = ['bad']")
    assert load_template(str(tmp_path / "mine.toml")) == Template(
        "mine", "For tests", MOOD.example, verbaliser=MOOD.verbaliser
    )
    with pytest.raises(UserError, match="Did you mean 'sentiment'"):
        load_template("sentimnt")


def test_what_an_example_reads() -> None:
    assert MOOD.question("{label} of {text}") == "Review: {label} of {text}\nMood:"
    assert MOOD.answer("good") == " good."
    assert MOOD.words("pos") == ("good", "fine")
    asks = Template("asks", "", "{text}|{text2}|{label}")
    assert asks.question(Pair("a", "b")) + asks.answer("c") == "a|b|c"
    assert asks.question(Choice("a", ["x", "y"], "b")) == "a|b|"
    assert demonstrations(asks, Examples([Choice("a", ["x", "y"], "b")], ["2"], "choice"), [0]) == ["a|b|y"]
    assert demonstrations(MOOD, POOL, [0, 11]) == ["Review: text 0\nMood: good.", "Review: text 11\nMood: bad."]
    with pytest.raises(UserError, match=r"needs \{text2\}, which the data lack"):
        asks.question("a")
    with pytest.raises(UserError, match=r"does not use \{text2\}"):
        MOOD.question(Pair("a", "b"))


def anything_fits(prompt: Prompt) -> bool:
    return True


def test_instruction_examples_and_text_in_their_order() -> None:
    template = Template("mine", "", "{text}: {label}", instruction="Judge.", separator=" ## ")
    prompt = build(template, "new", shown=["a: b", "c: d"], options=[" b", " d"], fits=anything_fits)
    assert prompt.text == "Judge. ## a: b ## c: d ## new:"
    assert prompt.shared == "Judge. ## a: b ## c: d ## "
    assert (prompt.shots, prompt.is_cut, prompt.options) == (2, False, (" b", " d"))
    assert build(template, "new", shown=[], options=[" b"], fits=anything_fits).text == "Judge. ## new:"


def test_what_is_drawn_is_stratified_and_decided_by_the_seed() -> None:
    draws = {seed: draw(POOL, 4, seed) for seed in range(30)}
    labels = POOL.labels or ()
    assert all(Counter(labels[i] for i in d) == {"pos": 3, "neg": 1} for d in draws.values())
    assert draws[7] == draw(POOL, 4, 7)
    assert len({tuple(d) for d in draws.values()}) > 20
    assert len({[labels[i] for i in d].index("neg") for d in draws.values()}) == 4  # in any place of the four
    for seed in range(10):
        assert set(draw(POOL, 3, seed)) < set(draw(POOL, 6, seed))
    assert draw(Examples(["a"]), 0, 0) == []


@pytest.mark.parametrize(
    ("pool", "shots", "message"),
    [
        (Examples(["a", "b"]), 1, "one answer each"),
        (Examples(["a", "b"], [1.0, 2.0], "numeric"), 1, "one answer each"),
        (POOL, 13, "13 examples are more than the 12 with"),
        (Examples(["a", "b", " "], ["x", "", "y"], "single"), 2, "2 examples are more than the 1 with"),
    ],
)
def test_too_few_examples(pool: Examples, shots: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        draw(pool, shots, 0)


@given(st.integers(9, 60))
def test_whole_examples_go_from_the_left_and_only_then_the_text(most: int) -> None:
    shown = demonstrations(MOOD, POOL, [0, 1, 2])
    options = [" good.", " bad."]
    long = "text 1 2 3 4 5 6"
    prompt = build(MOOD, long, shown=shown, options=options, fits=room(TOKENIZER, most))

    def read(shots: int) -> int:
        text = "".join(s + "\n\n" for s in shown[3 - shots :]) + MOOD.question(long)
        return len(TOKENIZER.encode(text + " good.").ids) - 1

    expected = next((shots for shots in (3, 2, 1, 0) if read(shots) <= most), None)
    if expected is None:
        assert prompt.is_cut
        assert prompt.shots == 0
        assert prompt.own_text.startswith("Review: ")
        assert prompt.own_text.endswith("\nMood:")
        kept = prompt.own_text[len("Review: ") : -len("\nMood:")]
        assert long.startswith(kept)
        assert len(TOKENIZER.encode(prompt.text + " good.").ids) - 1 <= most
    else:
        assert (prompt.shots, prompt.is_cut) == (expected, False)
        assert prompt.shared == "".join(s + "\n\n" for s in shown[3 - expected :])


def test_a_template_without_room_for_a_text() -> None:
    with pytest.raises(UserError, match="no room for the template 'mine', even without a text"):
        build(MOOD, "text", shown=[], options=[" good."], fits=room(TOKENIZER, 3))


def test_the_longest_option_counts() -> None:
    fits: Any = room(TOKENIZER, 12)
    question = MOOD.question("text")
    assert fits(Prompt("", question, (" good.",)))
    assert not fits(Prompt("", question, (" good.", " 1 2 3 4 5 6 7 8 9")))
