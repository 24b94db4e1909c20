"""An LSTM layer that is only read: what `recurrent.lstm_sequence` says, sooner, in less memory, without gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.nn.cpu.int8 import Int8Matrix
from textgraft.nn.cpu.matmul import PackedMatrix
from textgraft.nn.cpu.tanh import tanh, tanh_

ROWS_NEARBY = 256
"""Of so many rows the gates stay in the caches between their two products."""


def _read(
    x: Tensor, h: Tensor, c: Tensor, inputs: Callable[[Tensor], Tensor], add: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """What `lstm_sequence` says, for who wants no gradients: no gate is kept longer than it takes.

    `inputs` makes the gates (N, 4 H) of N rows of x, the bias added where `add` does not; `add` adds what h has to say.
    """
    steps, rows, width = x.shape
    hidden = c.shape[1]
    outputs, c = x.new_empty(steps, rows, hidden), c.clone()
    at_once = max(1, ROWS_NEARBY // max(1, rows))
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
    """h (T, B, H) of every step and the last cells (B, H); products in eight bits, the rest in float32.

    `x` is (T, B, D), `h` and `c` (B, H); `w_ih` stands for (4 H, D), `w_hh` for (4 H, H), `bias` is (4 H,).
    """
    return _read(x, h, c, w_ih.linear, lambda gate, h: w_hh.add_to(gate, h, bias))


LEAST_STEPS, MOST_STEPS = 8, 64
"""oneDNN keeps about a megabyte for each number of rows and steps it has met: these and the powers of two between."""
POSITIONS_AT_ONCE = 4_096
"""The gates of so many are in memory at a time."""
WIDEST = 1_536
"""In cells: measured up to 1,152, where oneDNN's layer is the quicker one, and at 2,048, where our steps are."""

WIDEST_IN_BFLOAT16 = 800
"""In cells: with AMX oneDNN's layer takes half to five sixths of int8's time up to 640, and one and a half at 1,152."""


def lstm_in_bfloat16(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """h (T, B, H) of every step and the last cells (B, H), which stay in float32, as between all steps.

    `x` is (T, B, D), `h` and `c` (B, H), `w_ih` (4 H, D), `w_hh` (4 H, H), `bias` (4 H,), gates in torch's order; all
    but `c` in bfloat16. oneDNN's own layer takes what it does well, many steps of cells that are not too wide, and
    rounds no gate to bfloat16. The rest is done step by step.
    """
    rows = x.shape[1]
    more = _round(rows) - rows
    if more:
        x, h, c = F.pad(x, (0, 0, 0, more)), F.pad(h, (0, 0, 0, more)), F.pad(c, (0, 0, 0, more))
    parts: list[Tensor] = []
    able = c.shape[1] <= WIDEST and _onednn_is_usable()
    for part in x.split(_parts(len(x), rows + more) if able else len(x)):
        read = _layer_of_onednn if able and len(part) >= LEAST_STEPS else _read_in_steps
        part, c = read(part, h, c, w_ih, w_hh, bias)
        h = part[-1]
        parts.append(part)
    outputs = parts[0] if len(parts) == 1 else torch.cat(parts)
    return outputs[:, :rows], c[:rows]


def _read_in_steps(x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    recurrent = PackedMatrix(w_hh, len(x), x.shape[1])
    return _read(x, h, c, lambda part: torch.addmm(bias, part, w_ih.t()), recurrent.add_to)


def _layer_of_onednn(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """The same by the kernel of torch.nn.LSTM, which itself would keep the cells in bfloat16."""
    lstm, layers, hidden = 2, 1, w_hh.shape[1]  # 2: torch's number for this kind of cell
    bias = bias.float()
    # It reads memory as it lies, whatever the strides say.
    x, h, c, w_ih, w_hh = (given.contiguous() for given in (x, h, c, w_ih, w_hh))
    weights = w_ih, w_hh, bias, torch.zeros_like(bias)
    flags = True, False, False, False  # biases; not bidirectional, batch first or training
    with torch.autocast(x.device.type, enabled=False):  # which would have the cells in bfloat16
        outputs, _, c, _ = torch.ops.aten.mkldnn_rnn_layer(
            x, *weights, h[None], c[None], False, [], lstm, hidden, layers, *flags
        )
    return outputs, c[0]


def _parts(steps: int, rows: int) -> list[int]:
    """How many steps are taken at a time: powers of two from LEAST_STEPS on, and what is left."""
    parts: list[int] = []
    most = min(MOST_STEPS, max(LEAST_STEPS, POSITIONS_AT_ONCE // rows))
    while steps >= LEAST_STEPS:
        parts.append(1 << (min(most, steps).bit_length() - 1))
        steps -= parts[-1]
    return [*parts, steps] if steps else parts


@lru_cache
def _onednn_is_usable() -> bool:
    """Whether this torch and this processor can do so, which torch does not promise: tried, beside our own steps."""
    generator = torch.Generator().manual_seed(0)
    x, w_ih, w_hh, bias = (
        torch.randn(shape, generator=generator).to(torch.bfloat16)
        for shape in ((LEAST_STEPS, 2, 16), (64, 16), (64, 16), (64,))
    )
    given = x, x.new_zeros(2, 16), torch.zeros(2, 16), w_ih, w_hh, bias
    try:
        found, cells = _layer_of_onednn(*given)
        expected, expected_cells = _read_in_steps(*given)
    except (AttributeError, RuntimeError):
        return False
    near = torch.allclose(found.float(), expected.float(), atol=0.1) and torch.allclose(cells, expected_cells, atol=0.1)
    return cells.dtype == torch.float32 and near


@lru_cache
def faster_than_int8(cells: int) -> bool:
    """Whether `lstm_in_bfloat16` is quicker here than `lstm_in_int8`, for so many cells."""
    return cells <= WIDEST_IN_BFLOAT16 and bool(torch.cpu.get_capabilities().get("amx_bf16")) and _onednn_is_usable()


def _round(rows: int) -> int:
    """The next power of two, from 16 on multiple of 16: oneDNN keeps half a megabyte for each shape it has met."""
    return -(-rows // 16) * 16 if rows > 16 else 1 << (rows - 1).bit_length()
