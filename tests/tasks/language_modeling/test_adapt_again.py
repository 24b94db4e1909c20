"""`adapt(reuse=True)` takes what the very same call has left, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_reviews import reviews

from textgraft.core.context import QUIET, RunContext
from textgraft.core.errors import UserError
from textgraft.tasks.language_modeling.adapt import adapt
from textgraft.training.settings import Settings

TEXTS = reviews(120)[0]
FP32 = Settings(precision="fp32")


def test_the_same_call_takes_what_is_there_and_another_is_refused(tiny_lm: Path, tmp_path: Path) -> None:
    out = tmp_path / "lm"

    def again(**changed: object) -> Path:
        call = {"model": tiny_lm, "settings": FP32, "reuse": True, "context": QUIET, **changed}
        return adapt(TEXTS[1:] if call.pop("fewer", False) else TEXTS, out, **call)  # type: ignore[arg-type]

    made = again()
    first = {path.name: (path.read_bytes(), path.stat().st_ino) for path in made.iterdir()}
    assert again() == made
    assert {path.name: (path.read_bytes(), path.stat().st_ino) for path in out.iterdir()} == first
    for changed in ({"fewer": True}, {"settings": Settings(precision="fp32", seed=1)}):
        with pytest.raises(UserError, match="not adapted from the same model on the same texts"):
            again(**changed)
    with pytest.raises(UserError, match="exists already"):
        again(reuse=False)
    again(fewer=True, context=RunContext(show=False, overwrite=True))
    assert (out / "model.safetensors").read_bytes() != first["model.safetensors"][0]


def test_what_is_no_model_is_never_overwritten(tiny_lm: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    with pytest.raises(UserError, match="not a model folder"):
        adapt(TEXTS, tmp_path / "letters", model=tiny_lm, reuse=True, context=RunContext(show=False, overwrite=True))
