"""Every script of research/ still starts: what it imports is there, and its options are declared."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

RESEARCH = Path(__file__).parents[2] / "research"
SCRIPTS = sorted(path.stem for path in RESEARCH.glob("*.py") if "ArgumentParser" in path.read_text("utf-8"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_says_how_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(RESEARCH))  # undone with what the script itself adds
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    try:
        with pytest.raises(SystemExit, match="0"):
            runpy.run_path(str(RESEARCH / f"{name}.py"), run_name="__main__")
    finally:  # scripts import one another by names that are too common to stay
        for module in set(sys.modules) - before:
            if str(getattr(sys.modules[module], "__file__", None) or "").startswith(str(RESEARCH)):
                del sys.modules[module]
    assert "usage:" in capsys.readouterr().out
