"""Temperature scaling finds the temperature that was applied; error and coverage against hand counts."""

import numpy as np
import pytest

from textgraft.metrics.calibration import (
    TEMPERATURE_RANGE,
    confidence_and_correct,
    coverage_table,
    expected_calibration_error,
    fit_temperature,
    probabilities,
    reliability,
)


def overconfident(kind: str, temperature: float, n: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    """Logits that are `temperature` times too sharp, with targets drawn from what they should have said."""
    rng = np.random.default_rng(0)
    honest = rng.normal(size=(n, 4)) * 2
    probs = probabilities(honest, kind)
    if kind == "single":
        targets = np.array([rng.choice(4, p=p) for p in probs])
    else:
        targets = (rng.random(probs.shape) < probs).astype(np.float32)
    return honest * temperature, targets


@pytest.mark.parametrize("kind", ["single", "multi"])
@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_temperature_scaling_recovers_the_temperature(kind, temperature):
    logits, targets = overconfident(kind, temperature)
    fitted = fit_temperature(logits, targets, kind)
    assert fitted == pytest.approx(temperature, rel=0.06)
    before = expected_calibration_error(probabilities(logits, kind), targets, kind)
    after = expected_calibration_error(probabilities(logits, kind, fitted), targets, kind)
    assert after < 0.03 < before


def test_fitted_temperature_is_where_the_smoothed_likelihood_peaks():
    logits, targets = overconfident("single", 2.0, n=50)
    spread = 2 / 52
    smoothed = (1 - spread) * np.eye(4)[targets] + spread / 4
    grid = np.linspace(0.5, 6, 2000)
    losses = [-(smoothed * np.log(probabilities(logits, "single", t))).sum() for t in grid]
    assert fit_temperature(logits, targets) == pytest.approx(grid[np.argmin(losses)], abs=0.01)


def test_temperature_keeps_the_prediction():
    logits, _ = overconfident("single", 1.0, n=100)
    assert (probabilities(logits, "single", 7.0).argmax(1) == logits.argmax(1)).all()


def test_few_held_out_documents_all_right_do_not_make_certainty():
    logits = np.tile([3.0, 0.0], (10, 1))
    fitted = fit_temperature(logits, np.zeros(10, dtype=int))
    assert probabilities(logits, "single", fitted)[0, 0] == pytest.approx(11 / 12, abs=1e-3)
    assert fitted > 2 * TEMPERATURE_RANGE[0]


def test_no_held_out_documents_leave_the_scores_alone():
    assert fit_temperature(np.zeros((0, 3)), np.zeros(0, dtype=int)) == 1.0


def test_probabilities_of_extreme_logits_are_finite():
    assert probabilities(np.array([[1e4, -1e4]]), "single") == pytest.approx(np.array([[1.0, 0.0]]))
    assert probabilities(np.array([[1e4, -1e4]]), "multi") == pytest.approx(np.array([[1.0, 0.0]]))


def test_numeric_targets_have_no_probabilities():
    with pytest.raises(ValueError, match="Numeric"):
        probabilities(np.zeros((2, 1)), "numeric")


def test_expected_calibration_error_by_hand():
    probs = np.array([[0.95, 0.05], [0.95, 0.05], [0.65, 0.35], [0.35, 0.65]])
    targets = np.array([0, 1, 0, 0])
    diagram = reliability(probs, targets, bins=10)
    # (0.9, 1]: 2 documents, 1 right; (0.6, 0.7]: 2 documents, 1 right.
    assert diagram.counts == (0, 0, 0, 0, 0, 0, 2, 0, 0, 2)
    assert diagram.accuracy[6] == diagram.accuracy[9] == 0.5
    assert diagram.confidence[6] == pytest.approx(0.65)
    assert diagram.accuracy[0] is None
    assert diagram.ece == pytest.approx(0.5 * 0.15 + 0.5 * 0.45)


def test_bins_close_on_the_right():
    diagram = reliability(np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0, 0]), bins=2)
    assert diagram.counts == (1, 1)
    assert diagram.ece == pytest.approx(0.25)


def test_multi_label_reliability_counts_every_label():
    diagram = reliability(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([[1, 0], [0, 0]]), "multi", bins=5)
    assert diagram.counts == (2, 0, 0, 0, 2)
    assert diagram.accuracy[4] == 0.5
    assert diagram.accuracy[0] == 0.0


def test_no_documents_have_no_calibration_error():
    assert expected_calibration_error(np.zeros((0, 2)), np.zeros(0, dtype=int)) is None


def test_coverage_table_by_hand():
    probs = np.array([[0.99, 0.01], [0.8, 0.2], [0.4, 0.6], [0.55, 0.45]])
    confidence, correct = confidence_and_correct(probs, np.array([0, 0, 0, 0]))
    rows = coverage_table(confidence, correct, thresholds=(0.0, 0.6, 0.8, 0.999))
    assert [(r.count, r.answered, r.accuracy) for r in rows] == [
        (4, 1.0, 0.75),
        (3, 0.75, pytest.approx(2 / 3)),
        (2, 0.5, 1.0),
        (0, 0.0, None),
    ]


def test_multi_label_confidence_is_that_of_the_least_sure_label():
    probs = np.array([[0.9, 0.3], [0.99, 0.02]])
    confidence, correct = confidence_and_correct(probs, np.array([[1, 1], [1, 0]]), "multi")
    assert confidence == pytest.approx([0.7, 0.98])
    assert correct.tolist() == [False, True]
