"""Distillation as a user runs it: students that follow their teachers, runs that were killed, and what cannot be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_reviews import BAD, GOOD, reviews

import textgraft
from textgraft import DataWarning, DistilOptions, Settings, UserError, distil
from textgraft.core.context import QUIET
from textgraft.data.batch import Batch
from textgraft.data.examples import Choice, Examples
from textgraft.data.labels import Labels
from textgraft.data.streams.base import ExampleStream
from textgraft.data.streams.masking import MaskedStream
from textgraft.distillation import classifier, language_model, teacher_answers
from textgraft.distillation.options import DistilRecipe, load_distil_recipe
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.baselines import LinearBaseline
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.tasks.classification.ensemble import save_ensemble
from textgraft.text import wordpiece
from textgraft.training.recipes import recipe_names

FP32 = Settings(precision="fp32")
POOL = reviews(300, 3)[0]
LABELS = Labels("single", ("neg", "pos"))

CLASSIFIER_RECIPE = """
name = "quick"
description = "For tests"
source = "none"

[finetune]
batch_size = 8
dropout = 0.0

[[finetune.phases]]
name = "all"
epochs = {epochs}
lr = 0.01
"""
LM_RECIPE = """
name = "quick"
description = "For tests"
source = "none"
hidden = {hidden}

[stage]
batch_size = 8
bptt = 16

[[stage.phases]]
name = "all"
epochs = 2
lr = 0.005
"""


def labelled(count: int, seed: int) -> Examples:
    texts, labels = reviews(count, seed)
    return Examples(texts, labels, kind="single", source="labelled.csv")


def linear(kind: Any = "single") -> LinearArtifact:
    """A linear classifier of the made-up reviews."""
    texts, names = reviews(200, 1)
    positive = np.array([name == "pos" for name in names])
    labels, targets = LABELS, positive.astype(np.int64)
    if kind == "multi":
        labels = Labels("multi", ("has a", "positive"))
        targets = np.stack([["actor" in text for text in texts], positive], axis=1).astype(np.float32)
    if kind == "numeric":
        counts = np.array([sum(text.count(word) for word in GOOD) for text in texts], dtype=np.float64)
        labels = Labels("numeric", mean=float(counts.mean()), std=float(counts.std()))
        targets = ((counts - labels.mean) / labels.std).astype(np.float32)
    classes = None if kind == "numeric" else 2
    fitted = LinearBaseline().fit(texts, targets, kind=kind, num_classes=classes).fitted
    return LinearArtifact(fitted, labels, {"name": "linear-teacher", "stage": "finetune"})


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return artifact.save(linear(), tmp_path_factory.mktemp("teacher") / "linear")


def bert(num_layers: int = 4, width: int = 16, texts: Sequence[str] = POOL) -> Artifact:
    made = wordpiece.train(list(texts), vocab_size=150)
    encoder = {"name": "bert", "vocab_size": made.vocab_size, "embedding_dim": width, "num_layers": num_layers}
    encoder |= {"num_heads": 2, "feed_forward_dim": 2 * width, "max_length": 48}
    head = {"name": "masked_language_model", "vocab_size": made.vocab_size, "input_dim": width, "next_sentence": True}
    with torch.random.fork_rng():
        torch.manual_seed(num_layers)
        model = build({"encoder": encoder, "head": head}).eval()
    return Artifact(model, made, run={"name": f"bert-{num_layers}", "stage": "pretrain", "licence": "Apache-2.0"})


@pytest.fixture(scope="module")
def bert_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return artifact.save(bert(), tmp_path_factory.mktemp("bert") / "lm")


def options(folder: Path, epochs: int = 2, **others: Any) -> DistilOptions:
    path = folder / f"quick-{epochs}.toml"
    path.write_text(CLASSIFIER_RECIPE.format(epochs=epochs))
    return DistilOptions(**{"recipe": str(path), "settings": FP32, "max_tokens": 48} | others)


def lm_options(folder: Path, hidden: float = 1.0, **others: Any) -> DistilOptions:
    path = folder / f"lm-{hidden}.toml"
    path.write_text(LM_RECIPE.format(hidden=hidden))
    return DistilOptions(**{"recipe": str(path), "settings": FP32} | others)


@pytest.mark.slow
def test_a_student_follows_a_linear_teacher(teacher: Path, tiny_lm: Path, tmp_path: Path) -> None:
    test = labelled(60, 2)
    done = distil(teacher, POOL, tmp_path / "out", student=tiny_lm, test=test, options=options(tmp_path), context=QUIET)
    found = done.record["agreement"]
    assert found["texts"] == 15
    assert found["mean"] > 0.85
    methods = done.record["results"]["methods"]
    assert list(methods) == ["student", "teacher"]
    assert methods["teacher"]["accuracy"]["mean"] > 0.9
    assert methods["student"]["accuracy"]["mean"] > 0.8
    own, theirs = textgraft.load(done.folder, precision="fp32"), textgraft.load(teacher)
    assert own.labels == theirs.labels
    assert own.evaluate(test)["metrics"]["accuracy"] == pytest.approx(methods["student"]["accuracy"]["mean"])
    assert theirs.evaluate(test)["metrics"]["accuracy"] == pytest.approx(methods["teacher"]["accuracy"]["mean"])
    fresh, _ = reviews(200, 9)
    agree = own.outputs(fresh).argmax(1) == theirs.outputs(fresh).argmax(1)
    assert agree.mean() > 0.85
    assert not (tmp_path / "out.run").exists()
    card, page = ((done.folder / name).read_text() for name in ("README.md", "report.html"))
    assert "Its teacher: `linear-teacher`" in card
    assert "agrees with its teacher on" in card
    assert "- distillation: temperature 2" in card
    assert "agrees with its teacher on" in page
    assert done.record["verdict"] in done.table()
    sizes = done.record["sizes"]
    assert sizes["teacher"]["parameters"] is None
    assert sizes["student"]["parameters"] == sum(p.numel() for p in own.members[0].model.parameters())  # type: ignore[attr-defined]
    assert done.record["labels"] == 0
    assert done.record["distillation"] == {"temperature": 2.0, "alpha": None, "finetune": False}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["multi", "numeric"])
def test_several_labels_and_numbers_are_followed_too(kind: Any, tiny_lm: Path, tmp_path: Path) -> None:
    source = artifact.save(linear(kind), tmp_path / "teacher")
    texts, names = reviews(40, 2)
    wanted: list[Any] = [("positive",) if name == "pos" else () for name in names]
    if kind == "numeric":
        wanted = [float(sum(text.count(word) for word in GOOD)) for text in texts]
    test = Examples(texts, wanted, kind=kind, source="test.csv")
    asked = options(tmp_path, 4)
    done = distil(source, POOL, tmp_path / "out", student=tiny_lm, test=test, options=asked, context=QUIET)
    metric = done.record["results"]["metric"]
    beside = {name: found[metric]["mean"] for name, found in done.record["results"]["methods"].items()}
    assert beside["student"] == pytest.approx(textgraft.evaluate(done.folder, test, precision="fp32")[metric]["mean"])
    assert beside["teacher"] == pytest.approx(textgraft.evaluate(source, test)[metric]["mean"])
    assert "teacher" in (done.folder / "report.html").read_text()
    own, theirs = textgraft.load(done.folder, precision="fp32"), textgraft.load(source)
    fresh, _ = reviews(200, 9)
    mine, answers = own.outputs(fresh), theirs.outputs(fresh)
    if kind == "multi":
        same = ((mine >= 0.5) == (answers >= 0.5)).mean(axis=0)
        usual = np.maximum((answers >= 0.5).mean(axis=0), (answers < 0.5).mean(axis=0))
        assert same[1] > max(0.8, usual[1] + 0.2)
        assert done.record["agreement"]["metric"] == "subset_accuracy"
    else:
        assert np.corrcoef(mine, answers)[0, 1] > 0.7
        assert done.record["agreement"]["metric"] == "mae"
    assert "held-out texts" in done.record["verdict"]


@pytest.mark.slow
def test_an_ensemble_teaches_a_bert_on_pairs_of_words(bert_lm: Path, tmp_path: Path) -> None:
    """What the members answer together is learned, weights and all."""
    one = linear()
    other = replace(one, run=one.run | {"temperature": 3.0})
    source = save_ensemble({"a": one, "b": other}, {"stage": "finetune"}, tmp_path / "both", weights=[3.0, 1.0])
    done = distil(source, POOL, tmp_path / "out", student=bert_lm, options=options(tmp_path, 6), context=QUIET)
    assert done.record["agreement"]["mean"] > 0.8
    assert len(done.record["teacher"]) == 2


@pytest.mark.slow
def test_labels_can_contradict_the_teacher(teacher: Path, tiny_lm: Path, tmp_path: Path) -> None:
    """With alpha 1 and then fine-tuning, the labels of labelled texts are what the student says of them."""
    right = labelled(120, 5)
    swapped = replace(right, labels=[{"neg": "pos", "pos": "neg"}[str(y)] for y in right.labels or ()])
    asked = options(tmp_path, 4, alpha=1.0, finetune=True)
    done = distil(teacher, POOL[:40], tmp_path / "out", student=tiny_lm, labelled=swapped, options=asked, context=QUIET)
    own = textgraft.load(done.folder, precision="fp32")
    assert own.evaluate(labelled(60, 2))["metrics"]["accuracy"] < 0.3
    assert done.record["labels"] == 120
    assert {row["phase"] for row in done.record["history"]} == {"all", "finetune, all"}


@pytest.mark.slow
def test_a_teacher_that_answers_at_random_is_followed_too(tiny_lm: Path, tmp_path: Path) -> None:
    """A constant answer of 0.7 is what is learned, not a label: the student says 0.7 as well."""
    texts, _ = reviews(100, 1)
    fitted = LinearBaseline().fit(texts, np.arange(100) % 10 // 7, num_classes=2).fitted
    source = artifact.save(LinearArtifact(fitted, LABELS, {"temperature": 50.0}), tmp_path / "t")
    done = distil(source, POOL, tmp_path / "out", student=tiny_lm, options=options(tmp_path, 3), context=QUIET)
    said = textgraft.load(done.folder, precision="fp32").outputs(POOL)
    wanted = textgraft.load(source).outputs(POOL)
    assert np.abs(said - wanted).mean() < 0.08


@pytest.mark.slow
def test_pairs_are_taught_as_pairs(bert_lm: Path, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    pairs = [(str(generator.choice(GOOD + BAD)), str(generator.choice(GOOD))) for _ in range(120)]
    texts = [textgraft.read([pair]).texts[0] for pair in pairs]
    targets = np.array([pair[0] in GOOD for pair in pairs], dtype=np.int64)
    fitted = LinearBaseline().fit(texts, targets, num_classes=2).fitted
    source = artifact.save(LinearArtifact(fitted, LABELS, {"reads": "pairs"}), tmp_path / "t")
    done = distil(source, pairs, tmp_path / "out", student=bert_lm, options=options(tmp_path, 8), context=QUIET)  # type: ignore[arg-type]
    assert done.record["reads"] == "pairs"
    own = textgraft.load(done.folder, precision="fp32")
    assert own.outputs(pairs).shape == (120, 2)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="two texts"):
        distil(source, POOL, tmp_path / "other", student=bert_lm, options=options(tmp_path), context=QUIET)


class Killed(BaseException):
    """What ends a process between two steps."""


def killing_after(count: int, batches: Any) -> Any:
    def cut(self: Any, epoch: int, start: int = 0) -> Iterator[Batch]:
        for number, batch in enumerate(batches(self, epoch, start)):
            if number == count:
                raise Killed
            yield batch

    return cut


def raise_killed(*arguments: Any, **others: Any) -> None:
    raise Killed


@pytest.mark.slow
def test_a_killed_distillation_ends_with_the_same_bits_and_asks_the_teacher_once(
    teacher: Path, tiny_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher_answers, "TEXTS_AT_ONCE", 100)
    often = options(tmp_path, 1, finetune=True, settings=replace(FP32, save_seconds=0.0))
    known = labelled(40, 5)

    def attempt(name: str) -> Any:
        out = tmp_path / name
        return distil(teacher, POOL, out, student=tiny_lm, labelled=known, options=often, context=QUIET)

    whole = attempt("whole")
    outputs, asked = LinearArtifact.outputs, []

    def counting(self: LinearArtifact, texts: Sequence[str], precision: str = "auto") -> Any:
        if len(asked) == 2:
            asked.append(0)
            raise Killed
        asked.append(len(texts))
        return outputs(self, texts, precision)

    monkeypatch.setattr(LinearArtifact, "outputs", counting)
    with pytest.raises(Killed):  # while the teacher answers
        attempt("out")
    batches = ExampleStream.batches
    monkeypatch.setattr(ExampleStream, "batches", killing_after(9, batches))
    for _ in range(3):
        with pytest.raises(Killed):
            attempt("out")
        assert not (tmp_path / "out").exists()
    assert sum(asked) == 300 + 40
    monkeypatch.setattr(ExampleStream, "batches", batches)
    with monkeypatch.context() as patch:
        patch.setattr(classifier, "put_in_place", raise_killed)
        with pytest.raises(Killed):
            attempt("out")
    monkeypatch.setattr(ExampleStream, "batches", raise_killed)  # nothing is trained any more
    attempt("out")
    names = [path.name for path in whole.folder.glob("*.safetensors")]
    assert names == ["model.safetensors"]
    assert (tmp_path / "out/model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()
    assert not (tmp_path / "out.run").exists()


def test_another_question_over_unfinished_work_is_refused(
    teacher: Path, tiny_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExampleStream, "batches", raise_killed)
    asked = options(tmp_path, 1)
    with pytest.raises(Killed):
        distil(teacher, POOL, tmp_path / "out", student=tiny_lm, options=asked, context=QUIET)
    for other, texts in ((replace(asked, temperature=3.0), POOL), (asked, POOL[:200])):
        with pytest.raises(UserError, match=r"differs in: (options|data)"):
            distil(teacher, texts, tmp_path / "out", student=tiny_lm, options=other, context=QUIET)


@pytest.mark.slow
def test_a_test_label_that_the_teacher_lacks_is_a_mistake_of_both(teacher: Path, tiny_lm: Path, tmp_path: Path) -> None:
    texts, labels = reviews(8, 5)
    test = Examples([*texts, "so so"], [*labels, "mixed"], kind="single", source="test.csv")
    told = "1 text has a label that training lacked ('mixed') and counts as a mistake; log loss is of the other 8."
    with pytest.warns(DataWarning, match=re.escape(f"test.csv: {told}")):
        done = distil(
            teacher, POOL, tmp_path / "out", student=tiny_lm, test=test, options=options(tmp_path), context=QUIET
        )
    assert done.comparison is not None
    assert told in done.comparison.verdict()
    assert [done.comparison.scores(one)[0, -1] for one in done.comparison.outcomes] == [0, 0]
    assert "mixed" in (done.folder / "report.html").read_text()


def test_what_a_classifier_cannot_teach_is_explained(teacher: Path, tiny_lm: Path, tmp_path: Path) -> None:
    out, asked = tmp_path / "out", options(tmp_path)
    unknown = Examples(["a", "b"], ["pos", "positiv"], kind="single", source="labelled.csv")
    with pytest.raises(UserError, match=r"labelled.csv line 2: label 'positiv' is not one of: neg, pos. Did you mean"):
        distil(teacher, POOL, out, student=tiny_lm, labelled=unknown, options=asked, context=QUIET)
    others = Examples(["a", "b"], ["ship", "hull"], kind="single", source="test.csv")
    with pytest.raises(UserError, match="not one of: neg, pos"):
        distil(teacher, POOL, out, student=tiny_lm, test=others, options=asked, context=QUIET)
    with pytest.raises(UserError, match="19 different texts are too few"):
        distil(teacher, POOL[:19], out, student=tiny_lm, options=asked, context=QUIET)
    known = labelled(40, 3)
    with pytest.raises(UserError, match="10 different texts are too few"):
        distil(
            teacher, [*known.texts, *POOL[40:50] * 4], out, student=tiny_lm, test=known, options=asked, context=QUIET
        )
    with pytest.raises(UserError, match="the test set has no texts"):
        distil(teacher, POOL, out, student=tiny_lm, test=known.take([]), options=asked, context=QUIET)
    for needing in ({"alpha": 0.3}, {"finetune": True}):
        with pytest.raises(UserError, match="there are no labelled texts"):
            distil(teacher, POOL, out, student=tiny_lm, options=replace(asked, **needing), context=QUIET)
    with pytest.raises(UserError, match="no model 'nobody'"):
        distil("nobody", POOL, out, student=tiny_lm, options=asked, context=QUIET)
    with pytest.raises(UserError, match="linear classifier, not a network"):
        distil(teacher, POOL, out, student=teacher, options=asked, context=QUIET)
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="exists already"):
        distil(teacher, POOL, tmp_path / "there", student=tiny_lm, options=asked, context=QUIET)


@pytest.mark.parametrize("recipe", ["contrastive", "multifit", "gpt"])
def test_recipes_that_want_labels_are_refused(recipe: str, teacher: Path, tiny_lm: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="that are trained on labels") as raised:
        distil(teacher, POOL, tmp_path / "out", student=tiny_lm, options=DistilOptions(recipe), context=QUIET)
    assert raised.value.where == recipe
    assert not list(tmp_path.iterdir())
    assert not (tmp_path / "out.run").exists()


def test_a_model_for_choices_is_no_teacher(bert_lm: Path, tiny_lm: Path, tmp_path: Path) -> None:
    source = loading.load_network(bert_lm)
    head = {"name": "choice", "input_dim": 16, "pooling": "pooled"}
    model = build({"encoder": source.model.describe()["encoder"], "head": head})
    chooser = Artifact(model, source.tokenizer, Labels("choice", ("1", "2")), {"stage": "finetune", "max_tokens": 16})
    folder = artifact.save(chooser, tmp_path / "chooser")
    asked = [Choice("a", ["b", "c"])] * 30
    with pytest.raises(UserError, match="a multiple-choice model"):
        distil(folder, asked, tmp_path / "out", student=tiny_lm, context=QUIET)


@pytest.mark.parametrize(
    "setting", [{"temperature": 0.0}, {"temperature": -1.0}, {"alpha": 1.5}, {"max_tokens": 0}, {"temperature": np.nan}]
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        DistilOptions(**setting)


@pytest.mark.slow
def test_a_bert_of_half_the_layers_opens_as_a_distilbert(bert_lm: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    done = distil(bert_lm, POOL, tmp_path / "small", options=lm_options(tmp_path), context=QUIET)
    held = done.record["held_out"]
    assert held["after"]["loss"] < held["before"]["loss"]
    assert f"{held['teacher']['loss']:.3f}" in done.table()
    assert done.record["sizes"]["student"]["parameters"] < done.record["sizes"]["teacher"]["parameters"]
    assert done.record["distillation"] == {"temperature": 2.0, "soft": 5.0, "hard": 2.0, "hidden": 1.0}
    student = loading.load_network(done.folder)
    assert student.model.encoder.config.num_layers == 2
    assert "Its teacher: `bert-4` (pretrain)" in (done.folder / "README.md").read_text()
    folder = textgraft.convert(done.folder, tmp_path / "hf", to="huggingface")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert type(theirs).__name__ == "DistilBertForMaskedLM"
    sequences, _ = student.encoded(POOL[:1], 48)
    ids = torch.tensor(np.asarray(sequences[0]))[None].long()
    with torch.no_grad():
        expected = theirs(ids).logits.log_softmax(-1)
        found = student.model(Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool)))
    assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.slow
def test_awd_lstms_teach_each_other(tiny_lm: Path, tmp_path: Path) -> None:
    """State and all; and what comes of it is a language model like any other, to be adapted."""
    halves = distil(tiny_lm, POOL, tmp_path / "half", options=lm_options(tmp_path), context=QUIET)
    assert loading.load_network(halves.folder).model.encoder.config.num_layers == 2
    asked = lm_options(tmp_path, from_scratch=True)
    fresh = distil(tiny_lm, POOL, tmp_path / "fresh", student=tiny_lm, options=asked, context=QUIET)
    held = fresh.record["held_out"]
    assert held["after"]["loss"] < held["before"]["loss"] - 0.3
    grown = textgraft.adapt(
        POOL, tmp_path / "grown", model=halves.folder, recipe="default", settings=FP32, context=QUIET
    )
    assert loading.load_network(grown).run["base"]["name"] == "half"


@pytest.mark.slow
def test_a_killed_language_model_ends_with_the_same_bits(
    bert_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = lm_options(tmp_path, settings=replace(FP32, save_seconds=0.0))
    whole = distil(bert_lm, POOL[:100], tmp_path / "whole", options=often, context=QUIET)
    batches = MaskedStream.batches

    def attempt() -> Any:
        return distil(bert_lm, POOL[:100], tmp_path / "out", options=often, context=QUIET)

    for _ in range(2):
        monkeypatch.setattr(MaskedStream, "batches", killing_after(3, batches))
        with pytest.raises(Killed):
            attempt()
    monkeypatch.setattr(MaskedStream, "batches", batches)
    with monkeypatch.context() as patch:
        patch.setattr(language_model, "put_in_place", raise_killed)
        with pytest.raises(Killed):
            attempt()
    attempt()
    assert (tmp_path / "out/model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_what_a_language_model_cannot_teach_is_explained(bert_lm: Path, tiny_lm: Path, tmp_path: Path) -> None:
    out, asked = tmp_path / "out", lm_options(tmp_path)
    for given, name in (
        ({"labelled": labelled(20, 1)}, "labelled texts"),
        ({"test": labelled(20, 1)}, "a test set"),
        ({"options": replace(asked, alpha=0.5)}, "alpha"),
    ):
        with pytest.raises(UserError, match=f"language model without labels, so {name}.*Fine-tune it"):
            distil(bert_lm, POOL, out, context=QUIET, **{"options": asked, **given})
    with pytest.raises(UserError, match="12 texts are too few to distil"):
        distil(bert_lm, POOL[:12], out, options=asked, context=QUIET)
    with pytest.raises(UserError, match="the other masked tokens"):
        distil(bert_lm, POOL, out, student=tiny_lm, options=asked, context=QUIET)
    other = artifact.save(bert(2, texts=reviews(50, 7)[0] + ["zebras"] * 9), tmp_path / "other")
    with pytest.raises(UserError, match="another tokenizer than the teacher"):
        distil(bert_lm, POOL, out, student=other, options=asked, context=QUIET)
    narrow = artifact.save(bert(2, width=8), tmp_path / "narrow")
    with pytest.raises(UserError, match=r"8 dimensions, the teacher's 16.*any-width"):
        distil(bert_lm, POOL, out, student=narrow, options=asked, context=QUIET)
    assert not (tmp_path / "out.run").exists()
    done = distil(bert_lm, POOL, out, student=narrow, options=lm_options(tmp_path, hidden=0.0), context=QUIET)
    assert done.record["base"]["name"] == "bert-2"
    assert loading.load_network(out).model.head.config.next_sentence  # a student that is given keeps its shape


def test_a_bare_encoder_teaches_nothing(bert_lm: Path, tmp_path: Path) -> None:
    source = loading.load_network(bert_lm)
    model = build({"encoder": source.model.describe()["encoder"], "head": {"name": "features", "input_dim": 16}})
    folder = artifact.save(Artifact(model, source.tokenizer, run={"stage": "qa"}), tmp_path / "bare")
    with pytest.raises(UserError, match="no labels: it is a language model"):
        distil(folder, POOL, tmp_path / "out", context=QUIET)


@pytest.mark.parametrize("name", recipe_names("distil"))
def test_every_recipe_that_ships_describes_a_training(name: str) -> None:
    recipe = load_distil_recipe(name)
    assert recipe.name == name
    assert recipe.stage.plan(3)
    assert (recipe.temperature, recipe.soft, recipe.hard) == (2.0, 5.0, 2.0)


def test_distilbert_is_the_default_and_a_wrong_recipe_is_explained(tmp_path: Path) -> None:
    assert load_distil_recipe("default") == load_distil_recipe("distilbert")
    assert load_distil_recipe("distilbert").hidden == 1.0
    with pytest.raises(UserError, match=r"unknown recipe 'distilbrt'.*distilbert"):
        load_distil_recipe("distilbrt")
    path = tmp_path / "r.toml"
    for line, match in (("temprature = 2.0", "unknown key 'temprature'"), ("soft = -1.0", "soft is -1.0")):
        path.write_text(line + LM_RECIPE.format(hidden=1.0))
        with pytest.raises(UserError, match=match):
            load_distil_recipe(str(path))
    path.write_text(LM_RECIPE.format(hidden=1.0).replace("batch_size = 8", "batch_size = 8\nlabel_smoothing = 0.1"))
    with pytest.raises(UserError, match="label_smoothing is for classifiers"):
        load_distil_recipe(str(path))
    known = load_distil_recipe("distilbert")
    with pytest.raises(UserError, match="there is no loss"):
        DistilRecipe(known.name, "", "", known.stage, soft=0.0, hard=0.0, hidden=0.0)
