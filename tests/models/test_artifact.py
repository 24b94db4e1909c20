"""The artifact folder: what it holds, how it fails, and that a failure loses nothing."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from textgraft.core.errors import UserError
from textgraft.data.labels import Labels
from textgraft.models import artifact, loading, model_folder
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.text.tokenizer import Tokenizer

LABELS = Labels("single", ("bad", "ça va", "good"))
HASHED = ["model.safetensors", "tokenizer.json", "labels.json", "run.json"]


def a_classifier(seed: int = 0) -> Artifact:
    tokenizer = Tokenizer.train(["the film was good or bad"], kind="word", min_frequency=1)
    encoder = {"vocab_size": tokenizer.vocab_size, "embedding_dim": 6, "hidden_dim": 6, "num_layers": 2}
    head = {"name": "classification", "input_dim": 6, "outputs": 3}
    torch.manual_seed(seed)
    model = build({"encoder": {"name": "awd_lstm", **encoder}, "head": head})
    return Artifact(model, tokenizer, LABELS, {"name": "reviews", "max_tokens": 64, "note": "ü"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return artifact.save(a_classifier(), tmp_path / "reviews")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def edit_config(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change config.json as someone would who also knows its hash, by leaving that out."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["sha256"]
    change(config)
    path.write_text(json.dumps(config))


def replace_file(folder: Path, name: str, data: bytes) -> None:
    """Put another file in, and its hash into config.json."""
    (folder / name).write_bytes(data)
    edit_config(folder, lambda config: config["files"].update({name: hashlib.sha256(data).hexdigest()}))


def test_what_was_saved_is_loaded(folder: Path) -> None:
    saved, loaded = a_classifier(), loading.load_network(folder)
    assert loaded.labels == saved.labels
    assert loaded.run == saved.run
    assert loaded.tokenizer.fingerprint == saved.tokenizer.fingerprint
    assert not loaded.model.training
    assert all(torch.equal(value, loaded.model.values()[name]) for name, value in saved.model.values().items())


def test_anyone_can_read_the_folder(folder: Path) -> None:
    """Plain JSON, safetensors and a card; nothing that could run."""
    assert sorted(contents(folder)) == sorted([*HASHED, "config.json", "README.md"])
    assert json.loads((folder / "labels.json").read_text(encoding="utf-8"))["names"] == list(LABELS.names)
    assert json.loads((folder / "run.json").read_text(encoding="utf-8"))["name"] == "reviews"
    assert json.loads((folder / "config.json").read_text())["encoder"]["name"] == "awd_lstm"
    assert set(load_file(folder / "model.safetensors")) == set(a_classifier().model.values())
    assert (folder / "README.md").read_text().startswith("# reviews")


def test_saving_twice_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    again = artifact.save(a_classifier(), tmp_path / "again")
    assert contents(again) == contents(folder)


def test_loading_leaves_the_random_state_alone(folder: Path) -> None:
    before = torch.get_rng_state()
    loading.load_network(folder)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_card_may_be_edited(folder: Path) -> None:
    (folder / "README.md").write_text("# Ours")
    loading.load_network(folder)


@pytest.mark.parametrize("name", [*HASHED, "config.json"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "altered", "a folder"])
def test_damaged_files_are_named(name: str, damage: str, folder: Path) -> None:
    path = folder / name
    data = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(data[: len(data) // 2])
        case "altered":
            middle = (
                data.replace(b"0", b"1", 1) if name == "config.json" else data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]
            )
            path.write_bytes(middle)
        case "a folder":
            path.unlink()
            path.mkdir()
    with pytest.raises(UserError) as caught:
        loading.load_network(folder)
    assert name in str(caught.value)
    if not (name == "config.json" and damage in ("missing", "a folder")):
        assert caught.value.where == str(path)
        assert "Restore the folder" in caught.value.remedy


def test_an_altered_setting_is_noticed(folder: Path) -> None:
    """One that no shape depends on would otherwise change predictions in silence."""
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"input_scale": 1.0', '"input_scale": 2.0'))
    with pytest.raises(UserError, match=r"config.json: altered since it was saved"):
        loading.load_network(folder)


@pytest.mark.parametrize(("version", "remedy"), [(2, "Install a newer textgraft"), (0, "Restore"), ("x", "Restore")])
def test_another_format_version(version: Any, remedy: str, folder: Path) -> None:
    edit_config(folder, lambda config: config.update(format=version))
    with pytest.raises(UserError, match=f"this is format {version}, and this textgraft reads format 1") as caught:
        loading.load_network(folder)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("encoder", {"name": "awd_lsmt"}, "unknown encoder 'awd_lsmt'.*Did you mean 'awd_lstm'"),
        ("head", {"name": "clasification"}, "unknown head 'clasification'.*Did you mean 'classification'"),
        ("encoder", {"colour": "red"}, "has a missing or an unknown setting.*colour"),
        ("encoder", {"vocab_size": "many"}, "not the config of a model"),
        ("encoder", {"vocab_size": -1}, "not the config of a model"),
        ("head", {"pooling": "men"}, "unknown pooling 'men'.*Did you mean 'mean'"),
        ("encoder", {"cell": "gru"}, "unknown cell 'gru'.*Known: lstm, qrnn"),
        ("encoder", {"direction": "both"}, "unknown direction 'both'.*Known: left, right"),
    ],
)
def test_configs_that_describe_no_model(part: str, change: dict[str, Any], message: str, folder: Path) -> None:
    edit_config(folder, lambda config: config[part].update(change))
    with pytest.raises(UserError, match=message) as caught:
        loading.load_network(folder)
    assert caught.value.where == str(folder / "config.json")
    assert caught.value.remedy


@pytest.mark.parametrize("key", ["encoder", "head", "files", "format"])
@pytest.mark.parametrize("value", [None, 7, "absent"])
def test_configs_with_a_hole(key: str, value: Any, folder: Path) -> None:
    edit_config(folder, lambda config: config.pop(key) if value == "absent" else config.update({key: value}))
    with pytest.raises(UserError) as caught:
        loading.load_network(folder)
    assert caught.value.where == str(folder / "config.json")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "run.json"])
def test_configs_that_list_too_few_files(name: str, folder: Path) -> None:
    edit_config(folder, lambda config: config["files"].pop(name))
    with pytest.raises(UserError, match=f"'{name}' is missing"):
        loading.load_network(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '"config"'])
def test_configs_that_are_none(text: str, folder: Path) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(UserError, match="damaged"):
        loading.load_network(folder)


def test_weights_that_do_not_fit_are_listed(folder: Path, tmp_path: Path) -> None:
    values = load_file(folder / "model.safetensors")
    bias = values.pop("encoder.layers.0.bias")
    values["encoder.layers.7.bias"] = bias
    values["encoder.embedding.weight"] = torch.zeros(3, 6)
    save_file(values, tmp_path / "other.safetensors")
    replace_file(folder, "model.safetensors", (tmp_path / "other.safetensors").read_bytes())
    with pytest.raises(UserError, match="the weights do not match the config") as caught:
        loading.load_network(folder)
    message = str(caught.value)
    assert caught.value.where == str(folder / "model.safetensors")
    assert "missing: encoder.layers.0.bias" in message
    assert "left over: encoder.layers.7.bias" in message
    assert "encoder.embedding.weight is (3, 6), not (" in message


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "labels.json"])
def test_foreign_files_are_refused(name: str, folder: Path) -> None:
    replace_file(folder, name, b"{}")
    with pytest.raises(UserError) as caught:
        loading.load_network(folder)
    assert caught.value.where == str(folder / name)


def test_filling_a_model_that_does_not_fit_leaves_it_alone() -> None:
    model = a_classifier().model
    before = {name: value.clone() for name, value in model.values().items()}
    with pytest.raises(UserError, match="missing"):
        artifact.fill(model, {"encoder.embedding.weight": torch.zeros(3)}, where="a file")
    assert all(torch.equal(value, before[name]) for name, value in model.values().items())


def test_models_are_found_by_path_and_by_name(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "MODEL_FOLDERS", (tmp_path, tmp_path / "nowhere"))
    (tmp_path / "no model").mkdir()
    assert model_folder.names() == ["reviews"]
    assert model_folder.find("reviews") == folder
    assert model_folder.find(folder) == folder
    with pytest.raises(UserError, match=r"no model 'review'\. Known: reviews.*\. Did you mean 'reviews'"):
        loading.load_network("review")
    with pytest.raises(UserError, match=r"no model '/no/where'"):
        loading.load_network("/no/where")
    with pytest.raises(UserError, match=r"there is no config.json here"):
        loading.load_network(tmp_path / "no model")


def test_an_existing_path_is_refused(folder: Path, tmp_path: Path) -> None:
    before = contents(tmp_path)
    with pytest.raises(UserError, match=r"exists already.*overwrite=True"):
        artifact.save(a_classifier(1), folder)
    (tmp_path / "a file").write_text("mine")
    (tmp_path / "a folder").mkdir()
    for name in ("a file", "a folder"):
        with pytest.raises(UserError, match="not a model folder, so it is not overwritten"):
            artifact.save(a_classifier(1), tmp_path / name, overwrite=True)
    assert contents(tmp_path) == before | {"a file": b"mine"}


def test_overwriting_replaces_all_and_leaves_nothing_beside(folder: Path, tmp_path: Path) -> None:
    (folder / "stray.txt").write_text("of the old one")
    artifact.save(a_classifier(1), folder, overwrite=True)
    fresh = artifact.save(a_classifier(1), tmp_path / "fresh")
    assert contents(folder) == contents(fresh)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fresh", "reviews"]


def fail_when(monkeypatch: pytest.MonkeyPatch, call: str, number: int, error: int) -> None:
    """Make the `number`-th call of os.`call` raise OSError `error`."""
    real, count = getattr(os, call), [0]

    def failing(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        if count[0] == number:
            raise OSError(error, os.strerror(error))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, call, failing)


@pytest.mark.parametrize("overwrite", [False, True], ids=["new", "overwriting"])
@pytest.mark.parametrize(
    ("call", "number"),
    # fsync and replace happen once a file, six in all; then the old folder is set aside and the new one put in place
    [("fsync", 1), ("fsync", 6), ("replace", 1), ("replace", 6), ("replace", 7), ("replace", 8)],
)
@pytest.mark.parametrize(
    ("error", "remedy"),
    [(errno.ENOSPC, "The disk is full"), (errno.EROFS, "Choose a folder that you may write to")],
    ids=["full disk", "read-only"],
)
def test_a_failed_save_loses_nothing(
    overwrite: bool,
    call: str,
    number: int,
    error: int,
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = tmp_path / "model"
    if overwrite:
        artifact.save(a_classifier(), target)
    elif number == 8:
        pytest.skip("a new folder is put in place by the seventh rename, its last")
    before = contents(tmp_path)
    with monkeypatch.context() as patch:
        fail_when(patch, call, number, error)
        with pytest.raises(UserError, match=remedy) as caught:
            artifact.save(a_classifier(1), target, overwrite=overwrite)
    assert caught.value.where == str(target)
    assert contents(tmp_path) == before
    assert not [p for p in tmp_path.iterdir() if p != target]
    artifact.save(a_classifier(1), target, overwrite=overwrite)
    assert contents(target) == contents(artifact.save(a_classifier(1), tmp_path / "fresh"))


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(UserError, match="Choose a folder that you may write to"):
        artifact.save(a_classifier(), closed / "model")


def test_a_file_where_a_folder_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="A file has the name of a folder"):
        artifact.save(a_classifier(), tmp_path / "file" / "model")
    assert (tmp_path / "file").read_text() == "mine"


def test_what_a_killed_save_left_is_cleared(folder: Path, tmp_path: Path) -> None:
    """kill -9 in the middle leaves a hidden folder, never a half-written model; the next save removes it."""
    shutil.copytree(folder, tmp_path / ".reviews.part")
    (tmp_path / ".reviews.part" / "config.json").unlink()
    artifact.save(a_classifier(1), folder, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["reviews"]


def test_weights_that_half_precision_would_make_infinite_are_refused(tmp_path: Path) -> None:
    model = a_classifier()
    with torch.no_grad():
        model.model.get_parameter("head.layers.6.weight")[0, 0] = 70_000
    with pytest.raises(UserError, match=r"float16 cannot represent .*head\.layers\.6\.weight"):
        artifact.save(model, tmp_path / "half", half=True)
    assert not (tmp_path / "half").exists()
    artifact.save(model, tmp_path / "whole")


def test_half_precision_halves_the_file_and_loads_as_float32(folder: Path, tmp_path: Path) -> None:
    half = artifact.save(a_classifier(), tmp_path / "half", half=True)
    values = load_file(half / "model.safetensors")
    assert {v.dtype for v in values.values() if v.is_floating_point()} == {torch.float16}
    assert {v.dtype for v in loading.load_network(half).model.parameters()} == {torch.float32}
