"""The folders of models for bulk work, made once, and a folder of files to read."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from served import made

from textgraft.models import artifact

TEXTS = ["a fine film", "", "the plot was dull and long", "fine", "no plot", "long and fine", "dull", "a film, no more"]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An untrained model of each kind, by name."""
    folder = tmp_path_factory.mktemp("models")
    names = ("single", "multi", "numeric", "pairs", "choices", "tagger")
    return {name: artifact.save(made(name), folder / name) for name in names}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """Four files of eight texts each: a.csv with ids, a.jsonl, sub/a.csv with semicolons, and z.parquet with types."""
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.csv").write_text("id,text,label\n" + "".join(f'i{n},"{text}",old\n' for n, text in enumerate(TEXTS)))
    lines = [json.dumps({"text": text, "n": n / 2, "more": {"x": [n]}}) for n, text in enumerate(TEXTS)]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "sub" / "a.csv").write_text("review;n\n" + "".join(f'"{text}";{n}\n' for n, text in enumerate(TEXTS)))
    duckdb.sql(
        f"COPY (SELECT text, [i, NULL] AS parts, DATE '2020-01-01' + CAST(i AS INT) AS day, CAST(i AS TINYINT) AS tiny "
        f"FROM (SELECT unnest({TEXTS!r}) AS text, unnest(range({len(TEXTS)})) AS i)) "
        f"TO '{folder / 'z.parquet'}' (FORMAT parquet)"
    )
    return folder
