"""research/transformer_xl.py: reading in segments with a memory against sliding a window by one token."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

V = 17


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "research" / "transformer_xl.py"
    spec = importlib.util.spec_from_file_location("research_transformer_xl", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks there for its types
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("layers", [1, 2])
def test_segments_with_memory_see_what_a_sliding_window_sees(script: ModuleType, layers: int) -> None:
    """One layer of `same_length` sees just the window's tokens, however it is read; a second one reaches beyond."""
    length, settings = 6, {"hidden_dim": 8, "num_layers": layers, "same_length": True, "memory_length": 6}
    model = script.model_of("transformer_xl", V, **settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    ids = torch.randint(V, (2, 4 * length + 1))
    found, _ = script.in_segments(model, ids, length)
    slid = script.by_sliding(model, ids, length)
    assert found.shape == (2, 24)
    assert slid.shape == (2, 19)
    assert torch.allclose(found[:, length - 1 :], slid, rtol=1e-4, atol=1e-5) == (layers == 1)
    first, memory = script.in_segments(model, ids, length, steps=1)
    rest, _ = script.in_segments(model, ids[:, length:], length, memory)
    torch.testing.assert_close(torch.cat([first, rest], dim=1), found, rtol=1e-4, atol=1e-5)
