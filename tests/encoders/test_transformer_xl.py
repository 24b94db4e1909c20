"""Transformer-XL by loops over every pair of positions: four terms, shift, masks, memory; and learning on a stream."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.streams.base import LanguageModelStream
from textgraft.encoders.transformer_xl import RelativeAttention, TransformerXL, TransformerXLConfig, shifted
from textgraft.heads.language_model import LanguageModelConfig, LanguageModelHead
from textgraft.models.model import Model
from textgraft.training.loop import Run
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

V, SHAPE = 19, {"embedding_dim": 8, "hidden_dim": 12, "num_layers": 2, "num_heads": 2, "memory_length": 4}
EXACT = {"rtol": 1e-9, "atol": 1e-11}


def xl(**settings: Any) -> TransformerXL:
    torch.manual_seed(0)
    encoder = TransformerXL(TransformerXLConfig(V, **{**SHAPE, **settings})).eval()
    with torch.no_grad():  # so far from zero that every branch shows
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    return encoder.double()


def texts(rows: int = 2, steps: int = 12) -> Batch:
    ids = torch.randint(V, (rows, steps), generator=torch.Generator().manual_seed(1))
    return Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool))


def part(batch: Batch, first: int, last: int) -> Batch:
    return Batch(ids=batch.ids[:, first:last], mask=batch.mask[:, first:last])


def vector_of(distance: int, dim: int) -> Tensor:
    angles = [distance / 10_000 ** (2 * i / dim) for i in range(dim // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)


def four_terms(
    encoder: TransformerXL, attention: RelativeAttention, query: Tensor, key: Tensor, distance: int
) -> list[float]:
    """For each head the score of one pair of positions, from what each reads (D,): §3.3's (a) + (b) + (c) + (d)."""
    c, size = encoder.config, attention.head_dim
    u, v = (attention.u, attention.v) if attention.u is not None else (encoder.u, encoder.v)
    assert u is not None
    assert v is not None
    of_query, of_key, _ = attention.inputs.weight.chunk(3)
    clamped = min(distance, c.clamp_length) if c.clamp_length else distance
    far = attention.distances.weight @ vector_of(clamped, c.embedding_dim)
    asked, found = of_query @ query, of_key @ key
    scores = []
    for h in range(attention.num_heads):
        part = range(h * size, (h + 1) * size)
        content = sum(asked[i] * found[i] for i in part)
        position = sum(asked[i] * far[i] for i in part)
        content_bias = sum(u[h, i - h * size] * found[i] for i in part)
        position_bias = sum(v[h, i - h * size] * far[i] for i in part)
        scores.append(float(content + position + content_bias + position_bias) / math.sqrt(size))
    return scores


@torch.no_grad()
def by_formula(encoder: TransformerXL, ids: Tensor, window: int) -> list[Tensor]:
    """One text (T,), in windows -> what each layer says of it, (T, D): the paper's equations, pair by pair."""
    c = encoder.config
    layers = [encoder.embedding(ids) * math.sqrt(c.embedding_dim)]
    for layer in encoder.layers:
        x, rows = layers[-1], []
        read = layer.attention_norm(x) if c.norm == "pre" else x
        _, _, of_value = layer.attention.inputs.weight.chunk(3)
        for t in range(len(ids)):
            start = t // window * window
            first = max(0, start - c.memory_length, t - c.memory_length + 1 if c.same_length else 0)
            pairs = [four_terms(encoder, layer.attention, read[t], read[j], t - j) for j in range(first, t + 1)]
            shares = torch.tensor(pairs, dtype=torch.float64).softmax(dim=0)  # (positions, heads)
            values = (read[first : t + 1] @ of_value.T).view(t + 1 - first, c.num_heads, -1)
            mixed = (shares[:, :, None] * values).sum(dim=0).flatten()
            rows.append(layer.attention.output(mixed))
        x = x + torch.stack(rows)
        x = x if c.norm == "pre" else layer.attention_norm(x)
        y = layer.feed_forward_norm(x) if c.norm == "pre" else x
        x = x + layer.narrow(layer.widen(y).clamp(min=0))
        layers.append(x if c.norm == "pre" else layer.feed_forward_norm(x))
    return layers


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm": "pre", "shared_biases": False},
        {"head_dim": 3, "clamp_length": 2},
        {"same_length": True, "memory_length": 3},
        {"memory_length": 7, "shared_biases": False},
        {"memory_length": 0},
    ],
    ids=lambda settings: "-".join(settings) or "plain",
)
def test_every_pair_of_positions(settings: dict[str, Any]) -> None:
    """Three windows of four with the memory handed on: every layer, and the memory that comes out at the end."""
    encoder, batch = xl(**settings), texts()
    state, windows = None, []
    for first in (0, 4, 8):
        encoded = encoder(part(batch, first, first + 4), state, keep="all")
        state = encoded.state
        windows.append(encoded.layers)
    assert state is not None
    memory = encoder.config.memory_length
    for row in range(2):
        expected = by_formula(encoder, batch.ids[row], 4)
        for index, layer in enumerate(expected):
            found = torch.cat([layers[index][row] for layers in windows])
            torch.testing.assert_close(found, layer, **EXACT)
        assert state[0][0].shape == (2, memory)
        assert bool(state[0][0].all())
        for (remembered,), layer in zip(state[1:], expected[:-1], strict=True):
            torch.testing.assert_close(remembered[row], layer[12 - memory :], **EXACT)


@given(st.integers(1, 6), st.integers(0, 5))
def test_the_shift(queries: int, before: int) -> None:
    keys = queries + before
    scores = torch.randn(2, 3, queries, keys)
    found = shifted(scores)
    assert found.shape == scores.shape
    for i in range(queries):
        for j in range(before + i + 1):
            distance = before + i - j
            assert torch.equal(found[:, :, i, j], scores[:, :, i, keys - 1 - distance])


def test_gradients_are_those_of_finite_differences() -> None:
    """Of the shift, and of the attention in all that it reads and multiplies with."""
    torch.manual_seed(0)
    assert torch.autograd.gradcheck(shifted, torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True))
    attention = RelativeAttention(4, 2, 3, own_biases=True).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_()
    seen = torch.ones(2, 1, 3, 5, dtype=torch.bool).tril(2)
    names = [name for name, _ in attention.named_parameters()]
    assert {"u", "v"} < set(names)

    def loss(x: Tensor, distances: Tensor, *weights: Tensor) -> Tensor:
        arguments = (x, distances, seen, 3, None)
        return torch.func.functional_call(attention, dict(zip(names, weights, strict=True)), arguments)

    inputs = [torch.randn(2, 5, 4).double().requires_grad_(), torch.randn(5, 4).double().requires_grad_()]
    assert torch.autograd.gradcheck(loss, (*inputs, *attention.parameters()))


@pytest.mark.parametrize("settings", [{}, {"norm": "pre", "shared_biases": False, "same_length": True}])
def test_every_weights_gradient_is_the_slope(settings: dict[str, Any]) -> None:
    """Of a language model's loss on a window after a memory, along a random direction for each weight."""
    encoder, batch = xl(**settings), texts()
    config = LanguageModelConfig(V, 8, output_layer="full", alpha=0.0, beta=0.0)
    model = Model(encoder, LanguageModelHead(config, encoder.embedding.weight)).double().eval()
    state, window = encoder(part(batch, 0, 4)).state, replace(part(batch, 4, 8), targets=batch.ids[:, 5:9])
    model.loss(window, state).total.backward()
    for name, parameter in model.named_parameters():
        direction, values = torch.randn_like(parameter), parameter.detach().clone()
        losses = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                parameter.copy_(values + step * direction)
                losses.append(float(model.loss(window, state).total))
        with torch.no_grad():
            parameter.copy_(values)
        assert parameter.grad is not None
        slope = float((parameter.grad * direction).sum())
        assert abs(slope) > 1e-6, name
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(slope, rel=1e-4), name


def test_no_gradient_flows_into_the_memory() -> None:
    encoder, batch = xl(), texts()
    first = encoder(part(batch, 0, 4))
    assert first.state is not None
    assert not any(tensor.requires_grad for layer in first.state for tensor in layer)
    encoder(part(batch, 4, 8), first.state).top.sum().backward()
    table = encoder.embedding.weight.grad
    assert table is not None
    read = set(batch.ids[:, 4:8].flatten().tolist())
    assert {i for i in range(V) if table[i].abs().sum() > 0} == read
    assert not set(batch.ids[:, :4].flatten().tolist()) <= read


def test_a_row_remembers_its_own_last_positions_and_no_padding() -> None:
    """Rows of unequal length, then more of each: as if each had been read by itself, with nothing after it."""
    encoder, lengths, more = xl(), (7, 2, 5), texts(3, 3)
    batch = texts(3, 9)
    padded = replace(batch, mask=torch.arange(9) < torch.tensor(lengths)[:, None])
    state = encoder(padded).state
    assert state is not None
    assert state[0][0].tolist() == [[True] * 4, [False, False, True, True], [True] * 4]
    after = encoder(more, state)
    for row, length in enumerate(lengths):
        alone = Batch(ids=batch.ids[row : row + 1, :length], mask=padded.mask[row : row + 1, :length])
        following = Batch(ids=more.ids[row : row + 1], mask=more.mask[row : row + 1])
        expected = encoder(following, encoder(alone).state)
        torch.testing.assert_close(after.top[row], expected.top[0], **EXACT)


@pytest.mark.parametrize("training", [True, False])
def test_memory_has_one_length_in_training_and_another_after(training: bool) -> None:
    """Both may change on a model that is there; a state of another length than asked for is cut or filled up."""
    encoder = xl(memory_length=3, eval_memory_length=6, embedding_dropout=0.0, hidden_dropout=0.0).train(training)
    size = 3 if training else 6
    assert [t.shape[1] for layer in encoder.initial_state(2) for t in layer] == [size] * 3
    first = encoder(texts(), encoder.initial_state(2)).state
    assert first is not None
    assert [t.shape[1] for layer in first for t in layer] == [size] * 3
    encoder.config = replace(encoder.config, memory_length=5, eval_memory_length=None)
    again = encoder(texts(), first)
    assert again.state is not None
    assert [t.shape[1] for layer in again.state for t in layer] == [5] * 3
    cut = tuple(tuple(t[:, -5:] for t in layer) for layer in first)
    torch.testing.assert_close(again.top, encoder(texts(), cut).top, **EXACT)


def test_with_same_length_windows_do_not_matter() -> None:
    """Every position sees as far as any other, so any windows give what one long text does; without, they do not."""
    batch, borders = texts(), [0, 3, 4, 9, 12]
    for same_length in (True, False):
        encoder, state, tops = xl(same_length=same_length), None, []
        for first, last in pairwise(borders):
            encoded = encoder(part(batch, first, last), state)
            state = encoded.state
            tops.append(encoded.top)
        assert torch.allclose(torch.cat(tops, dim=1), encoder(batch).top) == same_length


@pytest.mark.slow
def test_a_longer_memory_reaches_further_back() -> None:
    """By as many positions a layer as the memory holds."""
    batch = texts(1, 24)
    for memory in (2, 5):
        encoder = xl(memory_length=memory, num_layers=3)
        moved = []
        for position in range(23):
            other = batch.ids.clone()
            other[:, position] = (other[:, position] + 1) % V
            ends = []
            for ids in (batch.ids, other):
                state, encoded = encoder.initial_state(1), None
                for t in range(24):
                    encoded = encoder(Batch(ids[:, t : t + 1], batch.mask[:, t : t + 1]), state)
                    state = encoded.state
                assert encoded is not None
                ends.append(encoded.top)
            moved.append(not torch.equal(*ends))
        assert moved.index(True) == 23 - 3 * memory


def test_how_weights_start() -> None:
    torch.manual_seed(0)
    encoder = TransformerXL(TransformerXLConfig(200, 64, 128, 2, 4, shared_biases=False))
    for name, parameter in encoder.named_parameters():
        if "norm" in name or "bias" in name:
            assert set(parameter.tolist()) == {1.0 if name.endswith("norm.weight") else 0.0}, name
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.2), name
    assert {"layers.1.attention.u", "layers.0.attention.v"} < dict(encoder.named_parameters()).keys()
    assert encoder.u is None


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"norm": "before"}, "unknown norm 'before'"),
        ({"embedding_dim": 9, "head_dim": 2}, "9 is odd"),
        ({"num_heads": 3}, "3 heads do not divide a width of 8"),
        ({"num_heads": 0, "head_dim": 2}, "0 heads"),
        ({"memory_length": -1}, "memory_length: -1 is out of range"),
        ({"clamp_length": -1}, "clamp_length: -1"),
        ({"same_length": True, "memory_length": 0}, "memory_length: 0 is out of range"),
        ({"same_length": True, "eval_memory_length": 0}, "eval_memory_length: 0"),
    ],
)
def test_shapes_that_cannot_be(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        xl(**settings)


def test_without_memory_there_is_nothing_to_go_on_from() -> None:
    with pytest.raises(UserError, match="has no memory"):
        xl(eval_memory_length=0).begin(texts())


class Repeating:
    """A corpus of random stretches of 8 tokens, each told twice: the second time it can be known from the first."""

    num_tokens, document_starts = 6401, np.array([0])

    def read(self, start: int, stop: int) -> np.ndarray:
        stretches = np.random.default_rng(0).integers(V, size=(401, 1, 8))
        return np.repeat(stretches, 2, axis=1).reshape(-1)[start : min(stop, self.num_tokens)]


@pytest.mark.slow
def test_a_run_carries_memory_of_one_length_and_learns_what_only_memory_tells() -> None:
    """With windows no longer than a stretch, its first telling lies mostly in the memory."""
    losses = {}
    for memory in (0, 12):
        torch.manual_seed(0)
        shape = {**SHAPE, "embedding_dim": 32, "hidden_dim": 64, "memory_length": memory}
        encoder = TransformerXL(TransformerXLConfig(V, **shape, embedding_dropout=0.0, hidden_dropout=0.0))
        config = LanguageModelConfig(V, 32, output_dropout=0.0, alpha=0.0, beta=0.0)
        stream = LanguageModelStream(Repeating(), rows=16, bptt=8, seed=0, variable=False)
        model = Model(encoder, LanguageModelHead(config, encoder.embedding.weight))
        run = Run(model, [Phase("all", epochs=12, lr=0.01)], stream, Settings(precision="fp32", clip=1.0))
        steps = []
        for step in run.steps():
            steps.append(step.loss)
            assert run.state is None or [t.shape[1] for layer in run.state for t in layer] == [memory] * 3
        losses[memory] = float(np.mean(steps[-20:]))
    assert losses[12] < losses[0] - 0.3
