"""A recipe's pooling: how a classifier makes one vector of a text, in place of its family's own way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_reviews import reviews
from small_comparisons import write_family
from small_models import VOCAB, examples, language_model, masked_language_model

import textgraft
from textgraft.core.context import QUIET, RunContext
from textgraft.core.errors import UserError
from textgraft.core.identity import changed_keys
from textgraft.data.batch import pad
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.heads.classification import ClassificationHead
from textgraft.models.inference import extract_features, predict_logits
from textgraft.models.model import Model, build
from textgraft.nn.pooling import POOLINGS
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.classification.training import EncodedTexts, Plan, as_model, new_classifier, train_classifier
from textgraft.training.phases import Phase, Stage
from textgraft.training.recipes import load_recipe
from textgraft.training.settings import Settings

PHASE = Phase("all", 2, 0.01)
FP32 = Settings(precision="fp32")
SEQUENCES = [np.array(ids) for ids in ([4, 9, 2, 8], [7, 5], [VOCAB - 1])]


def gpt() -> Model:
    encoder = {"name": "gpt", "vocab_size": VOCAB, "embedding_dim": 8, "num_layers": 2, "num_heads": 2}
    encoder |= {"max_length": 16}
    head = {"name": "language_model", "vocab_size": VOCAB, "input_dim": 8, "output_layer": "full"}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return build({"encoder": encoder, "head": head})


FAMILIES = {"awd_lstm": language_model, "bert": masked_language_model, "gpt": gpt}


def plan(family: str, pooling: str | None, kind: str = "single", **given: object) -> Plan:
    stage = Stage((PHASE,), batch_size=4, dropout=0.0, pooling=pooling)
    labels = Labels(kind, ("a", "b") if kind == "single" else ())
    return Plan(FAMILIES[family](), False, stage, FP32, labels, None, pad_id=1, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_head_sees_each_text_so(family: str, pooling: str) -> None:
    """What the layers see is the pooled top layer; an AWD-LSTM's words stand beside it as before."""
    model = new_classifier(plan(family, pooling), seed=0).eval()
    assert isinstance(model.head, ClassificationHead)
    seen = extract_features(model, SEQUENCES, 1, "fp32")
    width = model.encoder.output_dim * (3 if pooling == "concat" else 1)
    assert seen.shape == (3, width + (12 if family == "awd_lstm" else 0))
    encoded = model.encoder(pad(SEQUENCES, 1), keep="top")
    expected = POOLINGS[pooling](encoded.top, encoded.mask, model.encoder.direction)
    torch.testing.assert_close(torch.as_tensor(seen)[:, :width], expected)


def test_without_one_the_familys_own_way_stays() -> None:
    own = {family: new_classifier(plan(family, None), seed=0).head.config.pooling for family in FAMILIES}
    assert own == {"awd_lstm": "concat", "bert": "pooled", "gpt": "last"}
    assert any("pooler" in name for name in new_classifier(plan("bert", None), seed=0).values())


def test_a_pooler_that_nobody_asks_stays_behind() -> None:
    model = new_classifier(plan("bert", "mean"), seed=0)
    assert not any("pooler" in name for name in model.values())


def test_options_are_pooled_so_too() -> None:
    model = new_classifier(plan("gpt", "mean", "choice"), seed=0)
    assert model.head.score.config.pooling == "mean"  # type: ignore[union-attr]


def test_it_comes_before_the_mean_that_another_layers_readout_takes() -> None:
    assert new_classifier(plan("gpt", None, layer_aggregation="sum"), seed=0).head.config.pooling == "mean"
    assert new_classifier(plan("gpt", "max", layer_aggregation="sum"), seed=0).head.config.pooling == "max"


def test_what_is_trained_says_the_same_when_it_is_made_again(tmp_path: Path) -> None:
    stream, asked = examples(24), plan("gpt", "mean")
    texts = EncodedTexts(stream.sequences, stream.targets.numpy())
    trained = train_classifier(asked, texts, {"test": texts}, title="run", context=RunContext(tmp_path, 0, show=False))
    again = predict_logits(as_model(asked, trained), texts.sequences, 1, "fp32")
    np.testing.assert_allclose(again, trained.logits["test"], atol=1e-6)


def test_it_is_part_of_the_identity() -> None:
    plain = Stage((PHASE,))
    for name in POOLINGS:
        assert changed_keys(replace(plain, pooling=name).identity(), plain.identity()) == ["pooling"]


def test_an_unknown_one_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('like = "transformer-small"\nname = "mine"\ndescription = "x"\n[finetune]\npooling = "men"\n')
    with pytest.raises(UserError, match=r"mine\.toml.*unknown pooling 'men'.*Did you mean 'mean'"):
        load_recipe(str(path))


@pytest.mark.parametrize("family", ["gpt", "bert"])
def test_finetune_saves_a_classifier_that_reads_so(family: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\ndescription = "x"\nsource = "none"\n[finetune]\nbatch_size = 8\npooling = "mean"\n'
        '[[finetune.phases]]\nname = "all"\nepochs = 1\nlr = 0.01\n'
    )
    texts, labels = reviews(16, 1)
    train = Examples(texts, labels, "single", source="reviews")
    options = FinetuneOptions(recipe=str(path), baselines=False, folds=0, settings=FP32, max_tokens=24)
    done = finetune(
        train, tmp_path / "out", model=write_family(tmp_path, family), test=train, options=options, context=QUIET
    )
    config = json.loads((done.folder / "config.json").read_text())
    assert config["head"]["pooling"] == "mean"
    found = textgraft.load(done.folder, precision="fp32").outputs(texts)
    assert found == pytest.approx(done.comparison.outcomes[0].outputs[0], abs=1e-5)


def test_a_classifier_on_berts_own_pooler_where_sentences_were_pooled_otherwise() -> None:
    """pooling = "pooled" keeps the encoder's pooler, which other poolings remove, so that the transformers library has
    such a class.
    """
    for pooling, has_pooler in (("pooled", True), ("mean", False)):
        made = new_classifier(plan("bert", pooling), 0)
        assert (made.head.config.pooling, made.encoder.config.pooler) == (pooling, has_pooler)
        assert (made.encoder.pooler is not None) == has_pooler
    with_sentences = new_classifier(replace(plan("bert", "pooled"), pooling="mean"), 0)
    assert with_sentences.head.config.pooling == "pooled"
    gpt_plan = plan("gpt", "pooled")
    model = new_classifier(gpt_plan, 0)
    with pytest.raises(UserError, match="needs an encoder with a pooler"):
        predict_logits(model, SEQUENCES, 1, "fp32")
