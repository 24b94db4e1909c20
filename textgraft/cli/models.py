"""textgraft models: the bundled models."""

from __future__ import annotations

import json

from textgraft.cli import options as o
from textgraft.cli.console import print_json, print_table


def models(as_json: o.AsJson = False) -> None:
    """List the bundled models, for --model."""

    from textgraft.models.model_folder import find, names

    runs = {name: json.loads((find(name) / "run.json").read_text(encoding="utf-8")) for name in names()}
    if as_json:
        print_json({"models": [{"name": name, "path": find(name), **_columns(run)} for name, run in runs.items()]})
        return
    rows = [[name, *(_cell(value) for value in _columns(run).values())] for name, run in runs.items()]
    print_table(["model", "language", "parameters", "tokens seen", "licence"], rows)


def _columns(run: dict[str, object]) -> dict[str, object]:
    return {key: run.get(key) for key in ("language", "parameters", "tokens_seen", "licence")}


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
