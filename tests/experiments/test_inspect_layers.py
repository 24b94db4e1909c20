"""`inspect layers` and `inspect weights`: what is trained is measured once, and what was learned is shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_reviews import reviews
from made_up_tags import sentences, write_encoder

from textgraft import LayerOptions, TagOptions, inspect_layers, inspect_weights, tag_finetune
from textgraft.cli.console import as_options
from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.experiments import layer_aggregation
from textgraft.experiments.layer_aggregation import sampled, summary, verdict
from textgraft.experiments.layer_aggregation_report import table_rows
from textgraft.experiments.layer_tasks import NetworkTagging, Tagging
from textgraft.models import loading
from textgraft.nn.layer_aggregation import LAYER_AGGREGATIONS
from textgraft.tasks.tagging.stacked import Network
from textgraft.training.settings import Settings
from textgraft.word_embeddings.sources import FrozenModel

RECIPE = """
name = "frozen quick"
description = "For tests"
source = "none"
[finetune]
batch_size = 16
[[finetune.phases]]
name = "head"
epochs = 15
trainable = 1
lr = 0.05
"""
TRAIN, TEST = sentences(40, 1), sentences(12, 2)
FP32 = Settings(precision="fp32")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layers")
    write_encoder(folder, "bert", num_layers=4)
    write_encoder(folder, "lstm", num_layers=3)
    (folder / "quick.toml").write_text(RECIPE)
    return folder


def options(desk: Path, *names: str, seeds: int = 1) -> LayerOptions:
    return LayerOptions(str(desk / "quick.toml"), names or tuple(LAYER_AGGREGATIONS), seeds, settings=FP32)


@pytest.mark.slow
def test_each_readout_has_a_row_and_is_measured_once(
    desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle, the same call goes on with what is there."""
    calls: list[str] = []
    train = layer_aggregation.Tagging.trained

    def counted(
        self: layer_aggregation.Tagging, layer_aggregation: str, seed: int, folder: Path, *, show: bool
    ) -> layer_aggregation.Cell:
        if len(calls) == 3:
            calls.append("stopped")
            raise KeyboardInterrupt
        calls.append(f"{layer_aggregation} {seed}")
        return train(self, layer_aggregation, seed, folder, show=show)

    monkeypatch.setattr(layer_aggregation.Tagging, "trained", counted)
    arguments = {"test": TEST, "model": desk / "bert", "options": options(desk, "first", "last", "mix", seeds=2)}
    with pytest.raises(KeyboardInterrupt):
        inspect_layers(TRAIN, tmp_path / "out", show=False, **arguments)
    assert not (tmp_path / "out").exists()
    results = inspect_layers(TRAIN, tmp_path / "out", show=False, **arguments)
    assert calls == ["first 0", "first 1", "last 0", "stopped", "last 1", "mix 0", "mix 1"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == results
    rows = {row["layer_aggregation"]: row for row in results["rows"]}
    assert rows["first"]["score"]["mean"] > 0.8  # a word's embedding tells its part of speech
    assert [row["seeds"] for row in rows.values()] == [2, 2, 2]
    whole = inspect_layers(TRAIN, tmp_path / "whole", show=False, **arguments)
    for name, row in rows.items():
        other = next(one for one in whole["rows"] if one["layer_aggregation"] == name)
        assert {**row, "minutes": 0} == {**other, "minutes": 0}


def test_rows_are_of_all_seeds_together(desk: Path) -> None:
    cells = {
        "first": [{"part": [1, 0, 2], "whole": [2, 2, 2], "minutes": 1.0}, {"part": [2, 1, 2], "whole": [2, 2, 2]}],
        "last": [{"part": [2, 2, 2], "whole": [2, 2, 2], "minutes": 1.0}] * 2,
    }
    cells["first"][1]["minutes"] = 3.0
    first, last = summary(cells, (16, 16, 16))
    assert first["score"]["mean"] == pytest.approx(8 / 12)
    assert first["score"]["low"] <= first["score"]["mean"] <= first["score"]["high"]
    assert first["spread"] == pytest.approx(abs(3 / 6 - 5 / 6) / 2**0.5)
    assert (first["minutes"], first["width"]) == (2.0, 16)
    assert first["against_last"]["difference"] == pytest.approx(-4 / 12)
    assert last["against_last"] is None
    assert verdict([first, last], "accuracy")[0].startswith("Best is last: accuracy 100.0 %")
    assert verdict([first, last], "mae")[0].startswith("Best is first")


def test_texts_with_labels_and_what_a_model_does_not_allow(desk: Path, tmp_path: Path) -> None:
    """An AWD-LSTM's widths differ, so nothing is added up; its embeddings know which words are in a review."""
    train, test = (Examples(*reviews(n, seed), "single", source=f"reviews {seed}") for n, seed in ((40, 1), (20, 2)))
    chosen = options(desk, "first", "last", "sum")
    out = tmp_path / "out"
    results = inspect_layers(train, out, test=test, model=desk / "lstm", options=chosen, show=False)
    assert [row["layer_aggregation"] for row in results["rows"]] == ["first", "last"]
    assert "adds layers up" in results["left_out"]["sum"]
    assert (results["metric"], results["unit"], results["sizes"]) == ("accuracy", "texts", {"train": 40, "test": 20})
    head, rows = table_rows(results)
    assert head[0] == "layer aggregation"
    assert rows[0][2].endswith("]")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Left out: the layer aggregation" in page


def test_data_of_two_kinds_and_impossible_readouts_are_refused(desk: Path, tmp_path: Path) -> None:
    texts = Examples(*reviews(10), "single", source="reviews")
    for test, names, told in ((texts, (), "tagged sentences and texts"), (TEST, ("sum",), "allows none of these")):
        chosen = options(desk, *names)
        with pytest.raises(UserError, match=told):
            inspect_layers(TRAIN, tmp_path / "out", test=test, model=desk / "lstm", options=chosen, show=False)
    with pytest.raises(UserError, match="Did you mean 'first'"):
        options(desk, "frist")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("num_layers", [0, 2])
def test_a_network_learns_from_vectors_that_are_computed_once(
    desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_layers: int
) -> None:
    """Each sentence of both files is encoded once for each layer aggregation, however many seeds and epochs."""
    encoded: list[str] = []
    vectors = FrozenModel.vectors

    def counted(self: FrozenModel, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        encoded.extend(f"{self.layer_aggregation} {' '.join(words)}" for words in sentences)
        return vectors(self, sentences)

    monkeypatch.setattr(FrozenModel, "vectors", counted)
    (tmp_path / "lstm.toml").write_text(RECIPE.replace("trainable = 1\n", "").replace("0.05", "0.02"))
    projection_dim = 8 if num_layers else 0
    network = Network(hidden_dim=16, num_layers=num_layers, projection_dim=projection_dim, character_filters=0)
    chosen = replace(
        options(desk, "first", "last", "mix", seeds=2), recipe=str(tmp_path / "lstm.toml"), network=network
    )
    results = inspect_layers(TRAIN, tmp_path / "out", test=TEST, model=desk / "bert", options=chosen, show=False)
    sentences_read = {" ".join(s.words) for s in (*TRAIN.sentences, *TEST.sentences)}
    assert sorted(encoded) == sorted(f"{name} {words}" for name in ("first", "last") for words in sentences_read)
    assert [(row["layer_aggregation"], row["seeds"]) for row in results["rows"]] == [("first", 2), ("last", 2)]
    assert results["rows"][0]["score"]["mean"] > 0.8
    assert "parameters" in results["left_out"]["mix"]
    assert not list(tmp_path.glob("**/*.f16"))


def test_a_network_over_words_needs_words(desk: Path, tmp_path: Path) -> None:
    texts = Examples(*reviews(10), "single", source="reviews")
    chosen = replace(options(desk, "first"), network=Network())
    with pytest.raises(UserError, match="needs tagged sentences") as error:
        inspect_layers(texts, tmp_path / "out", test=texts, model=desk / "bert", options=chosen, show=False)
    assert as_options(error.value.remedy).startswith("Leave out --lstm-layers")


def test_the_recipe_follows_the_head(desk: Path) -> None:
    source = loading.load_network(desk / "bert")
    linear, network = LayerOptions(), LayerOptions(network=Network())
    assert Tagging(source, TRAIN, TEST, linear).recipe == "frozen"
    assert NetworkTagging(source, TRAIN, TEST, network, Network()).recipe == "tagger"
    assert NetworkTagging(source, TRAIN, TEST, replace(network, recipe="default"), Network()).recipe == "tagger"


def test_a_larger_sample_holds_a_smaller_one() -> None:
    assert set(sampled(TRAIN, 5).sentences) < set(sampled(TRAIN, 20).sentences)
    texts = Examples(*reviews(30), "single", source="reviews")
    assert set(sampled(texts, 6).texts) < set(sampled(texts, 12).texts)
    assert sampled(TRAIN, 1000) is sampled(TRAIN, None) is TRAIN


def tagger(desk: Path, out: Path, layer_aggregation: str) -> Path:
    chosen = TagOptions(str(desk / "quick.toml"), layer_aggregation=layer_aggregation, baseline=False, settings=FP32)
    return tag_finetune(TRAIN, out, model=desk / "bert", test=TEST, options=chosen, context=QUIET).folder


def test_weights_are_those_that_the_models_have_learned(desk: Path, tmp_path: Path) -> None:
    models = [tagger(desk, tmp_path / name, name) for name in ("mix", "elmo-mix")]
    results = inspect_weights(models, tmp_path / "out")
    assert [one["name"] for one in results["models"]] == ["mix", "elmo-mix"]
    for model, one in zip(models, results["models"], strict=True):
        saved = loading.load_network(model).model.layer_aggregation
        assert saved is not None
        logits = saved.weights.detach().numpy().astype(np.float64)
        np.testing.assert_allclose(one["shares"], np.exp(logits) / np.exp(logits).sum(), rtol=1e-5)
        assert one["gamma"] == pytest.approx(saved.scale.item())
        assert one["layers"] == ["embeddings", "layer 1", "layer 2", "layer 3", "layer 4"]
        assert (one["task"], one["base"]) == ("tagging", "bert")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "gamma" in page


def test_models_without_a_mix_are_refused(desk: Path, tmp_path: Path) -> None:
    for models, told in (([desk / "bert"], "has no learned mix"), ([], "no models are given")):
        with pytest.raises(UserError, match=told):
            inspect_weights(models, tmp_path / "out")
    assert not list(tmp_path.iterdir())
