"""Transformer-XL beside numbers that the original code's layout stands for, and its two layouts to ours and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from textgraft.conversion.legacy.transformer_xl import BUFFER, from_original, to_original
from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.models.model import Model, build

FIXTURES = Path(__file__).parents[2] / ".." / "shared" / "fixtures" / "transformer-xl"
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
V, WIDTH = 30, 8


def known(name: str, **flags: Any) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
    """A checkpoint's flags and weights, and what was computed with it: tokens, memories in and out, softmax."""
    folder = FIXTURES / name
    if not folder.is_dir():
        pytest.skip(f"the stored numbers are not here ({folder})")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    with np.load(folder / "weights.npz", allow_pickle=False) as arrays:
        weights = {key: torch.from_numpy(arrays[key]) for key in arrays.files}
    stored = {path.stem: torch.from_numpy(np.load(path)) for path in folder.glob("*.npy")}
    return {**config, **flags}, weights, stored


@pytest.mark.parametrize("name", ["plain", "adaptive-div2"])
def test_embeddings_hidden_states_memories_and_softmax(name: str) -> None:
    config, weights, stored = known(name, test_mem_len=20)
    model = from_original(config, weights)
    assert sum(p.numel() for p in model.parameters()) == sum(w.numel() for w in weights.values())
    memories = [stored[f"memory_{i}"].float() for i in range(2)]
    state = ((torch.ones(1, 10, dtype=torch.bool),), *((memory,) for memory in memories))
    batch = Batch(stored["tokens"], torch.ones(1, 10, dtype=torch.bool))
    encoded = model.encoder(batch, state, keep="all")
    torch.testing.assert_close(model.head(encoded).exp(), stored["softmax"], **CLOSE)
    assert encoded.state is not None
    assert encoded.state[0][0].all()
    for index in range(2):
        expected = stored[f"new_memory_{index}"]
        torch.testing.assert_close(encoded.state[index + 1][0], expected, **CLOSE)
        torch.testing.assert_close(encoded.layers[index], expected[:, 10:], **CLOSE)
    without = model.head(model.encoder(batch)).exp()
    assert (without - stored["softmax"]).abs().max() > 1e-3  # the memory tells


@pytest.mark.parametrize("name", ["plain", "adaptive-div2"])
def test_the_stored_weights_come_back(name: str) -> None:
    config, weights, _ = known(name)
    model = from_original(config, weights)
    flags, again = to_original(model)
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[key], value) for key, value in weights.items())
    assert from_original(flags, again).describe()["head"] == model.describe()["head"]


def ours(**settings: Any) -> Model:
    """A model of ours with random values everywhere."""
    head = {"tied_projections": settings.pop("tied_projections", True), "tied": settings.pop("tied", True)}
    head |= {"output_layer": "adaptive" if "cutoffs" in settings else "chunked", "alpha": 0.0, "beta": 0.0}
    encoder = {"name": "transformer_xl", "vocab_size": V, "embedding_dim": WIDTH, "hidden_dim": 12, "num_layers": 2}
    encoder |= {"num_heads": 2, "head_dim": 4, "memory_length": 6, "eval_memory_length": 9, "clamp_length": 4}
    described = {"encoder": {**encoder, **settings}, "head": {"name": "language_model", **head}}
    described["head"] |= {"vocab_size": V, "input_dim": WIDTH}
    torch.manual_seed(0)
    model = build(described).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


CLUSTERS = {"cutoffs": [6, 13, 20], "div_value": 2.0}
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("tensorflow", {}),
    ("tensorflow", {"shared_biases": False, "same_length": True}),
    ("tensorflow", CLUSTERS),
    ("tensorflow", {**CLUSTERS, "project_first": True}),
    ("tensorflow", {**CLUSTERS, "tied_projections": False}),
    ("tensorflow", {**CLUSTERS, "tied_projections": False, "project_first": True}),
    ("tensorflow", {"cutoffs": [6, 13]}),
    ("pytorch", {}),
    ("pytorch", {"tied": False, "norm": "pre"}),
    ("pytorch", {"shared_biases": False}),
    ("pytorch", {**CLUSTERS, "project_first": True}),
    ("pytorch", {**CLUSTERS, "project_first": True, "tied_projections": False}),
    ("pytorch", {"cutoffs": [6, 13]}),
]


@pytest.mark.parametrize(("layout", "settings"), MODELS)
def test_round_trips(layout: Any, settings: dict[str, Any]) -> None:
    """Every shape that either code had goes there and comes back with the same values and the same answers."""
    model = ours(**settings, layer_norm_eps={"tensorflow": 1e-12, "pytorch": 1e-5}[layout])
    config, weights = to_original(model, layout)
    config, weights = json.loads(json.dumps(config)), {**weights, BUFFER: torch.ones(4)}
    again = from_original(config, weights)
    assert again.describe()["encoder"] == model.describe()["encoder"] | {"attention_dropout": 0.0}
    assert again.values().keys() == model.values().keys()
    assert all(torch.equal(value, model.values()[name]) for name, value in again.values().items())
    batch = Batch(torch.randint(V, (2, 5)), torch.ones(2, 5, dtype=torch.bool))
    assert torch.equal(again(batch), model(batch))


def test_the_names_and_shapes_of_the_original_state_dict() -> None:
    """As their code builds them for `--div_val 2` on wikitext-103: every cluster is multiplied."""
    _, weights = to_original(ours(**CLUSTERS, project_first=True), "pytorch")
    sizes, widths = [6, 7, 7, 10], [8, 4, 2, 1]
    expected: dict[str, tuple[int, ...]] = {"r_w_bias": (2, 4), "r_r_bias": (2, 4)}
    expected |= {"crit.cluster_weight": (3, 8), "crit.cluster_bias": (3,)}
    for i, (size, width) in enumerate(zip(sizes, widths, strict=True)):
        expected |= {f"word_emb.emb_layers.{i}.weight": (size, width), f"word_emb.emb_projs.{i}": (8, width)}
        expected |= {f"crit.out_layers.{i}.weight": (size, width), f"crit.out_layers.{i}.bias": (size,)}
        expected |= {f"crit.out_projs.{i}": (8, width)}
    for i in range(2):
        attention, forward = f"layers.{i}.dec_attn.", f"layers.{i}.pos_ff."
        expected |= {f"{attention}qkv_net.weight": (24, 8), f"{attention}r_net.weight": (8, 8)}
        expected |= {f"{attention}o_net.weight": (8, 8), f"{forward}CoreNet.0.weight": (12, 8)}
        expected |= {f"{forward}CoreNet.0.bias": (12,), f"{forward}CoreNet.3.weight": (8, 12)}
        expected |= {f"{forward}CoreNet.3.bias": (8,)}
        for norm in (attention, forward):
            expected |= {f"{norm}layer_norm.weight": (8,), f"{norm}layer_norm.bias": (8,)}
    assert {name: tuple(value.shape) for name, value in weights.items()} == expected
    assert torch.equal(weights["crit.out_projs.1"], weights["word_emb.emb_projs.1"])
    assert not torch.equal(weights["crit.out_projs.0"], weights["word_emb.emb_projs.0"])


def test_pytorchs_clusters_stand_in_the_head_from_last_to_first() -> None:
    """The log probability of a token as their loss has it, whose cluster i is the head's column -i."""
    model = ours(**CLUSTERS, project_first=True)
    _, w = to_original(model, "pytorch")
    hidden = torch.randn(WIDTH)
    rows = torch.cat([w["crit.out_layers.0.weight"], w["crit.cluster_weight"]])
    bias = torch.cat([w["crit.out_layers.0.bias"], w["crit.cluster_bias"]])
    head = (rows @ (w["crit.out_projs.0"].T @ hidden) + bias).log_softmax(0)
    expected = [head[:6]]
    for i in (1, 2, 3):
        inside = w[f"crit.out_layers.{i}.weight"] @ (w[f"crit.out_projs.{i}"].T @ hidden)
        expected.append(head[-i] + (inside + w[f"crit.out_layers.{i}.bias"]).log_softmax(0))
    found = model.head.output.log_probs(hidden[None])[0]
    torch.testing.assert_close(found, torch.cat(expected), **CLOSE)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"n_layer": 3}, "missing: transformer/layer_2/ff/LayerNorm/beta"),
        ({"n_layer": 1}, "left over: transformer/layer_1/ff/LayerNorm/beta"),
        ({"d_inner": 13}, r"ff/layer_1/kernel' is \(8, 12\), not \(8, 13\)"),
        ({"d_head": 2}, "as the config says"),
        ({"untie_r": True}, r"r_w_bias' is \(2, 4\), not \(2, 2, 4\)"),
        ({"d_embed": 6}, "embeddings of 6 and layers of 8"),
        ({"cutoffs": [6]}, "left over: .*adaptive_softmax/bias"),
        ({"cutoffs": [6, 5]}, "does not rise"),
    ],
)
def test_weights_that_do_not_fit(change: dict[str, Any], complaint: str) -> None:
    config, weights = to_original(ours(layer_norm_eps=1e-12))
    with pytest.raises(UserError, match=complaint):
        from_original({**config, **change}, weights)


def test_what_either_code_cannot_be() -> None:
    for settings, layout, complaint in (
        ({"layer_norm_eps": 1e-5}, "tensorflow", "other norms"),
        ({"layer_norm_eps": 1e-12, "norm": "pre"}, "tensorflow", "other norms"),
        (CLUSTERS, "pytorch", "no such model"),
        ({"tied": False}, "tensorflow", "no such model"),
        ({**CLUSTERS, "tied": False}, "pytorch", "no such model"),
    ):
        with pytest.raises(UserError, match=complaint):
            to_original(ours(**settings), layout)
    gpt = {"name": "gpt", "vocab_size": V, "embedding_dim": 8, "num_layers": 1, "num_heads": 2, "max_length": 4}
    other = build({"encoder": gpt, "head": {"name": "language_model", "vocab_size": V, "input_dim": 8}})
    with pytest.raises(UserError, match="only a Transformer-XL"):
        to_original(other)
    with pytest.raises(UserError, match="not weights of the original Transformer-XL"):
        from_original({}, {"wte.weight": torch.ones(2, 2)})
    config, weights = to_original(ours(**CLUSTERS, project_first=True), "pytorch")
    with pytest.raises(UserError, match="first cluster shares"):
        from_original({**config, "tie_projs": [True] * 4}, weights)
    with pytest.raises(UserError, match="and others do not"):
        from_original({**config, "tie_projs": [False, True, False, True]}, weights)
    with pytest.raises(UserError, match="output tables of their own"):
        from_original(config, {**weights, "crit.out_layers.1.weight": torch.ones(7, 4)})
