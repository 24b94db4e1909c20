"""Learning curves: the same nested samples for all, numbers that survive a kill, and what is said of them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_reviews import reviews
from safetensors.torch import load_file, save
from small_comparisons import compare, examples, quick_options

from textgraft.comparison import compare as stage
from textgraft.comparison.cells import CellKey, Cells
from textgraft.comparison.methods import METHODS, MethodOptions, Predictions
from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.splits import nested_order
from textgraft.linear import fasttext
from textgraft.tasks.language_modeling.adapt import adapt

POOL = reviews(30, 3)[0]
UNEVEN = ["a"] * 60 + ["b"] * 30 + ["c"] * 9 + ["d"]


@pytest.fixture
def quick(tmp_path: Path, tiny_lm: Path) -> MethodOptions:
    return quick_options(tmp_path, tiny_lm)


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fasttext, "MIN_TEXTS_SEEN", 600)


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


def settled(value: Any) -> Any:
    """Results without what differs from run to run: minutes, memory, and the folder's name."""
    if isinstance(value, dict):
        return {k: settled(v) for k, v in value.items() if k not in ("minutes", "peak_mb", "name")}
    return [settled(v) for v in value] if isinstance(value, list) else value


@pytest.mark.slow
def test_two_language_models_in_one_table(tmp_path: Path, quick: MethodOptions, tiny_lm: Path) -> None:
    other = tmp_path / "deep" / "another model"
    adapt(reviews(100, 5)[0], other, model=tiny_lm, context=QUIET)
    names = ["ulmfit", f"ulmfit@{other}", f"no-adapt@{other}"]
    asked: dict[str, Any] = {"test": examples(20, 2), "unlabelled": reviews(100, 3)[0], "labels": [6], "seeds": 1}
    results = compare(examples(), tmp_path / "out", **asked, methods=names, options=quick)
    (budget,) = results["budgets"]
    assert list(budget["methods"]) == names
    alone = compare(examples(), tmp_path / "alone", **asked, methods=["no-adapt"], options=replace(quick, model=other))
    scores = [budget["methods"][name]["log_loss"] for name in names]
    assert settled(scores[2]) == settled(alone["budgets"][0]["methods"]["no-adapt"]["log_loss"])
    assert settled(scores[0]) != settled(scores[1])


def results_at(out: Path) -> Any:
    return settled(json.loads((out / "results.json").read_text(encoding="utf-8")))


@pytest.mark.slow
def test_a_run_cut_short_goes_on_and_ends_the_same(
    tmp_path: Path, quick: MethodOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"test": examples(30, 2), "methods": ["linear", "fasttext"], "labels": [6, "all"]}
    asked |= {"seeds": 2, "options": quick}
    whole = compare(examples(), tmp_path / "whole", **asked)
    train_and_predict, seen = METHODS["fasttext"].train_and_predict, []

    def counted(self: Any, train: Examples, texts: Any, labels: Labels, seed: int, folder: Path) -> Predictions:
        seen.append((len(train), seed))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return train_and_predict(self, train, texts, labels, seed, folder)

    monkeypatch.setattr(METHODS["fasttext"], "train_and_predict", counted)
    with pytest.raises(KeyboardInterrupt):
        compare(examples(), tmp_path / "cut", **asked)
    assert not (tmp_path / "cut").exists()
    with pytest.raises(UserError, match=r"differs in: labels\."):
        compare(examples(), tmp_path / "cut", **asked | {"labels": [6]})
    (tmp_path / "cut").mkdir()
    with pytest.raises(UserError, match="exists already"):  # somebody else's folder
        compare(examples(), tmp_path / "cut", **asked)
    (tmp_path / "cut").rmdir()
    with pytest.raises(UserError, match=r"differs in: test\."):
        compare(examples(), tmp_path / "cut", **asked | {"test": examples(30, 3)})
    compare(examples(), tmp_path / "cut", **asked)
    assert seen == [(6, 0), (6, 1), (40, 0), (40, 0), (40, 1)]  # only what was under way is done again
    assert results_at(tmp_path / "cut") == results_at(tmp_path / "whole") == settled(json.loads(json.dumps(whole)))
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".toml") == ["cut", "whole"]


@pytest.mark.slow
def test_a_finished_comparison_grows_by_methods_labels_and_seeds(
    tmp_path: Path, quick: MethodOptions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {"test": examples(30, 2), "options": quick}
    grown = asked | {"methods": ["fasttext", "no-adapt"], "labels": [6, "all"], "seeds": 3}
    compare(examples(), tmp_path / "small", **asked, methods=["fasttext"], labels=[6], seeds=2)
    whole = compare(examples(), tmp_path / "whole", **grown)
    train_and_predict, seen = METHODS["fasttext"].train_and_predict, []

    def counted(self: Any, train: Examples, texts: Any, labels: Labels, seed: int, folder: Path) -> Predictions:
        seen.append((len(train), seed))
        return train_and_predict(self, train, texts, labels, seed, folder)

    monkeypatch.setattr(METHODS["fasttext"], "train_and_predict", counted)
    grown["options"] = replace(quick, show=True)
    more = compare(examples(), tmp_path / "more", **grown, reuse=tmp_path / "small")
    assert seen == [(6, 2), (40, 0), (40, 1), (40, 2)]
    assert more["run"].pop("reused") == "2 of 12 trainings, with their minutes, from small"
    assert "<dd>2 of 12 trainings, with their minutes, from small</dd>" in (tmp_path / "more/report.html").read_text()
    assert settled(more) == settled(whole)
    assert f"2 of 12 trainings are reused from {tmp_path / 'small'}" in capsys.readouterr().err
    seen.clear()
    again = compare(examples(), tmp_path / "again", **grown, reuse=tmp_path / "more")
    assert seen == []
    assert again["run"].pop("reused").startswith("12 of 12 trainings")
    assert settled(again) == settled(whole)
    # another recipe makes another language model of the same name, whose answers are not taken for this one's
    other = tmp_path / "other.toml"
    other.write_text((tmp_path / "quick.toml").read_text().replace("lr = 0.01", "lr = 0.02"))
    grown["options"] = replace(quick, recipe=str(other), show=True)
    compare(examples(), tmp_path / "slower", **grown, reuse=tmp_path / "more")
    assert "6 of 12 trainings are reused" in capsys.readouterr().err


def killed_at(out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A comparison at `out` that has found what two methods make of six labels; what it was asked, but for labels."""
    asked: dict[str, Any] = {"test": examples(30, 2), "methods": ["linear", "fasttext"], "seeds": 2}
    train_and_predict = METHODS["fasttext"].train_and_predict

    def killed(self: Any, train: Examples, *rest: Any) -> Predictions:
        if len(train) > 6:
            raise KeyboardInterrupt
        return train_and_predict(self, train, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(METHODS["fasttext"], "train_and_predict", killed)
        with pytest.raises(KeyboardInterrupt):
            compare(examples(), out, **asked, labels=[6, "all"])
    return asked


@pytest.mark.slow
def test_what_a_killed_comparison_has_found_is_taken_by_a_smaller_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = killed_at(tmp_path / "cut", monkeypatch)
    smaller = compare(examples(), tmp_path / "smaller", **asked, labels=[6], reuse=tmp_path / "cut")
    assert smaller["run"].pop("reused") == "4 of 4 trainings, with their minutes, from cut"
    assert settled(smaller) == settled(compare(examples(), tmp_path / "direct", **asked, labels=[6]))
    grown = compare(examples(), tmp_path / "grown", **asked, labels=[6, "all"], reuse=tmp_path / "cut")
    assert grown["run"].pop("reused") == "6 of 8 trainings, with their minutes, from cut"
    whole = compare(examples(), tmp_path / "cut", **asked, labels=[6, "all"])  # which goes on itself
    assert settled(grown) == settled(whole)


@pytest.mark.slow
@pytest.mark.parametrize(("asked_for", "nth"), [("has", 0), ("read", 0), ("read", 1)])
def test_a_comparison_that_ends_while_another_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_for: str, nth: int
) -> None:
    asked = killed_at(tmp_path / "cut", monkeypatch)
    before, times = getattr(Cells, asked_for), itertools.count()

    def ended(self: Cells, place: CellKey) -> Any:
        if next(times) == nth:
            compare(examples(), tmp_path / "cut", **asked, labels=[6, "all"])
        return before(self, place)

    monkeypatch.setattr(Cells, asked_for, ended)
    grown = compare(examples(), tmp_path / "grown", **asked, labels=[6, "all"], reuse=tmp_path / "cut")
    assert grown["run"]["reused"] == "8 of 8 trainings, with their minutes, from cut"


def test_answers_lie_beside_the_results_in_the_order_of_the_texts(tmp_path: Path) -> None:
    test = examples(30, 2)
    results = compare(examples(), tmp_path / "out", test=test, methods=["linear"], labels=[10, 20], seeds=2)
    answers = load_file(tmp_path / "out" / "answers.safetensors")
    assert sorted(answers) == [f"linear, {n} labels, seed {seed}" for n in (10, 20) for seed in (0, 1)]
    truth = Labels.fit(examples()).encode(test)
    for budget in results["budgets"]:
        right = [
            float((answers[f"linear, {budget['labels']} labels, seed {seed}"].numpy().argmax(axis=1) == truth).mean())
            for seed in (0, 1)
        ]
        assert budget["methods"]["linear"]["accuracy"]["mean"] == pytest.approx(np.mean(right))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"test": examples(30, 3)}, r"differs in: test\."),
        ({"train": examples(40, 9)}, r"differs in: train\."),
        ({"unlabelled": POOL}, r"differs in: unlabelled\."),
        ({"options": MethodOptions(seed=1)}, r"differs in: seed\."),
        ({"options": MethodOptions(max_tokens=16, precision="float32")}, r"differs in: max_tokens, precision\."),
        ({"reuse": "nowhere"}, r"nowhere.*no predictions of a comparison"),
        ({"reuse": "adapted"}, r"adapted\.run.*not the plan of a comparison"),
        ({"reuse": "cut"}, r"differs in: test\."),
        ({"reuse": "broken"}, r"broken.*damaged"),
        ({"reuse": "model"}, r"model.*damaged"),
    ],
)
def test_answers_to_another_question_are_not_taken(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    asked: dict[str, Any] = {"train": examples(), "test": examples(30, 2), "methods": ["linear"], "labels": [6]}
    asked |= {"seeds": 1, "options": MethodOptions()}
    compare(out=tmp_path / "small", **asked)
    whole = (tmp_path / "small" / "answers.safetensors").read_bytes()
    for name, content in (("broken", whole[:-5]), ("model", save({"weight": torch.zeros(3)}))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "answers.safetensors").write_bytes(content)
    for name, plan in (
        ("adapted", {"stage": "adapt"}),
        ("cut", {"methods": {}, "labels": [], "seeds": [], "test": ""}),
    ):
        (tmp_path / f"{name}.run").mkdir()
        (tmp_path / f"{name}.run" / "plan.json").write_text(json.dumps(plan))
    reuse = tmp_path / changed.get("reuse", "small")
    with pytest.raises(UserError, match=said):
        compare(out=tmp_path / "more", **asked | changed | {"reuse": reuse})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapted.run", "broken", "cut.run", "model", "small"]


def test_a_kill_while_tidying_up_leaves_a_result_to_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(**changed: Any) -> dict[str, Any]:
        asked: dict[str, Any] = {"methods": ["linear"], "labels": [6], "seeds": 1} | changed
        return compare(examples(), tmp_path / "out", **asked)

    def killed(out: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("textgraft.training.results_folder.remove_work", killed)
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

        def noted(self: Any, train: Examples, texts: Any, labels: Labels, seed: int, folder: Path) -> Predictions:
            seen.setdefault(self.name, []).append((len(train), seed, frozenset(train.texts), tuple(texts)))
            return Predictions(np.full((len(texts), 2), 0.5), 1)

        monkeypatch.setattr(METHODS[name], "train_and_predict", noted)
    texts, labels = reviews(50, 1)
    train = Examples([f"{i} {text}" for i, text in enumerate(texts)], labels, "single", source="train.csv")
    options = MethodOptions(seed=7, show=False)
    results = compare(
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
    def mean_of_sample(self: Any, train: Examples, texts: Any, labels: Labels, seed: int, folder: Path) -> Predictions:
        assert labels.mean == pytest.approx(np.mean(train.labels))
        return Predictions(np.zeros(len(texts)), 1)

    monkeypatch.setattr(METHODS["linear"], "train_and_predict", mean_of_sample)
    values = [float(i**2) for i in range(30)]
    train, test = (Examples([f"text {i}" for i in range(30)], v, "numeric") for v in (values, values[::-1]))
    results = compare(train, tmp_path / "out", test=test, methods=["linear"], labels=[5, "all"], seeds=1)
    for budget in results["budgets"]:
        sample = [values[i] for i in nested_order(train, 0)[: budget["labels"]]]
        error = np.abs(np.array(values) - np.mean(sample)).mean()
        assert budget["methods"]["linear"]["mae"]["mean"] == pytest.approx(error, rel=1e-4)


def test_what_is_done_once_is_counted_in_every_row_and_what_was_interrupted_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_and_predict(
        self: Any, train: Examples, texts: Any, labels: Labels, seed: int, folder: Path
    ) -> Predictions:
        return Predictions(np.full((len(texts), 2), 0.5), 3 * 2**20, seconds=60.0 * (1 + seed))

    monkeypatch.setattr(METHODS["linear"], "prepare", lambda self, pool, folder: 6_000.0)
    monkeypatch.setattr(METHODS["linear"], "train_and_predict", train_and_predict)
    results = compare(examples(), tmp_path / "out", methods=["linear"], labels=[5, 10], seeds=3)
    rows = [budget["methods"]["linear"] for budget in results["budgets"]]
    assert [row["minutes"] for row in rows] == [pytest.approx(102.0)] * 2  # 100 once, and 1, 2, 3 for the seeds
    assert [row["model_mb"] for row in rows] == [3.0] * 2


@pytest.mark.slow
def test_numbers_are_compared_in_the_users_unit(tmp_path: Path) -> None:
    texts, names = reviews(60, 1)
    values = [100.0 * (name == "pos") + i % 5 for i, name in enumerate(names)]
    train = Examples(texts, values, "numeric")
    results = compare(
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
        ({"methods": ["lsa"]}, ["'lsa' needs unlabelled texts; there are none"]),
        ({"methods": ["ulmfit"], "unlabelled": ["one"]}, ["'ulmfit' needs", "there are 1", "20 or more"]),
        ({"methods": ["linear@en-ulmfit"]}, ["method 'linear' does not use a language model", "Write 'linear'"]),
        ({"methods": ["ulmfit@"]}, ["the language model is missing", "ulmfit@th-ulmfit"]),
        ({"methods": ["scratch@nowhere"]}, ["nowhere"]),
        ({"methods": ["features@nowhere"]}, ["no model 'nowhere'"]),
        ({"methods": ["features@en-ulmfit@top"]}, ["unknown layer aggregation 'top'"]),
        ({"methods": ["features@en-ulmfit+"]}, ["en-ulmfit+: a model's name is missing", "MODEL+MODEL"]),
        ({"methods": ["no-adapt@en-ulmfit+en-ulmfit"]}, ["a model is named twice"]),
        ({"methods": ["default@en-ulmfit+nowhere"]}, ["no model 'nowhere'"]),
        ({"methods": ["vectors"], "unlabelled": ["one"]}, ["'vectors' needs unlabelled texts"]),
        ({"methods": ["vectors@en-ulmfit"], "unlabelled": POOL}, ["this is a model, not word vectors", "features@"]),
        ({"methods": ["bert@en-ulmfit"], "unlabelled": POOL}, ["models of the family 'bert'; this is 'awd_lstm'"]),
        ({"methods": ["elmo@en-ulmfit"]}, ["models of the family 'elmo'; this is 'awd_lstm'"]),
        ({"methods": []}, ["there are no methods to compare"]),
        ({"labels": [41]}, ["41 labels are more than the 40 to train on.", "or all"]),
        ({"labels": [33], "test": None}, ["more than the 32 to train on after 8 are held out for testing"]),
        ({"labels": [1]}, ["1 is too few labels for 2 classes", "Give 2 or more"]),
        ({"labels": [0]}, ["0 is too few labels"]),
        ({"labels": ["-5"]}, ["'-5' is not a number of labels"]),
        ({"labels": ["ten"]}, ["'ten' is not a number of labels"]),
        ({"labels": []}, ["there are no numbers of labels"]),
        ({"seeds": 0}, ["seeds is 0"]),
        ({"test": Examples(["a text"])}, ["there are no labels"]),
        ({"test": Examples([], [], "single")}, ["the test set has no texts"]),
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
        compare(examples(), tmp_path / "out", **asked)
    for part in parts:
        assert part in str(refused.value), str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_without_a_choice_all_is_run_that_can_be() -> None:
    usual = stage.chosen_methods(None, kind="single", pool=20)
    assert usual == [name for name in METHODS if name not in ("cove", "elmo", "flair", "bert", "gpt")]
    without = stage.chosen_methods(None, kind="single", pool=19)
    assert without == ["linear", "fasttext", "features", "scratch", "frozen", "no-adapt", "default"]
    assert "co-training" not in stage.chosen_methods(None, kind="multi", pool=20)
    with pytest.raises(UserError, match=r"'co-training' supports single labels; these are multi\. Leave it out\."):
        stage.chosen_methods(["linear", "co-training"], kind="multi", pool=20)
    assert stage.chosen_budgets(None, examples(300), classes=2) == (50, 100, 200, 300)
    assert stage.chosen_budgets(None, examples(30), classes=2) == (30,)
    assert stage.chosen_budgets(["all", "20", 20], examples(30), classes=2) == (20, 30)


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from made_up_reviews import reviews
from safetensors.torch import load_file, save
from small_comparisons import examples, quick_options
import textgraft
from textgraft.data.examples import Examples

if __name__ == "__main__":
    train, test = (Examples(*reviews(40, seed), "single") for seed in (1, 2))
    options = textgraft.MethodOptions(model=sys.argv[2], recipe=sys.argv[3], max_tokens=32, seeds=2, show=False)
    textgraft.compare(train, Path(sys.argv[4]), test=test, unlabelled=reviews(60, 3)[0], options=options,
        methods=["linear", "ulmfit", "no-adapt"], labels=[8, "all"])
"""


@pytest.mark.slow
def test_killed_twice_and_run_again_it_ends_with_the_same_numbers(tmp_path: Path, quick: MethodOptions) -> None:
    script = tmp_path / "run.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(Path(__file__).parents[1] / "helpers"), str(quick.model), quick.recipe]
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
