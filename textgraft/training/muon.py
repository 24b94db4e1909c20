"""Muon: orthogonalised momentum for the matrices inside a network, AdamW for all other parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from textgraft.core.processes import ALONE, Processes
from textgraft.nn.cpu.precision import resolve
from textgraft.training.uncompiled_optimizers import AdamW

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the odd polynomial that is applied five times: it does not converge to 1, but is near it soonest."""

TINY = 1e-30
"""Lower bound of the norm, for gradients of zero; added to it, as the paper's 1e-7, it would shrink small steps."""

RMS = 0.2
"""The root mean square of a step divided by its learning rate, about that of AdamW's steps."""


def orthogonalised(matrix: Tensor, *, steps: int = 5, dtype: torch.dtype | None = None) -> Tensor:
    """Orthogonalise a matrix approximately: singular values between about 0.7 and 1.2, the same singular vectors.

    The Newton-Schulz iteration of Jordan et al. 2024 ("Muon: an optimizer for hidden layers"), of matrix products only.
    Singular values below about a thousandth of the Frobenius norm have not converged after five steps.

    We differ where one side is twice the other or more and `dtype` is float32: all steps together are a polynomial in
    X X^T, computed on the short side alone, and X is multiplied by it once, in half to two thirds of the time. Its
    rounding is that of single steps, but for very small singular values (research/lab-notes.md). bfloat16 is too
    coarse for it.

    Args:
        matrix: (m, n).
        steps: Number of iterations.
        dtype: Of the products; None: bfloat16 where the device supports it, else float32.

    Returns:
        (m, n), in the dtype of `matrix`.
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
    """`steps` iterations from X to aX + (bG + cG^2) X with G = X X^T."""
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        gram = x @ x.t()
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _all_steps(gram: Tensor, steps: int) -> Tensor:
    """The product of the factors of all steps: with C = aI + bG + cG^2, a step takes X to CX, and G to CGC."""
    product = factor = _factor(gram)
    for _ in range(steps - 1):
        gram = factor @ gram @ factor
        factor = _factor(gram)
        product = factor @ product
    return product


def _factor(gram: Tensor) -> Tensor:
    """The factor C of one step, aI + bG + cG^2."""
    a, b, c = COEFFICIENTS
    factor = torch.addmm(gram, gram, gram, beta=b, alpha=c)
    factor.diagonal().add_(a)
    return factor


class Muon(AdamW):
    """AdamW, but for the parameter groups with "orthogonal" set, whose steps are orthogonalised momentum.

    Jordan et al. 2024, with Nesterov's momentum. We differ in two things. A step is scaled by 0.2 · sqrt(max(m, n))
    (Liu et al. 2025, arXiv:2502.16982, equation 4), so that its entries are as large as AdamW's and one rate and one
    weight decay serve both. And the four gates of an LSTM, which lie in one matrix, are orthogonalised as one.

    On several processes, which all have the same gradients, each orthogonalises its share of the matrices and sends it
    to the others: its time does not depend on the batch, and would be spent on each of them.

    `step` sets the gradients of the orthogonal groups to None. A momentum schedule applies to AdamW's groups only.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.99),
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        processes: Processes = ALONE,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
        for group in self.param_groups:
            group.setdefault("orthogonal", False)
            group.setdefault("momentum", momentum)
        self._processes = processes

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step: Muon for the orthogonal groups, AdamW for the others."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        trained = [
            (parameter, group)
            for group in self.param_groups
            if group["orthogonal"]
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        directions = self._directions([self._momentum(parameter, group) for parameter, group in trained])
        for (parameter, group), direction in zip(trained, directions, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(direction, alpha=-group["lr"] * RMS * math.sqrt(max(parameter.shape)))
            parameter.grad = None  # AdamW skips parameters without one
        super().step()
        return loss

    def _momentum(self, parameter: Tensor, group: dict[str, Any]) -> Tensor:
        """Nesterov's momentum of a matrix, after its gradient has been added."""
        state, grad = self.state[parameter], parameter.grad
        assert grad is not None
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)  # AdamW expects it when a state is loaded
            state["momentum"] = torch.zeros_like(parameter)
        state["step"] += 1
        momentum = state["momentum"].lerp_(grad, 1 - group["momentum"])
        return grad.lerp(momentum, group["momentum"])

    def _directions(self, matrices: list[Tensor]) -> list[Tensor]:
        """The matrices, orthogonalised; each process does some, of about the same work."""
        processes = self._processes
        if not processes.several:
            return [orthogonalised(matrix) for matrix in matrices]
        owners = _owners([matrix.numel() * min(matrix.shape) for matrix in matrices], processes.size)
        directions = [
            orthogonalised(matrix) if owner == processes.rank else torch.empty_like(matrix)
            for matrix, owner in zip(matrices, owners, strict=True)
        ]
        for rank in range(processes.size):
            numbers = [number for number, owner in enumerate(owners) if owner == rank]
            if numbers:
                sent = processes.broadcast(torch.cat([directions[number].flatten() for number in numbers]), rank)
                parts = sent.split([matrices[number].numel() for number in numbers])
                for number, part in zip(numbers, parts, strict=True):
                    directions[number] = part.view_as(matrices[number])
        return directions


def _owners(work: list[int], size: int) -> list[int]:
    """The process that does each piece of work, largest first, always the one with the least so far."""
    loads, owners = [0] * size, [0] * len(work)
    for number in sorted(range(len(work)), key=lambda number: -work[number]):
        owners[number] = loads.index(min(loads))
        loads[owners[number]] += work[number]
    return owners
