"""The reference page of the command line: each option with the type of its value and its default."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the documentation's own libraries are not installed")
HOOK = Path(__file__).parents[1] / "docs" / "hooks" / "reference.py"


@pytest.fixture(scope="module")
def page() -> str:
    spec = importlib.util.spec_from_file_location("reference", HOOK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text: str = module.cli_page()
    return text


def test_every_option_has_a_type_and_a_default(page: str) -> None:
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `-")]
    assert len(rows) > 200
    assert [row[0] for row in rows if len(row) < 4 or not row[1].strip() or not row[2].strip()] == []


@pytest.mark.parametrize(
    "row",
    [
        "| `--out`<br>`-o` | path | required | The folder to write; must not exist. |",
        "| `--unlabelled`<br>`-u` | path, repeatable | – | Text of the domain",
        "| `--seeds` | integer ≥ 1 | `1` | Number of trainings",
        "| `--adapt`<br>`--no-adapt` | flag | `--adapt` |",
        "| `--both-orders` | flag | off |",
        "| `--class-weights` | text | `none` |",
        "| `--valid` | path path | – | Two files",
    ],
)
def test_types_and_defaults_as_the_command_has_them(row: str, page: str) -> None:
    assert row in page
