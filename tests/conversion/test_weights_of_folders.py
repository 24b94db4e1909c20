"""Weights in folders of the transformers library: what loading costs, and folders that are incomplete or unsafe."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from textgraft import UserError
from textgraft.conversion import huggingface
from textgraft.core import memory

WEIGHTS = {"a": torch.randn(10, 4), "b": torch.randn(6), "c": torch.arange(3)}


def in_shards(folder: Path) -> Path:
    """Three files and their index."""
    names = {name: f"model-0000{i}-of-00003.safetensors" for i, name in enumerate(WEIGHTS, 1)}
    for name, file in names.items():
        save_file({name: WEIGHTS[name]}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return folder


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_cost_of_loading_is_in_the_header(dtype: torch.dtype, tmp_path: Path) -> None:
    """A model in float32: 4 bytes a number, and as many again where the weights are converted to it."""
    file = tmp_path / "model.safetensors"
    save_file({"a": WEIGHTS["a"].to(dtype), "b": WEIGHTS["b"].to(dtype)}, file, metadata={"format": "pt"})
    assert huggingface.loading_bytes(file) == 46 * (4 if dtype == torch.float32 else 8)
    values = huggingface.read_weights(tmp_path)
    assert all(value.dtype == torch.float32 for value in values.values())
    assert torch.equal(values["a"], WEIGHTS["a"].to(dtype).float())


def test_what_does_not_fit_into_memory_is_said_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_shards(tmp_path)
    needed = sum(map(huggingface.loading_bytes, tmp_path.glob("*.safetensors")))
    monkeypatch.setattr(memory, "available_memory", lambda: needed)
    assert huggingface.read_weights(tmp_path).keys() == WEIGHTS.keys()
    monkeypatch.setattr(memory, "available_memory", lambda: needed - 1)
    monkeypatch.setattr(huggingface, "read_tensors", lambda path: pytest.fail("a file was read"))
    with pytest.raises(UserError, match="loading this model takes about") as caught:
        huggingface.read_weights(tmp_path)
    assert caught.value.where == str(tmp_path)
    assert "smaller model" in caught.value.remedy


def test_pickles_cost_twice_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(WEIGHTS, tmp_path / "pytorch_model.bin")
    size = (tmp_path / "pytorch_model.bin").stat().st_size
    monkeypatch.setattr(memory, "available_memory", lambda: 2 * size - 1)
    with pytest.raises(UserError, match="loading this model takes"):
        huggingface.read_weights(tmp_path)


@pytest.mark.parametrize(
    "files", [("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")]
)
def test_a_containers_limit_counts(files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 300\n")
    (tmp_path / files[0]).write_text("1000\n")
    (tmp_path / files[1]).write_text("900\n")
    monkeypatch.setattr(memory, "CONTROL_GROUPS", ((tmp_path, *files),))
    assert memory.available_memory() == 400
    (tmp_path / files[0]).write_text("max\n")
    assert memory.available_memory() > 1000
    monkeypatch.setattr(memory, "CONTROL_GROUPS", ((tmp_path / "none", *files),))
    assert memory.available_memory() > 1000


def test_missing_shards_are_all_named_before_any_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_shards(tmp_path)
    for number in (1, 3):
        (tmp_path / f"model-0000{number}-of-00003.safetensors").unlink()
    monkeypatch.setattr(huggingface, "read_tensors", lambda path: pytest.fail("a file was read"))
    message = r"missing \(2 of 3\): model-00001-of-00003.safetensors, model-00003-of-00003.safetensors"
    with pytest.raises(UserError, match=message) as caught:
        huggingface.read_weights(tmp_path)
    assert (caught.value.where, caught.value.remedy) == (str(tmp_path), "Fetch the folder again.")


def test_a_shard_that_lacks_a_weight_or_is_cut_off(tmp_path: Path) -> None:
    in_shards(tmp_path)
    shard = tmp_path / "model-00002-of-00003.safetensors"
    whole = shard.read_bytes()
    save_file({"other": torch.ones(1)}, shard)
    with pytest.raises(UserError, match=r"the shards lack 1 of the index's weights: \['b'\]"):
        huggingface.read_weights(tmp_path)
    shard.write_bytes(whole[:-3])
    with pytest.raises(UserError, match=r"00002-of-00003\.safetensors: damaged") as caught:
        huggingface.read_weights(tmp_path)
    assert caught.value.remedy == "Fetch the file again."


class Hidden:
    """What runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("sharded", [False, True])
def test_code_in_a_pickle_does_not_run(sharded: bool, tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1), "b": Hidden(tmp_path / "ran")}, tmp_path / "pytorch_model.bin")
    if sharded:
        (tmp_path / "pytorch_model.bin").rename(tmp_path / "part.bin")
        index = {"weight_map": {"a": "part.bin"}}
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="more than weights is in this file") as caught:
        huggingface.read_weights(tmp_path)
    assert "could run code" in caught.value.remedy
    assert not (tmp_path / "ran").exists()
