"""Heads that start looking at neighbours, against what they are meant to be: shifts of sinusoids."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.encoders.base import Encoder
from textgraft.models.model import build_fresh
from textgraft.training.neighbour_attention import init_neighbour_attention, offsets, sinusoid_rotation, sinusoids

V, D, HEADS, T = 300, 160, 5, 60


def encoder(family: str, **more: Any) -> Encoder:
    shape = {"name": family, "vocab_size": V, "embedding_dim": D, "num_layers": 3, "num_heads": HEADS, "max_length": 80}
    shape |= {"feed_forward_dim": 64} if family == "bert" else {}
    head = {"name": "masked_language_model" if family == "bert" else "language_model", "vocab_size": V, "input_dim": D}
    return build_fresh({"encoder": shape | more, "head": head}, 0).encoder.eval()


def weights(of: Encoder, layer: int) -> Tensor:
    """(B, H, T, T) where the heads of a layer look, in random texts."""
    attention, found = of.layers[layer].attention, {}  # type: ignore[index, union-attr]
    hook = attention.register_forward_hook(lambda _, inputs, __: found.update(x=inputs[0], seen=inputs[1]))
    ids = torch.randint(V, (4, T), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        of(Batch(ids=ids, mask=torch.ones(4, T, dtype=torch.bool)))
        query, key, _ = attention.inputs(found["x"]).view(4, T, 3, HEADS, D // HEADS).unbind(2)
    hook.remove()
    scores = torch.einsum("bthd,bshd->bhts", query, key) / (D // HEADS) ** 0.5
    if found["seen"] is not None:  # None: everything is seen
        scores = scores.masked_fill(~found["seen"], -torch.inf)
    return scores.softmax(dim=-1)


@pytest.mark.parametrize("by", [-7, -1, 0, 1, 30])
@pytest.mark.parametrize("width", [2, 7, 32])
def test_a_turn_takes_a_position_to_another(by: int, width: int) -> None:
    waves, even = sinusoids(100, D), width - width % 2
    torch.testing.assert_close(
        waves[40, :width] @ sinusoid_rotation(width, D, by).T[:, :even], waves[40 + by, :even], atol=1e-5, rtol=0
    )


def test_offsets_go_outwards_and_one_head_is_free() -> None:
    assert offsets(6, "both") == [-1, 1, -2, 2, -3]
    assert offsets(4, "left") == [-1, -2, -3]
    assert offsets(1, "both") == []


@pytest.mark.parametrize("family", ["bert", "gpt"])
def test_each_head_looks_at_its_place_more_than_at_any_other(family: str) -> None:
    made = encoder(family)
    drawn = weights(made, 0)
    init_neighbour_attention(made, 2)
    for layer in (0, 1):
        found = weights(made, layer)
        for head, offset in enumerate(offsets(HEADS, made.direction)):
            there = {o: float(found[:, head].diagonal(o, dim1=1, dim2=2)[:, 8:-8].mean()) for o in range(-6, 7)}
            assert max(there, key=there.__getitem__) == offset
            assert there[offset] > 0.15
    free = weights(made, 0)[:, -1, T // 2 :]
    torch.testing.assert_close(free, drawn[:, -1, T // 2 :], atol=0.02, rtol=0)


def test_what_was_drawn_is_kept_beneath() -> None:
    """The heads' values, the layers above and all biases are as they were."""
    plain, made = encoder("bert"), encoder("bert")
    init_neighbour_attention(made, 2)
    changed = {name for (name, p), q in zip(plain.named_parameters(), made.parameters()) if not torch.equal(p, q)}
    assert changed == {"positions.weight", "layers.0.attention.inputs.weight", "layers.1.attention.inputs.weight"}
    first, second = (e.layers[0].attention.inputs.weight[2 * D :] for e in (plain, made))  # type: ignore[index, union-attr]
    assert torch.equal(first, second)
    deviations = [float(table.weight.detach().std()) for table in (made.positions, made.embedding)]  # type: ignore[union-attr, operator]
    assert deviations[0] == pytest.approx(deviations[1], rel=1e-3)


def test_families_without_places_and_layers_that_are_not_there_are_refused() -> None:
    with pytest.raises(UserError, match="the encoder has 3 layers"):
        init_neighbour_attention(encoder("bert"), 4)
    shape = {"name": "awd_lstm", "vocab_size": V, "embedding_dim": 8, "hidden_dim": 8, "num_layers": 1}
    lstm = build_fresh({"encoder": shape, "head": {"name": "language_model", "vocab_size": V, "input_dim": 8}}, 0)
    with pytest.raises(UserError, match="no table of positions"):
        init_neighbour_attention(lstm.encoder, 1)
