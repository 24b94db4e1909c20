"""Muon (Jordan et al. 2024) against its polynomial on singular values by SVD, and against AdamW where it is AdamW."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from textgraft.encoders.base import LayerGroup
from textgraft.models.model import build
from textgraft.training.muon import COEFFICIENTS, Muon, _step_by_step, orthogonalised
from textgraft.training.optimizers import build_optimizer
from textgraft.training.phases import Phase

SHAPES = [(6, 6), (24, 6), (6, 24), (1, 5), (5, 1), (64, 48)]
WIDE = [(256, 1024), (96, 192), (192, 96)]


def by_svd(matrix: Tensor) -> Tensor:
    """What five steps make of a matrix, in float64: the polynomial acts on each singular value by itself."""
    a, b, c = COEFFICIENTS
    u, s, vt = torch.linalg.svd(matrix.double(), full_matrices=False)
    s = s / s.norm()
    for _ in range(5):
        s = a * s + b * s**3 + c * s**5
    return (u * s) @ vt


def matrix(rows: int, columns: int, *, smallest: float = 0.0, seed: int = 0) -> Tensor:
    """Gaussian, or with singular values evenly from `smallest` to 1."""
    found = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    if not smallest:
        return found
    u, s, vt = torch.linalg.svd(found, full_matrices=False)
    return (u * torch.linspace(1, smallest, len(s))) @ vt


@pytest.mark.parametrize("shape", SHAPES)
def test_newton_schulz_is_the_polynomial_of_the_singular_values(shape: tuple[int, int]) -> None:
    found = orthogonalised(matrix(*shape), dtype=torch.float32)
    torch.testing.assert_close(found.double(), by_svd(matrix(*shape)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", WIDE)
@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-7])
def test_all_steps_at_once_are_the_steps_one_by_one(shape: tuple[int, int], smallest: float) -> None:
    """In float64; singular values fall off to `smallest` geometrically, which an iteration on squares might lose."""
    u, s, vt = torch.linalg.svd(matrix(*shape).double(), full_matrices=False)
    given = ((u * smallest ** torch.linspace(0, 1, len(s), dtype=torch.float64)) @ vt).float()
    x = given.double() / given.double().norm()
    found = orthogonalised(given, dtype=torch.float32).double()
    assert (found - _step_by_step(x, 5)).norm() < 1e-3 * math.sqrt(min(shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_update_is_nearly_orthogonal(shape: tuple[int, int], dtype: torch.dtype) -> None:
    """Of a matrix whose singular values span a factor of ten; nearest to U V^T, of which it keeps the directions."""
    given = matrix(*shape, smallest=0.1)
    found = orthogonalised(given, dtype=dtype)
    assert found.dtype == given.dtype
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.6
    assert values.max() < 1.3
    u, _, vt = torch.linalg.svd(given, full_matrices=False)
    alignment = torch.linalg.vecdot((u @ vt).flatten(), found.flatten(), dim=0) / found.norm() / (u @ vt).norm()
    assert alignment > 0.97


def test_neither_the_size_of_a_gradient_nor_a_zero_one_matters() -> None:
    given = matrix(8, 5)
    for scale in (1e-9, 1e9):
        torch.testing.assert_close(
            orthogonalised(given * scale, dtype=torch.float32),
            orthogonalised(given, dtype=torch.float32),
            rtol=1e-3,
            atol=1e-5,
        )
    assert torch.equal(orthogonalised(torch.zeros(3, 4)), torch.zeros(3, 4))


def test_steps_by_the_formulas() -> None:
    """Nesterov's momentum, decoupled decay and 0.2 sqrt(max(m, n)), with the orthogonal step by SVD."""
    rate, decay, beta = 0.05, 0.1, 0.95
    weight = nn.Parameter(matrix(12, 5))
    optimizer = Muon([{"params": [weight], "orthogonal": True}], lr=rate, weight_decay=decay)
    expected, momentum = weight.detach().double(), torch.zeros(12, 5, dtype=torch.float64)
    for step in range(4):
        grad = matrix(12, 5, smallest=0.2, seed=step + 1)
        weight.grad = grad.clone()
        optimizer.step()
        assert weight.grad is None
        momentum = beta * momentum + (1 - beta) * grad.double()
        direction = by_svd((1 - beta) * grad.double() + beta * momentum)
        expected = expected * (1 - rate * decay) - rate * 0.2 * math.sqrt(12) * direction
    torch.testing.assert_close(weight.detach().double(), expected, rtol=0, atol=4 * rate * 0.2 * math.sqrt(12) * 0.02)
    moved = (weight.detach() - matrix(12, 5)).abs().max()
    assert moved > 0.05  # well above the tolerance, which is bfloat16's


def test_matrices_between_embedding_and_head_are_its_own_and_adamw_has_the_rest() -> None:
    shape = {"vocab_size": 20, "embedding_dim": 6, "hidden_dim": 8, "num_layers": 2}
    head = {"name": "language_model", "vocab_size": 20, "input_dim": 6}
    for tied in (True, False):
        model = build({"encoder": {"name": "awd_lstm", **shape}, "head": head | {"tied": tied}})
        built = build_optimizer(model.layer_groups(), Phase("p", 1, 0.1, optimizer="muon", weight_decay=0.01))
        names = {id(p): name for name, p in model.named_parameters()}
        found = {names[id(p)] for g in built.param_groups if g["orthogonal"] for p in g["params"]}
        assert found == {f"encoder.layers.{i}.weight_{kind}" for i in (0, 1) for kind in ("ih", "hh")}
        everything = [id(p) for g in built.param_groups for p in g["params"]]
        assert sorted(everything) == sorted(names)
        decays = {names[id(p)]: g["weight_decay"] for g in built.param_groups for p in g["params"]}
        assert {name for name, decay in decays.items() if not decay} == {n for n in decays if "bias" in n}


def test_without_matrices_it_is_adamw_to_the_bit() -> None:
    found, expected = (LayerGroup("head", (nn.Parameter(matrix(9, 4)), nn.Parameter(torch.ones(4)))) for _ in range(2))
    phase = Phase("p", 1, 0.01, betas=(0.8, 0.95), weight_decay=0.1, optimizer="muon")
    optimizers = [
        build_optimizer([found], phase),
        build_optimizer([expected], Phase("p", 1, 0.01, betas=(0.8, 0.95), weight_decay=0.1)),
    ]
    for step in range(3):
        for group, optimizer in zip((found, expected), optimizers, strict=True):
            for parameter in group.parameters:
                parameter.grad = matrix(parameter.numel(), 1, seed=step).view_as(parameter)
            optimizer.step()
    for one, other in zip(found.parameters, expected.parameters, strict=True):
        assert torch.equal(one, other)
        assert not torch.equal(one, matrix(9, 4) if one.ndim == 2 else torch.ones(4))
