"""ELMo's LSTM layer: a wide cell whose output is projected down before it is fed back, both clipped.

Source: Sak, Senior & Beaufays 2014 (arXiv:1402.1128), equations 1 to 7 without peepholes; clipping is that of
TensorFlow's `LSTMCell` (cell_clip, proj_clip), with which the published models were trained.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from textgraft.nn.cpu.precision import compute_dtype
from textgraft.nn.cpu.tanh import tanh, tanh_

POSITIONS_AT_ONCE = 512
"""Number of positions whose gates are in memory together without gradients."""


class _ProjectedLSTMSequence(torch.autograd.Function):
    """One layer over a whole window, forward and backward written out, as in nn.recurrent for the plain LSTM.

    Only the recurrence goes step by step: the input product of all steps is one matrix product, and so are the
    gradients of the weight matrices. No gradient flows through a clipped value. Matrix products run in the dtype of
    `x`; the cell state stays in float32 at least.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        h0: Tensor,
        c0: Tensor,
        weight: Tensor,
        bias: Tensor,
        projection: Tensor,
        clips: tuple[float, float],
    ) -> tuple[Tensor, Tensor]:
        steps, rows, width = x.shape
        hidden = projection.shape[1]
        of_input, of_state = weight[:, :width], weight[:, width:].t()
        gates = torch.addmm(bias, x.reshape(steps * rows, width), of_input.t()).view(steps, rows, 4 * hidden)
        h = x.new_empty(steps + 1, rows, len(projection))
        c = c0.new_empty(steps + 1, rows, hidden)
        tanh_c, wide = (x.new_empty(steps, rows, hidden) for _ in range(2))
        h[0], c[0] = h0, c0
        cell_clip, projection_clip = (clip or math.inf for clip in clips)
        for t in range(steps):
            gate = torch.addmm(gates[t], h[t], of_state, out=gates[t])
            gate[:, : 2 * hidden].sigmoid_()
            gate[:, 2 * hidden : 3 * hidden].tanh_()
            gate[:, 3 * hidden :].sigmoid_()
            i, f, g, o = gate.chunk(4, dim=1)
            torch.mul(c[t], f, out=c[t + 1]).add_(i * g).clamp_(-cell_clip, cell_clip)
            tanh_c[t] = c[t + 1].tanh()
            torch.mul(o, tanh_c[t], out=wide[t])
            torch.mm(wide[t], projection.t(), out=h[t + 1]).clamp_(-projection_clip, projection_clip)
        ctx.clips = cell_clip, projection_clip
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, gates, h, c, tanh_c, wide, weight, projection)
        return h[1:], c[1:]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x, gates, h, c, tanh_c, wide, weight, projection = ctx.saved_tensors
        grad_h, grad_c = grads
        steps, rows, width = x.shape
        hidden = projection.shape[1]
        cell_clip, projection_clip = ctx.clips
        of_state = weight[:, width:]
        d_gates, d_projected = torch.empty_like(gates), torch.empty_like(h[1:])
        d_h, d_c = torch.zeros_like(h[0]), torch.zeros_like(c[0])
        for t in range(steps - 1, -1, -1):
            i, f, g, o = gates[t].chunk(4, dim=1)
            d_i, d_f, d_g, d_o = d_gates[t].chunk(4, dim=1)
            d_h = d_h if grad_h is None else d_h + grad_h[t]
            torch.mul(d_h, h[t + 1].abs() < projection_clip, out=d_projected[t])
            d_wide = d_projected[t] @ projection
            torch.mul(d_wide * tanh_c[t], o - o * o, out=d_o)
            d_c += d_wide * o * (1 - tanh_c[t] * tanh_c[t])
            if grad_c is not None:
                d_c += grad_c[t]
            d_c *= c[t + 1].abs() < cell_clip
            d_cell = d_c.to(x.dtype)
            torch.mul(d_cell * g, i - i * i, out=d_i)
            torch.mul(d_cell * c[t].to(x.dtype), f - f * f, out=d_f)
            torch.mul(d_cell * i, 1 - g * g, out=d_g)
            d_c *= f
            d_h = d_gates[t] @ of_state
        flat = d_gates.view(steps * rows, 4 * hidden)
        d_x = (flat @ weight[:, :width]).view(steps, rows, width) if ctx.needs_input_grad[0] else None
        d_weight = d_projection = None
        if ctx.needs_input_grad[3]:
            read = torch.cat([x, h[:-1]], dim=2).view(steps * rows, -1)
            d_weight = flat.t() @ read
        if ctx.needs_input_grad[5]:
            d_projection = d_projected.flatten(0, 1).t() @ wide.view(steps * rows, hidden)
        return d_x, d_h, d_c, d_weight, flat.sum(dim=0), d_projection, None


def _run(
    x: Tensor,
    lengths: Tensor,
    h0: Tensor,
    c0: Tensor,
    weight: Tensor,
    bias: Tensor,
    projection: Tensor,
    clips: tuple[float, float],
) -> tuple[Tensor, Tensor]:
    """The sequence without gradients, with a part of its gates in memory at a time: h (T, B, P), last cell states c (B,
    H).
    """
    steps, rows, width = x.shape
    of_input, of_state = weight[:, :width].t(), weight[:, width:].t()
    cell_clip, projection_clip = (clip or math.inf for clip in clips)
    ending: dict[int, list[int]] = {}
    for row, length in enumerate(lengths.tolist()):
        ending.setdefault(length, []).append(row)
    out, h, c, last = x.new_empty(steps, rows, len(projection)), h0, c0.clone(), c0.clone()
    part = max(1, POSITIONS_AT_ONCE // max(1, rows))
    for begin in range(0, steps, part):
        part_inputs = x[begin : begin + part]
        gates = torch.addmm(bias, part_inputs.reshape(-1, width), of_input).view(len(part_inputs), rows, -1)
        for t, gate in enumerate(gates, begin):
            gate.addmm_(h, of_state)
            i, f, g, o = gate.chunk(4, dim=1)
            i.sigmoid_(), f.sigmoid_(), tanh_(g), o.sigmoid_()
            c.mul_(f).add_(i * g).clamp_(-cell_clip, cell_clip)
            h = torch.mm(o * tanh(c).to(x.dtype), projection.t(), out=out[t]).clamp_(-projection_clip, projection_clip)
            if ended := ending.get(t + 1):
                last[ended] = c[ended]
    return out, last


class ProjectedLSTMLayer(nn.Module):
    """An LSTM of `hidden_dim` cells whose output, and recurrent input, is projected to `projection_dim`.

    `weight` (4H, D + P) is for the input and the recurrent input, gates in torch's order i, f, g, o. Cell states and
    outputs are clipped to [-clip, clip], 0 for no clipping. Initialisation as in nn.recurrent: Xavier for the input and
    the projection, orthogonal per gate for the recurrent input, forget bias 1.
    """

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        projection_dim: int,
        *,
        cell_clip: float = 0.0,
        projection_clip: float = 0.0,
    ) -> None:
        super().__init__()
        self.clips = cell_clip, projection_clip
        self.weight = nn.Parameter(torch.empty(4 * hidden_dim, input_dim + projection_dim))
        self.bias = nn.Parameter(torch.zeros(4 * hidden_dim))
        self.projection = nn.Parameter(torch.empty(projection_dim, hidden_dim))
        bound = math.sqrt(6 / (input_dim + hidden_dim))
        nn.init.uniform_(self.weight.data[:, :input_dim], -bound, bound)
        for gate in self.weight.data[:, input_dim:].chunk(4):
            gate.copy_(nn.init.orthogonal_(torch.empty(gate.shape)))
        nn.init.xavier_uniform_(self.projection)
        nn.init.ones_(self.bias.data[hidden_dim : 2 * hidden_dim])

    def initial_state(self, rows: int) -> tuple[Tensor, Tensor]:
        """Zeros h (rows, P) and c (rows, H)."""
        projected, hidden = self.projection.shape
        return self.projection.new_zeros(rows, projected), self.projection.new_zeros(rows, hidden)

    def forward(self, x: Tensor, lengths: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x (T, B, D) -> h (T, B, P), and the state after step `lengths` (B,) of each row, h (B, P) and c (B, H)."""
        h0, c0 = state
        dtype = compute_dtype(x)
        weight, bias, projection = (p.to(dtype) for p in (self.weight, self.bias, self.projection))
        rows = torch.arange(x.shape[1], device=x.device)
        with torch.autocast(x.device.type, enabled=False):
            if not torch.is_grad_enabled():
                h, c = _run(x.to(dtype), lengths, h0.to(dtype), c0, weight, bias, projection, self.clips)
                return h, (h[lengths - 1, rows].to(c0.dtype), c)
            h, c = _ProjectedLSTMSequence.apply(x.to(dtype), h0.to(dtype), c0, weight, bias, projection, self.clips)
        return h, (h[lengths - 1, rows].to(c0.dtype), c[lengths - 1, rows])
