"""Our character language models against Flair's, same weights: vectors of words, pooled ones, logits, gradients, files.

What Flair made is stored (make_flair_fixture.py), so that it need not be installed.
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from make_flair_fixture import BATCHES, CHUNKS, FOLDER, MODELS, POOLINGS, SENTENCES, TEXT
from safetensors.torch import load_file
from torch import Tensor

from textgraft.conversion.convert import convert
from textgraft.conversion.legacy import flair
from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.models.artifact import Artifact, save
from textgraft.models.loading import load_network
from textgraft.word_embeddings.contextual import word_vectors
from textgraft.word_embeddings.pooled_memory import WordMemory

CLOSE = {"rtol": 0, "atol": 1e-5}
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(autouse=True)
def a_space_after_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Flair has it of words that it is given; ours has none where a script runs words together."""
    monkeypatch.setattr("textgraft.data.words.spaced", lambda words: [True] * len(words))


@pytest.fixture(scope="module")
def expected() -> dict[str, Tensor]:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 200_000
    return load_file(FOLDER / "expected.safetensors")


def converted(name: str) -> Artifact:
    return flair.load(f"flair:{FOLDER / name}.pt")


@every_model
@pytest.mark.parametrize("window", [*CHUNKS, 1, 7])
def test_vectors_are_flairs(name: str, window: int, expected: dict[str, Tensor]) -> None:
    size = window if window in CHUNKS else CHUNKS[0]
    found = word_vectors(converted(name), SENTENCES, window=window, precision="fp32")
    for i, vectors in enumerate(found):
        assert vectors.dtype == np.float32
        torch.testing.assert_close(torch.from_numpy(vectors), expected[f"{name}.{size}.{i}"], **CLOSE)


@every_model
def test_a_saved_model_gives_the_same(name: str, tmp_path: Path, expected: dict[str, Tensor]) -> None:
    folder = convert(f"flair:{FOLDER / name}.pt", tmp_path / "lm")
    found = word_vectors(load_network(folder), SENTENCES, precision="fp32")
    for i, vectors in enumerate(found):
        torch.testing.assert_close(torch.from_numpy(vectors), expected[f"{name}.{CHUNKS[0]}.{i}"], **CLOSE)


@pytest.mark.parametrize("pooling", POOLINGS)
@every_model
def test_pooled_vectors_are_flairs(name: str, pooling: str, expected: dict[str, Tensor]) -> None:
    source, memory = converted(name), WordMemory(pooling)
    for number, batch in enumerate(BATCHES):
        for i, vectors in enumerate(memory.pooled(batch, word_vectors(source, batch, precision="fp32"))):
            torch.testing.assert_close(torch.from_numpy(vectors), expected[f"{name}.{pooling}.{number}.{i}"], **CLOSE)


def in_our_names(expected: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Flair's gradients under our names; both of its biases have the gradient of ours."""
    found = {}
    for theirs, value in expected.items():
        if not theirs.startswith(prefix) or ".bias_hh_l" in theirs:
            continue
        part, name = theirs.removeprefix(prefix).split(".")
        if part == "rnn":
            kind, layer = name.removesuffix(name[-1]).removesuffix("_l"), name[-1]
            found[f"encoder.layers.{layer}.{'bias' if kind == 'bias_ih' else kind}"] = value
        else:
            ours = {"encoder": "encoder.embedding", "proj": "encoder.projection", "decoder": "head.output"}[part]
            found[f"{ours}.{name}"] = value
    return found


@pytest.mark.parametrize("name", ["forward", "backward", "old"])
def test_logits_loss_and_gradients_are_flairs(name: str, expected: dict[str, Tensor]) -> None:
    """Each character from those before it in reading order, with the dropout of the file (none)."""
    source = converted(name)
    model, right = source.model.train(), source.model.encoder.direction == "right"
    (ids,) = (torch.from_numpy(i).long() for i in source.tokenizer.bodies([TEXT]))
    given, wanted = (ids[1:], ids[:-1]) if right else (ids[:-1], ids[1:])
    batch = Batch(given[None], torch.ones(1, len(given), dtype=torch.bool), targets=wanted[None])
    theirs = expected[f"{name}.text.logits"].log_softmax(dim=1)
    log_p = model(batch)[0]
    torch.testing.assert_close(log_p.flip(0) if right else log_p, theirs, **CLOSE)
    loss = model.loss(batch)
    (loss.total / loss.count).backward()
    torch.testing.assert_close(loss.total / loss.count, expected[f"{name}.text.loss"], **CLOSE)
    grads = in_our_names(expected, f"{name}.text.grad.")
    own = dict(model.named_parameters())
    assert grads.keys() == own.keys()
    for parameter, value in grads.items():
        torch.testing.assert_close(own[parameter].grad, value, rtol=1e-4, atol=1e-6, msg=parameter)


@every_model
def test_back_to_flair_and_here_again(name: str, tmp_path: Path) -> None:
    first = converted(name)
    written = convert(save(first, tmp_path / "ours"), tmp_path / "again.pt", to="flair")
    second, theirs, ours = flair.load(f"flair:{written}"), flair.read(FOLDER / f"{name}.pt"), flair.read(written)
    assert first.tokenizer.to_json() == second.tokenizer.to_json()
    assert first.model.describe() == second.model.describe()
    assert all(torch.equal(value, second.model.values()[n]) for n, value in first.model.values().items())
    assert ours.keys() == theirs.keys()
    assert {k: v for k, v in ours.items() if k != "state_dict"} == {
        k: v for k, v in theirs.items() if k != "state_dict"
    }
    for key, value in theirs["state_dict"].items():
        if ".bias_" not in key:
            assert torch.equal(ours["state_dict"][key], value), key
    layers = range(theirs["nlayers"])
    sums = [
        [c["state_dict"][f"rnn.bias_ih_l{i}"] + c["state_dict"][f"rnn.bias_hh_l{i}"] for i in layers]
        for c in (ours, theirs)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*sums, strict=True))


class Runs:
    """What a pickle that does harm holds."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("new", [True, False], ids=["zip", "old"])
def test_a_pickle_with_code_is_not_opened(new: bool, tmp_path: Path) -> None:
    path, harm = tmp_path / "lm.pt", tmp_path / "harm"
    torch.save({"dictionary": Runs(harm)}, path, _use_new_zipfile_serialization=new)
    with pytest.raises(UserError, match=r"uses 'posix.mkdir'.*could run code"):
        flair.load(f"flair:{path}")
    path.write_bytes(pickle.dumps(Runs(harm)))  # where torch expects its magic number
    with pytest.raises(UserError):
        flair.load(f"flair:{path}")
    assert not harm.exists()


@pytest.mark.parametrize(
    "names",
    ["builtins.eval", "builtins.getattr", "torch.load", "torch.storage._load_from_bytes", "os.system", "nt.system"],
)
def test_no_name_beside_the_list_is_found(names: str, tmp_path: Path) -> None:
    module, name = names.rsplit(".", 1)
    path = tmp_path / "lm.pt"
    with zipfile.ZipFile(FOLDER / "forward.pt") as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.namelist():
            data = source.read(entry)
            target.writestr(
                entry, b"\x80\x02c%b\n%b\n." % (module.encode(), name.encode()) if entry.endswith("data.pkl") else data
            )
    with pytest.raises(UserError, match=names):
        flair.load(f"flair:{path}")


def test_torchscript_is_not_opened(tmp_path: Path) -> None:
    """torch.load would hand it to another reader, which runs what is in it."""
    path = tmp_path / "lm.pt"
    with zipfile.ZipFile(FOLDER / "forward.pt") as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.namelist():
            target.writestr(entry, source.read(entry))
        target.writestr(source.namelist()[0].split("/")[0] + "/constants.pkl", b"\x80\x02).")
    with pytest.raises(UserError, match=r"uses TorchScript.*could run code"):
        flair.load(f"flair:{path}")


def altered(**changes: Any) -> dict[str, Any]:
    return flair.read(FOLDER / "forward.pt") | changes


def test_what_is_no_language_model_of_flairs_is_said(tmp_path: Path) -> None:
    whole = altered()["state_dict"]
    for changes, said in (
        ({"recurrent_type": "GRU"}, "its recurrent layer is a GRU"),
        ({"document_delimiter": "<doc>"}, "separated by '<doc>'"),
        ({"dictionary": [b"<unk>", b"\xff"]}, "description of the model is invalid"),
        ({"dictionary": []}, "empty"),
        ({"dictionary": [b"a", b"a"]}, "twice"),
        ({"dictionary": [b"<unk>", b"a"]}, r"'encoder.weight' is \(37, 4\), not \(2, 4\)"),
        ({"hidden_size": 7}, r"is \(24, 4\), not \(28, 4\)"),
        ({"hidden_size": "many"}, "description of the model is invalid"),
        ({"nlayers": 2}, r"missing: \['rnn.bias_hh_l1'"),
        ({"nout": 3}, r"missing: \['proj.bias'"),
        ({"state_dict": {**whole, "more": torch.zeros(1)}}, r"unknown: \['more'\]"),
        ({"state_dict": {**whole, "encoder.weight": 3}}, "'encoder.weight' is int"),
    ):
        with pytest.raises(UserError, match=said):
            flair.from_flair(altered(**changes))
    for content, said in (
        ({"weights": torch.zeros(2)}, "not a language model of Flair"),
        ([1, 2], "not a language model of Flair"),
        (dict.fromkeys(flair.SETTINGS, 1), "'dictionary' is missing"),
    ):
        torch.save(content, tmp_path / "other.pt")
        with pytest.raises(UserError, match=said):
            flair.load(f"flair:{tmp_path / 'other.pt'}")


@pytest.mark.parametrize("name", ["forward", "old"])
def test_a_damaged_file(name: str, tmp_path: Path) -> None:
    data, path = (FOLDER / f"{name}.pt").read_bytes(), tmp_path / "lm.pt"
    for cut in (0, 1, 60, len(data) // 2, len(data) - 30):
        path.write_bytes(data[:cut])
        with pytest.raises(UserError, match=r"lm\.pt"):
            flair.load(f"flair:{path}")
    with pytest.raises(UserError, match="missing or unreadable"):
        flair.load(f"flair:{tmp_path / 'nothing.pt'}")


def test_only_convert_opens_flairs_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="textgraft convert flair:"):
        load_network(f"flair:{FOLDER / 'forward.pt'}")
    (tmp_path / "there.pt").write_bytes(b"")
    folder = convert(f"flair:{FOLDER / 'forward.pt'}", tmp_path / "lm")
    with pytest.raises(UserError, match="exists already"):
        convert(folder, tmp_path / "there.pt", to="flair")
    with pytest.raises(UserError, match="this is a folder"):
        convert(folder, tmp_path, to="flair", overwrite=True)
    assert convert(folder, tmp_path / "there.pt", to="flair", overwrite=True).stat().st_size > 1000
    with pytest.raises(UserError, match="only a character language model"):
        convert("en-ulmfit", tmp_path / "no.pt", to="flair")


def test_what_is_written_names_flairs_class() -> None:
    """And nothing of ours, so that Flair opens it where textgraft is not installed."""
    source = converted("forward")
    with zipfile.ZipFile(io.BytesIO(flair.to_flair(source.model, source.tokenizer))) as file:
        (pickled,) = [file.read(name) for name in file.namelist() if name.endswith("data.pkl")]
    assert b"cflair.data\nDictionary\n" in pickled
    assert b"textgraft" not in pickled
