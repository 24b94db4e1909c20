"""LSTM inference on CPU: the result of `recurrent.lstm_sequence`, faster, in less memory, without gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.nn.cpu.int8 import Int8Matrix
from textgraft.nn.cpu.matmul import PackedMatrix
from textgraft.nn.cpu.tanh import tanh, tanh_

ROWS_IN_CACHE = 256
"""Number of rows whose gates stay in the caches between their two products."""


def _run(
    x: Tensor, h: Tensor, c: Tensor, inputs: Callable[[Tensor], Tensor], add: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """The result of `lstm_sequence` without gradients: gates are kept no longer than needed.

    `inputs` computes the gates (N, 4 H) of N rows of x, with the bias where `add` has none; `add` adds the recurrent
    product.
    """
    steps, rows, width = x.shape
    hidden = c.shape[1]
    outputs, c = x.new_empty(steps, rows, hidden), c.clone()
    at_once = max(1, ROWS_IN_CACHE // max(1, rows))
    for t in range(steps):
        if t % at_once == 0:
            gates = inputs(x[t : t + at_once].reshape(-1, width)).view(-1, rows, 4 * hidden)
        gate = add(gates[t % at_once], h)
        gate[:, : 2 * hidden].sigmoid_()
        tanh_(gate[:, 2 * hidden : 3 * hidden])
        gate[:, 3 * hidden :].sigmoid_()
        i, f, g, o = gate.chunk(4, dim=1)
        c.mul_(f).add_(i * g)
        h = torch.mul(o, tanh(c).to(x.dtype), out=outputs[t])
    return outputs, c


def lstm_in_int8(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Int8Matrix, w_hh: Int8Matrix, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs h (T, B, H) and last cell states (B, H); products in int8, the rest in float32.

    Args:
        x: (T, B, D).
        h: (B, H).
        c: (B, H).
        w_ih: Int8 matrix of (4 H, D).
        w_hh: Int8 matrix of (4 H, H).
        bias: (4 H,).
    """
    return _run(x, h, c, w_ih.linear, lambda gate, h: w_hh.add_to(gate, h, bias))


MIN_STEPS, MAX_STEPS = 8, 64
"""Steps per call, powers of two: oneDNN keeps about a megabyte for each shape that it has been called with."""
POSITIONS_AT_ONCE = 4_096
"""Number of positions whose gates are in memory at a time."""
MAX_CELLS = 1_536
"""Number of cells up to which oneDNN's layer is used: faster up to 1,152 as measured, slower at 2,048."""

MAX_CELLS_IN_BFLOAT16 = 800
"""Number of cells up to which oneDNN's layer with AMX beats int8: 0.5 to 0.83 of the time up to 640, 1.5 at 1,152."""


def lstm_in_bfloat16(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs h (T, B, H) and last cell states (B, H), which stay in float32 throughout.

    oneDNN's layer computes the cases that it is fast for, many steps of cells that are not too wide, and rounds no gate
    to bfloat16. The rest is done step by step.

    Args:
        x: (T, B, D), bfloat16 like all others but `c`.
        h: (B, H).
        c: (B, H), float32.
        w_ih: (4 H, D), gates in torch's order.
        w_hh: (4 H, H).
        bias: (4 H,).
    """
    rows = x.shape[1]
    padding = _padded_rows(rows) - rows
    if padding:
        x, h, c = F.pad(x, (0, 0, 0, padding)), F.pad(h, (0, 0, 0, padding)), F.pad(c, (0, 0, 0, padding))
    parts: list[Tensor] = []
    use_onednn = c.shape[1] <= MAX_CELLS and _onednn_is_usable()
    for part in x.split(_parts(len(x), rows + padding) if use_onednn else len(x)):
        run = _run_onednn if use_onednn and len(part) >= MIN_STEPS else _run_in_steps
        part, c = run(part, h, c, w_ih, w_hh, bias)
        h = part[-1]
        parts.append(part)
    outputs = parts[0] if len(parts) == 1 else torch.cat(parts)
    return outputs[:, :rows], c[:rows]


def _run_in_steps(x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    recurrent = PackedMatrix(w_hh, len(x), x.shape[1])
    return _run(x, h, c, lambda part: torch.addmm(bias, part, w_ih.t()), recurrent.add_to)


def _run_onednn(x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The same with the kernel of torch.nn.LSTM, which itself would keep the cell state in bfloat16."""
    lstm, layers, hidden = 2, 1, w_hh.shape[1]  # 2: torch's number for this kind of cell
    bias = bias.float()
    # The kernel ignores strides.
    x, h, c, w_ih, w_hh = (tensor.contiguous() for tensor in (x, h, c, w_ih, w_hh))
    weights = w_ih, w_hh, bias, torch.zeros_like(bias)
    flags = True, False, False, False  # biases; not bidirectional, batch first or training
    with torch.autocast(x.device.type, enabled=False):  # which would have the cells in bfloat16
        outputs, _, c, _ = torch.ops.aten.mkldnn_rnn_layer(
            x, *weights, h[None], c[None], False, [], lstm, hidden, layers, *flags
        )
    return outputs, c[0]


def _parts(steps: int, rows: int) -> list[int]:
    """Numbers of steps per call: powers of two from MIN_STEPS on, and the remainder."""
    parts: list[int] = []
    maximum = min(MAX_STEPS, max(MIN_STEPS, POSITIONS_AT_ONCE // rows))
    while steps >= MIN_STEPS:
        parts.append(1 << (min(maximum, steps).bit_length() - 1))
        steps -= parts[-1]
    return [*parts, steps] if steps else parts


@lru_cache
def _onednn_is_usable() -> bool:
    """True if this torch and CPU support `_run_onednn`, which torch does not guarantee:
    tested against `_run_in_steps`.
    """
    generator = torch.Generator().manual_seed(0)
    x, w_ih, w_hh, bias = (
        torch.randn(shape, generator=generator).to(torch.bfloat16)
        for shape in ((MIN_STEPS, 2, 16), (64, 16), (64, 16), (64,))
    )
    arguments = x, x.new_zeros(2, 16), torch.zeros(2, 16), w_ih, w_hh, bias
    try:
        outputs, cells = _run_onednn(*arguments)
        expected, expected_cells = _run_in_steps(*arguments)
    except (AttributeError, RuntimeError):
        return False
    close = torch.allclose(outputs.float(), expected.float(), atol=0.1) and torch.allclose(
        cells, expected_cells, atol=0.1
    )
    return cells.dtype == torch.float32 and close


@lru_cache
def faster_than_int8(cells: int) -> bool:
    """True if `lstm_in_bfloat16` is faster here than `lstm_in_int8`, for this number of cells."""
    return cells <= MAX_CELLS_IN_BFLOAT16 and bool(torch.cpu.get_capabilities().get("amx_bf16")) and _onednn_is_usable()


def _padded_rows(rows: int) -> int:
    """The next power of two, from 16 on multiple of 16: oneDNN keeps half a megabyte for each shape it has been called
    with.
    """
    return -(-rows // 16) * 16 if rows > 16 else 1 << (rows - 1).bit_length()
