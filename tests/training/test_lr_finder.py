"""The learning-rate range test (Smith 2017)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import classifier, copied, examples

from textgraft.data.examples import Examples
from textgraft.tasks.learning_rates import lr_find
from textgraft.training.lr_finder import RangeStep, RangeTestResult, range_test, suggest_rates
from textgraft.training.phases import Phase
from textgraft.training.settings import Settings

PHASE = Phase("p", 1, 0.01, trainable=1, optimizer="sgd", betas=(0.9, 0.9))
TEXTS = [f"The film was {word} and the plot was {word} too, I think." for word in ("good", "bad", "long", "odd")] * 20


def test_rates_rise_exponentially_over_eight_powers_of_ten_and_the_model_stays() -> None:
    model, before = classifier(), copied(classifier())
    state = torch.get_rng_state()
    steps = list(range_test(model, examples(), PHASE, Settings(precision="fp32"), steps=17, highest=1e-3))
    rates = [step.lr for step in steps]
    assert rates == pytest.approx([1e-3 * 10 ** (8 * (i / 17 - 1)) for i in range(1, 18)])
    losses = [step.loss for step in steps]
    assert steps[0].smoothed == pytest.approx(losses[0])
    mean = sum(0.05 * 0.95 ** (16 - i) * loss for i, loss in enumerate(losses)) / (1 - 0.95**17)
    assert steps[-1].smoothed == pytest.approx(mean)
    assert all(torch.equal(before[name], value) for name, value in copied(model).items())
    assert torch.equal(torch.get_rng_state(), state)


def test_it_stops_where_the_loss_has_diverged() -> None:
    steps = list(range_test(classifier(), examples(), PHASE, Settings(precision="fp32", clip=None), highest=1e5))
    assert 10 < len(steps) < 100
    assert max(step.smoothed for step in steps) <= 4 * min(step.smoothed for step in steps)


def test_what_is_read_off_a_curve_drawn_by_hand() -> None:
    """A loss that falls as a logistic of log10(rate), steepest at 1e-4, is lowest at 1e-2 and then climbs."""
    exponents = np.linspace(-8, 0, 81)
    losses = [1 / (1 + math.exp(3 * (x + 4))) if x < -2 else 0.002 + (x + 2) for x in exponents]
    found = suggest_rates([RangeStep(10**x, loss, loss) for x, loss in zip(exponents, losses, strict=True)])
    assert found.steepest == pytest.approx(1e-4, rel=0.6)
    assert found.tenth_of_lowest == pytest.approx(1e-3, rel=0.3)
    assert found.suggestion == pytest.approx(math.sqrt(found.steepest * found.tenth_of_lowest))


def test_a_loss_that_never_falls_suggests_nothing() -> None:
    steps = [RangeStep(10.0**x, x + 9.0, x + 9.0) for x in range(-8, 1)]
    assert suggest_rates(steps) == RangeTestResult(tuple(steps), None, None)
    assert suggest_rates([]).suggestion is None


@pytest.mark.parametrize("labelled", [True, False], ids=["classifier", "language model"])
def test_the_random_state_of_the_caller_stays_as_it_was(labelled: bool, tiny_lm: Path) -> None:
    before = torch.get_rng_state()
    labels = ["dull" if i % 4 == 2 else "fine" for i in range(80)]
    found = lr_find(Examples(TEXTS, labels, "single") if labelled else TEXTS, model=tiny_lm, steps=5)
    assert len(found.steps) == 5
    assert torch.equal(torch.get_rng_state(), before)
