"""The folders of models to serve, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from served import ASPECTS, made

from textgraft.models import artifact


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An untrained model of each of ASPECTS, by name."""
    folder = tmp_path_factory.mktemp("served")
    return {name: artifact.save(made(name), folder / name) for name in ASPECTS}
