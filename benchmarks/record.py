"""What benchmarks write: measurements as soon as they are made, and the machine that they were made on."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


class Record:
    """Measurements by name, written after each one, under the settings that they were made with."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings, self.measured = path, settings, {}
        if path.exists():
            saved = json.loads(path.read_text("utf-8"))
            self.measured = saved["measured"] if saved["settings"] == settings else {}

    def once(self, name: str, measurement: Callable[[], Any]) -> Any:
        """What `measurement` returned, in this run or in one that was cut short."""
        if name not in self.measured:
            self.measured[name] = measurement()
            write_json(self.path, {"settings": self.settings, "measured": self.measured})
        return self.measured[name]


def in_own_process(script: str | Path, cell: str, more: Sequence[str] = ()) -> dict[str, float]:
    """What `script --cell CELL` prints last: one measurement with memory of its own. Ends the program if it fails."""
    command = [sys.executable, str(script), "--cell", cell, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{cell} failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def write_json(path: Path, value: Any) -> None:
    """In one piece, so that a run that is cut short leaves what was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(value, indent=1) + "\n", "utf-8")
    beside.replace(path)


def machine() -> dict[str, Any]:
    """The processor's name, its cores, Python's version."""
    return {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
