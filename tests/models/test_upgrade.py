"""Folders of earlier versions: settings, keys of run.json and weights by their present names."""

from __future__ import annotations

import json
from pathlib import Path

from made_up_questions import encoder

from textgraft.heads.tagging import TaggingHead
from textgraft.models import artifact, loading
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.models.sentence_embedding import SentenceEmbedding
from textgraft.models.upgrade import upgraded_config, upgraded_run, upgraded_weights
from textgraft.text.tokenizer import Tokenizer


def test_settings_of_the_parts_have_their_present_names() -> None:
    config = {
        "encoder": {"name": "bert"},
        "head": {"name": "tagging", "piece": "last", "readout": "sum"},
        "stack": [{"name": "a", "readout": "mix"}],
        "onnx": {"task": "tagging", "piece": "first"},
        "files": {"piece": "0"},
    }
    assert upgraded_config(config) == {
        "encoder": {"name": "bert"},
        "head": {"name": "tagging", "subword_pooling": "last", "layer_aggregation": "sum"},
        "stack": [{"name": "a", "layer_aggregation": "mix"}],
        "onnx": {"task": "tagging", "subword_pooling": "first"},
        "files": {"piece": "0"},
    }


def test_keys_of_a_run_and_names_of_weights() -> None:
    run = {"stage": "tag", "piece": "last", "suits": "tagger"}
    assert upgraded_run(run) == {"stage": "tag", "subword_pooling": "last", "recommended_recipe": "tagger"}
    assert upgraded_weights({"readout.weights": 1, "head.output.weight": 2}) == {
        "layer_aggregation.weights": 1,
        "head.output.weight": 2,
    }


def test_a_tagger_saved_with_the_old_name_opens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["a b c d"] * 4, vocab_size=40)
    encoder = {"name": "awd_lstm", "vocab_size": tokenizer.vocab_size, "embedding_dim": 4, "hidden_dim": 4}
    head = {"name": "tagging", "input_dim": 4, "tags": ["A", "B"], "subword_pooling": "last"}
    model = build({"encoder": encoder, "head": head})
    folder = artifact.save(Artifact(model, tokenizer, None, {"stage": "tag", "name": "old"}), tmp_path / "old")
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["head"]["piece"] = config["head"].pop("subword_pooling")
    del config["sha256"]
    path.write_text(json.dumps(config), encoding="utf-8")
    opened = loading.load_network(folder).model.head
    assert isinstance(opened, TaggingHead)
    assert opened.config.subword_pooling == "last"


def test_the_pooling_of_an_older_bert_describes_its_vectors(tmp_path: Path) -> None:
    """It was a setting of the encoder; nothing was above it."""
    source = encoder("bert")
    folder = artifact.save(source, tmp_path / "old")
    path = folder / "config.json"
    for pooling, embedding in (("max", SentenceEmbedding("max")), (None, None)):
        config = json.loads(path.read_text(encoding="utf-8"))
        config["encoder"]["pooling"] = pooling
        config.pop("sha256", None)
        path.write_text(json.dumps(config), encoding="utf-8")
        opened = loading.load_network(folder)
        assert (opened.embedding, opened.compares) == (embedding, pooling is not None)
        expected = source.embed(["the film"], pooling=pooling, precision="fp32")
        assert (opened.embed(["the film"], precision="fp32") == expected).all()
