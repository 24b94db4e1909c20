"""Searching a recipe's settings: what may be drawn, which trials go on, and the recipe that is written."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_comparisons import examples

from textgraft import DataWarning
from textgraft.comparison.search_space import SearchSpace, recipe_text, with_values
from textgraft.comparison.trials import AS_IT_IS, Search
from textgraft.comparison.tuning import TuneOptions, tune
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples, Pair
from textgraft.engines.local import LocalEngine
from textgraft.training.phases import Anneal
from textgraft.training.recipes import load_recipe, recipe_names

SPACE = """
batch_size = [4, 8]

[phases.all]
lr = {low = 1e-3, high = 1e-1, log = true}
epochs = {low = 1, high = 3}
"""
RECIPE = """
name = "short"
description = "A few steps"
source = "tests"

[finetune]
batch_size = 8
clip = 1.0

[[finetune.phases]]
name = "all"
epochs = 2
lr = 0.01
"""


@pytest.fixture
def options(tmp_path: Path, tiny_lm: Path) -> TuneOptions:
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "short.toml").write_text(RECIPE)
    asked: dict[str, Any] = {"trials": 5, "max_tokens": 16, "precision": "fp32", "show": False}
    return TuneOptions(tiny_lm, str(tmp_path / "short.toml"), tmp_path / "space.toml", **asked)


def test_values_are_drawn_within_their_ranges_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text(SPACE)
    space = SearchSpace.read(tmp_path / "space.toml")
    drawn = space.draw(400, 3)
    assert drawn == space.draw(400, 3) != space.draw(400, 4)
    assert {one["batch_size"] for one in drawn} == {4, 8}
    assert {one["phases.all.epochs"] for one in drawn} == {1, 2, 3}
    rates = np.array([one["phases.all.lr"] for one in drawn])
    assert rates.min() >= 1e-3
    assert rates.max() <= 1e-1
    assert abs(np.mean(rates < 1e-2) - 0.5) < 0.1  # even in the logarithm
    assert len(SearchSpace({"batch_size": [4, 8], "dropout": [0.5, 1.0, 2.0]}).draw(100, 0)) == 6  # all that there are


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing to search"),
        ("batch = [4]", "a search cannot change 'batch'"),
        ("batch_size = []", r"\[\] is no choice of values"),
        ("batch_size = 8", "8 is no choice of values"),
        ("batch_size = [8, 0]", "batch_size cannot be 0. It must be 1 or more"),
        ("min_steps = {low = -5, high = 9}", "min_steps cannot be -5"),
        ("dropout = {low = 1.0}", "the key 'high' is missing"),
        ("dropout = {low = 2.0, high = 1.0}", "the range is from 2.0 to 1.0"),
        ("dropout = {low = 0, high = 1, log = true}", "no logarithm"),
        ("dropout = {low = nan, high = 1}", "the range is from nan|valid number"),
        ("phases = [1]", "'phases' is not a table of phases"),
        ("[phases.all]\nname = ['x']", "a search cannot change 'name'"),
        ("[phases.all]\nlr = {low = 'a', high = 1}", "space.toml, phases.all.lr"),
        ("batch_size = ", "not a TOML file"),
    ],
)
def test_a_wrong_space_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "space.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as refused:
        SearchSpace.read(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"phases.body.lr": 0.1}, "has no phase 'body'"),
        ({"phases.all.lr": "fast"}, "phases.1.lr"),
        ({"batch_size": 1}, "batch_size is 1"),
        ({"pooling": "median"}, "unknown pooling 'median'"),
    ],
)
def test_a_value_that_a_recipe_cannot_have_is_refused(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    (tmp_path / "short.toml").write_text(RECIPE)
    with pytest.raises(UserError, match=message):
        with_values(load_recipe(str(tmp_path / "short.toml")), values)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_read_back_as_it_is_written(tmp_path: Path, name: str) -> None:
    recipe = load_recipe(name)
    annealed = replace(recipe.finetune.phases[0], anneal=Anneal(0.25, 2, 1e-5)) if recipe.finetune.phases else None
    if annealed is not None:
        recipe = replace(recipe, finetune=replace(recipe.finetune, phases=(annealed, *recipe.finetune.phases[1:])))
    (tmp_path / "written.toml").write_text(recipe_text(recipe), encoding="utf-8")
    assert load_recipe(str(tmp_path / "written.toml")) == recipe
    if recipe.finetune.phases:
        space = SearchSpace.default(recipe.finetune)
        for values in space.draw(20, 0):
            with_values(recipe, values)


def test_the_better_half_goes_on_and_the_best_is_written_as_a_recipe(tmp_path: Path, options: TuneOptions) -> None:
    results = tune(examples(), tmp_path / "out", options=options)
    trials = results["trials"]
    assert [one["trial"] for one in trials] == [0, 1, 2, 3, 4]
    assert trials[AS_IT_IS]["values"] == {}
    first = sorted(trials, key=lambda one: one["first_loss"])
    kept = {AS_IT_IS, *(one["trial"] for one in first[:3])}
    assert {one["trial"] for one in trials if one["folds"] > 1} == kept
    whole = [one for one in trials if one["folds"] == 3]
    assert {one["texts"] for one in whole} == {len(examples())}
    best = min(whole, key=lambda one: one["loss"])
    assert results["best"] == best["trial"]
    written = load_recipe(str(tmp_path / "out" / "recipe.toml"))
    assert written.finetune == with_values(load_recipe(options.recipe), best["values"]).finetune
    assert written.name == "out"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 1
    assert results["verdict"].split(":")[0] in page
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == results
    with pytest.raises(UserError, match="exists already"):
        tune(examples(), tmp_path / "out", options=options)


def test_epochs_below_the_least_number_of_steps_are_told(tmp_path: Path, options: TuneOptions) -> None:
    """Trials of one to three epochs were all as long as the recipe's min_steps, and equal."""
    path = tmp_path / "short.toml"
    path.write_text(path.read_text().replace("clip = 1.0", "clip = 1.0\nmin_steps = 40"))
    (tmp_path / "space.toml").write_text("[phases.all]\nepochs = [1, 2, 3]\n")
    few = replace(options, trials=2, folds=2)
    with pytest.warns(UserWarning, match=r"at least min_steps = 40 steps.*\(phases\.all\.epochs\).*no effect"):
        results = tune(examples(), tmp_path / "out", options=few)
    assert results["trials"][0]["loss"] == results["trials"][1]["loss"]
    (tmp_path / "space.toml").write_text("[phases.all]\nepochs = [1, 60]\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", DataWarning)
        tune(examples(), tmp_path / "longer", options=replace(few, trials=3))


def settled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: settled(one) for key, one in value.items() if key not in ("seconds", "name", "asked", "created")}
    return [settled(one) for one in value] if isinstance(value, list) else value


class Backwards(LocalEngine):
    """An engine that gives results in another order, as a cluster may."""

    def map(self, worker: Any, items: Sequence[Any]) -> Iterator[Any]:
        return reversed(list(super().map(worker, items)))  # type: ignore[return-value]


def test_any_engine_and_a_resumed_run_give_the_same(
    tmp_path: Path, options: TuneOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tune(examples(), tmp_path / "whole", options=options)
    write, written = Search._write, []

    def failing(self: Search, key: Any, trial: Any) -> None:
        if len(written) == 6:
            raise KeyboardInterrupt
        written.append(key)
        write(self, key, trial)

    monkeypatch.setattr(Search, "_write", failing)
    with pytest.raises(KeyboardInterrupt):
        tune(examples(), tmp_path / "resumed", options=options)
    assert not (tmp_path / "resumed").exists()
    monkeypatch.setattr(Search, "_write", write)
    resumed = tune(examples(), tmp_path / "resumed", options=replace(options, engine=Backwards()))
    assert settled(resumed["trials"]) == settled(results["trials"])
    assert (resumed["best"], resumed["stage"]) == (results["best"], results["stage"])
    assert not (tmp_path / "resumed.run").exists()


def test_a_trial_that_diverges_is_out_and_the_others_go_on(tmp_path: Path, options: TuneOptions) -> None:
    space = SearchSpace({"phases.all.lr": [1e30, 0.01]})
    results = tune(examples(), tmp_path / "out", options=replace(options, space=space, trials=3))
    (lost,) = [one for one in results["trials"] if one["values"].get("phases.all.lr") == 1e30]
    assert lost["diverged"] is True
    assert lost["folds"] == 1
    assert results["best"] != lost["trial"]
    (tmp_path / "short.toml").write_text(RECIPE.replace("0.01", "1e30"))
    with pytest.raises(UserError, match="every trial"):
        tune(examples(), tmp_path / "none", options=replace(options, space=SearchSpace({"batch_size": [4, 8]})))


@pytest.mark.parametrize("kind", ["multi", "numeric", "single"])
def test_every_kind_of_label_can_be_searched_for(tmp_path: Path, options: TuneOptions, kind: Any) -> None:
    texts, names = examples().texts, examples().labels
    assert names is not None
    labels: dict[str, list[Any]] = {
        "multi": [(str(name), "all") if i % 3 else () for i, name in enumerate(names)],
        "numeric": [100.0 + i for i in range(len(texts))],
        "single": [str(name) for name in names],
    }
    pairs = [Pair(text, "film") for text in texts] if kind == "single" else texts
    train = Examples(pairs, labels[kind], kind)
    results = tune(train, tmp_path / "out", options=replace(options, trials=2, folds=2))
    assert {one["texts"] for one in results["trials"]} == {len(texts)}
    if kind == "numeric":
        assert results["metric"] == "mae"
        assert 5 < results["trials"][0]["score"]["mean"] < 60  # in the unit of the labels


def test_rows_without_a_label_are_left_out_and_too_few_are_refused(tmp_path: Path, options: TuneOptions) -> None:
    some = examples(12)
    train = Examples([*some.texts, "no label"], [*(some.labels or ()), ""], "single")
    results = tune(train, tmp_path / "out", options=replace(options, trials=2, folds=2))
    assert results["trials"][0]["texts"] == 12
    with pytest.raises(UserError, match="cannot make 3 folds of 2 different texts"):
        tune(Examples(["a", "b", "c"], ["x", "x", "y"], "single"), tmp_path / "few", options=options)


@pytest.mark.parametrize("name", ["trials", "folds", "max_tokens"])
def test_impossible_numbers_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} is 0"):
        TuneOptions(**{name: 0})
