"""ELMo's layers against plain loops: the projected LSTM with its clips, the words, both directions over rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch, pad
from textgraft.encoders import elmo
from textgraft.encoders.elmo import CharacterCNN, ELMo, ELMoConfig
from textgraft.nn import projected_lstm
from textgraft.nn.projected_lstm import ProjectedLSTMLayer
from textgraft.text.character_encoding import CharacterEncodingTokenizer

T, B, D, H, P = 6, 3, 4, 7, 5
SMALL: dict[str, Any] = {"character_dim": 3, "filters": [[1, 2], [3, 4]], "projection_dim": P, "hidden_dim": H}
NO_CLIP, TIGHT = (0.0, 0.0), (0.3, 0.1)


def by_loop(layer: ProjectedLSTMLayer, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """As TensorFlow's LSTMCell says it, one step after another, with torch's own gradients."""
    outputs, cells = [], []
    for step in x:
        i, f, g, o = (torch.cat([step, h], dim=1) @ layer.weight.t() + layer.bias).chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        c = c.clamp(-layer.clips[0], layer.clips[0]) if layer.clips[0] else c
        h = (o.sigmoid() * c.tanh()) @ layer.projection.t()
        h = h.clamp(-layer.clips[1], layer.clips[1]) if layer.clips[1] else h
        outputs.append(h)
        cells.append(c)
    return torch.stack(outputs), torch.stack(cells)


def new_layer(clips: tuple[float, float]) -> ProjectedLSTMLayer:
    torch.manual_seed(0)
    return ProjectedLSTMLayer(D, H, P, cell_clip=clips[0], projection_clip=clips[1]).double()


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("clips", [NO_CLIP, TIGHT, (0.3, 0.0), (0.0, 0.1)])
def test_projected_lstm_equals_a_loop_in_values_and_gradients(clips: tuple[float, float]) -> None:
    layer = new_layer(clips)
    torch.manual_seed(1)
    x, h0, c0 = drawn(T, B, D), drawn(B, P), drawn(B, H)
    lengths = torch.tensor([T, 2, 4])
    leaves = [x, h0, c0, *layer.parameters()]
    h, (last_h, last_c) = layer(x, lengths, (h0, c0))
    expected_h, expected_c = by_loop(layer, x, h0, c0)
    rows = torch.arange(B)
    expected = expected_h, expected_h[lengths - 1, rows], expected_c[lengths - 1, rows]
    for one, other in zip((h, last_h, last_c), expected, strict=True):
        torch.testing.assert_close(one, other)
    clipped = [float((part.abs() == clip).double().mean()) for part, clip in zip((expected_c, h), clips, strict=True)]
    assert all((share > 0.1) == (clip > 0) for share, clip in zip(clipped, clips, strict=True))
    weights = [torch.randn_like(t) for t in expected]
    found, wanted = (
        torch.autograd.grad(sum((t * w).sum() for t, w in zip(parts, weights, strict=True)), leaves)
        for parts in ((h, last_h, last_c), expected)
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("positions", [1, 6, 10_000])
def test_without_gradients_it_is_read_in_parts(positions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = new_layer(TIGHT)
    torch.manual_seed(1)
    x, h0, c0 = drawn(T, B, D), drawn(B, P), drawn(B, H)
    lengths = torch.tensor([T, 2, 4])
    expected = layer(x, lengths, (h0, c0))
    monkeypatch.setattr(projected_lstm, "POSITIONS_AT_ONCE", positions)
    before = [h0.clone(), c0.clone()]
    with torch.no_grad():
        h, state = layer(x, lengths, (h0, c0))
    for one, other in zip((h, *state, h0, c0), (expected[0], *expected[1], *before), strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_by_differences() -> None:
    layer, (x, h0, c0) = new_layer(NO_CLIP), (drawn(4, 2, D), drawn(2, P), drawn(2, H))
    lengths = torch.tensor([4, 3])

    def outputs(*inputs: Tensor) -> tuple[Tensor, ...]:
        h, state = layer(inputs[0], lengths, inputs[1:3])
        return (h, *state)

    assert torch.autograd.gradcheck(outputs, (x, h0, c0, *layer.parameters()))


def test_frozen_weights_and_an_input_without_gradient() -> None:
    layer, x = new_layer(NO_CLIP), drawn(T, B, D)
    lengths, state = torch.full((B,), T), layer.initial_state(B)
    layer.requires_grad_(False)
    (gradient,) = torch.autograd.grad(layer(x, lengths, state)[0].sum(), [x])
    expected = torch.autograd.grad(by_loop(layer, x, *state)[0].sum(), [x])[0]
    torch.testing.assert_close(gradient, expected)
    layer.requires_grad_(True)
    layer(x.detach(), lengths, state)[0].sum().backward()
    assert layer.weight.grad is not None


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("words", [["a", "of"], ["word", "x" * 60], ["é" * 30, "a"]])
def test_words_equal_a_loop_over_characters(activation: Any, words: list[str]) -> None:
    """Every filter at every place of all 50 characters, padding among them, highway by highway."""
    torch.manual_seed(0)
    cnn = CharacterCNN(ELMoConfig(**SMALL, activation=activation)).double()
    tokenizer = CharacterEncodingTokenizer.from_vocabulary()
    character_ids = torch.from_numpy(np.concatenate(tokenizer.words(words)).astype(np.int64))
    parameters = dict(cnn.named_parameters())
    for row, found in zip(character_ids, cnn(character_ids), strict=True):
        characters = cnn.embedding.weight[row]
        features = []
        for i, (width, count) in enumerate(SMALL["filters"]):
            weight, bias = parameters[f"filters.{i}.weight"], parameters[f"filters.{i}.bias"]
            seen = [
                torch.stack([(weight[n] * characters[t : t + width].t()).sum() + bias[n] for n in range(count)])
                for t in range(50 - width + 1)
            ]
            features.append(getattr(torch, activation)(torch.stack(seen).amax(dim=0)))
        x = torch.cat(features)
        for i in range(2):
            transform, gate = (
                parameters[f"highways.{i}.{n}.weight"] @ x + parameters[f"highways.{i}.{n}.bias"]
                for n in ("transform", "gate")
            )
            x = gate.sigmoid() * transform.relu() + (1 - gate.sigmoid()) * x
        torch.testing.assert_close(found, cnn.projection.weight @ x + cnn.projection.bias)


def test_words_are_read_in_parts_and_come_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    cnn = CharacterCNN(ELMoConfig(**SMALL)).double()
    words = ["extraordinary", "a", "of", "é" * 30, "cat", "a"]
    character_ids = torch.from_numpy(
        np.concatenate(CharacterEncodingTokenizer.from_vocabulary().words(words)).astype(np.int64)
    )
    expected = torch.cat([cnn(spelling[None]) for spelling in character_ids])
    for words_at_a_time in (1, 4, 512):
        monkeypatch.setattr(elmo, "WORDS_AT_ONCE", words_at_a_time)
        torch.testing.assert_close(cnn(character_ids), expected)


def made(**settings: Any) -> ELMo:
    torch.manual_seed(0)
    return ELMo(ELMoConfig(**{**SMALL, "hidden_dropout": 0.0, **settings})).eval()


def spelled(*texts: str) -> Batch:
    return pad(CharacterEncodingTokenizer.from_vocabulary().encode_batch(texts), 0)


TEXTS = ("the cat sat on the mat", "a dog", "words of other lengths stand here")


def test_both_directions_layer_by_layer() -> None:
    """Each row by itself: LSTMs by steps, the second layer's input added to its output, directions side by side."""
    encoder, batch = made(), spelled(*TEXTS)
    shown = encoder(batch, keep="all")
    words = encoder.characters(batch.character_ids)
    for row, length in enumerate(batch.mask.sum(dim=1).tolist()):
        x = words[batch.ids[row, :length]]
        torch.testing.assert_close(shown.layers[0][row, :length], torch.cat([x, x], dim=1))
        sides = [x, x.flip(0)]
        for index, layer in enumerate(zip(encoder.forwards, encoder.backwards, strict=True)):
            for side in (0, 1):
                nothing = [part[0] for part in layer[side].initial_state(1)]
                h, c = by_loop(layer[side], sides[side][:, None], *(part[None] for part in nothing))
                sides[side] = h[:, 0] + (sides[side] if index else 0)
                assert shown.state is not None
                torch.testing.assert_close(shown.state[index][2 * side][row], h[-1, 0])
                torch.testing.assert_close(shown.state[index][2 * side + 1][row], c[-1, 0])
            both = torch.cat([sides[0], sides[1].flip(0)], dim=1)
            torch.testing.assert_close(shown.layers[index + 1][row, :length], both)
    assert torch.equal(shown.top, shown.layers[2])


def test_directions_never_meet() -> None:
    """The forward half of a vector knows nothing of what comes after, the backward half nothing of what came before."""
    encoder = made()
    batch, changed = spelled("the cat sat on mats"), spelled("the cat lay on mats")
    before, after = encoder(batch).top[0], encoder(changed).top[0]
    moved = (before != after).view(7, 2, P).any(dim=2)
    assert moved[:, 0].tolist() == [False, False, False, True, True, True, True]
    assert moved[:, 1].tolist() == [True, True, True, True, False, False, False]


def test_lanes_that_end_keep_their_state_and_new_ones_start_from_nothing() -> None:
    """As the published code: the first contiguous streams go on, those without a text wait, further ones begin."""
    encoder = made()
    first = encoder(spelled("a cat", "the dog ran"))
    assert first.state is not None
    alone = encoder(spelled("one more"), first.state)
    waited = encoder(spelled("and so", "it goes", "newly begun"), alone.state)
    of_second = tuple(tuple(part[1:] for part in layer) for layer in first.state)
    torch.testing.assert_close(waited.top[1], encoder(spelled("it goes"), of_second).top[0])
    torch.testing.assert_close(waited.top[2], encoder(spelled("newly begun")).top[0])
    assert alone.state is not None
    assert [len(part) for layer in alone.state for part in layer] == [2] * 8


def test_the_direction_from_the_right_may_read_another_window() -> None:
    encoder = made()
    both = spelled("the cat sat", "on a mat")
    one = Batch(both.ids[:1], both.mask[:1], character_ids=both.character_ids, from_right=both.ids[1:])
    found, apart = encoder(one, keep="all"), encoder(both, keep="all")
    for layer, whole in zip(found.layers, apart.layers, strict=True):
        torch.testing.assert_close(layer[0], torch.cat([whole[0, :, :P], whole[1, :, P:]], dim=1))


def test_token_ids_are_refused_and_there_is_no_table() -> None:
    encoder = made()
    with pytest.raises(UserError, match="needs words as characters"):
        encoder(Batch(torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, 2, dtype=torch.bool)))
    with pytest.raises(UserError, match="no token table"):
        encoder.tied()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"filters": []}, "are not filters"),
        ({"filters": [[1]]}, "are not filters"),
        ({"filters": [[0, 4]]}, "are not filters"),
        ({"activation": "gelu"}, "unknown activation"),
        ({"num_layers": 0}, "0 is out of range"),
        ({"cell_clip": -1.0}, "out of range"),
        ({"num_characters": 100}, "out of range"),
    ],
)
def test_configs_that_cannot_be(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        ELMoConfig(**{**SMALL, **change})
