"""Without a recipe: candidates weighed out of fold, what is saved is what was measured, and it says what it chose."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_reviews import reviews
from small_comparisons import backwards, write_family
from sudden import killed_at

import textgraft
from textgraft.core.context import QUIET, RunContext
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.models import artifact, loading
from textgraft.tasks.classification import early_rejection, fine_tuned
from textgraft.tasks.classification import finetune as stage
from textgraft.tasks.classification import model_selection as blends
from textgraft.tasks.classification.costs import Costs
from textgraft.tasks.classification.early_rejection import EarlyRejection
from textgraft.tasks.classification.ensemble_weights import mean_loss
from textgraft.tasks.classification.evaluation import Outcome
from textgraft.tasks.classification.fine_tuned import FinetuneResult
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.classification.linear_candidates import Candidate
from textgraft.tasks.classification.model_selection import selection_splits
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.vector_cache import VectorCache
from textgraft.training.driver import Stopped
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

RECIPE = """
name = "quick"
description = "For tests"
source = "none"

[finetune]
batch_size = 8

[[finetune.phases]]
name = "all"
epochs = 1
lr = 0.01
"""
POOL = reviews(150, 9)[0]
SETTINGS = Settings(precision="fp32", save_seconds=0.0)


def labelled(count: int, seed: int) -> Examples:
    texts, labels = reviews(count, seed)
    return Examples(texts, labels, "single", source=f"reviews{seed}.csv")


TRAIN, TEST = labelled(24, 1), labelled(30, 2)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A recipe that takes no time, which is "default" for as long as these tests run, and no model is rejected."""
    path = tmp_path_factory.mktemp("recipe") / "quick.toml"
    path.write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FinetuneOptions, "language_recipe", property(lambda self: self.recipe or str(path)))
        patch.setattr(early_rejection, "SIGNIFICANCE_LEVEL", 0.0)
        yield path


@pytest.fixture
def quick(tmp_path: Path, tiny_lm: Path, recipe: Path) -> Callable[..., FinetuneResult]:
    """finetune without a recipe."""

    def run(train: Examples = TRAIN, out: str = "out", *, options: Any = None, **given: Any) -> FinetuneResult:
        asked = options or FinetuneOptions(folds=2, settings=SETTINGS)
        return finetune(train, tmp_path / out, options=asked, context=QUIET, **{"model": tiny_lm, **given})

    return run


@pytest.fixture(scope="module")
def blended(tmp_path_factory: pytest.TempPathFactory, tiny_lm: Path, recipe: Path) -> FinetuneResult:
    """One run in peace, with a pool and a test set."""
    out = tmp_path_factory.mktemp("peace") / "out"
    options = FinetuneOptions(folds=2, settings=SETTINGS)
    return finetune(TRAIN, out, model=tiny_lm, test=TEST, unlabelled=POOL, options=options, context=QUIET)


def lasting(folder: Path) -> dict[str, Any]:
    """What must not depend on how often a run was killed: all but times, and the hashes of files that tell times."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.name == "config.json":
            config = json.loads(path.read_text())
            found[str(path.relative_to(folder))] = {k: v for k, v in config.items() if k not in ("files", "sha256")}
        elif path.is_file() and path.name not in ("run.json", "README.md", "report.html"):
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def answers(done: FinetuneResult, name: str) -> np.ndarray:
    shown = {o.name: o for o in (*done.comparison.outcomes, *done.comparison.parts)}
    return shown[name].outputs[0]


@pytest.mark.slow
def test_what_is_saved_is_what_was_measured_and_chosen(blended: FinetuneResult) -> None:
    done = blended
    comparison, choice = done.comparison, done.record["ensemble"]
    assert comparison.outcomes[0].name == "ensemble"
    assert list(choice["candidates"]) == ["linear", "ulmfit-probe", "lsa", "co-training", "ulmfit"]
    weights = {name: one["weight"] for name, one in choice["candidates"].items()}
    assert sum(weights.values()) == pytest.approx(1)
    mean = sum(weight * answers(done, name) for name, weight in weights.items() if weight)
    assert answers(done, "ensemble") == pytest.approx(mean)
    saved = textgraft.load(done.folder, precision="fp32")
    assert saved.outputs(TEST.texts) == pytest.approx(mean, abs=1e-5)
    assert len(saved.members) == sum(weight > 0 for weight in weights.values())
    losses = {name: one["log_loss"] for name, one in choice["candidates"].items()}
    assert weights[min(losses, key=losses.__getitem__)] > 0


@pytest.mark.slow
def test_it_says_what_it_chose_and_why(blended: FinetuneResult) -> None:
    done = blended
    sentence = done.record["results"]["chosen"]
    assert sentence.startswith("Chosen on 24 labels by 2-fold cross-validation: ")
    assert "flatters" not in sentence
    for name, weight in done.counted.items():
        spoken = "the language model" if name == "ulmfit" else name
        assert (f"{100 * weight:.0f} % {spoken}" if weight < 1 else f"{spoken} alone") in sentence
    if "ulmfit" not in done.counted:
        tried = done.record["ensemble"]["candidates"]["ulmfit"]
        both = f"accuracy {100 * tried['accuracy']:.1f} %, log loss {tried['log_loss']:.4g}"
        assert f"; the fine-tuned model ({both} out of fold) adds nothing." in sentence
    assert "The log loss decides, not the accuracy." in sentence
    assert sentence in done.comparison.table()
    report = (done.folder / "report.html").read_text()
    assert sentence in report
    assert "candidate co-training" in report
    assert json.loads((done.folder / "run.json").read_text())["ensemble"]["chosen"] == sentence
    assert sentence.rstrip(".") in (done.folder / "README.md").read_text()


def test_no_space_has_read_a_text_that_is_held_out(blended: FinetuneResult) -> None:
    about = {o.name: o.about for o in (*blended.comparison.outcomes, *blended.comparison.parts)}
    assert about["lsa"].startswith(f"LSA of {len(POOL)} texts")
    assert about["co-training"].endswith(f"on {len(POOL)} texts")


def test_all_candidates_but_an_idle_probe_are_rows_and_none_is_trained_twice(blended: FinetuneResult) -> None:
    done = blended
    rows = list(done.record["results"]["methods"])
    assert rows[0] == "ensemble"
    probe = ["ulmfit-probe"] if "ulmfit-probe" in done.counted else []
    assert sorted(rows[1:]) == sorted(["linear", "lsa", "co-training", "ulmfit", *probe])
    assert [line.split()[0] for line in done.comparison.table().splitlines()[1 : 1 + len(rows)]] == rows


@pytest.mark.slow
@pytest.mark.parametrize("counts", [False, True])
def test_a_probe_reads_the_test_texts_only_where_it_counts(
    counts: bool, quick: Callable[..., FinetuneResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, read = VectorCache._embed, []

    def embed(self: VectorCache, texts: Sequence[str]) -> np.ndarray:
        read.append(len(texts))
        return real(self, texts)

    monkeypatch.setattr(VectorCache, "_embed", embed)
    monkeypatch.setattr(
        blends, "ensemble_weights", lambda *_, **__: np.array([0.5, 0.5, 0.0] if counts else [1.0, 0.0, 0.0])
    )
    done = quick(test=TEST)
    assert read == [len(TRAIN), *([len(TEST)] if counts else [])]
    assert ("ulmfit-probe" in done.record["results"]["methods"]) == counts
    assert done.record["ensemble"]["candidates"]["ulmfit-probe"]["accuracy"] > 0


@pytest.mark.slow
def test_of_test_texts_that_are_in_training_it_says_what_it_is_without_them(
    quick: Callable[..., FinetuneResult],
) -> None:
    shouted = [text.upper() for text in TRAIN.texts[:5]]
    labels = [*TRAIN.labels[:5], *TEST.labels]
    done = quick(test=Examples([*shouted, *TEST.texts], labels, "single"))
    right = np.argmax(answers(done, "ensemble"), axis=1) == done.comparison.targets
    told = f"5 of them are in the training texts too; on the other 30 it has {100 * right[5:].mean():.1f} % ["
    assert told in done.comparison.verdict()
    assert told in (done.folder / "report.html").read_text()
    assert "in the training texts too; on" not in quick(out="apart", test=TEST).comparison.verdict()


@pytest.mark.slow
def test_measured_on_folds_it_says_so(quick: Callable[..., FinetuneResult]) -> None:
    done = quick()
    assert list(done.record["ensemble"]["candidates"]) == ["linear", "ulmfit-probe", "ulmfit"]
    assert len(done.comparison.targets) == 24
    assert "The scores are of the same texts" in done.comparison.chosen
    ours = mean_loss("single", done.comparison.targets, answers(done, "ensemble"))
    assert "ulmfit-probe" in done.record["results"]["methods"]  # it has read all that there is
    for name, found in done.record["ensemble"]["candidates"].items():
        assert found["log_loss"] == pytest.approx(mean_loss("single", done.comparison.targets, answers(done, name)))
        assert ours <= found["log_loss"] + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["multi", "numeric"])
def test_other_kinds_of_target_leave_out_what_cannot_do_them(kind: str, quick: Callable[..., FinetuneResult]) -> None:
    texts, names = reviews(30, 4)
    values: list[Any] = [("long", name) if i % 3 else (name,) for i, name in enumerate(names)]
    if kind == "numeric":
        values = [float(name == "pos") + i % 5 / 10 for i, name in enumerate(names)]
    train = Examples(texts, values, kind)  # type: ignore[arg-type]
    done = quick(train, test=train.take(range(10)), unlabelled=POOL)
    assert list(done.record["ensemble"]["candidates"]) == ["linear", "ulmfit-probe", "lsa", "ulmfit"]
    assert "one label" in done.record["ensemble"]["left_out"]["co-training"]
    saved = textgraft.load(done.folder, precision="fp32").outputs(texts[:10])
    assert saved == pytest.approx(answers(done, "ensemble"), abs=1e-5)


@pytest.mark.slow
def test_a_pool_without_a_word_leaves_out_what_learns_from_it(quick: Callable[..., FinetuneResult]) -> None:
    texts = [f"{word} alpha{i} beta{i}" for i, word in enumerate(["good", "bad"] * 3)]
    done = quick(Examples(texts, ["pos", "neg"] * 3, "single"), test=TEST, unlabelled=["...", "..."])
    for name in ("lsa", "co-training"):
        assert "no text contains a word" in done.record["ensemble"]["left_out"][name]
        assert name not in done.record["results"]["methods"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [{"recipe": "QUICK"}, {"from_scratch": True}, {"baselines": False}, {"class_weights": "balanced"}],
    ids=lambda asked: next(iter(asked)),
)
def test_who_asks_about_the_language_model_gets_it_alone(
    asked: dict[str, Any], quick: Callable[..., FinetuneResult], recipe: Path
) -> None:
    if "recipe" in asked:
        asked = {"recipe": str(recipe)}
    done = quick(test=TEST, unlabelled=POOL, options=FinetuneOptions(settings=SETTINGS, **asked))
    name = "scratch" if "from_scratch" in asked else "ulmfit"
    beside = [] if "baselines" in asked else ["linear", "lsa"]
    assert list(done.record["results"]["methods"]) == [name, *beside]
    assert "ensemble" not in done.record
    assert "chosen" not in done.record["results"]


@pytest.mark.slow
def test_where_nothing_can_be_held_out_the_language_model_is_alone_and_it_says_why(
    quick: Callable[..., FinetuneResult],
) -> None:
    options = FinetuneOptions(settings=SETTINGS)
    done = quick(Examples(["good film", "bad film"], ["pos", "neg"], "single"), test=TEST, options=options)
    assert list(done.record["results"]["methods"]) == ["ulmfit", "linear"]
    assert done.comparison.chosen == (
        "The language model alone: 2 labels leave none to hold out, so there is nothing to choose by."
    )
    none = quick(test=TEST, out="none", options=FinetuneOptions(folds=0, settings=SETTINGS))
    assert "folds is 0" in none.comparison.table()
    with pytest.raises(UserError, match="too few different texts to hold any out"):
        quick(Examples(["good film", "bad film"], ["pos", "neg"], "single"), out="unmeasured", options=options)


def test_evidence_comes_from_as_many_folds_as_there_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def splits(*labels: str) -> list[tuple[list[int], list[int]]]:
        texts = [f"text {i}" for i in range(len(labels))]
        return list(selection_splits(Examples(texts, [*labels], "single"), 0))

    assert len(splits(*"aaabbbbb")) == 5
    assert len(splits(*"aaabc")) == 3
    assert len(splits(*"aab")) == 2
    assert splits(*"ab") == []
    sets = Examples([*"uvwxyz"], [("a", "b")] * 2 + [("c",), ("d", "e"), ("f",), ("g",)], "multi")
    assert all(kept and held for kept, held in selection_splits(sets, 0))
    monkeypatch.setattr(blends, "FOLDS_UP_TO", 99)
    (kept, held), *others = splits(*"ab" * 50)
    assert (len(kept), len(held), others) == (80, 20, [])
    assert sum(i % 2 for i in held) == 10
    assert len(splits(*map(str, range(100)), "0", "1", "2")) == 5  # a fifth would take classes out of training


@pytest.mark.slow
def test_many_labels_are_judged_by_one_fifth(
    quick: Callable[..., FinetuneResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blends, "FOLDS_UP_TO", 20)
    done = quick(options=FinetuneOptions(settings=SETTINGS))
    assert "Chosen on 24 labels by one held-out fifth (5 texts): " in done.comparison.chosen
    assert len(done.comparison.targets) == 5


@pytest.mark.slow
def test_seeds_spread_and_a_backward_model_is_a_candidate(
    quick: Callable[..., FinetuneResult], tiny_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = artifact.save(backwards(tiny_lm), tmp_path / "other")
    monkeypatch.setattr(blends, "ensemble_weights", lambda *_, **__: np.array([0.5, 0.0, 0.0, 0.25, 0.25]))
    done = quick(test=TEST, model=f"{tiny_lm}+{other}", options=FinetuneOptions(seeds=2, folds=2, settings=SETTINGS))
    seeds = {o.name: len(o.outputs) for o in done.comparison.outcomes}
    assert seeds == {"ensemble": 2, "linear": 1, "ulmfit": 2, "ulmfit-backward": 2}  # no probe counts
    blend, linear, forward, backward = (o.outputs for o in done.comparison.outcomes)
    assert blend == pytest.approx(0.5 * linear + 0.25 * forward + 0.25 * backward)
    assert (
        "50 % linear, 25 % the fine-tuned model, 25 % the fine-tuned model (ulmfit-backward)" in done.comparison.chosen
    )
    saved = textgraft.load(done.folder, precision="fp32")
    assert saved.outputs(TEST.texts) == pytest.approx(blend[0], abs=1e-5)


@pytest.mark.slow
def test_models_of_two_families_are_candidates_of_their_own_names(
    quick: Callable[..., FinetuneResult], tiny_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpt, again = write_family(tmp_path, "gpt"), artifact.save(loading.load_network(tiny_lm), tmp_path / "again")
    monkeypatch.setattr(blends, "ensemble_weights", lambda answers, *_, **__: np.full(len(answers), 1 / len(answers)))
    done = quick(test=TEST, model=f"{tiny_lm}+{gpt}+{again}")
    grown = ["ulmfit", "gpt", "ulmfit-2"]
    assert list(done.members) == list(done.stages) == grown
    assert {"gpt", "gpt-probe", "ulmfit", "ulmfit-2-probe"} <= set(done.record["ensemble"]["candidates"])
    assert np.array_equal(answers(done, "ulmfit"), answers(done, "ulmfit-2"))
    assert not np.array_equal(answers(done, "ulmfit"), answers(done, "gpt"))
    assert [loading.load_network(done.folder / name).model.encoder.method for name in grown] == [
        "ulmfit",
        "gpt",
        "ulmfit",
    ]
    saved = textgraft.load(done.folder, precision="fp32")
    assert saved.outputs(TEST.texts) == pytest.approx(answers(done, "ensemble"), abs=1e-5)


@pytest.mark.slow
def test_each_model_is_trained_by_the_recipe_that_suits_it(tiny_lm: Path, tmp_path: Path) -> None:
    options = FinetuneOptions(recipe="default", folds=0, baselines=False, settings=SETTINGS)
    gpt = write_family(tmp_path, "gpt")
    done = finetune(TRAIN, tmp_path / "out", model=f"{gpt}+{tiny_lm}", test=TEST, options=options, context=QUIET)
    assert done.record["recipe"] == "transformer + default"
    assert done.stages == {
        name: load_recipe(recipe).finetune for name, recipe in {"gpt": "transformer", "ulmfit": "default"}.items()
    }
    mean, gpt_alone, lstm_alone = (
        outcome.outputs[0] for outcome in (done.comparison.outcomes[0], *done.comparison.parts)
    )
    assert mean == pytest.approx((gpt_alone + lstm_alone) / 2)
    assert [outcome.name for outcome in done.comparison.outcomes[:1]] == ["gpt + ulmfit"]


@pytest.mark.slow
def test_five_folds_are_what_it_is_chosen_by_if_none_are_asked_for(quick: Callable[..., FinetuneResult]) -> None:
    done = quick(test=TEST, options=FinetuneOptions(settings=SETTINGS))
    assert "by 5-fold cross-validation" in done.comparison.chosen


@pytest.mark.slow
def test_a_lone_linear_classifier_is_saved_as_one(
    quick: Callable[..., FinetuneResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blends, "ensemble_weights", lambda answers, *_, **__: np.eye(len(answers))[0])
    done = quick(test=TEST)
    run = json.loads((done.folder / "run.json").read_text())
    assert "linear alone; the fine-tuned model (" in run["ensemble"]["chosen"]
    assert run["linear"].startswith("TF-IDF of ")
    assert (run["base"], run["licence"], run["recipe"]) == (None, None, None)
    assert (done.folder / "model.safetensors").exists()
    assert not (done.folder / "linear").exists()
    card = (done.folder / "README.md").read_text()
    assert "A linear classifier" in card
    assert "It started from" not in card
    assert [o.name for o in done.comparison.parts] == ["linear"]
    rival = done.comparison.best_baseline()
    assert rival is not None
    assert rival.name == "ulmfit"
    result = textgraft.evaluate(done.folder, TEST)
    assert result["metrics"]["accuracy"] == run["results"]["methods"]["ensemble"]["accuracy"]["mean"]


def answer(right: bool) -> np.ndarray:
    """A sure answer, right or wrong, for each of TRAIN."""
    labels = Labels.fit(TRAIN)
    chances = np.full((len(TRAIN), 2), 0.1)
    chances[np.arange(len(TRAIN)), labels.encode(TRAIN) if right else 1 - labels.encode(TRAIN)] = 0.9
    return chances


def selection_of(folds: int) -> SelectionContext:
    splits = selection_splits(TRAIN, 0)[:folds]
    return SelectionContext(TRAIN, None, "folds", Labels.fit(TRAIN), (), splits, RunContext(Path("nowhere"), 0))


def rival(answers: np.ndarray) -> Candidate:
    outcome = Outcome("linear", answers[None], answers[None], 0.0, 0.0)
    return Candidate("linear", answers, lambda: outcome, 0.0, 0.0, lambda _: None)  # type: ignore[arg-type,return-value]


def test_a_model_is_rejected_only_if_it_is_significantly_worse_and_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_rejection, "SIGNIFICANCE_LEVEL", 0.05)
    selection = selection_of(5)
    unsure = np.log(np.full((len(TRAIN), 2), 0.5))
    good, bad = answer(True), answer(False)
    behind = EarlyRejection([rival(good)], selection)
    why = behind.rejection(unsure, 5)
    assert why is not None
    losses = (mean_loss("single", selection.targets, one) for one in (np.exp(unsure), good))
    told = "log loss, {:.3g} on 24 texts, linear {:.3g} (accuracy {:.1f} %, 100.0 %)"
    right = 100 * (selection.targets == 0).mean()  # of two equal probabilities the first is the prediction
    assert why == "rejected after 5 of 5 folds by its " + told.format(*losses, right)
    assert behind.rejection(np.log(good), 5) is None  # as good is no loss
    assert EarlyRejection([rival(bad)], selection).rejection(unsure, 5) is None
    assert EarlyRejection([], selection).rejection(unsure, 5) is None
    early = unsure.copy()
    early[4:] = np.nan
    assert behind.rejection(early, 1) is None  # four texts say nothing
    assert behind.rejection(np.full_like(unsure, np.nan), 0) is None
    half = good.copy()
    half[:12] = bad[:12]  # each knows what the other does not: together they are better than the one alone
    other = good.copy()
    other[12:20] = bad[12:20]
    other[20:] = 0.5
    assert EarlyRejection([rival(half)], selection).rejection(np.log(other), 5) is None


@pytest.mark.slow
def test_who_is_given_up_is_trained_no_further_and_the_rest_is_saved(
    quick: Callable[..., FinetuneResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def rejected(self: EarlyRejection, logits: np.ndarray, folds: int) -> str | None:
        asked.append(int((~np.isnan(logits[:, 0])).sum()))
        return "rejected after 1 of 2 folds: so the judge says"

    trained: list[str] = []
    real = fine_tuned.train_classifier

    def counted(*given: Any, **named: Any) -> Any:
        trained.append(named["title"])
        return real(*given, **named)

    monkeypatch.setattr(EarlyRejection, "rejection", rejected)
    monkeypatch.setattr(fine_tuned, "train_classifier", counted)
    done = quick(test=TEST, unlabelled=POOL)
    assert trained == ["fold 1 of 2"]
    assert asked == [12]
    assert next(iter(done.record["results"]["methods"])) == "ensemble"
    assert "ulmfit" not in done.record["results"]["methods"]
    assert done.record["ensemble"]["left_out"]["ulmfit"].endswith("so the judge says")
    assert "; the fine-tuned model was rejected after 1 of 2 folds: so the judge says." in done.comparison.chosen
    assert "so the judge says" in (done.folder / "report.html").read_text()
    saved = textgraft.load(done.folder, precision="fp32").outputs(TEST.texts)
    assert saved == pytest.approx(answers(done, "ensemble"), abs=1e-5)


OTHER_PLACES = [pytest.param(at, marks=pytest.mark.slow) for at in (1, 7)]


@pytest.mark.slow
@pytest.mark.parametrize("at", [4, 10, *OTHER_PLACES])
def test_killed_anywhere_it_ends_with_the_same_files(
    at: int,
    blended: FinetuneResult,
    quick: Callable[..., FinetuneResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`at` counts the files that a run puts in place: plan, spaces, candidates, then the language model's."""
    with killed_at(at, monkeypatch):
        quick(test=TEST, unlabelled=POOL)
    assert not (tmp_path / "out").exists()
    again = quick(test=TEST, unlabelled=POOL)
    assert lasting(again.folder) == lasting(blended.folder)
    assert again.comparison.chosen == blended.comparison.chosen
    for one, other in zip(again.comparison.outcomes, blended.comparison.outcomes, strict=True):
        assert np.array_equal(one.outputs, other.outputs)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_what_was_done_is_not_done_again(
    blended: FinetuneResult, quick: Callable[..., FinetuneResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise Stopped("stopped.")

    with monkeypatch.context() as patch:
        patch.setattr(stage, "train_member", stopped)
        with pytest.raises(Stopped):
            quick(test=TEST, unlabelled=POOL)
    for name in ("LinearBaseline", "LsaBaseline", "CoTrainedClassifier"):
        monkeypatch.setattr(f"textgraft.linear.methods.{name}.fit", stopped)
    for name in ("plain_and_residual_idf", "plain_and_residual_idf_words"):
        monkeypatch.setattr(f"textgraft.linear.methods.{name}", stopped)
    assert quick(test=TEST, unlabelled=POOL).comparison.chosen == blended.comparison.chosen


def test_another_question_is_not_mixed_in(
    quick: Callable[..., FinetuneResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise Stopped("stopped.")

    monkeypatch.setattr(stage, "train_member", stopped)
    with pytest.raises(Stopped):
        quick(test=TEST)
    with pytest.raises(UserError, match="differs in: unlabelled"):
        quick(test=TEST, unlabelled=POOL)
    with pytest.raises(UserError, match="differs in: options"):
        quick(test=TEST, options=FinetuneOptions(folds=2, settings=replace(SETTINGS, seed=1)))


def test_what_would_take_longer_than_the_minutes_is_not_begun(quick: Callable[..., FinetuneResult]) -> None:
    done = quick(test=TEST, unlabelled=POOL, options=FinetuneOptions(folds=2, minutes=1e-6, settings=SETTINGS))
    choice = done.record["ensemble"]
    assert set(choice["candidates"]) == {"linear"}
    assert set(choice["left_out"]) == {"lsa", "co-training", "ulmfit", "ulmfit-probe"}
    assert all("not begun: it would take about" in why for why in choice["left_out"].values())
    assert "the fine-tuned model was not begun: it would take about" in choice["chosen"]
    assert "linear alone; no other method was trained" in done.record["results"]["verdict"]
    assert not done.members
    assert (done.record["rungs"], done.record["minutes"]) == ({}, 1e-6)


@pytest.mark.slow
def test_the_rungs_of_a_run_repeat_it_without_a_clock(
    quick: Callable[..., FinetuneResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"folds": 2, "settings": SETTINGS}
    some = {"lsa": 1, "ulmfit-probe": 1, "ulmfit": 2, "ulmfit-steps-percent": 60}
    first = quick(test=TEST, unlabelled=POOL, options=FinetuneOptions(rungs=some, **asked))
    assert set(first.record["ensemble"]["candidates"]) == {"linear", "lsa", "ulmfit-probe", "ulmfit"}
    assert first.record["rungs"] == some
    assert first.times.endswith(" To be in time, not with everything: ulmfit 60 % of the steps.")
    assert first.record["ensemble"]["left_out"]["co-training"] == "not among the rungs to repeat"
    for measured in ("encoding", "linear", "training"):
        monkeypatch.setattr(Costs, measured, lambda *_: pytest.fail("measured"))
    again = quick(
        test=TEST,
        unlabelled=POOL,
        out="again",
        options=FinetuneOptions(rungs=first.record["rungs"], minutes=1, **asked),
    )
    assert lasting(again.folder) == lasting(first.folder)
    assert np.array_equal(answers(again, "ensemble"), answers(first, "ensemble"))


@pytest.mark.slow
def test_minutes_enough_change_nothing(quick: Callable[..., FinetuneResult]) -> None:
    done = [
        quick(TRAIN, name, test=TEST, options=options)
        for name, options in {
            "without": FinetuneOptions(folds=2, settings=SETTINGS),
            "with": FinetuneOptions(folds=2, minutes=60, settings=SETTINGS),
        }.items()
    ]
    assert answers(done[0], "ulmfit").tolist() == answers(done[1], "ulmfit").tolist()
    assert done[0].counted == done[1].counted


def test_minutes_are_for_a_choice() -> None:
    for asking in ({"recipe": "full"}, {"class_weights": "balanced"}, {"from_scratch": True}, {"baselines": False}):
        with pytest.raises(UserError, match="it is the only candidate"):
            FinetuneOptions(minutes=1, **asking)  # type: ignore[arg-type]
    assert FinetuneOptions(minutes=float("inf")).budget_seconds is None
    for minutes in (0.0, -1.0, float("nan")):
        with pytest.raises(UserError, match="above 0"):
            FinetuneOptions(minutes=minutes)
