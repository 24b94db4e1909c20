"""Results of an experiment: a folder with results.json and report.html, written atomically."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash
from textgraft.models import model_folder
from textgraft.training.driver import remove_work, work_folder, work_path
from textgraft.training.provenance import provenance
from textgraft.training.run_lock import exclusive
from textgraft.training.settings import Settings


@exclusive
def run_experiment(
    out: Path, identity: dict[str, Any], compute: Callable[[Path], tuple[dict[str, Any], str]]
) -> dict[str, Any]:
    """Compute the results of an experiment and write them at `out`.

    Args:
        out: Folder for the results. Where it has those of the same run already, which was killed while it removed its
            work folder, these are returned.
        identity: Everything that the results depend on; runs that differ in it are different runs.
        compute: From a folder for unfinished work to the results and the HTML page.

    Returns:
        The results.

    Raises:
        UserError: `out` exists and is not of this run.
    """
    validate_new_path(out)
    folder = work_folder(out, identity)
    key = content_hash(identity.items())
    if out.exists():
        return finished(out, key)
    results, page = compute(folder)
    results["asked"] = key
    write_results(out, results, page)
    return results


def measurement_record(
    stage: str, out: Path, base: dict[str, Any], data: dict[str, Any], settings: Settings
) -> dict[str, Any]:
    """The provenance in results.json of an experiment that trains nothing."""
    run = provenance(stage=stage, name=out.name, base=base, data=data, recipe="none", settings=settings)
    return {k: v for k, v in run.items() if k not in ("recipe", "settings")} | {"seed": settings.seed}


def validate_new_path(out: Path) -> None:
    """Raise UserError if `out` exists without unfinished work beside it (`finished` handles the other case)."""
    if out.exists() and not (work_path(out) / "plan.json").exists():
        raise _exists(out)


def finished(out: Path, key: str) -> dict[str, Any]:
    """The results at `out` of a run that was killed while it removed its work folder, which is removed now.

    Args:
        out: The folder of the results.
        key: Hash of the run's identity.

    Raises:
        UserError: The results are of another run.
    """
    path = out / "results.json"
    results = dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
    if results.get("asked") != key:
        raise _exists(out)
    remove_work(out)
    return results


def write_results(out: Path, results: Mapping[str, Any], page: str, more: Mapping[str, bytes] | None = None) -> None:
    """Write results.json, report.html (`page`) and `more` files by name, and remove the work folder."""
    files = {
        "results.json": (json.dumps(results, indent=1, ensure_ascii=False) + "\n").encode(),
        "report.html": page.encode(),
        **(more or {}),
    }
    model_folder.write_folder(out, files)
    remove_work(out)


def _exists(out: Path) -> UserError:
    return UserError("this path exists already.", where=str(out), remedy="Name another path, or remove it.")
