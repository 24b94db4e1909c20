"""The quasi-recurrent layer (Bradbury et al. 2017), MultiFiT's alternative to the LSTM."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from textgraft.nn.cpu.precision import cast_once, compute_dtype

sigmoid_backward = torch.ops.aten.sigmoid_backward
tanh_backward = torch.ops.aten.tanh_backward


class _Pool(torch.autograd.Function):
    """Activations and recurrence of all steps, forward and backward written out.

    One step's gates fit into the CPU's cache, so all elementwise work on them is done at once: with 64 rows of 1152
    units that takes 0.4 of the time of autograd over whole windows. The gates have any dtype (bfloat16 under autocast);
    all computation here is in the dtype of `c0`.
    """

    @staticmethod
    def forward(ctx: Any, gates: Tensor, c0: Tensor, update: Tensor | None, truncate: int) -> tuple[Tensor, Tensor]:
        steps, rows, hidden = len(gates), *c0.shape
        active = c0.new_empty(gates.shape)
        c = c0.new_empty(steps + 1, rows, hidden)
        h = gates.new_empty(steps, rows, hidden)
        c[0] = c0
        for t in range(steps):
            active[t] = gates[t]
            active[t, :, :hidden].tanh_()
            active[t, :, hidden:].sigmoid_()
            z, f, *o = active[t].split(hidden, dim=1)
            torch.lerp(z, c[t], _with_zoneout(f, update, t), out=c[t + 1])
            h[t] = o[0] * c[t + 1] if o else c[t + 1]
        ctx.truncate, ctx.gates_dtype = truncate, gates.dtype
        ctx.save_for_backward(active, c, update)
        return h, c[steps].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        active, c, update = ctx.saved_tensors
        grad_h, d_c = grads[0], grads[1].clone()
        steps, hidden = len(active), c.shape[2]
        d_gates = torch.empty_like(active, dtype=ctx.gates_dtype)
        for t in range(steps - 1, -1, -1):
            if ctx.truncate and t + 1 < steps and (t + 1) % ctx.truncate == 0:
                d_c.zero_()
            z, f, *o = active[t].split(hidden, dim=1)
            d_z, d_f, *d_o = d_gates[t].split(hidden, dim=1)
            d_h = grad_h[t].to(c.dtype)
            if o:
                d_o[0].copy_(sigmoid_backward(d_h * c[t + 1], o[0]))
                d_h = d_h * o[0]
            d_c += d_h
            d_forget = d_c * (c[t] - z)
            d_f.copy_(sigmoid_backward(d_forget if update is None else d_forget * update[t], f))
            d_earlier = d_c * _with_zoneout(f, update, t)
            d_z.copy_(tanh_backward(d_c - d_earlier, z))
            d_c = d_earlier
        return d_gates, d_c, None, None


def _with_zoneout(f: Tensor, update: Tensor | None, t: int) -> Tensor:
    return f if update is None else 1 - update[t] * (1 - f)


def qrnn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    c0: Tensor,
    x_prev: Tensor | None = None,
    *,
    update: Tensor | None = None,
    truncate: int = 0,
) -> tuple[Tensor, Tensor]:
    """Outputs h (T, B, H) of every step and the last cell state (B, H).

    Equations 3 to 5: z = tanh(W_z x), f = σ(W_f x), o = σ(W_o x), then c_t = f_t c_{t-1} + (1 - f_t) z_t and h_t = o_t
    c_t ("fo-pooling"). The matrix product of all steps is one; only the elementwise recurrence goes step by step.

    Args:
        x: (T, B, D).
        weight: Rows for z, f, o; without those of o it is f-pooling, h_t = c_t.
        bias: One for each row of `weight`.
        c0: (B, H).
        x_prev: The input before the first (B, D), for a window of 2: the columns of `weight` (…, 2 D) are for x_t, then
            x_{t-1}.
        update: (T, B, H) share of each update (1 - f) that zoneout keeps.
        truncate: No gradient flows back over every `truncate`-th border between steps (0: always).

    Source: Bradbury et al. 2017.
    """
    if x_prev is not None:
        x = torch.cat([x, _previous(x, x_prev, truncate)], dim=2)
    h, c = _Pool.apply(F.linear(x, weight, bias), c0, update, truncate)
    return h, c


def _previous(x: Tensor, first: Tensor, truncate: int) -> Tensor:
    """x (T, B, D) one step late, with no gradient over the borders of truncated windows."""
    parts = [first[None]]
    for window in x.split(truncate or len(x)):
        parts += [window[:-1], window[-1:].detach()]
    return torch.cat(parts)[: len(x)]


class QRNNLayer(nn.Module):
    """A QRNN layer with weight dropout in each forward pass, and zoneout; state in and out.

    The forget gate multiplies the old state as in the paper; in the code of salesforce and fastai it multiplies the new
    input (negate its weights and bias to convert). Initialised with Xavier weights and forget bias 1, as the LSTM
    layer.

    Args:
        input_dim: D.
        hidden_dim: H.
        window: Number of inputs of each gate: 1, or 2 for the first layer of MultiFiT (Eisenschlos et al. 2019).
        pooling: "fo", or "f" without the output gate.
        zoneout: Probability that a unit keeps its state for a step; its expectation in evaluation.
        weight_dropout: Dropout of the weights.
    """

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        *,
        window: Literal[1, 2] = 1,
        pooling: Literal["fo", "f"] = "fo",
        zoneout: float = 0.0,
        weight_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if window not in (1, 2):
            raise ValueError(f"window must be 1 or 2, not {window}")
        self.hidden_dim, self.window = hidden_dim, window
        self.zoneout, self.weight_dropout = zoneout, weight_dropout
        num_gates = 1 + len(pooling)
        self.weight = nn.Parameter(torch.empty(num_gates * hidden_dim, window * input_dim))
        self.bias = nn.Parameter(torch.zeros(num_gates * hidden_dim))
        bound = math.sqrt(6 / (window * input_dim + hidden_dim))
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.ones_(self.bias.data[hidden_dim : 2 * hidden_dim])

    def initial_state(self, rows: int) -> tuple[Tensor, ...]:
        """Zeros: (c (B, H),), and with window 2 also the input before the first (B, D)."""
        c = self.weight.new_zeros(rows, self.hidden_dim)
        return (c,) if self.window == 1 else (c, self.weight.new_zeros(rows, self.weight.shape[1] // 2))

    def forward(
        self, x: Tensor, state: tuple[Tensor, ...] | None = None, *, truncate: int = 0
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """x (T, B, D) -> h (T, B, H) and the state to continue from: (c_T,), with window 2 (c_T, x_T)."""
        c0, *inputs = state if state is not None else self.initial_state(x.shape[1])
        dtype = compute_dtype(x)
        x = x.to(dtype)
        weight = F.dropout(self.weight, self.weight_dropout, self.training)
        weight, bias = (cast_once(w, dtype).to(dtype) for w in (weight, self.bias))
        x_prev = inputs[0].to(dtype) if inputs else None
        update = self._update(x.shape[0], c0)
        h, c = qrnn(x, weight, bias, c0, x_prev, update=update, truncate=truncate)
        return h, (c, x[-1].to(c0.dtype)) if inputs else (c,)

    def _update(self, steps: int, c0: Tensor) -> Tensor | None:
        """Share (T, B, H) of each update that zoneout keeps: sampled in training, else its expectation."""
        if not self.zoneout:
            return None
        share = c0.new_full((steps, *c0.shape), 1 - self.zoneout)
        return share.bernoulli_(1 - self.zoneout) if self.training else share
