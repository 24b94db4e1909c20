"""Learning-rate schedules: pure functions of the step, so that one integer is enough to resume a run.

Each takes `(step, total, warmup)`, the step counted from 0, the number of steps, and the share of warm-up steps, and
returns the multiplier of the phase's peak learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int, int, float], float]


def stlr(step: int, total: int, cut_frac: float = 0.1, *, ratio: float = 32) -> float:
    """The slanted triangular learning rate: a short steep rise, then a long linear decay.

    Howard & Ruder 2018 (ULMFiT), equation 3, with T = `total`: cut = floor(T * cut_frac) and a floor of 1 /
    `ratio`. We differ in two cases in which the equation fails. A run too short for a rise (cut = 0, a division by
    zero as printed) decays from the peak. And where T * cut_frac is not an integer, the printed p is negative before
    the end, and so are the rates; we clamp it at 0, the lowest rate in the paper.
    """
    cut = math.floor(total * cut_frac)
    if step < cut:
        p = step / cut
    else:
        decay_steps = cut * (1 / cut_frac - 1) if cut else total
        p = 1 - (step - cut) / decay_steps if decay_steps else 1.0
    return (1 + max(p, 0.0) * (ratio - 1)) / ratio


def one_cycle(step: int, total: int, warmup: float = 0.25, *, div: float = 25, div_final: float = 1e5) -> float:
    """One cycle: half a cosine up from 1 / `div`, half a cosine down to 1 / `div_final`.

    Smith 2018 (arXiv:1803.09820) in fastai's cosine form (`fit_one_cycle`: div 25, div_final 1e5, pct_start 0.25).
    """
    return _two_cosines(step / total, warmup, 1 / div, 1.0, 1 / div_final)


def one_cycle_momentum(step: int, total: int, warmup: float = 0.25, *, high: float = 0.95, low: float = 0.85) -> float:
    """The momentum (Adam's first beta) for `one_cycle`: low while the rate is high (fastai's `moms`)."""
    return _two_cosines(step / total, warmup, high, low, high)


def cosine(step: int, total: int, warmup: float = 0.1) -> float:
    """A linear rise, then half a cosine down to 0 (Loshchilov & Hutter 2017, equation 5, no restarts)."""
    rise = round(total * warmup)
    if step < rise:
        return _rise(step, rise)
    return (1 + math.cos(math.pi * (step - rise) / max(1, total - rise))) / 2


def linear(step: int, total: int, warmup: float = 0.1) -> float:
    """A linear rise, then a linear decay to 0 (Devlin et al. 2019, BERT's fine-tuning)."""
    rise = round(total * warmup)
    return _rise(step, rise) if step < rise else (total - step) / max(1, total - rise)


def constant(step: int, total: int, warmup: float = 0.0) -> float:
    """A linear rise, then 1."""
    rise = round(total * warmup)
    return _rise(step, rise) if step < rise else 1.0


def wsd(step: int, total: int, warmup: float = 0.01, *, decay: float = 0.2) -> float:
    """Warm-up, stable, decay: 1 but for a linear rise and a linear fall over the last `decay` share.

    Hu et al. 2024 (MiniCPM), with the linear decay of Hägele et al. 2024. A run may be
    prolonged from any checkpoint of its stable part.
    """
    rise, fall = round(total * warmup), round(total * decay)
    if step < rise:
        return _rise(step, rise)
    return min(1.0, (total - step) / max(1, fall))


def range_test(step: int, total: int, warmup: float = 0.0, *, span: float = 1e8) -> float:
    """An exponential rise from about 1 / `span` to 1, for the learning-rate finder (fastai's `lr_find`)."""
    return span ** ((step + 1) / total - 1)


SCHEDULES: dict[str, Schedule] = {
    "stlr": stlr,
    "one_cycle": one_cycle,
    "cosine": cosine,
    "linear": linear,
    "constant": constant,
    "wsd": wsd,
    "range_test": range_test,
}

MOMENTA: dict[str, Schedule] = {"one_cycle": one_cycle_momentum}
"""The momentum schedule of the schedules that have one."""


def group_rates(lr: float, lr_decay: float, num_groups: int) -> list[float]:
    """Discriminative learning rates, bottom -> top: eta^(l-1) = eta^l / `lr_decay`; the top group has `lr`.

    Howard & Ruder 2018, section 3.2, with `lr_decay` 2.6.
    """
    return [lr / lr_decay**distance for distance in reversed(range(num_groups))]


def _rise(step: int, rise: int) -> float:
    """Linear, reaching 1 at the last of `rise` steps; the first step is not 0, which would waste it."""
    return (step + 1) / rise


def _two_cosines(progress: float, turn: float, start: float, middle: float, end: float) -> float:
    if progress < turn:
        return start + (middle - start) * (1 - math.cos(math.pi * progress / turn)) / 2
    share = (progress - turn) / (1 - turn) if turn < 1 else 1.0
    return middle + (end - middle) * (1 - math.cos(math.pi * share)) / 2
