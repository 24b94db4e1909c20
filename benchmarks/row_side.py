"""One side of one row: `python row_side.py ROW peer|ours TASK.json`, started by run.py, the peer in its own Python."""

from __future__ import annotations

import importlib
import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

from timing import matmul_peaks, serve


def main() -> None:
    name, side, file = sys.argv[1:]
    task = json.loads(Path(file).read_text("utf-8"))
    import torch

    torch.set_num_threads(task["threads"])
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    turn = getattr(importlib.import_module(f"rows.{name}"), side)(task)

    def taken(number: int) -> dict[str, Any]:
        done = turn(number)
        return {"memory": {"units": 1, "wall": peak_mb(), "cpu": peak_mb()}} | done

    serve({"turn": taken, "peaks": matmul_peaks})


def peak_mb() -> float:
    """The most memory that this process has held; getrusage would begin with what the one that started it held."""
    (line,) = (line for line in Path("/proc/self/status").read_text("utf-8").splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
