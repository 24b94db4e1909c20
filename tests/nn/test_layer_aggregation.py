"""What each layer aggregation takes of the layers, which an encoder allows, and what a model does with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from textgraft.conversion import huggingface
from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.encoders.awd_lstm import AWDLSTM, AWDLSTMConfig
from textgraft.encoders.bert import BERT, BERTConfig
from textgraft.models.inference import embed_sequences
from textgraft.models.model import Model, build
from textgraft.nn.layer_aggregation import (
    LAYER_AGGREGATIONS,
    LAYER_DROPOUT,
    MIX_PENALTY,
    ELMoMix,
    Mix,
    new_layer_aggregation,
)

ULMFIT = (320, 640, 640, 320)
BERT_BASE = (768,) * 13
SMALL = {"name": "bert", "vocab_size": 20, "embedding_dim": 6, "num_heads": 2, "feed_forward_dim": 8, "max_length": 16}
SMALL |= {"num_layers": 5, "pooler": False}


def layers(count: int = 6, width: int = 3) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(count)
    return tuple(torch.randn(2, 4, width, generator=generator) for _ in range(count))


def tagger(layer_aggregation: str, width: int = 6) -> Model:
    head = {"name": "tagging", "input_dim": width, "tags": ["x", "y", "z"], "layer_aggregation": layer_aggregation}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build({"encoder": SMALL, "head": head}).eval()


def batch() -> Batch:
    ids = torch.arange(14).view(2, 7)
    words = torch.tensor([[1, 3, 5], [2, 4, -1]])
    targets = torch.tensor([[0, 1, 2], [2, 1, -100]])
    return Batch(ids=ids, mask=torch.arange(7) < torch.tensor([[7], [6]]), words=words, targets=targets)


EXPECTED: dict[str, Callable[[tuple[Tensor, ...]], Tensor]] = {
    "first": lambda h: h[0],
    "last": lambda h: h[5],
    "second-to-last": lambda h: h[4],
    "sum": lambda h: h[1] + h[2] + h[3] + h[4] + h[5],
    "sum-last-4": lambda h: h[2] + h[3] + h[4] + h[5],
    "concat-last-4": lambda h: torch.stack([h[2], h[3], h[4], h[5]], dim=2).flatten(2),
    "mix": lambda h: torch.stack(h).mean(dim=0),  # before anything is learned
    "elmo-mix": lambda h: torch.stack([normalised(x) for x in h]).mean(dim=0),
}


def normalised(h: Tensor) -> Tensor:
    """Each position by itself."""
    middle = h - h.mean(dim=2, keepdim=True)
    return middle / (middle.square().mean(dim=2, keepdim=True) + 1e-5).sqrt()


def test_all_are_what_the_papers_say() -> None:
    """Five layers over the embeddings, which are no hidden layer: no sum has them, and the mix has."""
    assert EXPECTED.keys() == LAYER_AGGREGATIONS.keys()
    given = layers()
    for name, expected in EXPECTED.items():
        layer_aggregation = new_layer_aggregation(name, (3,) * 6).eval()
        found = layer_aggregation(given)
        torch.testing.assert_close(found, expected(given))
        assert found.shape[2] == layer_aggregation.output_dim == (12 if name == "concat-last-4" else 3)


@given(st.integers(0, 5), st.floats(-3, 3, allow_nan=False))
def test_a_mix_can_become_any_layer_at_any_scale(index: int, scale: float) -> None:
    mix = new_layer_aggregation("mix", (3,) * 6)
    assert isinstance(mix, Mix)
    with torch.no_grad():
        mix.weights[index] = 200.0
        mix.scale.fill_(scale)
    torch.testing.assert_close(mix(layers()), scale * layers()[index])


@given(st.lists(st.floats(-4, 4, allow_nan=False), min_size=6, max_size=6))
def test_a_mix_is_equation_1(weights: list[float]) -> None:
    """gamma * sum_j s_j h_j with softmax weights s, by loops; adding a number to all weights changes nothing."""
    mix = new_layer_aggregation("mix", (3,) * 6)
    assert isinstance(mix, Mix)
    given = layers()
    with torch.no_grad():
        mix.weights.copy_(torch.tensor(weights))
        mix.scale.fill_(1.5)
        found = mix(given)
        raised = [float(torch.tensor(w).exp()) for w in weights]
        expected = sum(1.5 * e / sum(raised) * h for e, h in zip(raised, given, strict=True))
        torch.testing.assert_close(found, expected)
        mix.weights.add_(7.0)
        torch.testing.assert_close(mix(given), found)


def test_elmos_mix_leaves_layers_out_in_training_alone() -> None:
    """Each with a probability of 0.1, the rest sharing its place; all of them out is the mean, as if none were."""
    mix = new_layer_aggregation("elmo-mix", (3,) * 6)
    assert isinstance(mix, ELMoMix)
    torch.manual_seed(0)
    drawn = torch.stack([mix.shares() for _ in range(3000)]).detach()
    out = drawn == 0
    assert abs(float(out.float().mean()) - LAYER_DROPOUT) < 0.01
    torch.testing.assert_close(drawn.sum(dim=1), torch.ones(3000))
    there = (~out).sum(dim=1, keepdim=True)
    torch.testing.assert_close(drawn, (~out) / there)
    with torch.no_grad():
        mix.weights[2] = 1.0
    assert torch.equal(mix.eval().shares(), torch.softmax(mix.weights, dim=0))


def test_elmos_weights_are_drawn_to_their_average_in_training_alone() -> None:
    model, plain = tagger("elmo-mix"), tagger("elmo-mix")
    assert isinstance(model.layer_aggregation, ELMoMix)
    assert model.layer_aggregation.penalty() == 0
    assert new_layer_aggregation("mix", (3,) * 6).penalty() is None
    weights = torch.tensor([1.0, -2.0, 0.5, 0.0, 0.0, 3.0])
    for made in (model, plain):
        with torch.no_grad():
            made.layer_aggregation.weights.copy_(weights)
    plain.layer_aggregation.penalty = lambda: None
    for training in (True, False):
        losses = []
        for made in (model, plain):
            torch.manual_seed(3)
            losses.append(made.train(training).loss(batch()))
        expected = losses[0].count * MIX_PENALTY * float(weights.square().sum()) if training else 0.0
        assert float((losses[0].total - losses[1].total).detach()) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", LAYER_AGGREGATIONS)
def test_widths_are_computed_for_every_family(name: str) -> None:
    width = new_layer_aggregation(name, BERT_BASE).output_dim
    assert width == (3072 if name == "concat-last-4" else 768)


def test_layers_of_unequal_widths_are_not_added_up() -> None:
    """ULMFiT's has three layers over the embeddings, and the two in the middle are wider."""
    possible = {"first": 320, "last": 320, "second-to-last": 640}
    for name in LAYER_AGGREGATIONS:
        if name in possible:
            assert new_layer_aggregation(name, ULMFIT).output_dim == possible[name]
            continue
        with pytest.raises(UserError, match=f"the layer aggregation '{name}'") as refused:
            new_layer_aggregation(name, ULMFIT)
        assert refused.value.remedy == f"Possible with this model: {', '.join(possible)}."
    for name in ("sum", "mix"):
        with pytest.raises(UserError, match=r"adds layers up, which here have widths of .*640, 640, 320"):
            new_layer_aggregation(name, ULMFIT)
    with pytest.raises(UserError, match="needs 4 layers above the embeddings; this model has 3"):
        new_layer_aggregation("concat-last-4", ULMFIT)
    four = (320, 640, 640, 640, 320)
    assert new_layer_aggregation("concat-last-4", four).output_dim == 640 * 3 + 320
    with pytest.raises(UserError, match="'sum-last-4' adds layers up, which here have widths of 640, 640, 640, 320"):
        new_layer_aggregation("sum-last-4", four)


def test_one_layer_has_none_before_it() -> None:
    with pytest.raises(UserError, match="'second-to-last' needs 2 layers above the embeddings") as refused:
        new_layer_aggregation("second-to-last", (8, 8))
    assert refused.value.remedy == "Possible with this model: first, last, sum, mix, elmo-mix."
    with pytest.raises(UserError, match=r"unknown layer aggregation 'second-last'.*Did you mean 'second-to-last'"):
        new_layer_aggregation("second-last", BERT_BASE)


def test_encoders_know_how_wide_their_layers_are() -> None:
    lstm = AWDLSTM(AWDLSTMConfig(10, embedding_dim=4, hidden_dim=6, num_layers=3))
    bert = BERT(BERTConfig(10, embedding_dim=4, num_layers=2, num_heads=2, feed_forward_dim=8))
    assert (lstm.widths, bert.widths) == ((4, 6, 6, 4), (4, 4, 4))
    assert AWDLSTM(AWDLSTMConfig(10, embedding_dim=4, hidden_dim=6, num_layers=1)).widths == (4, 4)


@pytest.mark.parametrize("name", LAYER_AGGREGATIONS)
def test_the_head_reads_what_the_readout_gives(name: str) -> None:
    model = tagger(name, 24 if name == "concat-last-4" else 6)
    shown = model.encoder(batch(), keep="all").layers
    expected = new_layer_aggregation(name, model.encoder.widths).eval()(shown)
    weights, bias = model.head.output.weight, model.head.output.bias
    torch.testing.assert_close(model(batch()), expected @ weights.T + bias)
    assert (model.layer_aggregation is None) == (name == "last")


def test_a_description_without_a_readout_is_that_of_the_last_layer() -> None:
    """Older artifacts have no such field, and their weights no such names."""
    now = tagger("last")
    description = now.describe()
    del description["head"]["layer_aggregation"]
    then = build(description)
    assert then.values().keys() == now.values().keys()
    then.load_state_dict(now.state_dict())
    assert torch.equal(then.eval()(batch()), now(batch()))
    assert tagger("sum").values().keys() == now.values().keys()
    assert tagger("mix").values().keys() - now.values().keys() == {
        "layer_aggregation.weights",
        "layer_aggregation.scale",
    }


def test_a_mix_trains_with_the_head_and_lower_layers_get_gradients_through_it() -> None:
    model = tagger("mix").train()
    top = model.layer_groups()[-1]
    assert model.layer_aggregation is not None
    assert {id(p) for p in model.layer_aggregation.parameters()} < {id(p) for p in top.parameters}
    for group in model.layer_groups()[:-1]:
        for parameter in group.parameters:
            parameter.requires_grad_(False)
    model.loss(batch()).total.backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in top.parameters)


def test_mistakes() -> None:
    with pytest.raises(
        UserError, match="the head takes vectors of width 6, and the layer aggregation 'concat-last-4' has 24"
    ):
        tagger("concat-last-4")
    with pytest.raises(UserError, match="unknown layer aggregation 'top'"):
        tagger("top")
    head = {"name": "classification", "input_dim": 6, "outputs": 2, "pooling": "pooled", "layer_aggregation": "sum"}
    with pytest.raises(UserError, match="pooling 'pooled' uses the last layer, not the layer aggregation 'sum'"):
        build({"encoder": SMALL | {"pooler": True}, "head": head})
    with pytest.raises(UserError, match="a missing or an unknown setting"):  # it predicts by the last layer
        build({"encoder": SMALL, "head": {"name": "masked_language_model", "input_dim": 6, "layer_aggregation": "sum"}})


def test_transformers_has_no_readouts(tmp_path: Path) -> None:
    head = {"name": "span", "input_dim": 6, "layer_aggregation": "second-to-last"}
    with pytest.raises(UserError, match="transformers has no head with the layer aggregation 'second-to-last'"):
        huggingface.save(build({"encoder": SMALL, "head": head}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_vectors_of_texts_are_pooled_from_the_layers_asked_for() -> None:
    model = tagger("last")
    texts = [torch.arange(5).numpy(), torch.arange(9, 12).numpy()]
    top = embed_sequences(model, texts, 1, "mean", "fp32")
    assert (embed_sequences(model, texts, 1, "mean", "fp32", layers="last") == top).all()
    for name in ("first", "second-to-last", "sum", "sum-last-4", "concat-last-4"):
        found = torch.from_numpy(embed_sequences(model, texts, 1, "mean", "fp32", layers=name))
        for row, ids in zip(found, texts, strict=True):
            alone = Batch(ids=torch.from_numpy(ids)[None], mask=torch.ones(1, len(ids), dtype=torch.bool))
            expected = EXPECTED[name](model.encoder(alone, keep="all").layers)[0].mean(dim=0)
            torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(UserError, match="'mix' has parameters, which this model was not trained with"):
        embed_sequences(model, texts, 1, layers="mix")
    learned = tagger("mix")
    with torch.no_grad():
        learned.layer_aggregation.weights[2] = 100.0  # type: ignore[union-attr]
    alone = Batch(ids=torch.arange(5)[None], mask=torch.ones(1, 5, dtype=torch.bool))
    expected = learned.encoder(alone, keep="all").layers[2][0].mean(dim=0)
    found = torch.from_numpy(embed_sequences(learned, texts, 1, "mean", "fp32", layers="mix"))[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
