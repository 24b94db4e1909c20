"""Cross entropy over a large vocabulary, in chunks of logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from textgraft.core.device import on_cpu
from textgraft.data.batch import IGNORE
from textgraft.nn.cpu.precision import compute_dtype

CHUNK_ROWS = {True: 512, False: 4096}
"""Rows of logits per chunk: on CPU a good size for its matrix products, on GPU enough to keep it busy."""
COMPILED_FROM = 1 << 15
"""Minimum number of rows for which compiling on a GPU (ten seconds) pays: reached in pretraining,
not in fine-tuning.
"""
IN_CACHE = 1 << 18
"""Number of logits that fit into a CPU's cache together with their probabilities, two megabytes of float32 in all."""


def _ranges(start: int, stop: int, length: int) -> Iterator[slice]:
    """Slices of [start, stop) in order, `length` at a time."""
    return (slice(i, min(i + length, stop)) for i in range(start, stop, length))


def _product(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """a @ b. On CPU torch uses MKL in float32, half as fast on AMD as oneDNN, which is used here."""
    if not on_cpu(a) or a.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return torch.mm(a, b, out=out)
    return out.copy_(torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], ""))


def _gradients_in_place(
    products: Tensor, bias: Tensor | None, targets: Tensor, share: Tensor, smoothing: float
) -> Tensor:
    """The summed loss of a chunk; its logits without bias (N, V) are overwritten by their gradients.

    This is `_ChunkedCrossEntropy` in a form that a compiler fuses into a few passes over the logits. `targets` (N,) are
    all in the vocabulary; `share` (N,) is the weight of each, 0 to ignore it.
    """
    logits = products.float() if bias is None else products.float() + bias
    log_z = torch.logsumexp(logits, dim=1)
    nll = log_z - logits.gather(1, targets[:, None]).squeeze(1)
    is_target = torch.arange(products.shape[1], device=products.device) == targets[:, None]
    if smoothing:
        nll = (1 - smoothing) * nll + smoothing * (log_z - logits.mean(dim=1))
    gradients = (
        (logits - log_z[:, None]).exp() - torch.where(is_target, 1 - smoothing, 0.0) - smoothing / len(is_target[0])
    )
    products.copy_(gradients * share[:, None])
    return (nll * share).sum(dtype=torch.float64)


@lru_cache
def _compiled() -> Callable[..., Tensor]:
    """`_gradients_in_place`, compiled at the first call."""
    return torch.compile(_gradients_in_place, dynamic=True)


def _compiled_loss(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor | None, smoothing: float
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The summed loss and its gradients by hidden (N, D), weight (V, D) and bias (V,), on a GPU."""
    rows = CHUNK_ROWS[False]
    total = hidden.new_zeros((), dtype=torch.float64)
    d_hidden, d_weight = torch.empty_like(hidden), hidden.new_zeros(weight.shape, dtype=torch.float32)
    d_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
    kept = targets != IGNORE
    share = kept.float() if weights is None else kept * weights
    targets = targets.masked_fill(~kept, 0)
    for chunk in _ranges(0, len(targets), rows):
        products = hidden[chunk] @ weight.t()
        total += _compiled()(products, bias, targets[chunk], share[chunk], smoothing)
        d_weight += products.t() @ hidden[chunk]
        torch.mm(products, weight, out=d_hidden[chunk])
        if d_bias is not None:
            d_bias += products.sum(dim=0, dtype=torch.float32)
    return total, d_hidden, d_weight, d_bias


class _Chunking(NamedTuple):
    """Settings of `_ChunkedCrossEntropy`: label smoothing, rows at a time, and whether gradients are needed."""

    smoothing: float
    rows: int
    slice_rows: int
    wants_gradients: bool


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Loss and gradients of `hidden @ weight.T + bias`, for a chunk of rows at a time.

    The loss is a scalar sum, so its gradient with respect to the logits (softmax - onehot) is known in the forward
    pass; it is multiplied out chunk by chunk and the logits are dropped. Backward only scales the stored gradients.

    Matrix products need many rows; elementwise work on logits needs few, which stay in the CPU's cache: it is done on
    `slice_rows` of each chunk of `rows` at a time. Buffers are shared by all chunks: memory of this size is returned to
    the system when freed, and allocating it anew for every chunk costs as much time as the softmax itself.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        weights: Tensor | None,
        chunking: _Chunking,
    ) -> Tensor:
        smoothing, rows, slice_rows, needs_grad = chunking
        if needs_grad and not on_cpu(hidden) and hidden.dtype == torch.bfloat16 and len(targets) >= COMPILED_FROM:
            total, *gradients = _compiled_loss(hidden, weight, bias, targets, weights, smoothing)
            ctx.save_for_backward(*gradients)
            return total.float()
        vocab_size = weight.shape[0]
        wide = torch.promote_types(
            hidden.dtype, torch.float32
        )  # dtype of all sums; bfloat16 is for matrix products only
        d_hidden = torch.empty_like(hidden) if needs_grad else None
        d_weight = hidden.new_zeros(weight.shape, dtype=wide) if needs_grad else None
        d_bias = hidden.new_zeros(vocab_size, dtype=wide) if needs_grad and bias is not None else None
        products = hidden.new_empty(min(rows, len(targets)), vocab_size)
        p_buffer = products.new_empty(min(slice_rows, len(products)), vocab_size, dtype=wide)
        wide_logits = None if products.dtype == wide else torch.empty_like(p_buffer)
        total = hidden.new_zeros((), dtype=torch.float64)
        for chunk in _ranges(0, len(targets), rows):
            h, product = hidden[chunk], products[: chunk.stop - chunk.start]
            _product(h, weight.t(), out=product)
            for part in _ranges(chunk.start, chunk.stop, slice_rows):
                t, part_logits = targets[part], product[part.start - chunk.start : part.stop - chunk.start]
                kept = t != IGNORE
                share = kept if weights is None else kept * weights[part]
                t = t.masked_fill(~kept, 0)[:, None]
                logits = part_logits if wide_logits is None else wide_logits[: len(t)].copy_(part_logits)
                if bias is not None:
                    logits += bias
                p = torch.softmax(logits, dim=1, out=p_buffer[: len(t)])
                log_z = logits.amax(dim=1) - p.amax(dim=1).log()  # from the most likely token, whose p cannot underflow
                nll = log_z - logits.gather(1, t).squeeze(1)
                if smoothing:
                    nll = (1 - smoothing) * nll + smoothing * (log_z - logits.mean(dim=1))
                total += (nll * share).sum(dtype=torch.float64)
                if not needs_grad:
                    continue
                p.scatter_add_(1, t, torch.full_like(nll, smoothing - 1)[:, None])
                if smoothing:
                    p -= smoothing / vocab_size
                p *= share[:, None]
                if d_bias is not None:
                    d_bias += p.sum(dim=0)
                part_logits.copy_(p)  # logits are overwritten by their gradient
            if d_hidden is None or d_weight is None:
                continue
            if wide_logits is None:
                d_weight.addmm_(product.t(), h)
            elif len(products) == len(targets):
                d_weight.copy_(product.t() @ h)
            else:
                d_weight += product.t() @ h
            _product(product, weight, out=d_hidden[chunk])
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        return total.float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        scale = grads[0]
        # The scale is 1 for an unscaled loss; tested on CPU only, since it would synchronise a GPU.
        scaled = not on_cpu(scale) or scale != 1
        d_hidden, d_weight, d_bias = (g * scale if scaled and g is not None else g for g in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, None, None, None


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
    """Cross entropy of hidden vectors against targets, summed, in chunks of logits.

    Memory for logits is `chunk_rows` x V whatever N.

    Args:
        hidden: (N, D).
        weight: (V, D).
        bias: (V,) or None.
        targets: (N,); those of -100 are ignored.
        weights: (N,) weight of each target's loss (None: 1).
        label_smoothing: ε; the loss is (1 - ε)·nll + ε·mean over the vocabulary of -log p (Szegedy et al. 2016).
        chunk_rows: Rows of logits per chunk (None: CHUNK_ROWS).

    Returns:
        The summed loss, and the number of targets that are not ignored.
    """
    dtype = compute_dtype(hidden)
    chunk_rows = chunk_rows or CHUNK_ROWS[on_cpu(hidden)]
    slice_rows = max(1, IN_CACHE // len(weight)) if on_cpu(hidden) else chunk_rows
    chunking = _Chunking(label_smoothing, chunk_rows, slice_rows, torch.is_grad_enabled())
    total = _ChunkedCrossEntropy.apply(hidden.to(dtype), weight.to(dtype), bias, targets, weights, chunking)
    return total, int((targets != IGNORE).sum())
