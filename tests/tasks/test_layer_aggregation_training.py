"""Classifiers, taggers and readers that read other layers than the last: trained, saved, loaded, resumed, refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_up_questions
import made_up_tags
import pytest
import torch
from made_up_questions import questions, write_recipe
from made_up_reviews import reviews
from made_up_tags import sentences

from textgraft import FinetuneOptions, QAModel, QAOptions, Tagger, TagOptions, finetune
from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.core.identity import changed_keys
from textgraft.data.batch import Batch
from textgraft.data.examples import Examples
from textgraft.data.squad import parse_squad
from textgraft.data.streams.words import WordStream
from textgraft.data.windows import WindowSettings
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.nn.layer_aggregation import LAYER_AGGREGATIONS
from textgraft.tasks.classification import predictor
from textgraft.tasks.classification.preflight import validate_finetune
from textgraft.tasks.question_answering.finetune import new_qa_model, qa_finetune
from textgraft.tasks.tagging.finetune import tag_finetune
from textgraft.text.wordpiece import train as train_wordpiece
from textgraft.training.driver import work_path
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

FP32 = Settings(precision="fp32")
TRAIN, TEST = sentences(40, 1, names=True), sentences(10, 2, names=True)
FROZEN = """
name = "frozen quick"
description = "For tests"
source = "none"
[finetune]
batch_size = 8
[[finetune.phases]]
name = "head"
epochs = {epochs}
trainable = 1
lr = 0.05
"""


@pytest.fixture(scope="module")
def tagging_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up_tags.write_encoder(tmp_path_factory.mktemp("models"), "bert", num_layers=4)


@pytest.fixture(scope="module")
def reading_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of four layers and with a pooler; it knows the words of reviews."""
    texts = reviews(50)[0]
    tokenizer = train_wordpiece(texts, vocab_size=300)
    encoder = {"name": "bert", "vocab_size": tokenizer.vocab_size, "embedding_dim": 8, "num_layers": 4, "num_heads": 2}
    encoder |= {"feed_forward_dim": 16, "max_length": 40, "pooler": True}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build({"encoder": encoder, "head": {"name": "features", "input_dim": 8}})
    run = {"name": "tiny", "stage": "pretrain", "licence": "", "language": "en"}
    return artifact.save(Artifact(model, tokenizer, None, run), tmp_path_factory.mktemp("reviews") / "bert")


def frozen(folder: Path, epochs: int = 1) -> str:
    path = folder / f"frozen-{epochs}.toml"
    path.write_text(FROZEN.format(epochs=epochs))
    return str(path)


def examples(count: int, seed: int) -> Examples:
    texts, labels = reviews(count, seed)
    return Examples(texts, labels, "single", source=f"reviews {seed}")


def grown(model: Path, out: Path, recipe: str, **options: Any) -> Path:
    """A classifier of 16 reviews without anything beside it."""
    asked = FinetuneOptions(recipe=recipe, baselines=False, settings=FP32, max_tokens=24, **options)
    finetune(examples(16, 1), out, model=model, test=examples(8, 2), options=asked, context=QUIET)
    return out


def encoders_values(model: Any) -> dict[str, torch.Tensor]:
    return {name: value for name, value in model.values().items() if name.startswith("encoder.")}


@pytest.mark.parametrize("layer_aggregation", LAYER_AGGREGATIONS)
def test_a_frozen_tagger_reads_any_layers(layer_aggregation: str, tagging_bert: Path, tmp_path: Path) -> None:
    """Nothing but the head, with what its layer aggregation learns, moves; loaded, it says what it said."""
    asked = TagOptions(recipe=frozen(tmp_path), settings=FP32, layer_aggregation=layer_aggregation, baseline=False)
    done = tag_finetune(TRAIN, tmp_path / "out", model=tagging_bert, test=TEST, options=asked, context=QUIET)
    assert done.record["layer_aggregation"] == layer_aggregation
    loaded = Tagger(done.folder, precision="fp32")
    assert [r.tags for r in loaded.tag(TEST.sentences)] == [r.tags for r in done.predictions]
    model = loading.load_network(done.folder).model
    assert model.head.config.layer_aggregation == layer_aggregation
    assert model.head.config.input_dim == (64 if layer_aggregation == "concat-last-4" else 16)
    before = encoders_values(loading.load_network(tagging_bert).model)
    assert all(torch.equal(value, before[name]) for name, value in encoders_values(model).items())
    if layer_aggregation == "mix":
        assert model.layer_aggregation is not None
        learned = dict(model.layer_aggregation.named_parameters())
        assert learned["scale"] != 1
        assert learned["weights"].std() > 0


@pytest.mark.slow
def test_a_mix_is_worth_learning(tagging_bert: Path, tmp_path: Path) -> None:
    """Of an untrained encoder the embeddings know most of a word, and the mix finds that out."""
    asked = TagOptions(recipe=str(write_recipe(tmp_path, 6)), settings=FP32, layer_aggregation="mix", baseline=False)
    plain = sentences(150, 1), sentences(20, 2)
    done = tag_finetune(plain[0], tmp_path / "out", model=tagging_bert, test=plain[1], options=asked, context=QUIET)
    assert done.record["results"]["methods"]["tagger"]["accuracy"]["mean"] > 0.9


def test_a_run_of_another_layer_aggregation_is_another_run(tagging_bert: Path, tmp_path: Path) -> None:
    asked = TagOptions(recipe=frozen(tmp_path), settings=FP32, layer_aggregation="sum", baseline=False)
    for options in (FinetuneOptions(), QAOptions(), TagOptions()):
        mixed = replace(options, layer_aggregation="mix").identity()
        assert changed_keys(mixed, options.identity()) == ["layer_aggregation"]
    work = work_path(tmp_path / "out")
    tag_finetune(TRAIN, tmp_path / "done", model=tagging_bert, test=TEST, options=asked, context=QUIET)
    plans = []
    for layer_aggregation in ("sum", "last"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("textgraft.tasks.tagging.finetune.drive", stop)
            options = replace(asked, layer_aggregation=layer_aggregation)
            with pytest.raises(KeyboardInterrupt):
                tag_finetune(TRAIN, tmp_path / "out", model=tagging_bert, test=TEST, options=options, context=QUIET)
        plans.append(json.loads((work / "plan.json").read_text()))
        (work / "plan.json").unlink()
    assert changed_keys(*plans) == ["options.layer_aggregation"]
    (work / "plan.json").write_text(json.dumps(plans[1]))
    (work / "tagger.checkpoint.safetensors").write_bytes(b"something")
    with pytest.raises(UserError, match=r"an unfinished run is here that differs in: options\.layer_aggregation\."):
        tag_finetune(TRAIN, tmp_path / "out", model=tagging_bert, test=TEST, options=asked, context=QUIET)


def test_a_killed_run_with_a_mix_ends_with_the_same_bits(
    tagging_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(FP32, save_seconds=0.0)
    asked = TagOptions(
        recipe=str(write_recipe(tmp_path, 1)), settings=settings, layer_aggregation="mix", baseline=False
    )
    common: dict[str, Any] = {"model": tagging_bert, "test": TEST, "options": asked, "context": QUIET}
    whole = tag_finetune(TRAIN, tmp_path / "whole", **common)
    batches = WordStream.batches

    def killing(self: WordStream, epoch: int, start: int = 0) -> Iterator[Batch]:
        for number, batch in enumerate(batches(self, epoch, start)):
            if number == 2:
                raise KeyboardInterrupt
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(WordStream, "batches", killing)
        with pytest.raises(KeyboardInterrupt):
            tag_finetune(TRAIN, tmp_path / "out", **common)
    assert (work_path(tmp_path / "out") / "tagger.checkpoint.safetensors").exists()
    done = tag_finetune(TRAIN, tmp_path / "out", **common)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (whole.folder, done.folder)]
    assert weights[0] == weights[1]


def stop(*arguments: Any, **others: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("layer_aggregation", ["second-to-last", "concat-last-4", "mix"])
def test_a_classifier_reads_the_mean_of_other_layers_without_a_pooler(
    layer_aggregation: str, reading_bert: Path, tmp_path: Path
) -> None:
    out = grown(reading_bert, tmp_path / "out", str(write_recipe(tmp_path, 1)), layer_aggregation=layer_aggregation)
    model = loading.load_network(out).model
    head: Any = model.head.config
    assert (head.layer_aggregation, head.pooling) == (layer_aggregation, "mean")
    assert not model.describe()["encoder"]["pooler"]
    assert json.loads((out / "run.json").read_text())["layer_aggregation"] == layer_aggregation
    with pytest.MonkeyPatch.context() as patch:  # what a killed run finds is used; nothing is trained twice
        patch.setattr("textgraft.tasks.classification.training.drive", stop)
        with pytest.raises(KeyboardInterrupt):
            grown(reading_bert, tmp_path / "again", str(write_recipe(tmp_path, 1)), layer_aggregation=layer_aggregation)
    grown(reading_bert, tmp_path / "again", str(write_recipe(tmp_path, 1)), layer_aggregation=layer_aggregation)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (out, tmp_path / "again")]
    assert weights[0] == weights[1]
    texts = list(examples(8, 2).texts)
    assert predictor.load_classifier(out).embed(texts, layers=layer_aggregation).shape == (
        8,
        32 if layer_aggregation == "concat-last-4" else 8,
    )


def test_without_a_readout_a_classifier_is_as_before(reading_bert: Path, tmp_path: Path) -> None:
    model = loading.load_network(grown(reading_bert, tmp_path / "out", str(write_recipe(tmp_path, 1)))).model
    head: Any = model.head.config
    assert (head.layer_aggregation, head.pooling, model.layer_aggregation) == ("last", "pooled", None)
    assert any(name.startswith("encoder.pooler") for name in model.values())


def test_ulmfit_keeps_its_pooling_and_its_words(tiny_lm: Path, tmp_path: Path) -> None:
    model = loading.load_network(
        grown(tiny_lm, tmp_path / "out", frozen(tmp_path), layer_aggregation="second-to-last")
    ).model
    head: Any = model.head.config
    assert (head.pooling, head.words_dim, head.input_dim) == ("concat", 16, 24)


def test_a_reader_reads_other_layers_and_learns_on(tmp_path: Path) -> None:
    bert = made_up_questions.write_encoder(tmp_path, "bert", num_layers=4)
    train, test = parse_squad(questions(40, 1)), parse_squad(questions(10, 2))
    asked = QAOptions(
        recipe=str(write_recipe(tmp_path, 2)),
        windows=WindowSettings(max_tokens=24, stride=6),
        settings=FP32,
        baseline=False,
        layer_aggregation="mix",
    )
    done = qa_finetune(train, tmp_path / "out", model=bert, test=test, options=asked, context=QUIET)
    assert done.record["layer_aggregation"] == "mix"
    reader = QAModel(done.folder, precision="fp32")
    assert [r.text for r in reader.answer(test)] == [r.text for r in done.predictions]
    before = loading.load_network(done.folder).model
    stage = load_recipe("transformer").finetune
    again = new_qa_model(before, stage, seed=9, layer_aggregation="mix")
    assert all(torch.equal(again.values()[name], value) for name, value in before.values().items())
    fresh = new_qa_model(before, stage, seed=9)
    assert fresh.layer_aggregation is None
    assert not torch.equal(fresh.head.output.weight, before.head.output.weight)
    encoder = before.encoder.state_dict()
    assert all(torch.equal(encoder[name], value) for name, value in fresh.encoder.state_dict().items())


def test_impossible_readouts_are_refused_before_anything_is_written(tiny_lm: Path, tmp_path: Path) -> None:
    """The tiny ULMFiT has widths 16, 24, 24, 16."""
    possible = r"Possible with this model: first, last, second-to-last\."
    with pytest.raises(UserError, match=possible):
        grown(tiny_lm, tmp_path / "out", frozen(tmp_path), layer_aggregation="mix")
    options = FinetuneOptions(layer_aggregation="sum")
    with pytest.raises(UserError, match=possible):
        validate_finetune(examples(16, 1), model=tiny_lm, held_out=[examples(8, 2)], options=options)
    with pytest.raises(UserError, match=possible):
        tag_finetune(
            TRAIN, tmp_path / "out", model=tiny_lm, options=TagOptions(layer_aggregation="sum-last-4"), context=QUIET
        )
    squad = parse_squad(questions(10, 1))
    with pytest.raises(UserError, match=possible):
        qa_finetune(
            squad, tmp_path / "out", model=tiny_lm, options=QAOptions(layer_aggregation="concat-last-4"), context=QUIET
        )
    assert not list(tmp_path.glob("out*"))
    for kind in (FinetuneOptions, TagOptions, QAOptions):
        with pytest.raises(UserError, match=r"unknown layer aggregation 'lst'.*Did you mean 'last'"):
            kind(layer_aggregation="lst")


def test_a_phase_that_trains_nothing_the_head_reads_says_so(tagging_bert: Path, tmp_path: Path) -> None:
    path = tmp_path / "top.toml"
    path.write_text(FROZEN.format(epochs=1).replace("trainable = 1", "only = -2"))
    asked = TagOptions(recipe=str(path), settings=FP32, layer_aggregation="second-to-last", baseline=False)
    with pytest.raises(UserError, match="the head does not depend on any parameter that the phase 'head' trains"):
        tag_finetune(TRAIN, tmp_path / "out", model=tagging_bert, test=TEST, options=asked, context=QUIET)
