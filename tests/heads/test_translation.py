"""Hard attention of the translation head: its estimated gradient against the exact one, by enumeration."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.data.batch import IGNORE, Batch
from textgraft.encoders.base import Encoded
from textgraft.heads.translation import TranslationConfig, TranslationHead
from textgraft.nn.attention_scores import Hard

POSITIONS = 3
TARGETS = torch.tensor([[4, 3, IGNORE]])
IDS = torch.zeros(1, POSITIONS, dtype=torch.long)


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> TranslationHead:
    torch.manual_seed(0)
    config = TranslationConfig(6, 5, 0, 3, 4, 1, "general", "hard", input_dropout=0.0, hidden_dropout=0.0)
    made = TranslationHead(config)
    with torch.no_grad():  # so that weights and words differ clearly
        for parameter in made.parameters():
            parameter.mul_(2)
    monkeypatch.setattr(Hard, "ENTROPY", 0.0)
    return made.train()


def encoded() -> Encoded:
    top = torch.randn(1, POSITIONS, 5, generator=torch.Generator().manual_seed(1))
    return Encoded(top, torch.ones(1, POSITIONS, dtype=torch.bool), (), None)


class Prescribed:
    """Positions in place of samples, and the product of their probabilities."""

    def __init__(self, positions: tuple[int, ...]) -> None:
        self.positions, self.probability = list(positions), torch.ones(())

    def __call__(self, weights: Tensor) -> Tensor:
        position = self.positions.pop(0)
        self.probability = self.probability * weights[0, position]
        return F.one_hot(torch.tensor([position]), POSITIONS).float()


def by_enumeration(
    head: TranslationHead, baseline: float, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Tensor], list[Tensor], float]:
    """Of all nine pairs of positions: the gradient of the expected loss, the expectation of the estimated gradient,
    and its expected squared norm.
    """
    attention: Any = head.attention
    parameters = list(head.parameters())
    expected, estimate, square = torch.zeros(()), [torch.zeros_like(p) for p in parameters], 0.0
    for positions in product(range(POSITIONS), repeat=2):
        sample = Prescribed(positions)
        monkeypatch.setattr(attention, "selected", sample)
        attention.baseline.fill_(baseline)
        loss = head.loss(encoded(), Batch(IDS, torch.ones_like(IDS, dtype=torch.bool), targets=TARGETS)).total
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True, allow_unused=True)
        share = float(sample.probability.detach())
        for total, gradient in zip(estimate, gradients, strict=True):
            total.add_(gradient, alpha=share)
        square += share * sum(float(g.square().sum()) for g in gradients)
        head.attention.eval()
        sample = Prescribed(positions)
        monkeypatch.setattr(attention, "selected", sample)
        head.training = False  # the loss of these positions, without the estimator
        loss = head.loss(encoded(), Batch(IDS, torch.ones_like(IDS, dtype=torch.bool), targets=TARGETS)).total
        head.train()
        expected = expected + sample.probability * loss
    exact = torch.autograd.grad(expected, parameters, materialize_grads=True, allow_unused=True)
    return list(exact), estimate, square


@pytest.mark.parametrize("baseline", [0.0, -2.0, 5.0])
def test_the_estimated_gradient_is_unbiased(
    head: TranslationHead, baseline: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the baseline is; and what reaches the scores is not nothing."""
    exact, estimate, _ = by_enumeration(head, baseline, monkeypatch)
    for wanted, found in zip(exact, estimate, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    (scores,) = (g for (name, _), g in zip(head.named_parameters(), exact, strict=True) if "attention" in name)
    assert float(scores.abs().max()) > 1e-3


def test_a_baseline_near_the_mean_lowers_the_variance(head: TranslationHead, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch(IDS, torch.ones_like(IDS, dtype=torch.bool), targets=TARGETS)
    mean = -float(head.eval().loss(encoded(), batch).total.detach()) / 2
    head.train()
    near, none = (by_enumeration(head, baseline, monkeypatch)[2] for baseline in (mean, 0.0))
    assert near < none


def test_the_estimator_changes_no_loss(head: TranslationHead) -> None:
    """Reported is the cross entropy of the sampled positions; the baseline moves in training only."""
    batch = Batch(IDS, torch.ones_like(IDS, dtype=torch.bool), targets=TARGETS)
    attention: Any = head.attention
    torch.manual_seed(5)
    loss = head.loss(encoded(), batch)
    assert float(attention.baseline) == pytest.approx(-0.1 * float(loss.total.detach()) / 2, rel=1e-5)
    torch.manual_seed(5)
    hidden, weights, chosen = head._teacher_forced(encoded(), TARGETS[:, :2])
    log_probs = head.output.log_probs(hidden[0])
    assert float(loss.total.detach()) == pytest.approx(-float(log_probs[[0, 1], TARGETS[0, :2]].sum().detach()))
    assert bool((chosen.sum(dim=2) == 1).all())
    assert not torch.equal(weights, chosen)
    before = attention.baseline.clone()
    head.eval().loss(encoded(), batch)
    assert torch.equal(attention.baseline, before)
