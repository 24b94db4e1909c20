"""Learning curves: the same nested samples for all, numbers that survive a kill, and what is said of them."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_reviews import reviews

import textgraft
from textgraft import fasttext_classifier
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.splits import nested_order
from textgraft.errors import UserError
from textgraft.evaluation import Comparison, Outcome
from textgraft.learning_curve import budget_verdict, efficiency_verdicts, holm, label_efficiency, labels_needed, winner
from textgraft.methods import METHODS, Answers, MethodOptions
from textgraft.stages import compare as stage

RECIPE = """
name = "quick"
description = "For tests"
source = "none"

[adapt]
rows = 8
bptt = 35

[[adapt.phases]]
name = "all"
epochs = 1
lr = 0.01

[finetune]
rows = 8

[[finetune.phases]]
name = "all"
epochs = 2
lr = 0.01
"""
UNEVEN = ["a"] * 60 + ["b"] * 30 + ["c"] * 9 + ["d"]


def examples(count: int = 40, seed: int = 1) -> Examples:
    texts, labels = reviews(count, seed)
    return Examples(texts, labels, "single")


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fasttext_classifier, "LEAST_READ", 600)


@pytest.fixture
def quick(tmp_path: Path, tiny_lm: Path) -> MethodOptions:
    (tmp_path / "quick.toml").write_text(RECIPE)
    return MethodOptions(model=tiny_lm, recipe=str(tmp_path / "quick.toml"), max_tokens=32, show=False)


def test_samples_are_nested_and_stratified() -> None:
    uneven = Examples([str(i) for i in range(100)], UNEVEN, "single")
    orders = [nested_order(uneven, seed) for seed in range(20)]
    for order in orders:
        assert sorted(order) == list(range(100))
        assert {UNEVEN[i] for i in order[:4]} == set("abcd")  # one of each before a second of any
        for count in range(4, 101):
            drawn = Counter(UNEVEN[i] for i in order[:count])
            for name, n in Counter(UNEVEN).items():
                assert abs(drawn[name] - n * count / 100) <= 1.5, (name, count, drawn)
    assert len({tuple(order) for order in orders}) == 20
    assert {order[0] for order in orders} != {orders[0][0]}
    assert nested_order(uneven, 3) == orders[3]


@pytest.mark.parametrize(
    ("labels", "kind"),
    [([float(i) for i in range(30)], "numeric"), ([("x",), ("x", "y"), ()] * 10, "multi"), (None, None)],
)
def test_numbers_and_sets_of_labels_are_drawn_too(labels: Any, kind: Any) -> None:
    order = nested_order(Examples([str(i) for i in range(30)], labels, kind), 0)
    assert sorted(order) == list(range(30))
    if kind == "numeric":
        assert {i // 3 for i in order[:10]} == set(range(10))  # one of each decile


@pytest.mark.parametrize(
    ("curve", "score", "found"),
    [
        ([(10, 0.5), (1_000, 0.7)], 0.6, ("about", 100.0)),  # half way up is half way along the logarithm
        ([(10, 0.5), (1_000, 0.7)], 0.55, ("about", math.sqrt(1_000))),
        ([(10, 0.5), (1_000, 0.7)], 0.7, ("about", 1_000.0)),
        ([(10, 0.5), (1_000, 0.7)], 0.5, ("at most", 10.0)),
        ([(10, 0.5), (1_000, 0.7)], 0.2, ("at most", 10.0)),
        ([(10, 0.5), (1_000, 0.7)], 0.71, ("not reached", None)),
        ([(10, 0.5), (100, 0.7), (1_000, 0.6)], 0.7, ("about", 100.0)),  # the first crossing counts
        ([(10, 0.6), (100, 0.5), (1_000, 0.7)], 0.65, ("about", 10**2.75)),
        ([(10, 0.5), (100, 0.5)], 0.5, ("at most", 10.0)),
        ([(10, 0.5)], 0.6, ("not reached", None)),
    ],
)
def test_labels_needed(curve: list, score: float, found: tuple) -> None:
    how, needed = labels_needed(curve, score)
    assert (how, needed) == (found[0], pytest.approx(found[1]))
    mirrored = [(labels, -value) for labels, value in curve]
    assert labels_needed(mirrored, -score, lower_is_better=True) == (how, needed)


def test_label_efficiency_is_told_for_every_pair() -> None:
    curves = {"good": [(10, 0.7), (1_000, 0.9)], "bad": [(10, 0.5), (1_000, 0.7)]}
    entries = {(e["method"], e["at"]): e for e in label_efficiency(curves)}
    assert len(entries) == 4
    assert entries["bad", 10] == {
        "method": "bad",
        "reaches": "good",
        "at": 10,
        "score": 0.7,
        "how": "about",
        "labels": 1_000,
    }
    assert (entries["bad", 1_000]["how"], entries["bad", 1_000]["labels"]) == ("not reached", None)
    assert (entries["good", 10]["how"], entries["good", 10]["labels"]) == ("at most", 10)
    assert json.loads(json.dumps(list(entries.values()))) == list(entries.values())


def compared(**right: list[float]) -> Comparison:
    """Methods on 100 texts of class 1, each right on the share given for each seed, its wrong texts the last ones."""
    outcomes = []
    for name, shares in right.items():
        yes = np.array([np.arange(100) < 100 * share for share in shares], dtype=float)
        outputs = np.stack([1 - yes, yes], axis=2)
        outcomes.append(Outcome(name, outputs, outputs, 0.0, 0.0))
    return Comparison(Labels("single", ("no", "yes")), np.ones(100, dtype=int), tuple(outcomes))


def test_the_winner_is_told_apart_from_every_other() -> None:
    comparison = compared(low=[0.5, 0.55], high=[0.9, 0.92], middle=[0.7, 0.7])
    found = winner(comparison)
    assert (found["name"], found["leader"], set(found["tests"])) == ("high", "high", {"low", "middle"})
    assert found["tests"]["middle"]["difference"] == pytest.approx(0.21)
    told = budget_verdict(comparison, found, 50)
    assert told.startswith("50 labels: high (91.0 % [")
    assert "better than every other method, the closest, middle, by 21.0 points (p < 0.001)." in told


def test_no_winner_where_one_other_is_as_good() -> None:
    comparison = compared(low=[0.5], high=[0.9], near=[0.88])
    found = winner(comparison)
    assert (found["name"], found["leader"]) == (None, "high")
    assert found["tests"]["low"]["p_holm"] < 0.001
    told = budget_verdict(comparison, found, 1_000)
    assert told.startswith("1,000 labels: no significant difference between high (90.0 % [")
    assert ") and near (p = 0.5" in told  # two texts, one in two chances
    assert "low" not in told
    three = compared(high=[0.9], near=[0.88], nearer=[0.89])
    assert "), near and nearer (p = 1.000)." in budget_verdict(three, winner(three), 5)
    alone = compared(only=[0.5])
    assert winner(alone) == {"name": None, "leader": "only", "tests": {}}
    assert "no other method was run" in budget_verdict(alone, winner(alone), 10)


def test_many_comparisons_ask_for_more_evidence() -> None:
    six_texts = 2 * 0.5**6  # the exact McNemar test
    found = winner(compared(a=[0.9], b=[0.84]))
    assert (found["name"], found["tests"]["b"]["p"]) == ("a", pytest.approx(six_texts))
    found = winner(compared(a=[0.9], b=[0.84], c=[0.84], d=[0.84]))
    assert found["name"] is None
    assert found["tests"]["d"]["p_holm"] == pytest.approx(3 * six_texts)


def test_the_winner_of_errors_has_the_smallest() -> None:
    truth = np.linspace(-1, 1, 50)
    near, far = (Outcome(n, (truth + e)[None], (truth + e)[None], 0.0, 0.0) for n, e in (("near", 0.1), ("far", 0.9)))
    comparison = Comparison(Labels("numeric", mean=3.0, std=2.0), truth, (far, near))
    found = winner(comparison)
    assert found["name"] == "near"
    assert found["tests"]["far"]["difference"] == pytest.approx(-1.6)  # in the user's unit


def test_holm() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == pytest.approx({"a": 1.0, "b": 1.0})
    assert holm({}) == {}


def test_efficiency_is_said_only_of_winners() -> None:
    def entry(labels: int, name: str | None) -> dict[str, Any]:
        return {"labels": labels, "winner": {"name": name}, "methods": {"a": {"accuracy": {"mean": 0.8}}}}

    curves = {"a": [(10, 0.8), (100, 0.9)], "b": [(10, 0.7), (100, 0.9)], "c": [(10, 0.5), (100, 0.6)]}
    results = {"metric": "accuracy", "label_efficiency": label_efficiency(curves)}
    told = efficiency_verdicts(results | {"budgets": [entry(10, "a"), entry(100, "a")]})
    assert told == ["Labels for what a has with 10 (80.0 %): b about 32; not reached with 100 labels by c."]
    assert efficiency_verdicts(results | {"budgets": [entry(10, None), entry(100, "a")]}) == []


KINDS: dict[str, Any] = {
    "single": lambda names: names,
    "multi": lambda names: [("film", name) if name == "pos" else ("film",) for name in names],
    "numeric": lambda names: [100.0 * (name == "pos") + i % 5 for i, name in enumerate(names)],
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_answers(name: str, kind: Any, quick: MethodOptions, tmp_path: Path) -> None:
    texts, names = reviews(24, 1)
    train = Examples(texts, KINDS[kind](names), kind)
    labels, unseen = Labels.fit(train), reviews(9, 2)[0]
    pool = reviews(60, 3)[0] if METHODS[name].needs_pool else []

    def answered(folder: Path) -> Answers:
        method = METHODS[name](quick)
        method.prepare(pool, folder / "prepared")
        return method.answer(train, unseen, labels, 5, folder / "cell")

    answers = answered(tmp_path / "one")
    assert answers.outputs.shape == ((9,) if kind == "numeric" else (9, 2))
    assert np.isfinite(answers.outputs).all()
    if kind != "numeric":
        assert answers.outputs.min() >= 0
        assert answers.outputs.max() <= 1
    if kind == "single":
        assert answers.outputs.sum(1) == pytest.approx(np.ones(9))
    else:
        assert answers.outputs.std(0).max() > 0
    assert answers.model_bytes > 100
    assert answers.about
    assert METHODS[name].name == name
    assert METHODS[name].about.endswith(".")
    assert np.array_equal(answered(tmp_path / "two").outputs, answers.outputs)


@pytest.mark.parametrize("name", ["linear", "lsa", "fasttext"])
def test_the_quick_methods_learn(name: str, quick: MethodOptions, tmp_path: Path) -> None:
    train, test = examples(60), examples(40, seed=2)
    labels, method = Labels.fit(train), METHODS[name](quick)
    method.prepare(reviews(100, 3)[0], tmp_path)
    outputs = method.answer(train, test.texts, labels, 0, tmp_path).outputs
    assert (outputs.argmax(1) == labels.encode(test)).mean() > 0.8


def test_the_ngrams_that_fasttext_hashes() -> None:
    first, second, third, one, two = fasttext_classifier.hashed_ngrams("Good, bad good").tolist()
    assert first == third != second
    assert one != two  # "good bad" is not "bad good"
    assert fasttext_classifier.hashed_ngrams("bad good").tolist() == [second, first, two]
    assert len(fasttext_classifier.hashed_ngrams("ดี มาก", words=False)) == 5 + 4 + 3
    assert len(fasttext_classifier.hashed_ngrams("one")) == 1
    assert len(fasttext_classifier.hashed_ngrams("")) == 0
    assert fasttext_classifier.hashed_ngrams("many words in here", bins=3).max() < 3


def test_fasttext_reads_scripts_without_spaces(quick: MethodOptions, tmp_path: Path) -> None:
    texts = [("ดีมากชอบ" if i % 2 else "แย่มากไม่ชอบเลย") * (1 + i % 3) for i in range(30)]
    train = Examples(texts, ["good" if i % 2 else "bad" for i in range(30)], "single")
    answers = METHODS["fasttext"](quick).answer(train, ["ดีมาก", "แย่ไม่เลย", ""], Labels.fit(train), 0, tmp_path)
    assert answers.outputs.argmax(1)[:2].tolist() == [1, 0]
    assert "character" in answers.about


def settled(value: Any) -> Any:
    """Results without what differs from run to run: minutes, memory, and the folder's name."""
    if isinstance(value, dict):
        return {k: settled(v) for k, v in value.items() if k not in ("minutes", "peak_mb", "name")}
    return [settled(v) for v in value] if isinstance(value, list) else value


def results_at(out: Path) -> Any:
    return settled(json.loads((out / "results.json").read_text(encoding="utf-8")))


def test_a_run_cut_short_goes_on_and_ends_the_same(
    tmp_path: Path, quick: MethodOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"test": examples(30, 2), "methods": ["linear", "fasttext"], "labels": [6, "all"]}
    asked |= {"seeds": 2, "options": quick}
    whole = textgraft.compare(examples(), tmp_path / "whole", **asked)
    answer, seen = METHODS["fasttext"].answer, []

    def counted(self: Any, train: Examples, texts: Any, labels: Labels, seed: int, folder: Path) -> Answers:
        seen.append((len(train), seed))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return answer(self, train, texts, labels, seed, folder)

    monkeypatch.setattr(METHODS["fasttext"], "answer", counted)
    with pytest.raises(KeyboardInterrupt):
        textgraft.compare(examples(), tmp_path / "cut", **asked)
    assert not (tmp_path / "cut").exists()
    with pytest.raises(UserError, match=r"differs in: labels\."):
        textgraft.compare(examples(), tmp_path / "cut", **asked | {"labels": [6]})
    (tmp_path / "cut").mkdir()
    with pytest.raises(UserError, match="exists already"):  # somebody else's folder
        textgraft.compare(examples(), tmp_path / "cut", **asked)
    (tmp_path / "cut").rmdir()
    with pytest.raises(UserError, match=r"differs in: test\."):
        textgraft.compare(examples(), tmp_path / "cut", **asked | {"test": examples(30, 3)})
    textgraft.compare(examples(), tmp_path / "cut", **asked)
    assert seen == [(6, 0), (6, 1), (40, 0), (40, 0), (40, 1)]  # only what was under way is done again
    assert results_at(tmp_path / "cut") == results_at(tmp_path / "whole") == settled(json.loads(json.dumps(whole)))
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".toml") == ["cut", "whole"]


def test_a_kill_while_tidying_up_leaves_a_result_to_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(**changed: Any) -> dict[str, Any]:
        asked: dict[str, Any] = {"methods": ["linear"], "labels": [6], "seeds": 1} | changed
        return textgraft.compare(examples(), tmp_path / "out", **asked)

    def killed(out: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stage, "remove_work", killed)
        with pytest.raises(KeyboardInterrupt):
            call()
    with pytest.raises(UserError, match="differs in: seeds"):
        call(seeds=2)
    results = call()
    assert settled(results) == results_at(tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    with pytest.raises(UserError, match="exists already"):
        call()


def test_all_methods_get_the_same_texts_and_none_of_the_held_out(
    tmp_path: Path, quick: MethodOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, list[tuple[int, int, frozenset[str], tuple[str, ...]]]] = {}
    for name in ("linear", "fasttext"):

        def noted(self: Any, train: Examples, texts: Any, labels: Labels, seed: int, folder: Path) -> Answers:
            seen.setdefault(self.name, []).append((len(train), seed, frozenset(train.texts), tuple(texts)))
            return Answers(np.full((len(texts), 2), 0.5), 1)

        monkeypatch.setattr(METHODS[name], "answer", noted)
    texts, labels = reviews(50, 1)
    train = Examples([f"{i} {text}" for i, text in enumerate(texts)], labels, "single", source="train.csv")
    options = MethodOptions(seed=7, show=False)
    results = textgraft.compare(
        train, tmp_path / "out", methods=["linear", "fasttext"], labels=["all", 4, 10], seeds=2, options=options
    )
    assert seen["linear"] == seen["fasttext"]
    drawn = {(count, seed): texts for count, seed, texts, _ in seen["linear"]}
    assert sorted(drawn) == [(count, seed) for count in (4, 10, 40) for seed in (7, 8)]
    for seed in (7, 8):
        assert drawn[4, seed] < drawn[10, seed] < drawn[40, seed]
    assert drawn[10, 7] != drawn[10, 8]
    (test,) = {test for *_, test in seen["linear"]}
    assert len(test) == results["test_n"] == 10
    assert set(test) | drawn[40, 7] == set(train.texts)
    assert results["run"]["data"]["test"]["held_out"] == "a stratified fifth of train.csv, split off once"
    assert results["budgets"][0]["winner"]["name"] is None


def test_a_scale_is_learned_from_the_sample_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mean_of_sample(self: Any, train: Examples, texts: Any, labels: Labels, seed: int, folder: Path) -> Answers:
        assert labels.mean == pytest.approx(np.mean(train.labels))
        return Answers(np.zeros(len(texts)), 1)

    monkeypatch.setattr(METHODS["linear"], "answer", mean_of_sample)
    values = [float(i**2) for i in range(30)]
    train, test = (Examples([f"text {i}" for i in range(30)], v, "numeric") for v in (values, values[::-1]))
    results = textgraft.compare(train, tmp_path / "out", test=test, methods=["linear"], labels=[5, "all"], seeds=1)
    for budget in results["budgets"]:
        sample = [values[i] for i in nested_order(train, 0)[: budget["labels"]]]
        error = np.abs(np.array(values) - np.mean(sample)).mean()
        assert budget["methods"]["linear"]["mae"]["mean"] == pytest.approx(error, rel=1e-4)


def test_what_is_done_once_is_counted_in_every_row_and_what_was_interrupted_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(self: Any, train: Examples, texts: Any, labels: Labels, seed: int, folder: Path) -> Answers:
        return Answers(np.full((len(texts), 2), 0.5), 3 * 2**20, seconds=60.0 * (1 + seed))

    monkeypatch.setattr(METHODS["linear"], "prepare", lambda self, pool, folder: 6_000.0)
    monkeypatch.setattr(METHODS["linear"], "answer", answer)
    results = textgraft.compare(examples(), tmp_path / "out", methods=["linear"], labels=[5, 10], seeds=3)
    rows = [budget["methods"]["linear"] for budget in results["budgets"]]
    assert [row["minutes"] for row in rows] == [pytest.approx(102.0)] * 2  # 100 once, and 1, 2, 3 for the seeds
    assert [row["model_mb"] for row in rows] == [3.0] * 2


def test_numbers_are_compared_in_the_users_unit(tmp_path: Path) -> None:
    texts, names = reviews(60, 1)
    train = Examples(texts, KINDS["numeric"](names), "numeric")
    results = textgraft.compare(
        train, tmp_path / "out", methods=["linear", "fasttext"], labels=[8, "all"], seeds=2, options=MethodOptions()
    )
    errors = [budget["methods"]["linear"]["mae"]["mean"] for budget in results["budgets"]]
    assert results["metric"] == "mae"
    assert 2 < errors[1] < errors[0] < 60
    assert {e["how"] for e in results["label_efficiency"]} <= {"about", "at most", "not reached"}
    assert "mae" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"methods": ["linear", "fastext"]}, ["unknown method 'fastext'", "Did you mean 'fasttext'?"]),
        ({"methods": ["lsa"]}, ["'lsa' learns from unlabelled texts, and there are none"]),
        ({"methods": ["ulmfit"], "unlabelled": ["one"]}, ["'ulmfit' learns", "there are 1", "20 or more"]),
        ({"methods": []}, ["no method is named"]),
        ({"labels": [41]}, ["41 labels are asked for, and there are 40 to train on.", "'all'"]),
        ({"labels": [33], "test": None}, ["there are 32 to train on when 8 are held out to measure on"]),
        ({"labels": [1]}, ["1 is too few labels for 2 classes", "Ask for 2 or more"]),
        ({"labels": [0]}, ["0 is too few labels"]),
        ({"labels": ["-5"]}, ["'-5' is no number of labels"]),
        ({"labels": ["ten"]}, ["'ten' is no number of labels"]),
        ({"labels": []}, ["no number of labels is named"]),
        ({"seeds": 0}, ["seeds is 0"]),
        ({"test": Examples(["a text"])}, ["there are no labels"]),
        ({"test": Examples([], [], "single")}, ["the test set holds no texts"]),
        ({"test": Examples(["a"], ["postive"], "single")}, ["'postive' is not one of: neg, pos", "'pos'?"]),
        ({"options": MethodOptions(model="no-such-model"), "methods": ["frozen"]}, ["no-such-model"]),
        ({"options": MethodOptions(recipe="no-such-recipe"), "methods": ["no-adapt"]}, ["no-such-recipe"]),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_done(
    tmp_path: Path, changed: dict[str, Any], parts: list[str]
) -> None:
    asked: dict[str, Any] = {"test": examples(10, 2), "methods": ["linear"], "labels": ["all"], "seeds": 1} | changed
    with pytest.raises(UserError) as refused:
        textgraft.compare(examples(), tmp_path / "out", **asked)
    for part in parts:
        assert part in str(refused.value), str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_without_a_choice_all_is_run_that_can_be() -> None:
    assert stage.chosen_methods(None, pool=20) == list(METHODS)
    assert stage.chosen_methods(None, pool=0) == [n for n in METHODS if n not in ("lsa", "ulmfit")]
    assert stage.chosen_budgets(None, examples(300), classes=2) == (50, 100, 200, 300)
    assert stage.chosen_budgets(None, examples(30), classes=2) == (30,)
    assert stage.chosen_budgets(["all", "20", 20], examples(30), classes=2) == (20, 30)


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from made_up_reviews import reviews
import textgraft
from textgraft.data.examples import Examples

if __name__ == "__main__":
    train, test = (Examples(*reviews(40, seed), "single") for seed in (1, 2))
    options = textgraft.MethodOptions(model=sys.argv[2], recipe=sys.argv[3], max_tokens=32, show=False)
    textgraft.compare(train, Path(sys.argv[4]), test=test, unlabelled=reviews(60, 3)[0], options=options, seeds=2,
        methods=["linear", "ulmfit", "no-adapt"], labels=[8, "all"])
"""


@pytest.mark.slow
def test_killed_twice_and_run_again_it_ends_with_the_same_numbers(tmp_path: Path, quick: MethodOptions) -> None:
    script = tmp_path / "run.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(Path(__file__).parent), str(quick.model), quick.recipe]
    surroundings = os.environ | {"OMP_NUM_THREADS": "1"}
    cells = tmp_path / "killed.run" / "cells"
    for wanted in ("linear-8-1.safetensors", "ulmfit-40-0.safetensors"):
        with subprocess.Popen([*command, str(tmp_path / "killed")], env=surroundings) as process:
            deadline = time.monotonic() + 100
            while not (cells / wanted).exists():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert not (tmp_path / "killed").exists()
    for out in ("killed", "whole"):
        subprocess.run([*command, str(tmp_path / out)], env=surroundings, check=True)
    assert results_at(tmp_path / "killed") == results_at(tmp_path / "whole")
    assert not (tmp_path / "killed.run").exists()
