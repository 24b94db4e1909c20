"""Learning-rate schedules against their published formulas."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textgraft.training.schedules import (
    SCHEDULES,
    cosine,
    group_rates,
    linear,
    one_cycle,
    one_cycle_momentum,
    stlr,
    wsd,
)


def stlr_as_printed(t: int, T: int, cut_frac: float = 0.1, ratio: float = 32) -> float:
    """Howard & Ruder 2018, equation 3, symbol by symbol, for eta_max = 1."""
    cut = math.floor(T * cut_frac)
    p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_frac - 1))
    return (1 + p * (ratio - 1)) / ratio


@pytest.mark.parametrize("total", [10, 100, 1230])
@pytest.mark.parametrize(("cut_frac", "ratio"), [(0.1, 32), (0.25, 8)])
def test_stlr_is_equation_3(total: int, cut_frac: float, ratio: float) -> None:
    total *= 4  # so that T * cut_frac is whole
    for step in range(total):
        expected = stlr_as_printed(step, total, cut_frac, ratio)
        assert stlr(step, total, cut_frac, ratio=ratio) == pytest.approx(expected, rel=1e-12)


def test_stlr_by_hand() -> None:
    # T = 100: cut = 10; t = 5 is halfway up, t = 10 the peak, t = 55 halfway down.
    assert stlr(0, 100) == 1 / 32
    assert stlr(5, 100) == (1 + 0.5 * 31) / 32
    assert stlr(10, 100) == 1
    assert stlr(55, 100) == pytest.approx((1 + 0.5 * 31) / 32)


def test_stlr_differs_from_the_equation_only_where_that_goes_below_its_floor() -> None:
    printed = [stlr_as_printed(t, 19) for t in range(19)]
    assert min(printed) < 0
    assert [stlr(t, 19) for t in range(19)] == pytest.approx([max(p, 1 / 32) for p in printed])


def test_stlr_too_short_for_a_rise_decays_from_the_peak() -> None:
    assert [stlr(t, 4) for t in range(4)] == pytest.approx([(1 + p * 31) / 32 for p in (1, 0.75, 0.5, 0.25)])


def test_one_cycle_is_fastais_combined_cosines() -> None:
    # sched_cos(start, end, pos) = start + (1 + cos(pi (1 - pos))) (end - start) / 2
    def sched_cos(start: float, end: float, pos: float) -> float:
        return start + (1 + math.cos(math.pi * (1 - pos))) * (end - start) / 2

    for step in range(200):
        pos = step / 200
        rate = sched_cos(1 / 25, 1, pos / 0.25) if pos < 0.25 else sched_cos(1, 1e-5, (pos - 0.25) / 0.75)
        moms = sched_cos(0.95, 0.85, pos / 0.25) if pos < 0.25 else sched_cos(0.85, 0.95, (pos - 0.25) / 0.75)
        assert one_cycle(step, 200) == pytest.approx(rate, rel=1e-9)
        assert one_cycle_momentum(step, 200) == pytest.approx(moms, rel=1e-9)


def test_warmed_up_schedules_by_hand() -> None:
    assert [linear(t, 8, 0.25) for t in range(8)] == pytest.approx([0.5, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
    assert cosine(6, 10, 0.2) == pytest.approx(0.5)
    assert [wsd(t, 10, 0.2, decay=0.2) for t in range(10)] == pytest.approx([0.5, 1, 1, 1, 1, 1, 1, 1, 1, 0.5])


@given(
    name=st.sampled_from(sorted(SCHEDULES)),
    total=st.integers(1, 400),
    warmup=st.floats(0.01, 0.9),
    share=st.floats(0, 1, exclude_max=True),
)
def test_every_multiplier_is_a_rate(name: str, total: int, warmup: float, share: float) -> None:
    multiplier = SCHEDULES[name](int(share * total), total, warmup)
    assert 0 < multiplier <= 1 + 1e-12


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_every_schedule_reaches_its_peak(name: str) -> None:
    assert max(SCHEDULES[name](step, 100, 0.2) for step in range(100)) == pytest.approx(1)


def test_discriminative_rates_fall_by_2_6_a_layer() -> None:
    rates = group_rates(0.01, 2.6, 4)
    assert rates[-1] == 0.01
    for lower, upper in itertools.pairwise(rates):
        assert lower == pytest.approx(upper / 2.6)
