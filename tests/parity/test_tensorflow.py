"""Checkpoints that TensorFlow wrote (make_tensorflow_fixture.py): read without it, and computing what it computed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import textgraft
from textgraft import UserError
from textgraft.conversion.legacy import tensorflow
from textgraft.conversion.legacy.tensorflow_checkpoint import crc32c, read_index, read_values
from textgraft.data.batch import Batch
from textgraft.heads.masked_language_model import MaskedLanguageModelHead
from textgraft.models import loading

FOLDER = Path(__file__).parent / "tensorflow"
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str], Path]:
    """A model's folder to change."""
    return lambda name: Path(shutil.copytree(FOLDER / name, tmp_path / name))


def test_a_bert_computes_what_it_did(tmp_path: Path) -> None:
    expected = np.load(FOLDER / "bert" / "expected.npz")
    loaded = loading.load_network(f"tf:{FOLDER / 'bert'}")
    model = loaded.model
    assert isinstance(model.head, MaskedLanguageModelHead)
    ids, segments, mask = (torch.from_numpy(expected[name]) for name in ("ids", "segments", "mask"))
    with torch.no_grad():
        encoded = model.encoder(Batch(ids, mask.bool(), segments=segments))
        log_probs, pairs = model.head(encoded), model.head.pair_logits(encoded)
    real = expected["mask"].astype(bool)
    wanted = torch.from_numpy(expected["logits"]).log_softmax(-1)
    np.testing.assert_allclose(log_probs[real], wanted[real], **CLOSE)
    np.testing.assert_allclose(pairs, expected["pairs"], **CLOSE)
    assert [loaded.tokenizer.tokens[i] for i in loaded.tokenizer.encode("The FILM was unGood, badly").ids] == (
        ["[CLS]", "the", "film", "was", "un", "##good", ",", "bad", "##ly", "[SEP]"]
    )
    assert loaded.run["name"] == "bert"
    again = loading.load_network(textgraft.convert(f"tf:{FOLDER / 'bert'}", tmp_path / "ours"))
    for name, value in model.values().items():
        assert torch.equal(again.model.values()[name], value), name


def test_a_gpt2_computes_what_it_did(tmp_path: Path) -> None:
    expected = np.load(FOLDER / "gpt2" / "expected.npz")
    loaded = loading.load_network(f"tf:{FOLDER / 'gpt2' / 'model.ckpt'}")
    ids = torch.from_numpy(expected["ids"])
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool))
    with torch.no_grad():
        log_probs = loaded.model.head(loaded.model.encoder(batch))
    wanted = torch.from_numpy(expected["logits"]).log_softmax(-1)
    np.testing.assert_allclose(log_probs, wanted, **CLOSE)
    tokens = [loaded.tokenizer.tokens[i] for i in loaded.tokenizer.encode("the then é").ids]
    assert tokens == ["the", "Ġ", "the", "n", "Ġ", "Ã", "©"]
    assert loaded.run["name"] == "gpt2"
    theirs = textgraft.convert(f"tf:{FOLDER / 'gpt2'}", tmp_path / "theirs", to="huggingface")
    again = loading.load_network(f"hf:{theirs}")
    assert again.tokenizer.encode("the then é").ids == loaded.tokenizer.encode("the then é").ids
    for name, value in loaded.model.values().items():
        assert torch.equal(again.model.values()[name], value), name


def test_what_training_left_behind_is_seen_and_left_out() -> None:
    _, entries = read_index(FOLDER / "bert" / "bert_model.ckpt")
    left_out = {name for name in entries if tensorflow.OPTIMIZER.fullmatch(name)}
    assert left_out == {"global_step", "bert/pooler/dense/kernel/adam_m", "bert/pooler/dense/kernel/adam_v"}
    shards, entries = read_index(FOLDER / "gpt2" / "model.ckpt")
    values = read_values(FOLDER / "gpt2" / "model.ckpt", shards, entries, ["global_step", "model/h1/mlp/c_fc/w"])
    assert values["global_step"] == 1000
    assert values["model/h1/mlp/c_fc/w"].shape == (1, 8, 32)


def test_a_fine_tuned_bert_is_a_classifier() -> None:
    config = json.loads((FOLDER / "bert" / "bert_config.json").read_text())
    names = tensorflow.bert_variables(config, ["output_weights", "bert/pooler/dense/bias"])
    assert names["output_weights"].name == "classifier.weight"
    assert names["output_bias"].name == "classifier.bias"
    assert not names["output_weights"].transposed
    assert "bert/pooler/dense/kernel" in names
    assert not [name for name in names if name.startswith("cls/")]


@pytest.mark.parametrize(
    ("layers", "expected"), [(1, "left over: bert/encoder/layer_1/"), (3, "missing: bert/encoder/layer_2/")]
)
def test_variables_that_do_not_fit_are_listed(copy: Callable[[str], Path], layers: int, expected: str) -> None:
    folder = copy("bert")
    config = json.loads((folder / "bert_config.json").read_text())
    (folder / "bert_config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}))
    with pytest.raises(UserError, match="not the variables of such a model") as caught:
        loading.load_network(f"tf:{folder}")
    assert expected in str(caught.value)
    assert "and 4 more" in str(caught.value)


def test_shapes_are_those_of_the_config(copy: Callable[[str], Path]) -> None:
    folder = copy("gpt2")
    settings = json.loads((folder / "hparams.json").read_text())
    (folder / "hparams.json").write_text(json.dumps(settings | {"n_ctx": 13}))
    with pytest.raises(UserError, match=r"\(12, 8\), not \(13, 8\)"):
        loading.load_network(f"tf:{folder}")
    (folder / "hparams.json").write_text(json.dumps({"n_ctx": 12}))
    with pytest.raises(UserError, match="the setting 'n_vocab' is missing"):
        loading.load_network(f"tf:{folder}")


@pytest.mark.parametrize("file", ["model.ckpt.index", "model.ckpt.data-00000-of-00001"])
def test_damage_is_seen_wherever_it_is(copy: Callable[[str], Path], file: str) -> None:
    path = copy("gpt2") / file
    whole = path.read_bytes()
    places = range(0, len(whole), 97 if file.endswith("index") else 1511)
    for at in places:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 16]) + whole[at + 1 :])
        said = ""
        try:
            loading.load_network(f"tf:{path.parent}")
        except UserError as error:
            said = str(error)
        if said:
            assert "damaged" in said or "not the index" in said, at
        else:  # the footer's padding, its block of metadata, or an optimizer's variable
            unread = {n: e for n, e in read_index(path.parent / "model.ckpt")[1].items() if "Adam" in n or "step" in n}
            spared = any(e.offset <= at < e.offset + e.size for e in unread.values())
            assert spared if "data" in file else at >= len(whole) - 48, at
    path.write_bytes(whole[:-10])
    with pytest.raises(UserError, match=r"damaged|not the index"):
        loading.load_network(f"tf:{path.parent}")
    path.unlink()
    with pytest.raises(UserError, match=r"no TensorFlow checkpoint here|missing or unreadable"):
        loading.load_network(f"tf:{path.parent}")
    for nowhere in (path.parent / "nowhere", path.parent / "nowhere" / "model.ckpt"):
        with pytest.raises(UserError, match=r"there is no such folder or checkpoint\. Check the path"):
            loading.load_network(f"tf:{nowhere}")


def test_which_checkpoint_of_several(copy: Callable[[str], Path]) -> None:
    folder = copy("bert")
    for path in list(folder.glob("bert_model.ckpt.*")):
        shutil.copy(path, folder / path.name.replace(".ckpt", ".ckpt-20"))
    with pytest.raises(UserError, match=r"several checkpoints here.*tf:.*/bert_model\.ckpt-20"):
        loading.load_network(f"tf:{folder}")
    assert loading.load_network(f"tf:{folder / 'bert_model.ckpt-20'}").run["name"] == "bert"
    (folder / "bert_config.json").unlink()
    with pytest.raises(UserError, match="neither Google's BERT, OpenAI's GPT-2 nor a Transformer-XL"):
        loading.load_network(f"tf:{folder / 'bert_model.ckpt-20'}")


def test_a_vocabulary_with_capitals_is_cased(copy: Callable[[str], Path]) -> None:
    folder = copy("bert")
    vocabulary = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(vocabulary.replace("we\n", "We\n"))
    tokenizer = loading.load_network(f"tf:{folder}").tokenizer
    assert [tokenizer.tokens[i] for i in tokenizer.encode("We saw The").ids] == ["[CLS]", "We", "saw", "[UNK]", "[SEP]"]


@pytest.mark.parametrize("length", [0, 1, 16_383, 16_384, 16_385, 100_003])
def test_crc32c_by_bits(length: int) -> None:
    """Against the definition: a division by x^32 + x^28 + x^27 + ... with reflected bits (RFC 3720, appendix B.4)."""
    data = np.random.default_rng(length).bytes(length)
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    assert crc32c(data) == register ^ 0xFFFFFFFF
    assert crc32c(bytes(32)) == 0x8A9136AA  # the RFC's example
