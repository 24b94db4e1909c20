"""Cross entropy over a large vocabulary without ever holding all its logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from textgraft.nn.device import on_cpu
from textgraft.nn.precision import compute_dtype

IGNORE = -100
CHUNK_ROWS = {True: 512, False: 4096}
"""Rows of logits at a time: on a processor what its cache likes, on a GPU enough to keep it busy."""


def _product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """a @ b. On a processor torch asks MKL in float32, half as fast as oneDNN on AMD's; this asks oneDNN."""
    if not on_cpu(a) or a.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return torch.mm(a, b, out=out)
    return out.copy_(torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], ""))


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Loss and gradients of `hidden @ weight.T + bias`, a few hundred rows of logits at a time.

    The loss is a scalar sum, so its gradient with respect to the logits (softmax - onehot) is known in the forward
    pass; it is multiplied out chunk by chunk and the logits are dropped. Backward only scales what is kept.

    The chunks share their buffers: memory of this size goes back to the system when it is freed, and getting it
    anew for every chunk costs as much time as the softmax itself.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        weights: Tensor | None,
        smoothing: float,
        rows: int,
        wants: bool,
    ) -> Tensor:
        vocab_size = weight.shape[0]
        wide = torch.promote_types(hidden.dtype, torch.float32)  # of all sums; bfloat16 is for matrix products only
        d_hidden = torch.empty_like(hidden) if wants else None
        d_weight = hidden.new_zeros(weight.shape, dtype=wide) if wants else None
        d_bias = hidden.new_zeros(vocab_size, dtype=wide) if wants and bias is not None else None
        products = hidden.new_empty(min(rows, len(targets)), vocab_size)
        logits_buffer = products if products.dtype == wide else torch.empty_like(products, dtype=wide)
        p_buffer = torch.empty_like(logits_buffer)
        total = hidden.new_zeros((), dtype=torch.float64)
        for start in range(0, len(targets), rows):
            h, t = hidden[start : start + rows], targets[start : start + rows]
            kept = t != IGNORE
            share = kept if weights is None else kept * weights[start : start + rows]
            t = t.masked_fill(~kept, 0)[:, None]
            logits, p = logits_buffer[: len(t)], p_buffer[: len(t)]
            _product(h, weight.t(), out=products[: len(t)])
            if logits.dtype != hidden.dtype:
                logits.copy_(products[: len(t)])
            if bias is not None:
                logits += bias
            torch.softmax(logits, dim=1, out=p)
            log_z = logits.amax(dim=1) - p.amax(dim=1).log()  # of the likeliest token, whose p cannot vanish
            nll = log_z - logits.gather(1, t).squeeze(1)
            if smoothing:
                nll = (1 - smoothing) * nll + smoothing * (log_z - logits.mean(dim=1))
            total += (nll * share).sum(dtype=torch.float64)
            if d_hidden is None or d_weight is None:
                continue
            d_logits = p
            d_logits.scatter_add_(1, t, torch.full_like(nll, smoothing - 1)[:, None])
            if smoothing:
                d_logits -= smoothing / vocab_size
            d_logits *= share[:, None]
            if d_bias is not None:
                d_bias += d_logits.sum(dim=0)
            if d_logits.dtype == hidden.dtype:
                d_weight.addmm_(d_logits.t(), h)
            else:
                d_logits = products[: len(t)].copy_(d_logits)
                d_weight += d_logits.t() @ h
            _product(d_logits, weight, out=d_hidden[start : start + rows])
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return total.float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scale = grads[0]
        d_hidden, d_weight, d_bias = (None if g is None else g * scale for g in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, None, None, None, None, None


def chunked_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    *,
    weights: Tensor | None = None,
    label_smoothing: float = 0.0,
    chunk_rows: int | None = None,
) -> tuple[Tensor, int]:
    """The summed cross entropy of (N, D) hidden vectors against (N,) targets, and how many counted.

    `weight` is (V, D). Targets of -100 are left out; `weights` (N,), if given, multiply each one's loss. Memory for
    logits is `chunk_rows` (see CHUNK_ROWS) x V whatever N. With label smoothing ε the loss is (1 - ε)·nll + ε·mean over
    the vocabulary of -log p (Szegedy et al. 2016).
    """
    dtype = compute_dtype(hidden)
    total = _ChunkedCrossEntropy.apply(
        hidden.to(dtype),
        weight.to(dtype),
        bias,
        targets,
        weights,
        label_smoothing,
        chunk_rows or CHUNK_ROWS[on_cpu(hidden)],
        torch.is_grad_enabled(),
    )
    return total, int((targets != IGNORE).sum())
