"""GPT: what its attention patterns see, how it starts, its cache, its lengths, and learning on a stream."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch
from textgraft.data.streams.base import ScatteredStream
from textgraft.encoders.gpt import GPT, PATTERNS, GPTConfig
from textgraft.heads.language_model import LanguageModelConfig, LanguageModelHead
from textgraft.models.model import Model
from textgraft.training.loop import Run
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

V, SHAPE = 19, {"embedding_dim": 8, "num_layers": 2, "num_heads": 2, "max_length": 12}


def gpt(**settings: Any) -> GPT:
    torch.manual_seed(0)
    encoder = GPT(GPTConfig(V, **{**SHAPE, **settings})).eval()
    with torch.no_grad():  # so far from zero that every branch shows
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return encoder


def texts(rows: int = 2, steps: int = 12) -> Batch:
    ids = torch.randint(V, (rows, steps), generator=torch.Generator().manual_seed(1))
    return Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool))


def convolved(x: Tensor, layer: nn.Linear) -> Tensor:
    """x (T, D) through a convolution of kernel and stride 3 with the layer's weights, by torch's own."""
    kernel = layer.weight.unflatten(1, (3, -1)).transpose(1, 2)
    return F.conv1d(x.T[None], kernel, layer.bias, stride=3)[0].T


def by_formula(encoder: GPT, ids: Tensor) -> Tensor:
    """One text (T,) -> (T, D) by the papers' equations, position by position and head by head."""
    c = encoder.config
    x = encoder.embedding.weight[ids] + encoder.positions.weight[: len(ids)]
    size = c.embedding_dim // c.num_heads
    for number, layer in enumerate(encoder.layers):
        odd = number in (1, 3, 5)
        banded = c.attention == "banded" or (c.attention == "alternating" and odd)
        local = c.attention == "local" or (c.attention == "local-compressed" and not odd)
        compressed = c.attention == "compressed" or (c.attention == "local-compressed" and odd)
        y = layer.attention_norm(x) if c.norm == "pre" else x
        query, key, value = layer.attention.inputs(y).split(c.embedding_dim, dim=-1)
        if compressed:
            key, value = (
                convolved(x, kernel) for x, kernel in ((key, layer.attention.keys), (value, layer.attention.values))
            )
        rows = []
        for t in range(len(ids)):
            first = max(0, t - c.window + 1) if banded else t - t % c.window if local else 0
            end = sum(3 * j + 2 <= t for j in range(len(ids))) if compressed else t + 1
            heads = []
            for h in range(c.num_heads):
                part = slice(h * size, (h + 1) * size)
                scores = key[first:end, part] @ query[t, part] / math.sqrt(size)
                heads.append(scores.softmax(0) @ value[first:end, part])
            rows.append(torch.cat(heads))
        x = x + layer.attention.output(torch.stack(rows))
        x = x if c.norm == "pre" else layer.attention_norm(x)
        y = layer.widen(layer.feed_forward_norm(x) if c.norm == "pre" else x)
        gelu = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        x = x + layer.narrow(gelu)
        x = x if c.norm == "pre" else layer.feed_forward_norm(x)
    return encoder.norm(x) if encoder.norm is not None else x


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("attention", PATTERNS)
def test_the_equations(norm: str, attention: str) -> None:
    encoder, batch = gpt(norm=norm, attention=attention, window=3, num_layers=3).double(), texts()
    for row, found in enumerate(encoder(batch).top):
        torch.testing.assert_close(found, by_formula(encoder, batch.ids[row]), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("attention", "reach"), [("banded", 4), ("alternating", 11), ("local", 2), ("local-compressed", 11)]
)
def test_how_far_a_band_reaches(attention: str, reach: int) -> None:
    """Two layers of window 3 carry a token four positions on, blocks of 3 to their end; other layers, everywhere."""
    encoder, batch = gpt(attention=attention, window=3), texts()
    other = batch.ids.clone()
    other[:, 0] = (other[:, 0] + 1) % V
    moved = (encoder(batch).top != encoder(replace(batch, ids=other)).top).any(dim=2).any(dim=0)
    assert moved.nonzero().max() == reach


@pytest.mark.parametrize("attention", ["local", "compressed", "local-compressed"])
def test_what_blocks_keep_of_a_text(attention: str) -> None:
    """Step by step they equal one pass; kept are an unfinished block, and a third of the text in compressed layers."""
    encoder, batch = gpt(attention=attention, window=4), texts()
    state, tops = encoder.initial_state(2), []
    for t in range(12):
        encoded = encoder(Batch(batch.ids[:, t : t + 1], batch.mask[:, t : t + 1]), encoder.with_room(state))
        state = encoded.state
        assert state is not None
        kept = {"local": [min(3, t + 1)], "compressed": [min(2, t + 1), (t + 1) // 3]}
        for index, layer in enumerate(state[1:]):
            assert [part.shape for part in layer] == [(2, n, 16) for n in kept[encoder.config.layer_attention(index)]]
        tops.append(encoded.top)
    torch.testing.assert_close(torch.cat(tops, dim=1), encoder(batch).top, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attention", ["dense", "alternating"])
def test_step_by_step_with_the_cache_equals_one_pass(attention: str) -> None:
    encoder, batch = gpt(attention=attention, window=3), texts()
    state, tops = encoder.initial_state(2), []
    for t in range(12):
        encoded = encoder(Batch(batch.ids[:, t : t + 1], batch.mask[:, t : t + 1]), state)
        state = encoded.state
        assert state is not None
        assert [tuple(map(tuple, (x.shape for x in layer))) for layer in state] == [
            ((2, t + 1),),
            *[((2, 2, t + 1, 4),) * 2] * 2,
        ]
        tops.append(encoded.top)
    torch.testing.assert_close(torch.cat(tops, dim=1), encoder(batch).top, rtol=1e-5, atol=1e-6)


def test_no_state_comes_out_where_none_goes_in() -> None:
    for training in (True, False):
        encoder = gpt().train(training)
        assert encoder(texts()).state is None
        assert encoder(texts(), encoder.initial_state(2)).state is not None


def test_how_weights_start() -> None:
    """N(0, 0.02); where GPT-2 ends a residual branch, that over the root of twice the layers; biases 0."""
    for norm, scaled in (("pre", 0.02 / math.sqrt(2 * 8)), ("post", 0.02)):
        encoder = GPT(GPTConfig(4000, embedding_dim=64, num_layers=8, num_heads=4, max_length=512, norm=norm))
        for name, module in encoder.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                expected = scaled if name.endswith(("attention.output", "narrow")) else 0.02
                assert float(module.weight.detach().std()) == pytest.approx(expected, rel=0.05), name
                assert abs(float(module.weight.detach().mean())) < 0.002
            if isinstance(module, nn.Linear):
                assert not module.bias.any()


def test_a_text_too_long_is_refused_and_padding_does_not_count() -> None:
    encoder, batch = gpt(), texts(steps=13)
    with pytest.raises(UserError, match=r"a text of 13 tokens is longer than the 12 .* Cut it to 12 tokens"):
        encoder(batch)
    fits = replace(batch, mask=torch.arange(13).expand(2, 13) < 12)
    cut = Batch(batch.ids[:, :12], fits.mask[:, :12])
    torch.testing.assert_close(encoder(fits).top[:, :12], encoder(cut).top)
    state = encoder(cut, encoder.initial_state(2)).state
    with pytest.raises(UserError, match="13 tokens"):
        encoder(replace(batch, ids=batch.ids[:, 12:], mask=batch.mask[:, 12:]), state)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"norm": "before"}, "unknown norm 'before'"),
        ({"attention": "band"}, "Did you mean 'banded'"),
        ({"num_heads": 3}, "3 heads do not divide a width of 8"),
        ({"num_heads": 0}, "0 heads"),
        ({"attention": "banded", "window": 0}, "window: 0 is out of range"),
        ({"attention": "local", "window": 0}, "window: 0 is out of range"),
        ({"attention": "compressed", "compression": 0}, "compression: 0 is out of range"),
    ],
)
def test_shapes_that_cannot_be(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        gpt(**settings)


def language_model(tied: bool = True) -> Model:
    encoder = gpt(max_length=64)
    config = LanguageModelConfig(V, 8, tied=tied, alpha=0.0, beta=0.0, bias=False)
    return Model(encoder, LanguageModelHead(config, encoder.embedding.weight))


def test_weights_that_a_token_is_multiplied_with() -> None:
    """Neither the position table nor an embedding of the input's own; a tied one is the output's too."""
    layer = 4 * 8 * 8 + 2 * 4 * 8 * 8
    assert language_model().multiplied() == 2 * layer + V * 8
    assert language_model(tied=False).multiplied() == 2 * layer + V * 8
    assert gpt().positions.weight.numel() == 12 * 8


class Counting:
    """A corpus in which each token follows from the one before: 0 1 2 … 18 0 1 …"""

    num_tokens, document_starts = 4001, np.array([0])

    def read(self, start: int, stop: int) -> np.ndarray:
        return np.arange(start, min(stop, self.num_tokens)) % V


@pytest.mark.slow
def test_learns_on_windows_and_carries_no_cache() -> None:
    torch.manual_seed(0)
    encoder = GPT(GPTConfig(V, **{**SHAPE, "max_length": 40, "embedding_dim": 16}))
    head = LanguageModelHead(LanguageModelConfig(V, 16, alpha=0.0, beta=0.0, bias=False), encoder.embedding.weight)
    stream = ScatteredStream(Counting(), rows=8, bptt=20, seed=0)
    run = Run(Model(encoder, head), [Phase("all", epochs=4, lr=0.01)], stream, Settings(precision="fp32"))
    losses = []
    for step in run.steps():
        losses.append(step.loss)
        assert run.state is None
    assert losses[0] > 2.5
    assert losses[-1] < 0.5


def test_an_output_layer_without_bias() -> None:
    model = language_model()
    assert [name for name, _ in model.head.named_parameters()] == ["output.weight"]
    top = model.encoder(texts()).top
    torch.testing.assert_close(model(texts()), F.linear(top, model.encoder.embedding.weight).log_softmax(dim=-1))
    with pytest.raises(UserError, match="no biases"):
        model.head.output.start_from_counts(torch.ones(V))
