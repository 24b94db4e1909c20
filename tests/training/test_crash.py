"""Every stage killed at random moments (research/crash.py), and in processes of their own: always the same weights."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "research" / "crash.py"


def run(*command: str, **environment: str) -> dict[str, Any]:
    """What a Python process prints as JSON on one thread; it must end well."""
    found = subprocess.run(
        [sys.executable, *command],
        env=os.environ | {"OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return dict(json.loads(found.stdout))


@pytest.mark.slow
def test_two_kills_in_every_stage_change_no_bit(crash: ModuleType) -> None:
    result = run(str(SCRIPT), "--points", str(2 * len(crash.STAGES)), "--json")
    assert result["different"] == []
    kills = {name: sum(stage["killed"].values()) for name, stage in result["stages"].items()}
    assert kills == dict.fromkeys(crash.STAGES, 2)


PIPELINE = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import crash

def pipeline(folder):
    folder.mkdir()
    crash.prepare(folder)
    for name, make in crash.STAGES.items():
        make(folder, folder / name)
    return {name: crash.hashes(folder / name) for name in crash.STAGES}

print(json.dumps({folder: pipeline(Path(folder)) for folder in sys.argv[2:]}))
"""


@pytest.mark.slow
def test_two_runs_in_one_process_are_two_runs_in_two_processes(tmp_path: Path) -> None:
    """From text to classifier, tokenizers too; not forks of one process, which would share the seeds of hash maps."""
    folders = [str(tmp_path / name) for name in ("first", "second", "third")]
    arguments = ["-c", PIPELINE, str(SCRIPT.parent)]
    together = run(*arguments, *folders[:2], PYTHONHASHSEED="1", TOKENIZERS_PARALLELISM="false")
    alone = run(*arguments, folders[2], PYTHONHASHSEED="2", TOKENIZERS_PARALLELISM="true")
    assert together[folders[0]] == together[folders[1]] == alone[folders[2]]
    weights = [stage[name] for stage in alone[folders[2]].values() for name in stage if name.endswith(".safetensors")]
    assert len(set(weights)) == len(weights) >= 5


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))  # for the module beside it
    spec = spec_from_file_location("crash", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_result(folder: Path, out: Path, text: str) -> None:
    out.mkdir()
    (out / "model.safetensors").write_text(text)
    (out / "tokenizer.json").write_text("the same")
    (out / "run.json").write_text('{"temperature": 1.0, "seconds": 1.0}')


def test_the_crash_test_notices_weights_that_differ(crash: ModuleType, tmp_path: Path) -> None:
    crash.STAGES = {"chance": lambda folder, out: write_result(folder, out, os.urandom(8).hex())}

    def live(task: Callable[[], None], log: Path, seconds: float = math.inf) -> float | None:
        task()
        return None if seconds < math.inf else 1.0  # all that are to be killed are, just after their end

    crash.live = live
    found = crash.crash_stage("chance", 1, random.Random(0), tmp_path)
    assert found["different"] == ["chance-0/model.safetensors"]


def test_the_crash_test_passes_on_a_failure(crash: ModuleType, tmp_path: Path) -> None:
    def failing() -> None:
        raise ValueError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        crash.live(failing, tmp_path / "log")
