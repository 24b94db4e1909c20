"""What members of an ensemble have in common is stored once and read back as it was."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_encoder import TARGETS, TEXTS, probe_of, tiny_encoder
from safetensors.numpy import load, save

from textgraft.models import loading, model_folder, shared_files
from textgraft.models.shared_files import safetensors_of, tensors_of, with_shared, without_repeats
from textgraft.tasks.classification.ensemble import save_ensemble

LARGE = np.arange(32_768, dtype=np.float16).reshape(128, 256)


def member(arrays: dict[str, np.ndarray], **files: bytes) -> dict[str, bytes]:
    inside = {"model.safetensors": save(arrays), **{name.replace("_", "."): data for name, data in files.items()}}
    return {**inside, "config.json": model_folder.config({"linear": {}}, inside), "README.md": b"card"}


def read_back(own: dict[str, bytes], shared: dict[str, bytes]) -> dict[str, bytes]:
    config = json.loads(own["config.json"])
    every = own | {f"../{path}": data for path, data in shared.items()}
    hashes = {name: hashlib.sha256(every[name]).hexdigest() for name in config["files"]}
    assert hashes == config["files"]
    files = {name: every[name] for name in config["files"]}
    return with_shared(files, config) if "shared" in config else files


def test_tensors_of_several_widths_are_read_by_the_library() -> None:
    arrays = {"b": np.ones((3, 1), np.int8), "a": np.arange(5.0), "empty": np.zeros((0, 4), np.float32), "c": LARGE}
    again = load(safetensors_of(tensors_of(save(arrays))))
    assert again.keys() == arrays.keys()
    for name, value in arrays.items():
        assert again[name].dtype == value.dtype
        np.testing.assert_array_equal(again[name], value)


def test_equal_tensors_and_files_are_stored_once() -> None:
    words = b"[" + b'"word",' * 20_000 + b'"end"]'
    members = {
        "probe": member({"encoder.x": LARGE, "head": np.ones(4)}),
        "views": member({"encoder.encoder.x": LARGE, "axes": LARGE + 1}, words_json=words),
        "lsa": member({"axes of it": LARGE + 1, "other": LARGE[::-1]}, vocabulary_json=words),
        "alone": member({"y": LARGE.astype(np.float32)}),
    }
    own, shared = without_repeats(members, model_folder.config_of)
    assert own["alone"] == members["alone"]
    size = sum(len(data) for files in (*own.values(), shared) for data in files.values())
    assert size < sum(len(data) for files in members.values() for data in files.values()) - 2 * LARGE.nbytes - 100_000
    assert list(tensors_of(own["probe"]["model.safetensors"])) == ["head"]
    for name, files in members.items():
        found = read_back(own[name], shared)
        assert found.keys() == files.keys() - {"config.json", "README.md"}
        before, after = load(files["model.safetensors"]), load(found["model.safetensors"])
        assert {n: a.tobytes() for n, a in before.items()} == {n: a.tobytes() for n, a in after.items()}
        assert all(found[n] == files[n] for n in found if n != "model.safetensors")


def test_equal_bytes_of_other_shapes_or_types_are_no_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    members = {
        "a": member({"x": LARGE}),
        "b": member({"x": LARGE.reshape(-1)}),
        "c": member({"x": LARGE.view(np.int16)}),
    }
    assert without_repeats(members, model_folder.config_of) == (members, {})
    monkeypatch.setattr(shared_files, "MIN_BYTES", 1 << 20)
    assert without_repeats({"a": members["a"], "b": members["a"]}, model_folder.config_of)[1] == {}


@pytest.mark.parametrize("shared", [{}, {"tensors": {"x": ["shared/1.safetensors", "y"]}, "files": {}}, 7])
def test_places_that_are_none(shared: Any) -> None:
    with pytest.raises((KeyError, TypeError)):
        with_shared({"model.safetensors": save({})}, {"shared": shared})


def test_two_networks_with_one_tokenizer_are_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a linear probe and a fine-tuned encoder are: even the files that every network must have may be shared."""
    monkeypatch.setattr(shared_files, "MIN_BYTES", 1)
    encoder = tiny_encoder()
    members = {"probe": probe_of(encoder), "other": probe_of(encoder, targets=1 - TARGETS)}
    save_ensemble(members, {"stage": "finetune"}, tmp_path / "both", weights=[0.9, 0.1])
    assert not (tmp_path / "both" / "other" / "tokenizer.json").exists()
    found = loading.load(tmp_path / "both").outputs(TEXTS[:5])
    expected = 0.9 * members["probe"].outputs(TEXTS[:5]) + 0.1 * members["other"].outputs(TEXTS[:5])
    np.testing.assert_allclose(found, expected, atol=1e-3)
