"""Transfer experiments: copied layers, frozen layers, benefits as numbers, and the same numbers after a kill."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_reviews import reviews
from small_models import copied, language_model
from torch import Tensor

from textgraft import Settings, UserError, inspect_transfer
from textgraft.core.context import QUIET, RunContext
from textgraft.data.examples import Examples
from textgraft.encoders.base import Encoder, with_fresh_top
from textgraft.experiments import transfer
from textgraft.experiments.transfer import B_SEED_OFFSET, FRESH, B, Kind, TransferOptions, chosen_layers, prepare_setup
from textgraft.models.loading import load_network
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.classification.training import as_model, new_classifier, train_classifier
from textgraft.training.driver import work_path
from textgraft.training.phases import Phase, Stage, with_frozen_bottom

RECIPE = """
name = "two epochs"
description = "For tests"
source = "none"
[finetune]
batch_size = 8
[[finetune.phases]]
name = "all"
epochs = 2
lr = 0.02
"""


def groups_of(encoder: Encoder) -> list[list[Tensor]]:
    return [[p.detach().clone() for p in group.parameters] for group in encoder.layer_groups()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("cell", ["lstm", "qrnn"])
def test_the_first_n_groups_are_the_sources_and_the_rest_a_fresh_models(n: int, cell: str) -> None:
    source = language_model(cell=cell).encoder
    before, random_state = groups_of(source), torch.get_rng_state()
    made = with_fresh_top(source, n, seed=5)
    torch.manual_seed(5)
    fresh = groups_of(type(source)(source.config))
    torch.set_rng_state(random_state)
    for index, group in enumerate(groups_of(made)):
        assert same(group, before[index]) == (index < n)
        assert same(group, fresh[index]) == (index >= n)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(1)
    assert all(map(same, groups_of(source), before))  # nothing is shared
    assert torch.equal(torch.get_rng_state(), random_state)


def test_another_seed_gives_other_fresh_weights_and_impossible_numbers_are_refused() -> None:
    source = language_model().encoder
    one, other = (groups_of(with_fresh_top(source, 1, seed)) for seed in (0, 1))
    assert [same(a, b) for a, b in zip(one, other, strict=True)] == [True, False, False]
    for n in (-1, 4):
        with pytest.raises(ValueError, match=f"cannot copy {n} of 3"):
            with_fresh_top(source, n, 0)


def rates(stage: Stage, frozen: int) -> list[list[bool]]:
    phases = with_frozen_bottom(stage, frozen, 4).phases
    return [[rate is not None for rate in phase.rates(4)] for phase in phases]


def test_freezing_the_bottom_takes_groups_away_from_every_phase_and_adds_none() -> None:
    phases = (
        Phase("head", 1, 0.1, trainable=1),
        Phase("top 3", 1, 0.1, trainable=3),
        Phase("all", 1, 0.1),
        Phase("each", 1, 0.1, only="each"),
        Phase("head alone", 1, 0.1, only=-1),
    )
    off, on = False, True
    assert rates(Stage(phases=phases), 2) == [
        [off, off, off, on],
        [off, off, on, on],
        [off, off, on, on],
        [off, off, on, off],
        [off, off, off, on],
    ]
    assert rates(Stage(phases=phases), 0) == [[r is not None for r in p.rates(4)] for p in Stage(phases=phases).plan(4)]
    with pytest.raises(UserError, match="trains nothing above the lowest 1"):
        with_frozen_bottom(Stage(phases=(Phase("bottom", 1, 0.1, only=0),)), 1, 4)


def made_up(count: int, seed: int) -> Examples:
    texts, labels = reviews(count, seed)
    return Examples(texts, labels, kind="single", source=f"reviews {seed}")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("recipes") / "two.toml"
    path.write_text(RECIPE)
    return str(path)


@pytest.fixture
def options(recipe: str) -> TransferOptions:
    return TransferOptions(recipe=recipe, seeds=2, max_tokens=16, settings=Settings(precision="fp32"))


TRAIN, TEST = made_up(20, 1), made_up(14, 2)


@pytest.mark.parametrize("arm", ["AnB", "AnB+", "BnB", "BnB+"])
@pytest.mark.parametrize("n", [1, 4])
def test_frozen_groups_do_not_move_by_a_bit_and_all_others_do(
    arm: str, n: int, tiny_lm: Path, tmp_path: Path, options: TransferOptions
) -> None:
    setup = prepare_setup(TRAIN, TEST, tiny_lm, options)
    source = setup.source.model.encoder
    plan = transfer._plan(setup, Kind(arm, n), 3, source)
    start = groups_of(new_classifier(plan, 3).encoder)
    trained = train_classifier(plan, setup.encoded["train"], {}, title="x", context=RunContext(tmp_path, 3, show=False))
    model = as_model(plan, trained)
    moved = [not same(a, b) for a, b in zip(groups_of(model.encoder), start, strict=True)]
    assert moved == [index >= n or arm.endswith("+") for index in range(4)]
    head = zip(model.head.parameters(), new_classifier(plan, 3).head.parameters(), strict=True)
    assert not any(torch.equal(a, b) for a, b in head)
    assert [same(a, b) for a, b in zip(start, groups_of(source), strict=True)] == [i < n for i in range(4)]


def test_networks_of_a_seed_share_their_fresh_weights_and_b_has_its_own(
    tiny_lm: Path, options: TransferOptions
) -> None:
    setup = prepare_setup(TRAIN, TEST, tiny_lm, options)
    source = setup.source.model.encoder

    def fresh(kind: Kind, seed: int) -> dict[str, Tensor]:
        return copied(new_classifier(transfer._plan(setup, kind, seed, source), seed))

    nothing = fresh(FRESH, 0)
    scratch = replace(transfer._plan(setup, FRESH, 0, source), from_scratch=True)
    for name, value in copied(new_classifier(scratch, 0)).items():  # what `finetune --from-scratch` starts from
        assert torch.equal(nothing[name], value), name
    top = [name for name in nothing if name.startswith(("encoder.layers.2", "head"))]
    for kind in (Kind("AnB", 1), Kind("BnB+", 2)):
        assert all(torch.equal(fresh(kind, 0)[name], nothing[name]) for name in top)
    own = transfer._plan(setup, B, 0, source).language_model.encoder
    assert not any(map(same, groups_of(own), groups_of(with_fresh_top(source, 0, 0))))
    assert all(map(same, groups_of(own), groups_of(with_fresh_top(source, 0, B_SEED_OFFSET))))


def numbers(results: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in results.items() if key != "minutes"}


@pytest.fixture(scope="module")
def whole(tiny_lm: Path, recipe: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A complete experiment of two seeds and what it returned."""
    out = tmp_path_factory.mktemp("whole") / "transfer"
    asked = TransferOptions(recipe=recipe, seeds=2, layers=(1,), max_tokens=16, settings=Settings(precision="fp32"))
    return out, inspect_transfer(TRAIN, out, model=tiny_lm, test=TEST, options=asked, show=False)


@pytest.mark.slow
def test_results_hold_every_arm_at_every_n_and_are_what_is_written(whole: tuple[Path, dict[str, Any]]) -> None:
    out, results = whole
    assert json.loads((out / "results.json").read_text()) == results
    assert sorted(path.name for path in out.parent.iterdir()) == ["transfer"]  # the work folder is gone
    found = [(cell["arm"], cell["n"]) for cell in results["cells"]]
    assert found == [(arm, n) for arm in ("AnB", "AnB+", "BnB", "BnB+") for n in (1, 4)]
    assert results["groups"] == ["embedding", "layer 1", "layer 2", "layer 3"]
    assert (results["seeds"], results["test_n"], results["held_out"], results["metric"]) == (2, 14, False, "accuracy")
    for one in (results["b"], results["fresh"], *results["cells"]):
        assert one["low"] <= one["mean"] <= one["high"]
        assert one["mean"] == pytest.approx(np.mean(one["per_seed"]))
        assert one["spread"] == pytest.approx(np.std(one["per_seed"], ddof=1))
    for cell in results["cells"]:
        for rival, other in (("against_fresh", results["fresh"]), ("against_b", results["b"])):
            assert cell[rival]["difference"] == pytest.approx(cell["mean"] - other["mean"])
            assert cell[rival]["p"] <= cell[rival]["p_holm"] <= 1
            assert cell[rival]["low"] <= cell[rival]["difference"] <= cell[rival]["high"]


@pytest.mark.slow
def test_curves_end_where_the_networks_do(whole: tuple[Path, dict[str, Any]]) -> None:
    results = whole[1]
    tuned = next(cell for cell in results["cells"] if (cell["arm"], cell["n"]) == ("AnB+", 4))
    for name, end in (("pretrained", tuned), ("scratch", results["fresh"])):
        curve = results["curves"][name]
        assert [point["epoch"] for point in curve] == [1, 2]
        assert curve[-1]["per_seed"] == end["per_seed"]
    assert set(results["benefits"]) == {"start", "slope", "asymptote"}
    for benefit, at in (("start", 0), ("asymptote", -1)):
        found = results["benefits"][benefit]
        assert found["pretrained"] == pytest.approx(results["curves"]["pretrained"][at]["mean"])
        assert found["mean"] == pytest.approx(found["pretrained"] - found["scratch"])


@pytest.mark.slow
def test_fine_tuning_all_of_a_is_what_finetune_does(
    whole: tuple[Path, dict[str, Any]], tiny_lm: Path, recipe: str, tmp_path: Path
) -> None:
    asked = FinetuneOptions(recipe=recipe, seeds=2, max_tokens=16, baselines=False, settings=Settings(precision="fp32"))
    for cell, from_scratch in (("AnB+", False), ("fresh", True)):
        given = replace(asked, from_scratch=from_scratch)
        done = finetune(TRAIN, tmp_path / cell, model=tiny_lm, test=TEST, options=given, context=QUIET)
        expected = done.comparison.scores(done.comparison.outcomes[0]).mean(axis=1).tolist()
        found = whole[1]["fresh"] if from_scratch else whole[1]["cells"][3]
        assert found["per_seed"] == expected


@pytest.mark.slow
def test_killed_anywhere_it_goes_on_and_ends_with_the_same_files(
    whole: tuple[Path, dict[str, Any]],
    tiny_lm: Path,
    recipe: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "transfer"
    asked = TransferOptions(recipe=recipe, seeds=2, layers=(1,), max_tokens=16, settings=Settings(precision="fp32"))
    trained: list[str] = []
    real = train_classifier

    def counted(*args: Any, **more: Any) -> Any:
        if len(trained) == 7:
            raise KeyboardInterrupt
        if not (more["context"].work / f"{more['title']}.safetensors").exists():
            trained.append(more["title"])
        return real(*args, **more)

    monkeypatch.setattr(transfer, "train_classifier", counted)
    with pytest.raises(KeyboardInterrupt):
        inspect_transfer(TRAIN, out, model=tiny_lm, test=TEST, options=asked, show=False)
    assert not out.exists()
    left = sorted(work_path(out).glob("*.safetensors"))
    assert len(left) == 7
    assert sum(path.stat().st_size for path in left if ", B, " not in path.name) < 40_000  # answers, not weights
    monkeypatch.setattr(transfer, "train_classifier", real)
    with pytest.raises(UserError, match="differs in: layers"):
        inspect_transfer(TRAIN, out, model=tiny_lm, test=TEST, options=replace(asked, layers=(2,)), show=False)
    again = inspect_transfer(TRAIN, out, model=tiny_lm, test=TEST, options=asked, show=False)
    assert numbers(again) == numbers(whole[1])
    assert (out / "report.html").read_bytes() == (whole[0] / "report.html").read_bytes()


@pytest.mark.slow
def test_killed_while_tidying_up_the_result_is_taken_and_a_strangers_folder_is_not(
    whole: tuple[Path, dict[str, Any]], tiny_lm: Path, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "transfer"
    asked = TransferOptions(recipe=recipe, seeds=1, layers=(), max_tokens=16, settings=Settings(precision="fp32"))

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("textgraft.training.results_folder.remove_work", killed)
    with pytest.raises(KeyboardInterrupt):
        inspect_transfer(TRAIN, out, model=tiny_lm, test=TEST, options=asked, show=False)
    monkeypatch.undo()
    written = json.loads((out / "results.json").read_text())
    assert inspect_transfer(TRAIN, out, model=tiny_lm, test=TEST, options=asked, show=False) == written
    assert not work_path(out).exists()
    with pytest.raises(UserError, match="exists already"):
        inspect_transfer(TRAIN, out, model=tiny_lm, test=TEST, options=asked, show=False)
    assert written["b"]["spread"] is None
    assert "One seed" in written["verdict"][-1]


def test_without_a_test_set_a_fifth_is_held_out_and_trained_on_by_nobody(
    tiny_lm: Path, options: TransferOptions
) -> None:
    setup = prepare_setup(made_up(40, 3), None, tiny_lm, options)
    assert setup.held_out
    assert (len(setup.train), len(setup.test)) == (32, 8)
    assert not set(setup.train.lines or ()) & set(setup.test.lines or ())
    assert sorted(setup.test.labels or ()) == ["neg"] * 4 + ["pos"] * 4


def test_layers_are_sorted_with_both_ends_and_refused_out_of_range() -> None:
    assert chosen_layers(None, 4) == (0, 1, 2, 3, 4)
    assert chosen_layers((2, 1, 2), 4) == (0, 1, 2, 4)
    for n in (-1, 5):
        with pytest.raises(UserError, match=rf"{n} layer groups .* has 4.*from 0 .* to 4"):
            chosen_layers((0, n), 4)


def test_a_classifier_is_refused_and_so_is_a_recipe_without_phases(
    tiny_lm: Path, recipe: str, options: TransferOptions, tmp_path: Path
) -> None:
    asked = FinetuneOptions(recipe=recipe, max_tokens=16, baselines=False)
    finetune(TRAIN, tmp_path / "clf", model=tiny_lm, test=TEST, options=asked, context=QUIET)
    assert load_network(tmp_path / "clf").labels is not None
    with pytest.raises(UserError, match="this is a classifier"):
        prepare_setup(TRAIN, TEST, tmp_path / "clf", options)
    empty = tmp_path / "empty.toml"
    empty.write_text(RECIPE.split("[finetune]")[0] + "[finetune]\n")
    with pytest.raises(UserError, match="no fine-tuning phases"):
        prepare_setup(TRAIN, TEST, tiny_lm, replace(options, recipe=str(empty)))
    with pytest.raises(UserError, match="seeds is 0"):
        replace(options, seeds=0)


@pytest.mark.slow
def test_numeric_targets_are_measured_in_their_unit(tiny_lm: Path, recipe: str, tmp_path: Path) -> None:
    texts, labels = reviews(24, 5)
    numeric = Examples(texts, [1000.0 + 500.0 * (label == "pos") for label in labels], kind="numeric")
    asked = TransferOptions(recipe=recipe, seeds=1, layers=(), max_tokens=16, settings=Settings(precision="fp32"))
    results = inspect_transfer(numeric, tmp_path / "out", model=tiny_lm, options=asked, show=False)
    assert results["metric"] == "mae"
    assert 20 < results["fresh"]["mean"] < 1500
    start = results["benefits"]["start"]
    assert start["mean"] == pytest.approx(start["scratch"] - start["pretrained"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "points" not in page.split("<section")[1].split("<table")[1]
