"""Checkpoints in parts: read one by one, never half of them, and errors that say where."""

from __future__ import annotations

import errno
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.distributed import checkpoint as dcp

from textgraft import UserError
from textgraft.core.processes import Processes
from textgraft.training import parts
from textgraft.training.checkpoint import new_part_folder, remove_checkpoint, save_checkpoint
from textgraft.training.parts import Parts, save_in_parts
from textgraft.training.run_state import load_run

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint whose parts one process wrote."""
    path = tmp_path / "x.safetensors"
    save_in_parts(path, {"rng": torch.zeros(2)}, dict(TENSORS), {"step": 3}, Processes())
    return path


def test_it_is_read_as_if_it_were_one_file(checkpoint: Path) -> None:
    tensors, state = load_run(checkpoint)
    assert state == {"step": 3}
    assert sorted(tensors) == ["a", "b", "rng"]
    assert len(tensors) == 3
    for name, expected in (TENSORS | {"rng": torch.zeros(2)}).items():
        assert torch.equal(tensors[name], expected)
        assert tensors[name].dtype == expected.dtype


def test_it_is_sent_to_other_processes_by_its_place(checkpoint: Path) -> None:
    tensors, _ = pickle.loads(pickle.dumps(load_run(checkpoint)))
    assert torch.equal(tensors["a"], TENSORS["a"])


def test_the_next_one_replaces_it(checkpoint: Path) -> None:
    (before,) = checkpoint.parent.glob("*.parts")
    save_in_parts(checkpoint, {}, {"a": torch.zeros(2)}, {"step": 4}, Processes())
    (after,) = checkpoint.parent.glob("*.parts")
    assert (before.name, after.name) == ("x.safetensors.1.parts", "x.safetensors.2.parts")
    tensors, state = load_run(checkpoint)
    assert (list(tensors), state) == (["a"], {"step": 4})
    remove_checkpoint(checkpoint)
    assert list(checkpoint.parent.iterdir()) == []


def test_what_a_killed_run_left_is_not_mixed_with_the_next(checkpoint: Path) -> None:
    half = checkpoint.with_name(f"{checkpoint.name}.7.parts")
    half.mkdir()
    save_file({"a": torch.zeros(2)}, half / "shard-00002-model-00001-of-00001.safetensors")
    assert torch.equal(load_run(checkpoint)[0]["a"], TENSORS["a"])
    save_in_parts(checkpoint, {}, {"a": torch.ones(2)}, {}, Processes())
    assert load_run(checkpoint)[0]["a"].tolist() == [1.0, 1.0]
    assert not half.exists()


def test_a_missing_file_is_said(checkpoint: Path) -> None:
    (file,) = checkpoint.parent.glob("*.parts/*")
    file.unlink()
    with pytest.raises(UserError, match="0 of 1 files are there"):
        load_run(checkpoint)


@pytest.mark.parametrize("size", [0, 5, 60, 120])
def test_a_damaged_file_is_said(checkpoint: Path, size: int) -> None:
    (file,) = checkpoint.parent.glob("*.parts/*")
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(UserError, match="this checkpoint is damaged") as caught:
        load_run(checkpoint)
    assert caught.value.where == str(checkpoint), "which is what to delete"


def test_a_file_that_is_damaged_later_is_said(checkpoint: Path) -> None:
    tensors, _ = load_run(checkpoint)
    (file,) = checkpoint.parent.glob("*.parts/*")
    file.unlink()
    with pytest.raises(UserError, match="this checkpoint is damaged"):
        _ = tensors["a"]


def test_a_process_that_cannot_write_is_named_and_the_checkpoint_before_stays(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise dcp.CheckpointException("write", {1: (OSError(errno.ENOSPC, "No space left on device"), None)})

    monkeypatch.setattr(parts.dcp, "save", full)
    with pytest.raises(UserError, match=r"process 1 cannot write .*No space left on device") as caught:
        save_in_parts(checkpoint, {}, dict(TENSORS), {"step": 4}, Processes())
    assert "make room" in caught.value.remedy
    assert load_run(checkpoint)[1] == {"step": 3}
    assert len(list(checkpoint.parent.glob("*.parts"))) == 1, "what was written of it is removed"


def test_a_folder_that_cannot_be_made_is_said(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(UserError, match=r"cannot write \(Permission denied\)"):
        save_in_parts(checkpoint, {}, dict(TENSORS), {"step": 4}, Processes())
    assert load_run(checkpoint)[1] == {"step": 3}


def test_a_deleted_folder_is_told_from_damage(checkpoint: Path) -> None:
    sent = pickle.dumps(load_run(checkpoint))
    shutil.rmtree(next(checkpoint.parent.glob("*.parts")))
    for read in (lambda: load_run(checkpoint), lambda: pickle.loads(sent)):  # as another machine reads it
        with pytest.raises(UserError, match=r"its parts in x.safetensors.1.parts are not here") as caught:
            read()
        assert caught.value.where == str(checkpoint)
        assert "a drive that all machines share" in caught.value.remedy


def test_the_parts_of_a_damaged_checkpoint_are_left(checkpoint: Path) -> None:
    (parts_before,) = checkpoint.parent.glob("*.parts")
    checkpoint.write_bytes(b"damaged")
    assert new_part_folder(checkpoint) != parts_before
    assert list(parts_before.iterdir())


def test_a_process_without_the_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "gather", lambda self, value: [value, "host-b"])
    with pytest.raises(UserError, match="process 1 on host-b does not see this folder") as caught:
        parts._new_folder(tmp_path / "x.safetensors", Processes())
    assert "a drive that all machines share" in caught.value.remedy


def test_no_pickle_is_written(checkpoint: Path) -> None:
    files = [path for path in checkpoint.parent.rglob("*") if path.is_file()]
    assert all(path.suffix == ".safetensors" for path in files)
    assert isinstance(load_run(checkpoint)[0].maps[-1], Parts)  # type: ignore[attr-defined]


def test_a_checkpoint_without_parts_is_read_as_before(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "x", {"a": torch.zeros(2)}, {"step": 1})
    tensors, state = load_run(tmp_path / "x")
    assert (list(tensors), state) == (["a"], {"step": 1})
