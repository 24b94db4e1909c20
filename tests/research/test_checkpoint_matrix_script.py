"""research/checkpoint_matrix.py: its cells for a few architectures, and the table in the documentation."""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path
from types import ModuleType

import pytest
from tiny_checkpoints import BRIDGED, OWN

pytest.importorskip("transformers", minversion="5")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    spec = importlib.util.spec_from_file_location("checkpoint_matrix", ROOT / "research" / "checkpoint_matrix.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "adapts"),
    [
        ("deberta-v2", True),
        pytest.param("xlnet", True, marks=pytest.mark.slow),
        pytest.param("t5", False, marks=pytest.mark.slow),
        pytest.param("funnel", True, marks=pytest.mark.slow),
        pytest.param("albert", True, marks=pytest.mark.slow),
    ],
)
def test_every_verb_runs_or_is_refused(name: str, adapts: bool, matrix: ModuleType, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (cells,), refusals = matrix.rows([name], matrix.COLUMNS, tmp_path)
    expected = dict.fromkeys(matrix.COLUMNS, "yes")
    expected |= {"adapt": "yes" if adapts else "no (1)", "export": f"no ({1 + (not adapts)})"}
    assert dict(zip(matrix.COLUMNS, cells[2:], strict=True)) == expected
    assert "runs through the transformers library" in refusals[-1]


def test_the_table_in_the_documentation_has_every_architecture(matrix: ModuleType) -> None:
    page = (ROOT / "docs" / "how-to" / "any-checkpoint.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (own|bridge) \|(.*)$", page, re.MULTILINE)
    assert {name for name, kind, _ in rows if kind == "bridge"} == set(BRIDGED)
    assert {name for name, kind, _ in rows if kind == "own"} == set(OWN)
    assert len(rows) >= 14
    assert all(cells.count("|") == len(matrix.COLUMNS) for _, _, cells in rows)
