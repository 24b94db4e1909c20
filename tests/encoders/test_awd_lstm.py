"""AWD-LSTM (Merity et al. 2018) against torch.nn.LSTM and against its formulas written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.data.batch import Batch
from textgraft.encoders.awd_lstm import AWDLSTM, AWDLSTMConfig
from textgraft.nn.dropout import embedding_dropout, variational_dropout
from textgraft.nn.recurrent import LSTMLayer, lstm_sequence

T, B, D, H, V = 9, 3, 4, 5, 40
NO_DROPOUT = {"embedding_dropout": 0.0, "input_dropout": 0.0, "weight_dropout": 0.0, "hidden_dropout": 0.0}


def leaves(steps: int = T) -> dict[str, Tensor]:
    """Float64 arguments of lstm_sequence."""
    torch.manual_seed(0)
    shapes = {"x": (steps, B, D), "h0": (B, H), "c0": (B, H), "w_ih": (4 * H, D), "w_hh": (4 * H, H), "bias": (4 * H,)}
    return {name: torch.randn(shape, dtype=torch.float64).requires_grad_() for name, shape in shapes.items()}


def reference_lstm(w_ih: Tensor, w_hh: Tensor, bias: Tensor) -> nn.LSTM:
    with torch.random.fork_rng(devices=[]):
        lstm = nn.LSTM(w_ih.shape[1], w_hh.shape[1], dtype=w_ih.dtype)
    with torch.no_grad():
        for name, value in (("weight_ih_l0", w_ih), ("weight_hh_l0", w_hh), ("bias_ih_l0", bias)):
            getattr(lstm, name).copy_(value)
        lstm.bias_hh_l0.zero_()
    return lstm


def a_scalar(h: Tensor, c: Tensor) -> Tensor:
    """A linear function of all outputs that tells them apart."""
    torch.manual_seed(1)
    return (h * torch.randn_like(h)).sum() + (c * torch.randn_like(c)).sum()


def test_lstm_sequence_is_torchs_lstm() -> None:
    given = leaves()
    h, c = lstm_sequence(**given)
    lstm = reference_lstm(given["w_ih"], given["w_hh"], given["bias"])
    x, h0, c0 = (given[name].detach().clone().requires_grad_() for name in ("x", "h0", "c0"))
    expected_h, (_, expected_c) = lstm(x, (h0[None], c0[None]))
    torch.testing.assert_close(h, expected_h)
    torch.testing.assert_close(c, expected_c[0])
    a_scalar(h, c).backward()
    a_scalar(expected_h, expected_c[0]).backward()
    expected = {"x": x, "h0": h0, "c0": c0}
    expected |= {"w_ih": lstm.weight_ih_l0, "w_hh": lstm.weight_hh_l0, "bias": lstm.bias_ih_l0}
    for name, tensor in expected.items():
        torch.testing.assert_close(given[name].grad, tensor.grad, msg=lambda m, name=name: f"{name}: {m}")


def test_lstm_sequence_gradients_are_those_of_finite_differences() -> None:
    given = leaves(steps=4)
    assert torch.autograd.gradcheck(lambda *args: lstm_sequence(*args), tuple(given.values()))


@pytest.mark.parametrize("steps", [9, 8, 4, 3])
def test_truncation_is_windows_with_detached_states(steps: int) -> None:
    given, window = leaves(steps), 4
    h, c = lstm_sequence(**given, truncate=window)
    gradients = torch.autograd.grad(a_scalar(h, c), list(given.values()))
    outputs, state = [], (given["h0"], given["c0"])
    for start in range(0, steps, window):
        if start:
            state = (state[0].detach(), state[1].detach())
        part, last_c = lstm_sequence(given["x"][start : start + window], *state, *list(given.values())[3:])
        outputs.append(part)
        state = (part[-1], last_c)
    by_windows = torch.cat(outputs)
    torch.testing.assert_close(h, by_windows)
    torch.testing.assert_close(c, state[1])
    expected = torch.autograd.grad(a_scalar(by_windows, state[1]), list(given.values()))
    torch.testing.assert_close(gradients, expected)


@pytest.mark.parametrize("truncate", [0, 4])
def test_layer_runs_both_ways_alike(truncate: int) -> None:
    """In float32 the layer goes through torch's kernel; what it gives is what lstm_sequence gives."""
    torch.manual_seed(0)
    layer = LSTMLayer(D, H)
    x, state = torch.randn(T, B, D), (torch.randn(B, H), torch.randn(B, H))
    h, (last_h, last_c) = layer(x, state, truncate=truncate)
    gradients = torch.autograd.grad(a_scalar(h, last_c), list(layer.parameters()))
    own_h, own_c = lstm_sequence(x, *state, layer.weight_ih, layer.weight_hh, layer.bias, truncate)
    torch.testing.assert_close(h, own_h)
    torch.testing.assert_close(last_c, own_c)
    assert torch.equal(last_h, h[-1])
    torch.testing.assert_close(gradients, torch.autograd.grad(a_scalar(own_h, own_c), list(layer.parameters())))


@pytest.mark.parametrize("rows", [1, 3, 300])
def test_layer_reads_without_gradients_as_it_trains(rows: int) -> None:
    """In bfloat16 nothing is kept for gradients that nobody wants, nor rounded as much; what was handed in stays."""
    torch.manual_seed(0)
    layer = LSTMLayer(D, H)
    x, state = torch.randn(T, rows, D), (torch.randn(rows, H), torch.randn(rows, H))
    before = [t.clone() for t in (x, *state)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h, last = layer(x, state)
        with torch.no_grad():
            read_h, read_last = layer(x, state)
    torch.testing.assert_close(read_h, h.detach(), rtol=2e-2, atol=1e-2)
    torch.testing.assert_close(read_last, tuple(t.detach() for t in last), rtol=2e-2, atol=1e-2)
    assert all(torch.equal(now, then) for now, then in zip((x, *state), before, strict=True))


@pytest.mark.parametrize("low_precision", [False, True], ids=["fp32", "bf16"])
def test_weight_drop_is_torchs_lstm_with_the_dropped_weights(low_precision: bool) -> None:
    """DropConnect on the hidden-to-hidden matrix: one mask for all steps, none on the input weights (§2)."""
    torch.manual_seed(0)
    layer = LSTMLayer(D, H, weight_dropout=0.5).train()
    x = torch.randn(T, B, D)
    torch.manual_seed(5)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low_precision):
        h, (_, c) = layer(x)
    a_scalar(h.float(), c).backward()
    torch.manual_seed(5)
    mask = F.dropout(torch.ones_like(layer.weight_hh), 0.5)
    lstm = reference_lstm(layer.weight_ih, layer.weight_hh * mask, layer.bias)
    expected_h, (_, expected_c) = lstm(x)
    a_scalar(expected_h, expected_c[0]).backward()
    close: dict[str, Any] = {"rtol": 0.05, "atol": 0.1} if low_precision else {}
    torch.testing.assert_close(h.float(), expected_h, **close)
    torch.testing.assert_close(layer.weight_hh.grad, lstm.weight_hh_l0.grad * mask, **close)
    torch.testing.assert_close(layer.weight_ih.grad, lstm.weight_ih_l0.grad, **close)
    torch.testing.assert_close(layer.bias.grad, lstm.bias_ih_l0.grad, **close)


def test_weight_drop_is_drawn_anew_in_each_pass_and_off_in_evaluation() -> None:
    layer, x = LSTMLayer(D, H, weight_dropout=0.5), torch.randn(T, B, D)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    plain = LSTMLayer(D, H).eval()
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x)[0], layer(x)[0])
    assert torch.equal(layer(x)[0], plain(x)[0])


def test_layer_starts_orthogonal_with_open_forget_gates() -> None:
    layer = LSTMLayer(6, 8)
    for gate in layer.weight_hh.detach().chunk(4):
        torch.testing.assert_close(gate @ gate.t(), torch.eye(8))
    assert torch.equal(layer.bias.detach().view(4, 8)[1], torch.ones(8))
    assert layer.bias.detach().sum() == 8


def test_variational_dropout_has_one_mask_a_sequence() -> None:
    torch.manual_seed(0)
    dropped = variational_dropout(torch.ones(50, 40, 60), 0.3, training=True)
    assert torch.equal(dropped, dropped[:1].expand_as(dropped)), "the mask changes along the sequence"
    mask = dropped[0]
    torch.testing.assert_close(mask.unique(), torch.tensor([0, 1 / 0.7]))
    assert not torch.equal(mask[0], mask[1]), "each text has its own mask"
    share = float((mask == 0).float().mean())
    assert abs(share - 0.3) < 4 * (0.3 * 0.7 / mask.numel()) ** 0.5


def test_embedding_dropout_drops_whole_words() -> None:
    torch.manual_seed(0)
    vocab_size = 5000
    ids = torch.arange(vocab_size).repeat(2, 1)
    vectors = torch.randn(*ids.shape, 3)
    dropped = embedding_dropout(vectors, ids, vocab_size, 0.1, training=True)
    gone = (dropped == 0).all(dim=2)
    assert torch.equal(gone, (dropped == 0).any(dim=2)), "a word goes whole or not at all"
    assert torch.equal(gone[0], gone[1]), "every occurrence of a dropped word goes"
    torch.testing.assert_close(dropped[~gone], vectors[~gone] / 0.9)
    assert abs(float(gone[0].float().mean()) - 0.1) < 4 * (0.1 * 0.9 / vocab_size) ** 0.5


@pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True)])
def test_dropouts_do_nothing_in_evaluation_or_at_rate_zero(p: float, training: bool) -> None:
    x, ids = torch.randn(4, 3, 2), torch.zeros(4, 3, dtype=torch.int64)
    assert variational_dropout(x, p, training) is x
    assert embedding_dropout(x, ids, 9, p, training) is x


def encoder_of(**settings: Any) -> AWDLSTM:
    torch.manual_seed(0)
    size: dict[str, Any] = {"vocab_size": V, "embedding_dim": D, "hidden_dim": H, "truncate": 0}
    return AWDLSTM(AWDLSTMConfig(**{**size, **settings}))


def a_batch(rows: int = B, steps: int = T) -> Batch:
    torch.manual_seed(2)
    ids = torch.randint(V, (rows, steps))
    return Batch(ids=ids, mask=torch.ones_like(ids, dtype=torch.bool))


def by_hand(encoder: AWDLSTM, ids: Tensor) -> list[Tensor]:
    """Every layer's output (T, B, ·) in training; one seed gives the same masks here and in the encoder."""

    def dropped(x: Tensor, p: float) -> Tensor:
        return x * torch.empty_like(x).bernoulli_(1 - p) / (1 - p) if p else x

    config = encoder.config
    words = dropped(torch.ones(V), config.embedding_dropout)
    x = (encoder.embedding.weight * words[:, None])[ids].transpose(0, 1) * config.input_scale
    x = x * dropped(torch.ones(1, *x.shape[1:]), config.input_dropout)
    outputs = []
    for index, layer in enumerate(encoder.layers):
        w_hh = F.dropout(layer.weight_hh, config.weight_dropout)
        x, _ = reference_lstm(layer.weight_ih, w_hh, layer.bias)(x)
        outputs.append(x)
        if index + 1 < config.num_layers:
            x = x * dropped(torch.ones(1, *x.shape[1:]), config.hidden_dropout)
    return outputs


@pytest.mark.parametrize(
    "rates",
    [
        {**NO_DROPOUT, "embedding_dropout": 0.5},
        {**NO_DROPOUT, "input_dropout": 0.5},
        {**NO_DROPOUT, "weight_dropout": 0.5},
        {**NO_DROPOUT, "hidden_dropout": 0.5},
        dict.fromkeys(NO_DROPOUT, 0.3),
    ],
    ids=["embedding", "input", "weight", "hidden", "all"],
)
def test_each_dropout_sits_where_the_paper_puts_it(rates: dict[str, float]) -> None:
    """Embedding: whole words; input: once, before the first layer; hidden: between layers, not after the last."""
    encoder, batch = encoder_of(**rates, input_scale=1.5).train(), a_batch()
    torch.manual_seed(7)
    shown = encoder(batch, keep="all")
    torch.manual_seed(7)
    expected = by_hand(encoder, batch.ids)
    for layer, hidden in zip(shown.layers[1:], expected, strict=True):
        torch.testing.assert_close(layer, hidden.transpose(0, 1))
    assert torch.equal(shown.top, shown.layers[-1])


def test_hidden_layers_are_wide_and_the_last_as_narrow_as_the_embedding() -> None:
    encoder = encoder_of(num_layers=3)
    assert [layer.hidden_dim for layer in encoder.layers] == [H, H, D]
    assert encoder.output_dim == D


def test_an_input_scale_of_the_roots_makes_inputs_of_unit_variance() -> None:
    """The table starts at 1 / √D, so that as a tied output layer it gives small logits."""
    dim, scale = 400, 20.0
    encoder = encoder_of(embedding_dim=dim, vocab_size=500, input_scale=scale).eval()
    batch = a_batch(rows=10, steps=50)
    shown = encoder(batch, keep="all").layers[0].detach()
    torch.testing.assert_close(shown, encoder.embedding(batch.ids).detach() * scale)
    assert encoder.embedding.weight.std().item() * dim**0.5 == pytest.approx(1, abs=0.02)
    assert shown.std().item() == pytest.approx(1, abs=0.05)


def test_a_backward_model_is_a_forward_one_on_the_text_turned_round() -> None:
    forward = encoder_of(direction="left").eval()
    backward = encoder_of(direction="right").eval()
    backward.load_state_dict(forward.state_dict())
    batch = a_batch()
    turned = Batch(ids=batch.ids.flip(1), mask=batch.mask)
    torch.testing.assert_close(backward(batch).top, forward(turned).top.flip(1))
