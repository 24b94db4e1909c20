"""`tf:FOLDER` of a Transformer-XL: the stored numbers, from a checkpoint of TensorFlow's format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorflow_files import write_checkpoint

import textgraft
from textgraft import UserError
from textgraft.data.batch import Batch
from textgraft.models import loading

FIXTURES = Path(__file__).parents[2] / ".." / "shared" / "fixtures" / "transformer-xl"
WORDS = ["<unk>", "<eos>", "the", "cat", "sat", *(f"w{i}" for i in range(25))]


@pytest.fixture(params=["plain", "adaptive-div2"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder as the original program leaves it, with optimizer's variables."""
    if not FIXTURES.is_dir():
        pytest.skip(f"the stored numbers are not here ({FIXTURES})")
    folder = tmp_path / request.param
    folder.mkdir()
    shutil.copy(FIXTURES / request.param / "config.json", folder)
    (folder / "vocab.txt").write_text("".join(f"{word} {i}\n" for i, word in enumerate(WORDS)))
    with np.load(FIXTURES / request.param / "weights.npz", allow_pickle=False) as weights:
        values = dict(weights)
    values |= {"global_step": np.zeros(()), "transformer/r_w_bias/Adam": values["transformer/r_w_bias"]}
    write_checkpoint(folder / "model.ckpt-400", values)
    return folder


def test_a_checkpoint_computes_what_it_did(checkpoint: Path, tmp_path: Path) -> None:
    loaded = loading.load_network(f"tf:{checkpoint}")
    stored = {path.stem: torch.from_numpy(np.load(path)) for path in (FIXTURES / checkpoint.name).glob("*.npy")}
    memories = [stored[f"memory_{i}"].float() for i in range(2)]
    batch = Batch(stored["tokens"], torch.ones(1, 10, dtype=torch.bool))
    with torch.no_grad():
        encoded = loaded.model.encoder(batch, ((torch.ones(1, 10, dtype=torch.bool),), *((m,) for m in memories)))
        found = loaded.model.head(encoded).exp()
    torch.testing.assert_close(found, stored["softmax"], rtol=0, atol=1e-6)
    assert loaded.run["name"] == checkpoint.name
    assert loaded.tokenizer.encode("the cat  flew").ids == [1, 2, 3, 0]
    assert loaded.tokenizer.decode([2, 3, 4]) == "the cat sat"
    again = loading.load_network(textgraft.convert(f"tf:{checkpoint}", tmp_path / "ours"))
    assert again.tokenizer.fingerprint == loaded.tokenizer.fingerprint
    for name, value in loaded.model.values().items():
        assert torch.equal(again.model.values()[name], value), name


def test_what_is_missing_is_named(checkpoint: Path) -> None:
    flags = json.loads((checkpoint / "config.json").read_text())
    vocabulary = (checkpoint / "vocab.txt").read_text()
    for text, message in (
        (vocabulary.replace("<eos>", "<end>"), "lacks <eos>"),
        (vocabulary + "cat\n", "vocab.txt line 31: 'cat' is also on line 4"),
        ("the\n\n", "lacks|there is no word"),
    ):
        (checkpoint / "vocab.txt").write_text(text)
        with pytest.raises(UserError, match=message):
            loading.load_network(f"tf:{checkpoint}")
    (checkpoint / "vocab.txt").unlink()
    with pytest.raises(UserError, match=r"cannot read the vocabulary.*a word per line in the order of ids"):
        loading.load_network(f"tf:{checkpoint}")
    (checkpoint / "vocab.txt").write_text(vocabulary)
    (checkpoint / "config.json").write_text(json.dumps(flags | {"n_layer": 3}))
    with pytest.raises(UserError, match=r"model.ckpt-400: these are not the weights of this Transformer-XL \(missing"):
        loading.load_network(f"tf:{checkpoint}")
    (checkpoint / "config.json").write_text(json.dumps({k: v for k, v in flags.items() if k != "d_inner"}))
    with pytest.raises(UserError, match=r"config.json: the flags lack 'd_inner'\. Write the flags"):
        loading.load_network(f"tf:{checkpoint}")
    (checkpoint / "config.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"config.json: damaged \(maximum recursion depth"):
        loading.load_network(f"tf:{checkpoint}")
    (checkpoint / "config.json").unlink()
    with pytest.raises(UserError, match=r"neither Google's BERT.*bert_config\.json, hparams\.json, config\.json"):
        loading.load_network(f"tf:{checkpoint}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layer": "2"}, "n_layer: '2' is not a whole number"),
        ({"n_layer": 10**9}, "n_layer: 1,000,000,000 is more than the"),
        ({"untie_r": "no"}, "untie_r: 'no' is not true or false"),
        ({"d_head": True}, "d_head: True is not a whole number"),
        ({"dropout": "0.1"}, "dropout: '0.1' is not a number"),
        ({"cutoffs": ["10"]}, r"cutoffs: \['10'\] is not a whole number"),
        ({"tie_projs": []}, r"tie_projs: \[\] is not true or false"),
    ],
)
def test_flags_of_another_type(checkpoint: Path, change: dict[str, Any], message: str) -> None:
    flags = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(flags | change))
    with pytest.raises(UserError, match=message):
        loading.load_network(f"tf:{checkpoint}")


def test_null_flags_byte_order_marks_and_lines_that_are_missing(checkpoint: Path) -> None:
    flags = json.loads((checkpoint / "config.json").read_text())
    nulls = {"pre_lnorm": None, "vocab_size": None}
    (checkpoint / "config.json").write_text(json.dumps(flags | nulls), encoding="utf-8-sig")
    vocabulary = (checkpoint / "vocab.txt").read_text()
    (checkpoint / "vocab.txt").write_text(vocabulary, encoding="utf-8-sig")
    assert loading.load_network(f"tf:{checkpoint}").tokenizer.encode("the").ids == [1, 2]
    (checkpoint / "config.json").write_text(json.dumps(flags))
    (checkpoint / "vocab.txt").write_text("".join(vocabulary.splitlines(keepends=True)[:20]))
    with pytest.raises(UserError, match=r"vocab\.txt: there are 20 words, and the model has 30"):
        loading.load_network(f"tf:{checkpoint}")


def test_a_checkpoint_is_named_by_its_folder_its_name_or_a_file(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoint)
    for name in (".", "model.ckpt-400", "model.ckpt-400.index", "model.ckpt-400.data-00000-of-00001"):
        assert loading.load_network(f"tf:{name}").tokenizer.vocab_size == 30
    with pytest.raises(UserError, match="there is no TensorFlow checkpoint here"):
        loading.load_network("tf:/")
    with pytest.raises(UserError, match="there is no such folder or checkpoint"):
        loading.load_network("tf:config.json")


def test_the_size_of_the_vocabulary_may_be_elsewhere(checkpoint: Path) -> None:
    flags = json.loads((checkpoint / "config.json").read_text())
    corpus = {name: flags.pop(name) for name in ("vocab_size", "cutoffs") if name in flags}
    (checkpoint / "config.json").write_text(json.dumps(flags))
    (checkpoint / "corpus-info.json").write_text(json.dumps(corpus))
    assert loading.load_network(f"tf:{checkpoint}").model.encoder.config.vocab_size == 30
