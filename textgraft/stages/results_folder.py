"""What an experiment leaves: a folder with results.json and report.html, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textgraft import artifact
from textgraft.errors import UserError
from textgraft.training.session import remove_work, work_path


def refuse_existing(out: Path) -> None:
    """Raises UserError if `out` is there, unless with unfinished work beside it: that may be a run's last act."""
    if out.exists() and not (work_path(out) / "plan.json").exists():
        raise _exists(out)


def finished(out: Path, asked: str) -> dict[str, Any]:
    """The results at `out`, left by the run that was killed while it tidied up; tidies up.

    `asked` is what they were made for (a hash). Raises UserError where they are another run's.
    """
    path = out / "results.json"
    results = dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    if results.get("asked") != asked:
        raise _exists(out)
    remove_work(out)
    return results


def write_results(out: Path, results: Mapping[str, Any], page: str) -> None:
    """Put results.json and report.html (`page`) in place and remove the unfinished work."""
    files = {
        "results.json": (json.dumps(results, indent=1, ensure_ascii=False) + "\n").encode(),
        "report.html": page.encode(),
    }
    artifact.write_folder(out, files)
    remove_work(out)


def _exists(out: Path) -> UserError:
    return UserError("this path exists already.", where=str(out), remedy="Name another --out, or remove it.")
