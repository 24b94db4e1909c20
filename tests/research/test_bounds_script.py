"""research/bounds.py: its bounds are those that the layer takes, and none is torch's own."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from textgraft.models.model import build

sys.path.insert(0, str(Path(__file__).parents[2] / "research"))
import bounds


def test_each_row_is_the_same_network_within_another_bound() -> None:
    torch.manual_seed(0)
    encoder = {"name": "awd_lstm", "vocab_size": 20, "embedding_dim": 6, "hidden_dim": 8, "num_layers": 2}
    head = {"name": "classification", "input_dim": 6, "outputs": 3, "direction": "left"}
    model = build({"encoder": encoder, "head": head}).eval()
    layers = [m for m in model.head.modules() if isinstance(m, nn.BatchNorm1d)]
    layers[0].running_var.fill_(1e-6)
    texts = [np.random.default_rng(i).integers(1, 20, size=5) for i in range(30)]
    truth = np.random.default_rng(0).integers(3, size=30)
    found = bounds.measured(model, texts, truth, 0)
    assert list(found) == list(bounds.BOUNDS)
    assert len({loss for _, loss, _ in found.values()}) > 4  # far out as they are, each bound gives other answers
    for layer in layers:
        layer.forward = partial(nn.BatchNorm1d.forward, layer)
    for accuracy, loss, tempered in bounds.measured(model, texts, truth, 0).values():
        assert accuracy == found["none"][0]
        np.testing.assert_allclose([loss, tempered], found["none"][1:], rtol=1e-5)
    assert tempered <= loss
