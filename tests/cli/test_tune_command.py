"""`textgraft tune` as its users run it, and get it wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from programs import Desk, call


@pytest.mark.slow
def test_tune_as_its_users_run_it(desk: Desk, tmp_path: Path) -> None:
    out = tmp_path / "tuned"
    asked = ["tune", desk / "train.csv", "--model", desk.lm, "--recipe", desk / "quick.toml", "--trials", "3"]
    asked += ["--folds", "2", "--max-tokens", "32", "--threads", "1", "--out", out]
    result = call(*asked)
    assert result.code == 0, result
    assert "the recipe as it is" in result.out
    assert f"--model {desk.lm} --recipe {out / 'recipe.toml'}" in result.out
    again = call(*asked)
    assert again.code == 2
    assert "exists already" in again.err
    model = tmp_path / "model"
    made = ["finetune", desk / "train.csv", "--model", desk.lm, "--recipe", out / "recipe.toml", "--out", model]
    assert call(*made).code == 0
    assert json.loads((model / "run.json").read_text())["recipe"] == str(out / "recipe.toml")
    wrong = call(
        "tune", desk / "train.csv", "--model", desk.lm, "--space", desk / "train.csv", "--out", tmp_path / "no"
    )
    assert wrong.code == 2
    assert "not a TOML file" in wrong.err
