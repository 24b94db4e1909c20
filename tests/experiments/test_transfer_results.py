"""What transfer results say: the benefits on known curves, and a verdict that claims no more than its tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from textgraft.experiments.transfer_results import (
    FRESH,
    B,
    Curves,
    Kind,
    Networks,
    benefit_weights,
    benefits,
    transfer_results,
    verdict,
)
from textgraft.metrics.paired_differences import is_robust, significance_text


def curves_of(pretrained: list[float], scratch: list[float], epochs: list[float], texts: int = 50) -> Curves:
    """Curves of one seed whose means are the shares given."""

    def table(shares: list[float]) -> np.ndarray:
        return np.array([[(np.arange(texts) < round(share * texts)).astype(float) for share in shares]])

    return Curves(epochs, table(pretrained), table(scratch))


def test_the_benefits_are_the_closed_forms_on_known_curves() -> None:
    curves = curves_of([0.5, 0.7, 0.8, 0.9], [0.2, 0.3, 0.6, 0.8], [1, 2, 3, 4])
    found = benefits(curves)
    assert found["start"]["mean"] == pytest.approx(0.3)
    assert found["slope"]["mean"] == pytest.approx(0.2 - 0.1)
    assert found["asymptote"]["mean"] == pytest.approx(0.1)
    for one in found.values():
        assert one["low"] <= one["mean"] <= one["high"]
        assert one["mean"] == pytest.approx(one["pretrained"] - one["scratch"])
    assert found["start"]["p"] < 0.001 < found["asymptote"]["p"]
    mirrored = benefits(curves, lower_is_better=True)
    assert mirrored["start"]["mean"] == pytest.approx(-0.3)
    assert mirrored["start"]["pretrained"] == pytest.approx(0.5)


def test_the_slope_is_the_least_squares_one_of_the_first_half() -> None:
    epochs = [0.5, 1.0, 2.0, 3.5, 4.0]
    weights = benefit_weights(epochs)
    values = np.array([0.1, 0.3, 0.35, 0.9, 0.2])
    assert weights["slope"] @ values == pytest.approx(np.polyfit(epochs[:3], values[:3], 1)[0])
    assert weights["asymptote"] @ values == values[-1]
    assert benefit_weights(range(1, 9))["asymptote"].tolist() == [0] * 6 + [0.5, 0.5]
    assert set(benefit_weights([1.0])) == {"start", "asymptote"}


def test_no_difference_at_all_is_no_certainty() -> None:
    one = benefits(curves_of([0.5], [0.5], [1.0]))["start"]
    assert one["mean"] == 0
    assert one["low"] == -one["high"] < 0
    assert one["p"] == 1


def right(share: float, texts: int = 100) -> np.ndarray:
    return np.stack([np.roll(np.arange(texts) < round(share * texts), shift).astype(float) for shift in (0, 1)])


def transfer_results_of(**scores: np.ndarray) -> dict[str, Any]:
    """Results of networks of two layer groups that score 0.6, but for those named (AnB, AnB_1, AnBp, B, fresh)."""
    names = {"AnBp": "AnB+", "BnBp": "BnB+"}
    found = {B: scores.pop("B", right(0.6)), FRESH: scores.pop("fresh", right(0.6))}
    found |= {Kind(arm, 2): right(0.6) for arm in ("AnB", "AnB+", "BnB", "BnB+")}
    for name, table in scores.items():
        arm, _, n = name.partition("_")
        found[Kind(names.get(arm, arm), int(n or 2))] = table
    flat = np.stack([right(0.6)], axis=1)
    networks = Networks(found, Curves([1.0], flat, flat))
    return transfer_results(networks, right(0.6)[:1], groups=["a", "b"], metric="accuracy")


def told(**shares: float) -> list[str]:
    """The verdict on such networks, those named of which score as said."""
    results = transfer_results_of(**{name: right(share) for name, share in shares.items()})
    assert verdict(results) == results["verdict"]
    return list(results["verdict"])


@pytest.mark.slow
def test_the_verdict_says_what_the_tests_do() -> None:
    nothing = told()
    assert "Fine-tuned against from scratch: no difference (p = 1.000)." in nothing
    assert any("no sign that neighbouring layers are co-adapted" in s for s in nothing)
    better = told(AnBp=0.9)
    assert "Fine-tuned against from scratch: 30.0 points more, more than chance explains (p < 0.001)." in better
    worse = told(AnBp=0.59)
    assert any("1.0 points less, no more than chance could give" in s for s in worse)
    split = told(BnB_1=0.3, BnB=0.4)
    assert any("BnB is worse than B at n = 1, 2, most at n = 1 (30.0 points less" in s for s in split)
    assert any("no sign that" in s for s in told(BnB=0.9))


def test_what_another_seed_could_undo_is_not_called_certain() -> None:
    steady, unsteady = right(0.6), np.stack([right(0.9)[0], right(0.4)[0]])
    one = transfer_results_of(B=steady, fresh=steady, BnB=unsteady)
    test = next(cell for cell in one["cells"] if cell["arm"] == "BnB")["against_b"]
    assert test["difference"] == pytest.approx(0.05)
    assert test["low"] < 0 < test["high"]
    assert not is_robust({**test, "p": 0.001, "p_holm": 0.001})
    assert "other seeds could undo it" in significance_text({**test, "p_holm": 0.001})
    assert "no more than chance" in significance_text({**test, "p_holm": 0.5})
    assert is_robust({"p": 0.001, "low": 0.1, "high": 0.2})
    assert not any("unsteady" in sentence for sentence in one["verdict"])
    other = transfer_results_of(B=right(0.2), fresh=steady, BnB=steady)
    assert "B and n = 0 differ only in their seeds, and yet by 40.0 points" in other["verdict"][-1]
