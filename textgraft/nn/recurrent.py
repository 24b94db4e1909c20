"""The LSTM layer: weight dropout, state in and out, truncated backpropagation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textgraft.core.device import on_cpu
from textgraft.nn.cpu.lstm_inference import faster_than_int8, lstm_in_bfloat16, lstm_in_int8
from textgraft.nn.cpu.matmul import PackedMatrix
from textgraft.nn.cpu.precision import cast_once, compute_dtype, in_int8, int8_is_enabled


class _LSTMSequence(torch.autograd.Function):
    """One LSTM layer over a whole window, forward and backward written out.

    Only the recurrence goes step by step: the input product of all steps is one matrix product, and so are the
    gradients of both weight matrices, once every step's gate gradient is known. Autograd over single steps would
    instead add T small outer products. Matrix products run in the dtype of `x` (bfloat16 under autocast); the cell
    state stays in float32 at least.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, truncate: int
    ) -> tuple[Tensor, Tensor]:
        steps, rows, width = x.shape
        hidden = w_hh.shape[1]
        gates = torch.addmm(bias, x.reshape(steps * rows, width), w_ih.t()).view(steps, rows, 4 * hidden)
        h = x.new_empty(steps + 1, rows, hidden)
        c = c0.new_empty(steps + 1, rows, hidden)
        tanh_c = x.new_empty(steps, rows, hidden)
        h[0], c[0] = h0, c0
        recurrent = PackedMatrix(w_hh, steps, rows)
        for t in range(steps):
            gate = recurrent.add_to(gates[t], h[t])
            gate[:, : 2 * hidden].sigmoid_()
            gate[:, 2 * hidden : 3 * hidden].tanh_()
            gate[:, 3 * hidden :].sigmoid_()
            i, f, g, o = gate.chunk(4, dim=1)
            torch.mul(c[t], f, out=c[t + 1]).add_(i * g)
            tanh_c[t] = c[t + 1].tanh()
            torch.mul(o, tanh_c[t], out=h[t + 1])
        ctx.truncate = truncate
        ctx.save_for_backward(x, gates, h, c, tanh_c, w_ih, w_hh)
        return h[1:], c[steps]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, gates, h, c, tanh_c, w_ih, w_hh = ctx.saved_tensors
        grad_h, grad_c_last = grads
        steps, rows, width = x.shape
        hidden = w_hh.shape[1]
        d_gates = torch.empty_like(gates)
        d_h = torch.zeros_like(h[0])
        d_c = grad_c_last.clone()
        recurrent = PackedMatrix(w_hh.t(), steps, rows)
        for t in range(steps - 1, -1, -1):
            if ctx.truncate and t + 1 < steps and (t + 1) % ctx.truncate == 0:
                d_h.zero_()
                d_c.zero_()
            i, f, g, o = gates[t].chunk(4, dim=1)
            d_i, d_f, d_g, d_o = d_gates[t].chunk(4, dim=1)
            d_h = d_h + grad_h[t]
            torch.mul(d_h * tanh_c[t], o - o * o, out=d_o)
            d_c += d_h * o * (1 - tanh_c[t] * tanh_c[t])
            d_cell = d_c.to(x.dtype)
            torch.mul(d_cell * g, i - i * i, out=d_i)
            torch.mul(d_cell * c[t].to(x.dtype), f - f * f, out=d_f)
            torch.mul(d_cell * i, 1 - g * g, out=d_g)
            d_c *= f
            d_h = recurrent(d_gates[t])
        flat = d_gates.view(steps * rows, 4 * hidden)
        d_x = (flat @ w_ih).view(steps, rows, width) if ctx.needs_input_grad[0] else None
        d_w_ih = flat.t() @ x.reshape(steps * rows, width) if ctx.needs_input_grad[3] else None
        d_w_hh = flat.t() @ h[:-1].reshape(steps * rows, hidden) if ctx.needs_input_grad[4] else None
        return d_x, d_h, d_c, d_w_ih, d_w_hh, flat.sum(dim=0), None


def lstm_sequence(
    x: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, truncate: int = 0
) -> tuple[Tensor, Tensor]:
    """Outputs h (T, B, H) of every step and the last cell state (B, H), gates in torch's order i, f, g, o.

    `x` is (T, B, D). With `truncate` no gradient flows back over every `truncate`-th border between steps, as if each
    window had started from a detached state.
    """
    h, c = _LSTMSequence.apply(x, h0, c0, w_ih, w_hh, bias, truncate)
    return h, c


def _torch_lstm(
    x: Tensor, h0: Tensor, c0: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, truncate: int
) -> tuple[Tensor, Tensor]:
    """The same by torch's own LSTM kernel: oneDNN's on CPU, cuDNN's on GPU.

    In float32 oneDNN's is twice as fast as `lstm_sequence`, which uses MKL. cuDNN keeps the data of its backward pass
    only in training mode, and needs all weights in one block of memory, where it would otherwise move them itself.
    """
    outputs = []
    weights = [w_ih, w_hh, bias, torch.zeros_like(bias)]
    on_gpu = not on_cpu(x)
    if on_gpu:
        pieces = torch.cat([w.reshape(-1) for w in weights]).split([w.numel() for w in weights])
        weights = [piece.view_as(w) for piece, w in zip(pieces, weights, strict=True)]
    for window in x.split(truncate) if truncate else (x,):
        y, h, c = torch._VF.lstm(window, (h0[None], c0[None]), weights, True, 1, 0.0, on_gpu, False, False)
        outputs.append(y)
        h0, c0 = (h[0].detach(), c[0].detach()) if truncate else (h[0], c[0])
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs), c[0]


def reversed_within(x: Tensor, mask: Tensor) -> Tensor:
    """Each row of x (B, T, D) reversed within its own length, given by mask (B, T); its own inverse."""
    positions = torch.arange(x.shape[1], device=x.device)
    lengths = mask.sum(dim=1, keepdim=True)
    index = torch.where(positions < lengths, lengths - 1 - positions, positions)
    # Selecting whole rows is several times as fast as gathering single numbers.
    rows = index + x.shape[1] * torch.arange(len(x), device=x.device)[:, None]
    return x.flatten(0, 1).index_select(0, rows.flatten()).view_as(x)


class LSTMLayer(nn.Module):
    """An LSTM layer with dropout of the hidden-to-hidden weights in each forward pass.

    Weight drop is DropConnect on `weight_hh`, one mask for all steps of a window (Merity et al. 2018, §2). One bias
    replaces torch's two, which always appear as a sum.

    Initialisation: orthogonal per gate for the recurrent weights, Xavier for the input weights, forget bias 1; with
    torch's default a three-layer LSTM stays at the unigram loss for its first million tokens.
    """

    def __init__(self, input_dim: int, hidden_dim: int, *, weight_dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden_dim, self.weight_dropout = hidden_dim, weight_dropout
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden_dim, input_dim))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden_dim, hidden_dim))
        self.bias = nn.Parameter(torch.zeros(4 * hidden_dim))
        bound = math.sqrt(6 / (input_dim + hidden_dim))
        nn.init.uniform_(self.weight_ih, -bound, bound)
        for gate in self.weight_hh.data.chunk(4):
            nn.init.orthogonal_(gate)
        nn.init.ones_(self.bias.data[hidden_dim : 2 * hidden_dim])

    def initial_state(self, rows: int) -> tuple[Tensor, ...]:
        zeros = self.weight_hh.new_zeros(rows, self.hidden_dim)
        return zeros, zeros

    def forward(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, *, truncate: int = 0
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """x (T, B, D) -> h (T, B, H) and the state (h_T, c_T), each (B, H)."""
        h0, c0 = state if state is not None else self.initial_state(x.shape[1])
        if int8_is_enabled() and not self._is_faster_in(compute_dtype(x)):
            input_matrix, recurrent_matrix = in_int8(self.weight_ih), in_int8(self.weight_hh)
            assert input_matrix is not None
            assert recurrent_matrix is not None
            h, c = lstm_in_int8(x.float(), h0.float(), c0.float(), input_matrix, recurrent_matrix, self.bias.float())
            return h, (h[-1].to(c0.dtype), c.to(c0.dtype))
        w_hh = F.dropout(self.weight_hh, self.weight_dropout, self.training)
        dtype = compute_dtype(x)
        w_ih, w_hh, bias = (cast_once(w, dtype).to(dtype) for w in (self.weight_ih, w_hh, self.bias))
        if dtype == torch.bfloat16 and on_cpu(x):
            arguments = x.to(dtype), h0.to(dtype), c0, w_ih, w_hh, bias
            h, c = lstm_sequence(*arguments, truncate) if torch.is_grad_enabled() else lstm_in_bfloat16(*arguments)
        else:
            with torch.autocast(x.device.type, enabled=False):
                h, c = _torch_lstm(x.to(dtype), h0.to(dtype), c0.to(dtype), w_ih, w_hh, bias, truncate)
        return h, (h[-1].to(c0.dtype), c.to(c0.dtype))

    def _is_faster_in(self, dtype: torch.dtype) -> bool:
        return dtype == torch.bfloat16 and faster_than_int8(self.hidden_dim)
