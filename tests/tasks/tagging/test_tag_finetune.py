"""Fine-tuning to tag words: it learns, with every family, and a run that was killed ends with the same bits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_up_questions import encoder, write_recipe
from made_up_tags import TEXT, sentences, write_encoder

from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.conll import Sentence, Tagged, read_conll
from textgraft.data.streams.words import WordStream
from textgraft.data.words import word_windows
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification import predictor
from textgraft.tasks.export import graph_of
from textgraft.tasks.tagging import finetune as stage
from textgraft.tasks.tagging.finetune import TagOptions, new_tagger, resolved_options, tag_finetune
from textgraft.tasks.tagging.network import NetworkTagger, decoded, word_logits
from textgraft.tasks.tagging.predictor import Tagger, tag_all
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings
from textgraft.word_embeddings.contextual import word_vectors

TRAIN, TEST = sentences(150, 1, names=True), sentences(30, 2, names=True)
FP32 = Settings(precision="fp32")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("models"), "bert")


def options(folder: Path, epochs: int = 1, **others: Any) -> TagOptions:
    return TagOptions(**{"recipe": str(write_recipe(folder, epochs)), "settings": FP32} | others)


@pytest.mark.slow
def test_learns_entities_and_is_measured_beside_the_baseline(bert: Path, tmp_path: Path) -> None:
    done = tag_finetune(TRAIN, tmp_path / "out", model=bert, test=TEST, options=options(tmp_path, 24), context=QUIET)
    results = done.record["results"]
    assert results["methods"]["tagger"]["f1"]["mean"] > 0.9
    assert results["methods"]["frequent tag"]["f1"]["mean"] < 0.5  # the name of a noun is in the word before
    assert "better than each word's most frequent tag" in results["verdict"]
    assert (results["test_n"], results["labels"], results["metric"]) == (30, TRAIN.words, "f1")
    assert set(results["types"]) == {"person", "place"}
    assert results["verdict"] in done.table()
    assert not (tmp_path / "out.run").exists()
    card = (done.folder / "README.md").read_text()
    assert "fine-tuned to tag words" in card
    assert "30 held-out sentences" in card
    columns = [line.split(" ") for line in (done.folder / "predictions.conll").read_text().splitlines() if line]
    assert [row[0] for row in columns] == [w for s in TEST.sentences for w in s.words]
    assert [row[1] for row in columns] == [t for s in TEST.sentences for t in s.tags]
    assert [row[2] for row in columns] == [t for r in done.predictions for t in r.tags]
    tagger = Tagger(done.folder, precision="fp32")
    assert tagger.evaluate(TEST)["f1"] == results["methods"]["tagger"]["f1"]
    prediction = tagger.tag_texts(["captain  river lamp sees.", " "])[0]
    assert [(m.type, m.text, m.start, m.end) for m in prediction.mentions] == [("person", "river lamp", 9, 19)]
    assert 0 < prediction.mentions[0].probability <= 1
    with pytest.raises(UserError, match=r"it tags words\."):
        predictor.load_classifier(done.folder)


SLOWER = [pytest.param(family, True, marks=pytest.mark.slow) for family in ("xl", "backward")]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "crf"), [("gpt", False), ("lstm", True), *SLOWER])
def test_every_family_learns(family: str, crf: bool, tmp_path: Path) -> None:
    source = write_encoder(tmp_path, family)
    asked = options(tmp_path, 14, crf=crf, scheme="BIOES" if crf else "IOB2")
    names = family != "backward"  # which has not read the word before
    clauses = 1 if family == "gpt" else 2
    train, test = (sentences(n, seed, names=names, clauses=clauses) for n, seed in ((150, 1), (20, 2)))
    done = tag_finetune(train, tmp_path / "out", model=source, test=test, options=asked, context=QUIET)
    tagger = done.record["results"]["methods"]["tagger"]
    assert tagger["f1" if names else "accuracy"]["mean"] > 0.8, tagger
    assert done.record["subword_pooling"] == ("first" if family == "backward" else "last")
    loaded = Tagger(done.folder, precision="fp32")
    assert loaded.config.scheme == (("BIOES" if crf else "IOB2") if names else "plain")
    assert [r.tags for r in loaded.tag(test.sentences)] == [r.tags for r in done.predictions]


class Killed(BaseException):
    """What ends a process between two steps."""


def kill(*arguments: Any, **others: Any) -> None:
    raise Killed


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bits(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    often = options(tmp_path, 2, settings=replace(FP32, save_seconds=0.0))
    parts: dict[str, Tagged] = {"valid": TEST.sample(6), "test": TEST}
    whole = tag_finetune(TRAIN, tmp_path / "whole", model=bert, options=often, context=QUIET, **parts)
    batches = WordStream.batches

    def killing(self: WordStream, epoch: int, start: int = 0) -> Iterator[Batch]:
        for number, batch in enumerate(batches(self, epoch, start)):
            if number == 3:
                raise Killed
            yield batch

    def attempt() -> None:
        tag_finetune(TRAIN, tmp_path / "out", model=bert, options=often, context=QUIET, **parts)

    for _ in range(3):
        monkeypatch.setattr(WordStream, "batches", killing)
        with pytest.raises(Killed):
            attempt()
        assert not (tmp_path / "out").exists()
    monkeypatch.setattr(WordStream, "batches", batches)
    with monkeypatch.context() as patch:
        patch.setattr(stage, "put_in_place", kill)
        with pytest.raises(Killed):  # trained, but not yet in place
            attempt()
    other = replace(often, max_tokens=30)
    with pytest.raises(UserError, match="an unfinished run is here that differs in: options"):
        tag_finetune(TRAIN, tmp_path / "out", model=bert, options=other, context=QUIET, **parts)
    monkeypatch.setattr(WordStream, "batches", kill)  # nothing is trained any more
    attempt()
    for name in ("model.safetensors", "predictions.conll"):
        assert (tmp_path / "out" / name).read_bytes() == (whole.folder / name).read_bytes(), name
    history = json.loads((tmp_path / "out" / "run.json").read_text())["history"]
    assert [(row["epoch"], row["f1"]) for row in history] == [(r["epoch"], r["f1"]) for r in whole.record["history"]]


def test_without_a_test_sentences_are_held_out(bert: Path, tmp_path: Path) -> None:
    asked = options(tmp_path, held_out=0.2, baseline=False)
    done = tag_finetune(sentences(60, 1), tmp_path / "out", model=bert, options=asked, context=QUIET)
    data = done.record["data"]
    assert data["train"]["sentences"] + data["held out"]["sentences"] == 60
    assert done.record["sentences_in_training_too"] == {"held out": 0}
    assert done.record["evaluation_split"] == "held out"
    assert "no baseline was run" in done.record["results"]["verdict"]
    assert done.record["results"]["metric"] == "accuracy"


def test_the_encoder_starts_as_it_was_and_its_pooler_stays_behind(bert: Path) -> None:
    source = loading.load_network(bert)
    recipe = stage.load_recipe("transformer").finetune
    made = [
        stage.new_tagger(source.model, recipe, TRAIN, TagOptions(settings=replace(FP32, seed=s))) for s in (1, 1, 2)
    ]
    values = made[0].encoder.state_dict()
    assert not any(name.startswith("pooler") for name in values)
    assert all(torch.equal(value, source.model.encoder.state_dict()[name]) for name, value in values.items())
    first, again, other = (model.head.output.weight.detach() for model in made)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.slow
def test_long_sentences_are_tagged_whole(tmp_path: Path) -> None:
    source = write_encoder(tmp_path, "lstm")
    train = sentences(150, 1, names=True, clauses=3)
    long = Tagged(tuple(Sentence.of(s.words * 8, s.tags * 8) for s in TEST.sentences[:12]), "IOB2")
    asked = options(tmp_path, 14, max_tokens=10)
    done = tag_finetune(train, tmp_path / "out", model=source, test=long, options=asked, context=QUIET)
    assert [len(r.tags) for r in done.predictions] == [len(s) for s in long.sentences]
    assert done.record["coverage"]["train"]["windowed"] > 0
    assert done.record["coverage"]["test"]["windowed"] == 0  # an encoder that hands on its state
    assert done.record["coverage"]["test"]["cut_words"] == 0
    assert done.record["results"]["methods"]["tagger"]["f1"]["mean"] > 0.8


@pytest.mark.parametrize("family", ["lstm", "backward", "xl"])
@pytest.mark.parametrize("layer_aggregation", ["last", "second-to-last"])
def test_a_state_that_is_handed_on_reads_a_sentence_as_if_at_once(family: str, layer_aggregation: str) -> None:
    """Whatever the window, by the words' vectors too (contextual); a memory of bounded length reads windows."""
    source = encoder(family, TEXT, num_layers=2)
    asked = resolved_options(TagOptions(layer_aggregation=layer_aggregation, settings=FP32), source)
    model = new_tagger(source.model, load_recipe("tagger").finetune, TEST, asked).eval()
    tagger = Artifact(model, source.tokenizer)
    short = [Sentence.of(s.words * n) for n, s in enumerate(TEST.sentences[:7], start=1)]
    words, direction = [s.words for s in short], model.encoder.direction
    windows, _ = word_windows(source.tokenizer, words, 1 << 20, direction=direction)
    at_once = word_logits(model, windows, [len(s) for s in short], source.tokenizer.pad_id, "fp32")
    wanted = [probabilities for _, probabilities in decoded(model, at_once)]
    found = {}
    for most in (5, 24, 10_000):
        predictions, coverage = tag_all(NetworkTagger(tagger, "fp32"), short, most)
        found[most] = np.concatenate([prediction.probabilities for prediction in predictions])
        assert (coverage.windowed > 0) == (family == "xl" and most < 10_000)
    np.testing.assert_allclose(found[10_000], np.concatenate(wanted), atol=1e-5)
    alike = [np.abs(found[most] - found[10_000]).max() < 1e-5 for most in (5, 24)]
    assert alike == ([False, False] if family == "xl" else [True, True])
    if family != "xl":
        vectors = word_vectors(source, words, window=6, layer_aggregation=layer_aggregation, precision="fp32")
        scores = model.head.output(torch.from_numpy(np.concatenate(vectors)))  # the encoder is as it was
        np.testing.assert_allclose(scores.detach().numpy(), np.concatenate(at_once), atol=1e-4)


def test_mistakes(bert: Path, tmp_path: Path) -> None:
    def attempt(test: Tagged, **others: Any) -> None:
        tag_finetune(TRAIN, tmp_path / "out", model=bert, test=test, options=options(tmp_path, **others), context=QUIET)

    with pytest.raises(UserError, match="these tags are plain, and the training tags IOB2"):
        attempt(sentences(3, 1))
    empty = replace(TEST, sentences=(Sentence.of(["a"], ["O"]),))
    with pytest.raises(UserError, match="contain no entity"):
        attempt(empty)
    mistakes = {"scheme": ("IOB", "learned as 'IOB'"), "subword_pooling": ("x", "unknown subword_pooling 'x'")}
    for settings, told in (({name: value}, told) for name, (value, told) in mistakes.items()):
        with pytest.raises(UserError, match=told):
            attempt(TEST, **settings)
    with pytest.raises(UserError, match="does not tag words"):
        Tagger(bert)
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="exists already"):
        tag_finetune(TRAIN, tmp_path / "there", model=bert, test=TEST, context=QUIET)
    assert not (tmp_path / "out").exists()


def test_other_tags_are_refused_in_evaluation(bert: Path, tmp_path: Path) -> None:
    done = tag_finetune(TRAIN, tmp_path / "out", model=bert, test=TEST, options=options(tmp_path), context=QUIET)
    with pytest.raises(UserError, match="this model gives entities, and the file has other tags"):
        Tagger(done.folder).evaluate(sentences(3, 1))
    assert read_conll(done.folder / "predictions.conll", tag="3").scheme == "IOB2"


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_invisible_characters_move_no_tag_and_offsets_are_of_the_users_text(family: str, tmp_path: Path) -> None:
    """The graph too; words that are given one by one keep their number."""
    source = encoder(family, TEXT)
    head = new_tagger(source.model, load_recipe("tagger").finetune, TRAIN, TagOptions())
    trained = Artifact(head, source.tokenizer, run={"max_tokens": 40})
    clean, given = "captain river lamp sees.", "cap\u00adtain\u00a0 river\tla\u200bmp\ufeff sees."
    for model in (trained, graph_of(trained)):
        tagger = Tagger(model, precision="fp32")
        expected, tagged = tagger.tag_texts([clean, given])
        assert (tagged.tags, tagged.probabilities) == (expected.tags, expected.probabilities)
        assert [given[a:b] for a, b in tagged.sentence.spans] == list(tagged.sentence.words)
        assert tagged.sentence.words[:3] == ("cap\u00adtain", "river", "la\u200bmp")
        words = tagger.tag([["cap\u00adtain", "river", "la\u200bmp", "sees", "."], ["\u200b", "\u00a0", "lamp"]])
        assert words[0].tags == expected.tags
        assert len(words[1].tags) == 3
