"""Checkpoints whose weights are NaN or infinite: refused with the weight's name, whichever library wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_checkpoints import save_checkpoint

from textgraft import UserError, convert
from textgraft.conversion.legacy import elmo
from textgraft.conversion.weights import validate_finite
from textgraft.models.loading import load_network
from textgraft.models.model import Model, build


def spoilt(folder: Path, value: float) -> None:
    """Set one weight of a folder of the transformers library."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    name = next(name for name, values in weights.items() if values.ndim == 2)
    weights[name][-1, -1] = value
    save_file(weights, path, metadata={"format": "pt"})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_a_folder_of_transformers(kind: str, value: float, tmp_path: Path) -> None:
    folder = save_checkpoint(kind, tmp_path / kind)
    load_network(f"hf:{folder}")
    spoilt(folder, value)
    with pytest.raises(UserError, match=r"not finite numbers are in this model \(\S+\)") as raised:
        load_network(f"hf:{folder}")
    assert raised.value.where == str(folder)


def test_an_elmo(tmp_path: Path) -> None:
    small = {"character_dim": 3, "filters": [[1, 2], [3, 4]], "projection_dim": 4, "hidden_dim": 6}
    model = build({"encoder": {"name": "elmo", **small}, "head": {"name": "features", "input_dim": 8}})
    with torch.no_grad():
        next(p for name, p in model.named_parameters() if "projection" in name)[0] = float("nan")
    folder = elmo.save(model, tmp_path / "elmo")
    with pytest.raises(UserError, match="not finite"):
        load_network(f"elmo:{folder}")


def test_large_numbers_whose_sum_is_infinite_are_finite() -> None:
    model = Model.__new__(Model)
    torch.nn.Module.__init__(model)
    model.register_parameter("weight", torch.nn.Parameter(torch.full((4,), 3e38)))
    validate_finite(model, "here")
    with torch.no_grad():
        model.get_parameter("weight")[1] = float("nan")
    with pytest.raises(UserError, match=r"\(weight\)"):
        validate_finite(model, "here")


def test_nothing_is_written_of_it(tmp_path: Path) -> None:
    folder = save_checkpoint("bert", tmp_path / "bert")
    spoilt(folder, float("nan"))
    with pytest.raises(UserError, match="not finite"):
        convert(f"hf:{folder}", tmp_path / "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]
