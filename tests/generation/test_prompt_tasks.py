"""textgraft.prompt and complete: probabilities by hand, what is shown and what is answered, how good it was."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_reviews import reviews

from textgraft import GenerateOptions, PromptOptions, UserError, complete, generate, prompt, score
from textgraft.data.examples import Choice, Examples, Pair
from textgraft.generation.prompt_tasks import Answer, Prompted
from textgraft.generation.prompting import Template
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.text.byte_level import train_byte_level

TEMPLATE = Template(
    "mine", "", "{text}\nMood: {label}.", verbaliser={"neg": ("bad", "awful"), "pos": ("good",)}, instruction="Judge."
)
TEXTS = Examples(["A fine film", "Dull", "So long", "I liked it"], ["pos", "neg", "neg", "pos"], "single")
POOL = Examples([f"film {i}" for i in range(10)], ["pos", "neg"] * 5, "single")


@pytest.fixture(scope="module")
def gpt() -> Artifact:
    return tiny("gpt", max_length=400)


def tiny(family: str, **settings: Any) -> Artifact:
    tokenizer = train_byte_level(reviews(60, 5)[0], vocab_size=300)
    shape = {"gpt": {"num_heads": 2}, "awd_lstm": {"hidden_dim": 6}}[family]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = {"name": family, "vocab_size": tokenizer.vocab_size, "embedding_dim": 8, "num_layers": 2}
        head = {"name": "language_model", "vocab_size": tokenizer.vocab_size, "input_dim": 8}
        made = build({"encoder": encoder | shape | settings, "head": head}).eval()
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return Artifact(made, tokenizer)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def by_hand(model: Artifact, beginning: str) -> np.ndarray:
    """(neg, pos): the probabilities of the template's words after a prompt, two words of one label averaged."""
    words = [" bad.", " awful.", " good."]
    bad, awful, good = (np.exp(s.log_probability) for s in score(model, [beginning] * 3, words, precision="fp32"))
    both = np.array([(bad + awful) / 2, good])
    return both / both.sum()


def asked(**settings: Any) -> PromptOptions:
    return PromptOptions(**{"precision": "fp32", **settings})


def test_zero_shot_probabilities_by_hand(gpt: Artifact) -> None:
    found = prompt(gpt, TEXTS, TEMPLATE, options=asked())
    for text, answer in zip(TEXTS.texts, found.answers, strict=True):
        expected = by_hand(gpt, f"Judge.\n\n{text}\nMood:")
        assert list(answer.probabilities) == ["neg", "pos"]
        assert list(answer.probabilities.values()) == pytest.approx(expected, rel=1e-3)
        assert answer.label == ["neg", "pos"][int(expected.argmax())]
    assert found.demonstrations == []


def test_few_shot_calibrated_by_hand(gpt: Artifact) -> None:
    found = prompt(gpt, TEXTS, TEMPLATE, options=asked(shots=2, calibrate=True, seed=3), examples=POOL)
    shown = "".join(part + "\n\n" for part in ["Judge.", *found.demonstrations])
    assert sorted(d.endswith("good.") for d in found.demonstrations) == [False, True]
    nothing = np.mean([by_hand(gpt, f"{shown}{said}\nMood:") for said in ("N/A", "[MASK]", "")], axis=0)
    for text, answer in zip(TEXTS.texts, found.answers, strict=True):
        expected = by_hand(gpt, f"{shown}{text}\nMood:") / nothing
        assert list(answer.probabilities.values()) == pytest.approx(expected / expected.sum(), rel=1e-3)
    plain = prompt(gpt, TEXTS, TEMPLATE, options=asked(shots=2, seed=3), examples=POOL)
    assert [a.probabilities for a in plain.answers] != [a.probabilities for a in found.answers]


def test_a_text_without_content_is_even_after_calibration(gpt: Artifact) -> None:
    """With one content-free text there would be exactly a half; the mean of the three's shares is."""
    template = Template("one", "", "{text}\nMood: {label}", verbaliser={"a": ("bad",), "b": ("good",)})
    free = Examples(["N/A", "[MASK]", ""], None)
    plain = np.array([list(a.probabilities.values()) for a in prompt(gpt, free, template, options=asked()).answers])
    found = prompt(gpt, free, template, options=asked(calibrate=True)).answers
    expected = plain / plain.mean(0)
    for answer, row in zip(found, expected / expected.sum(1, keepdims=True), strict=True):
        assert list(answer.probabilities.values()) == pytest.approx(row, rel=1e-4)


@pytest.mark.parametrize("family", ["gpt", "awd_lstm"])
def test_the_same_seed_asks_the_same(family: str) -> None:
    model = tiny(family)
    first, again, other = (
        prompt(model, TEXTS, TEMPLATE, options=asked(shots=3, seed=seed), examples=POOL) for seed in (1, 1, 2)
    )
    assert first == again
    assert first.demonstrations != other.demonstrations
    assert all(p.shots == 3 for p in first.prompts)


def test_examples_are_never_among_the_answered(gpt: Artifact) -> None:
    found = prompt(gpt, POOL, TEMPLATE, options=asked(shots=4))
    shown = {d.split("\n")[0] for d in found.demonstrations}
    assert len(shown) == 4
    assert shown | set(found.texts.texts) == set(POOL.texts)
    assert not shown & set(found.texts.texts)
    assert [found.texts.line(i) for i in range(6)] == [int(t[5:]) + 1 for t in found.texts.texts]
    same = Examples(["A fine film", "film 1", "film 2"], ["neg", "neg", "pos"], "single")
    for seed in range(5):
        drawn = prompt(gpt, TEXTS, TEMPLATE, options=asked(shots=2, seed=seed), examples=same).demonstrations
        assert not any("A fine film" in d for d in drawn)
    with pytest.raises(UserError, match="none is left to predict"):
        prompt(gpt, TEXTS, TEMPLATE, options=asked(shots=4))


def test_prompts_that_lose_examples_say_so() -> None:
    small = tiny("gpt", max_length=60)
    texts = Examples(["short", "word " * 12, "word " * 60], None)
    with pytest.warns(UserWarning, match="room") as said:
        found = prompt(small, texts, TEMPLATE, options=asked(shots=3), examples=POOL)
    assert [p.shots for p in found.prompts][1:] == [0, 0]
    assert [p.is_cut for p in found.prompts] == [False, False, True]
    assert 0 < found.prompts[0].shots < 3
    assert [str(w.message) for w in said] == [
        "3 of 3 prompts have room for fewer than 3 examples; the fewest have 0.",
        "1 of 3 texts were truncated for lack of room.",
    ]
    with pytest.warns(UserWarning, match="1 of 1 prompts have room for fewer than 3"):
        few = prompt(tiny("awd_lstm"), ["short"], TEMPLATE, options=asked(shots=3, max_tokens=50), examples=POOL)
    assert 0 < few.prompts[0].shots < 3


def test_choices_and_pairs(gpt: Artifact) -> None:
    rows = [Choice("It rained.", ["All got wet.", "The sun shone on us.", "No."]), Choice("He ran.", ["Why?", "Yes."])]
    found = prompt(gpt, Examples(rows, ["3", "1"], "choice"), "choice", options=asked(scoring="length"))
    for row, answer in zip(rows, found.answers, strict=True):
        scored = score(gpt, [row.context] * len(row.options), [f" {o}" for o in row.options], precision="fp32")
        best = int(np.argmax([s.log_probability / s.tokens for s in scored]))
        assert (answer.label, answer.option) == (str(best + 1), row.options[best])
        assert list(answer.probabilities) == [str(i + 1) for i in range(len(row.options))]
    assert found.evaluate()["texts"] == 2
    calibrated = prompt(gpt, Examples(rows), "choice", options=asked(calibrate=True))
    assert all(sum(a.probabilities.values()) == pytest.approx(1) for a in calibrated.answers)
    pairs = Examples([Pair("It rained.", "It was wet.")], ["entailment"], "single")
    assert "It rained.\nquestion: It was wet. True" in prompt(gpt, pairs, "entailment", options=asked()).prompts[0].text


def test_labels_are_their_own_words(gpt: Artifact) -> None:
    template = Template("own", "", "{text}: {label}")
    found = prompt(gpt, ["a", "b"], template, options=asked(), examples=POOL)
    assert list(found.answers[0].probabilities) == ["neg", "pos"]
    assert found.prompts[0].options == (" neg", " pos")


def test_evaluation_by_hand() -> None:
    texts = Examples(list("abcde"), ["x", "x", "", "y", "x"], "single")
    answers = [Answer(label, {"x": p, "y": 1 - p}) for label, p in [("x", 0.9), ("y", 0.2), ("x", 0.6), ("y", 0.4)]]
    found = Prompted(texts, [*answers, Answer("y", {"x": 0.1, "y": 0.9})], [], []).evaluate()
    assert found["texts"] == 4
    assert found["accuracy"]["mean"] == 0.5
    assert found["accuracy"]["low"] <= 0.5 <= found["accuracy"]["high"]
    assert (found["most_frequent"]["label"], found["most_frequent"]["mean"]) == ("x", 0.75)
    assert found["difference"] == {"points": -25.0, "p": 1.0}
    assert found["metrics"]["log_loss"] == pytest.approx(-np.log([0.9, 0.2, 0.6, 0.1]).mean())
    with pytest.raises(UserError, match="no labels to evaluate"):
        Prompted(Examples(["a"]), answers[:1], [], []).evaluate()


def test_what_is_written(gpt: Artifact) -> None:
    wanted = GenerateOptions(max_tokens=5, precision="fp32")
    found = complete(gpt, ["One text", "Another"], "summarise", options=asked(), generation=wanted)
    plain = generate(gpt, ["One text\nTL;DR:", "Another\nTL;DR:"], wanted)
    assert [f.ids for f in found] == [p.ids for p in plain]
    assert [f.text for f in found] == [p.text.strip() for p in plain]
    pairs = Examples(["yes", "no"], ["oui", "non"], "single")
    shown = complete(gpt, ["good"], "translate", options=asked(shots=2), examples=pairs, generation=wanted)
    orders = [generate(gpt, [o + "good ="], wanted)[0].ids for o in ("yes = oui\nno = non\n", "no = non\nyes = oui\n")]
    assert shown[0].ids in orders
    small = tiny("gpt", max_length=40)
    with pytest.warns(UserWarning, match="1 of 1 texts were truncated"):
        assert len(complete(small, ["word " * 50], "summarise", options=asked(), generation=wanted)[0].ids) == 5


def test_mistakes(gpt: Artifact, tiny_lm: Path) -> None:
    wrong = Examples(["a", "b"], ["pos", "negg"], "single")
    for message, ask in (
        ("no words for the label 'negg'.*Did you mean 'neg'", lambda: prompt(gpt, wrong, TEMPLATE)),
        ("no words for the label 'negg'", lambda: prompt(gpt, TEXTS, TEMPLATE, examples=wrong)),
        ("generates answers", lambda: prompt(gpt, TEXTS, "summarise")),
        ("has no max_tokens", lambda: complete(gpt, TEXTS, TEMPLATE)),
        ("no examples to show", lambda: complete(gpt, TEXTS, "translate", options=asked(shots=1))),
        ("fewer than two labels to choose from", lambda: prompt(gpt, ["a"], Template("own", "", "{text} {label}"))),
        ("options of their own", lambda: prompt(gpt, Examples([Choice("a", ["b", "c"])]), TEMPLATE)),
        ("of another kind", lambda: prompt(gpt, Examples(["a", "b"], [1.0, 2.5], "numeric"), TEMPLATE)),
        ("unknown scoring 'lenght'.*Did you mean 'length'", lambda: asked(scoring="lenght")),
        ("shots is -1", lambda: asked(shots=-1)),
        ("max_tokens is 0", lambda: asked(max_tokens=0)),
    ):
        with pytest.raises(UserError, match=message):
            ask()
    backward = tiny("awd_lstm", direction="right")
    with pytest.raises(UserError, match="is not left-to-right"):
        prompt(backward, TEXTS, TEMPLATE)
