"""Muon: momentum whose every step is made orthogonal, for the matrices inside a network; AdamW for all else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from textgraft.nn.cpu.precision import resolve
from textgraft.training.uncompiled_optimizers import AdamW

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the odd polynomial that is applied five times: not the fixed point 1 but the fastest way to its neighbourhood."""

TINY = 1e-30
"""Keeps a gradient of zeros one; added to the norm, as in the paper's 1e-7, it would shrink the steps of small ones."""

RMS = 0.2
"""The root mean square of a step over its rate, about what AdamW's steps have."""


def orthogonalised(matrix: Tensor, *, steps: int = 5, dtype: torch.dtype | None = None) -> Tensor:
    """`matrix` (m, n) with its singular values brought between about 0.7 and 1.2, its singular vectors as they were.

    The Newton-Schulz iteration of Jordan et al. 2024 ("Muon: an optimizer for hidden layers"): matrix products only,
    in `dtype` (None: bfloat16 where the device has it, else float32). Singular values below about a thousandth of the
    Frobenius norm have not arrived after five steps. Returns the dtype of `matrix`.

    We differ where one side is twice the other or more and `dtype` is float32: what the steps come to is a polynomial
    in X X^T, worked out on the short side alone, and X is multiplied by it once, in half to two thirds of the time. Its
    rounding is as that of single steps, but for very small singular values (research/lab-notes.md); bfloat16 is too
    coarse.
    """
    if dtype is None:
        dtype = torch.bfloat16 if resolve("auto", matrix.device) == "bf16" else torch.float32
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.t() if tall else matrix) / matrix.norm().clamp(min=TINY)
    x = x.to(dtype)
    wide = x.shape[1] >= 2 * x.shape[0] and dtype == torch.float32
    x = _all_steps(x @ x.t(), steps) @ x if wide else _step_by_step(x, steps)
    return (x.t() if tall else x).to(matrix.dtype)


def _step_by_step(x: Tensor, steps: int) -> Tensor:
    """X to aX + (bG + cG^2) X with G = X X^T, so many times."""
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        gram = x @ x.t()
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _all_steps(gram: Tensor, steps: int) -> Tensor:
    """What X is to be multiplied by for all of the steps: with C = aI + bG + cG^2, X goes to CX, and G to CGC."""
    product = factor = _factor(gram)
    for _ in range(steps - 1):
        gram = factor @ gram @ factor
        factor = _factor(gram)
        product = factor @ product
    return product


def _factor(gram: Tensor) -> Tensor:
    """C, by which a step multiplies X."""
    a, b, c = COEFFICIENTS
    factor = torch.addmm(gram, gram, gram, beta=b, alpha=c)
    factor.diagonal().add_(a)
    return factor


class Muon(AdamW):
    """AdamW, but for the parameter groups with "orthogonal" set, whose steps are orthogonalised momentum.

    Jordan et al. 2024, with Nesterov's momentum. We differ in two things. A step is scaled by 0.2 · sqrt(max(m, n))
    (Liu et al. 2025, arXiv:2502.16982, equation 4), so that its entries are as large as AdamW's and one rate and one
    weight decay serve both. And the four gates of an LSTM, which lie in one matrix, are orthogonalised as one.

    `step` uses up the gradients of the orthogonal groups. A schedule that moves momentum moves AdamW's only.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
        for group in self.param_groups:
            group.setdefault("orthogonal", False)
            group.setdefault("momentum", momentum)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of both kinds."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"] if group["orthogonal"] else ():
                if parameter.grad is not None:
                    self._orthogonal_step(parameter, parameter.grad, group)
                    parameter.grad = None  # AdamW passes by what has none
        super().step()
        return loss

    def _orthogonal_step(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)  # AdamW looks for it when a state is loaded
            state["momentum"] = torch.zeros_like(parameter)
        state["step"] += 1
        momentum = state["momentum"].lerp_(grad, 1 - group["momentum"])
        direction = orthogonalised(grad.lerp(momentum, group["momentum"]))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(direction, alpha=-group["lr"] * RMS * math.sqrt(max(parameter.shape)))
