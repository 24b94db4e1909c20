"""What an experiment leaves: a folder with results.json and report.html, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.models import model_folder
from textgraft.training.driver import content_hash, remove_work, work_folder, work_path
from textgraft.training.loop import Settings
from textgraft.training.provenance import provenance


def experiment(out: Path, asked: dict[str, Any], made: Callable[[Path], tuple[dict[str, Any], str]]) -> dict[str, Any]:
    """What `made` returns, results and page, put in place at `out`; the results. It gets a folder for unfinished work.

    `asked` is what they depend on: another of any of these is another run. Where `out` holds the same run's results
    already, which was killed while it tidied up, these come back. Raises UserError if anything else is there.
    """
    refuse_existing(out)
    folder = work_folder(out, asked)
    key = content_hash(asked.items())
    if out.exists():
        return finished(out, key)
    results, page = made(folder)
    results["asked"] = key
    write_results(out, results, page)
    return results


def measured_facts(
    stage: str, out: Path, base: dict[str, Any], data: dict[str, Any], settings: Settings
) -> dict[str, Any]:
    """What results.json says of how it came to be, where nothing was trained."""
    run = provenance(stage=stage, name=out.name, base=base, data=data, recipe="none", settings=settings)
    return {k: v for k, v in run.items() if k not in ("recipe", "settings")} | {"seed": settings.seed}


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


def write_results(out: Path, results: Mapping[str, Any], page: str, more: Mapping[str, bytes] | None = None) -> None:
    """Put results.json, report.html (`page`) and `more` files in place and remove the unfinished work."""
    files = {
        "results.json": (json.dumps(results, indent=1, ensure_ascii=False) + "\n").encode(),
        "report.html": page.encode(),
        **(more or {}),
    }
    model_folder.write_folder(out, files)
    remove_work(out)


def _exists(out: Path) -> UserError:
    return UserError("this path exists already.", where=str(out), remedy="Name another --out, or remove it.")
