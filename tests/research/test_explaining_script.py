"""research/explaining.py leaves out the strongest words and random ones of a classifier that adds words up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from adding_classifier import Adding

from textgraft.tasks.classification.explaining import explain
from textgraft.tasks.classification.predictor import Classifier


def test_the_strongest_words_change_more_answers_than_random_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "research"))
    import explaining

    model = Classifier([Adding()])
    texts = ["a fine dull film with plot", "the good awful film here", "film film fine film film"]
    found = explaining.shares(model, list(explain(model, texts)), 1, draws=8)
    # Without "dull" -1.85 + ... becomes positive, without "good" 0.35 negative; "fine" leaves the bias, still positive.
    assert found["strongest"].tolist() == [1, 1, 0]
    assert 0 < found["at random"].mean() < found["strongest"].mean()
    (one,) = explain(model, [texts[0]])
    assert explaining.without_all(one, [one.parts[1], one.parts[2]]) == "a film with plot"
    assert np.isfinite([part.weight for part in one.parts]).all()
