"""A checkpoint is a safetensors file, whole or not there, and costs no second copy of what it holds."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load

from textgraft.core.errors import UserError
from textgraft.training.checkpoint import DTYPES, load_checkpoint, save_checkpoint

NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__")
SHAPES = st.lists(st.integers(0, 4), max_size=3)


@given(
    described=st.dictionaries(NAMES, st.tuples(st.sampled_from(list(DTYPES)), SHAPES), max_size=6),
    state=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3),
)
def test_what_is_saved_is_what_is_loaded_and_what_the_library_reads(
    described: dict[str, tuple[torch.dtype, list[int]]],
    state: dict[str, int | str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("saved") / "x.safetensors"
    tensors = {name: (torch.rand(shape) * 100).to(dtype) for name, (dtype, shape) in described.items()}
    save_checkpoint(path, tensors, state)
    found, told = load_checkpoint(path)
    assert told == state
    for read in (found, load(path.read_bytes())):
        assert read.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert read[name].dtype == tensor.dtype
            assert read[name].shape == tensor.shape
            assert torch.equal(read[name], tensor)
    assert [file.name for file in path.parent.iterdir()] == ["x.safetensors"]


def test_parts_of_larger_tensors_and_gradients_are_saved_as_they_are(tmp_path: Path) -> None:
    table = torch.arange(24.0, requires_grad=True)
    tensors = {"column": table.view(4, 6)[:, 2], "turned": table.view(4, 6).t(), "one": torch.tensor(True)}
    tensors["repeated"] = torch.tensor([7]).expand(5)[2:3]
    save_checkpoint(tmp_path / "x", tensors, {})
    found, _ = load_checkpoint(tmp_path / "x")
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_nothing_is_copied(tmp_path: Path) -> None:
    tensors = {str(n): torch.zeros(250_000) for n in range(8)}
    tracemalloc.start()
    save_checkpoint(tmp_path / "x", tensors, {})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "x").stat().st_size > 8_000_000
    assert peak < 500_000


def test_a_damaged_one_says_so(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "x", {"a": torch.zeros(5)}, {})
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-3])
    with pytest.raises(UserError, match="this checkpoint is damaged"):
        load_checkpoint(tmp_path / "x")
