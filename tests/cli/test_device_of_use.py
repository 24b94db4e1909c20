"""`--device` of predict, evaluate and embed: the processor by name, a GPU that is not there, a GPU that is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from programs import Desk, Program, call

import textgraft
from textgraft.core.errors import UserError

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")


def test_the_processor_by_name_answers_as_without_a_word(desk: Desk, tmp_path: Path, run: Program) -> None:
    asked = ("predict", desk.classifier, desk / "test.csv", "--probabilities", "--json")
    named = call(*asked, "--device", "cpu")
    assert (named.code, named.err) == (0, "")
    assert named.json() == run(*asked).json()
    evaluation = ("evaluate", desk.classifier, desk / "test.csv", "--json")
    assert run(*evaluation, "--device", "cpu").json() == run(*evaluation).json()
    for name, more in (("plain", []), ("named", ["--device", "cpu"])):
        run("embed", desk.lm, desk / "test.csv", "--out", tmp_path / f"{name}.npz", *more)
    plain, given = (np.load(tmp_path / f"{name}.npz")["vectors"] for name in ("plain", "named"))
    assert (plain == given).all()


@without_gpu
@pytest.mark.parametrize("command", ["predict", "evaluate", "embed"])
def test_a_gpu_that_is_not_there_is_a_clear_error(command: str, desk: Desk, tmp_path: Path, run: Program) -> None:
    out = ["--out", tmp_path / "out.npz"] if command == "embed" else []
    model = desk.lm if command == "embed" else desk.classifier
    asked = (command, model, desk / "test.csv", *out)
    run(*asked, "--device", "cuda").mistake("no device 'cuda'", "--device cpu")
    run(*asked, "--device", "gpu").mistake("unknown device 'gpu'", "auto, cpu, cuda")
    assert not list(tmp_path.iterdir())


@without_gpu
def test_from_python_too(desk: Desk) -> None:
    with pytest.raises(UserError, match="no device 'cuda'"):
        textgraft.predict(desk.classifier, ["a film"], device="cuda")
    with pytest.raises(UserError, match="no device 'cuda'"):
        textgraft.evaluate(desk.classifier, desk / "test.csv", device="cuda")
    with pytest.raises(UserError, match="no device 'cuda'"):
        textgraft.embed(desk.lm, ["a film"], device="cuda")
    with pytest.raises(UserError, match="no device 'cuda'"):
        textgraft.load(desk.classifier, device="cuda")


@needs_cuda
def test_a_gpu_answers_as_the_processor_does(desk: Desk, run: Program) -> None:
    """In float32, whose products differ by device in the last digits only."""
    rows = {}
    for device in ("cpu", "cuda"):
        asked = ("predict", desk.classifier, desk / "test.csv", "--precision", "fp32", "--device", device)
        rows[device] = [json.loads(line) for line in run(*asked).out.splitlines()]
    assert [row["label"] for row in rows["cuda"]] == [row["label"] for row in rows["cpu"]]
    for one, other in zip(rows["cuda"], rows["cpu"], strict=True):
        assert one["confidence"] == pytest.approx(other["confidence"], abs=1e-3)
    loaded = textgraft.load(desk.classifier, device="cuda")
    assert {p.device.type for member in loaded.members for p in member.model.parameters()} == {"cuda"}
    vectors = [textgraft.embed(desk.lm, ["a great film", "no"], device=device) for device in ("cpu", "cuda")]
    assert vectors[0] == pytest.approx(vectors[1], abs=2e-2)
