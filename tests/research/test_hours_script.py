"""research/hours.py: the power law of a model's history, of which research/lab-notes.md quotes the figures."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

RESEARCH = Path(__file__).parents[2] / "research"


def test_the_law_and_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(RESEARCH))
    import hours

    minutes = np.array([10.0, 20.0, 30.0, 40.0, 80.0])
    history = hours.History("lm", minutes, hours.FLOOR + 2.5 * minutes**-0.2, (100.0, 1.7))
    assert history.law() == pytest.approx((2.5, 0.2))
    came = f"{hours.FLOOR + 2.5 * 80**-0.2:.3f}"
    row = hours.table([history]).splitlines()[-1]
    assert f"| 40 | 80 | {came} | {came} | 1.700 after 100 | {hours.FLOOR + 2.5 * 600**-0.2:.3f} |" in row
    kept, drawn = str(RESEARCH / "kept" / "hours" / "en-gpt-small.json"), tmp_path / "hours.svg"
    monkeypatch.setattr(sys, "argv", ["hours.py", "--plot", str(drawn), kept])
    hours.main()
    said = capsys.readouterr().out
    assert "| en-gpt-small | 0.8 + 1.68 t^-0.144 | 28 | 56 | 1.766 | 1.750 | 1.585 after 75 | 1.471 |" in said
    assert drawn.exists()
    monkeypatch.setattr(sys, "argv", ["hours.py", "th-ulmfit"])
    with pytest.raises(SystemExit, match="2"):
        hours.main()
    assert "th-ulmfit: too few measurements" in capsys.readouterr().err
