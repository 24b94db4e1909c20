"""The mean of two methods: from the answers that runs leave, and refused where there is no such method."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def script_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "research"))


def messages(folder: Path, count: int = 400) -> list[int]:
    """Text messages in the form in which they were published, and whether each is spam."""
    spam = np.random.default_rng(0).random(count) < 0.4
    lines = [f"{'spam' if s else 'ham'}\tmessage number {i}" for i, s in enumerate(spam)]
    (folder / "sms-spam").mkdir(parents=True)
    (folder / "sms-spam" / "SMSSpamCollection").write_text("\n".join(lines))
    return [int(s) for s in spam]


def run(folder: Path, **said: np.ndarray) -> Path:
    folder.mkdir()
    rows = {f"{name}, 1,000 labels, seed {seed}": a for name, two in said.items() for seed, a in enumerate(two)}
    save_file(rows, folder / "answers.safetensors")
    return folder


def test_the_mean_of_two_that_err_elsewhere_is_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import curves
    import mean_of_two

    messages(tmp_path / "data")
    _, test, _ = curves.sms_spam(tmp_path / "data" / "sms-spam")
    truth = np.array([label == "spam" for _, label in test])
    generator = np.random.default_rng(1)
    logits = 2 * truth - 1 + generator.normal(0, 1.2, (2, 2, len(truth)))
    # One of them three times as sure of itself, which must not count.
    first, second = (1 / (1 + np.exp(-scale * each)) for scale, each in zip((1, 3), logits, strict=True))
    runs = [
        run(tmp_path / "a", linear=np.stack([1 - first, first], -1)),
        run(tmp_path / "b", lsa=np.stack([1 - second, second], -1)),
    ]
    expected = np.mean(
        [(logits[0, s] / logits[0, s].std() + logits[1, s] / logits[1, s].std() > 0) == truth for s in (0, 1)]
    )
    words = ["mean_of_two.py", "sms-spam", *map(str, runs), "--of", "linear,lsa", "--data", str(tmp_path / "data")]
    monkeypatch.setattr(sys, "argv", words)
    mean_of_two.main()
    said = capsys.readouterr().out.splitlines()
    alone = [float(line.split("labels")[1].split()[1]) for line in said[:2]]
    together = float(said[2].split("mean of both")[1].split()[0])
    assert together == pytest.approx(100 * expected, abs=1)
    assert together > max(alone) + 2
    assert "p = " in said[3]
    monkeypatch.setattr(sys, "argv", [*words[:-4], "--of", "linear,ulmfit", *words[-2:]])
    with pytest.raises(SystemExit, match="answers of ulmfit"):
        mean_of_two.main()
