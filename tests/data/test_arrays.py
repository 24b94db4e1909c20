"""Arrays written row by row: what numpy reads back, in whatever blocks they came, and what is left after an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import textgraft
from textgraft import api
from textgraft.core.errors import UserError
from textgraft.data.arrays import write_rows
from textgraft.data.text_rows import read_rows


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
@settings(max_examples=20)
@given(heights=st.lists(st.integers(1, 5), min_size=1, max_size=4), width=st.integers(1, 7))
def test_blocks_become_one_array(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, heights: list[int], width: int
) -> None:
    blocks = [np.random.default_rng(i).normal(size=(n, width)).astype(np.float32) for i, n in enumerate(heights)]
    path = tmp_path_factory.mktemp("rows") / f"v{suffix}"
    assert write_rows(path, iter(blocks)) == (sum(heights), width)
    found = np.load(path)["vectors"] if suffix == ".npz" else np.load(path, mmap_mode="r")
    np.testing.assert_array_equal(found, np.concatenate(blocks))
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
def test_nothing_is_left_of_a_stream_that_breaks(tmp_path: Path, suffix: str) -> None:
    def breaks() -> Iterator[np.ndarray]:
        yield np.zeros((2, 3), dtype=np.float32)
        raise RuntimeError("the stream broke")

    (tmp_path / f"v{suffix}").write_bytes(b"before")
    with pytest.raises(RuntimeError, match="broke"):
        write_rows(tmp_path / f"v{suffix}", breaks())
    with pytest.raises(UserError, match="contains no text"):
        write_rows(tmp_path / f"v{suffix}", iter([]))
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(f"v{suffix}", b"before")]


@pytest.mark.slow
def test_a_stream_is_embedded_as_it_comes(tiny_lm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "STREAM_TEXTS", 4)
    taken = 0

    def texts() -> Iterator[str]:
        nonlocal taken
        for number in range(10):
            taken += 1
            yield f"film number {number}"

    blocks = textgraft.embed_stream(tiny_lm, texts(), pooling="max")
    first = next(blocks)
    assert (len(first), taken) == (4, 4)
    whole = textgraft.embed(tiny_lm, [f"film number {number}" for number in range(10)], pooling="max")
    np.testing.assert_allclose(np.concatenate([first, *blocks]), whole, atol=1e-5)


def test_rows_come_one_by_one_and_empty_ones_stay(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text('text,label\none,a\n"",b\nthree,a\n')
    rows = [(row.key, row.text) for row in read_rows(tmp_path / "texts.csv")]
    assert rows == [({"line": 2}, "one"), ({"line": 3}, ""), ({"line": 4}, "three")]
    (tmp_path / "pairs.jsonl").write_text('{"premise": "a", "hypothesis": "b", "label": "x"}\n')
    (row,) = read_rows(tmp_path / "pairs.jsonl")
    assert (row.key, row.texts) == ({"line": 1}, ["a", "b"])
    (tmp_path / "ids.csv").write_text("id,text\nx7,one\n")
    (row,) = read_rows(tmp_path / "ids.csv")
    assert (row.key, row.text, row.cells) == ({"id": "x7"}, "one", {"id": "x7", "text": "one"})
    (tmp_path / "choices.jsonl").write_text('{"premise": "a", "choice1": "b", "choice2": "c"}\n')
    with pytest.raises(UserError, match="no column looks like the text"):
        list(read_rows(tmp_path / "choices.jsonl"))
    (tmp_path / "none.csv").write_text("text,label\n")
    with pytest.raises(UserError, match="a header but no row below"):
        list(read_rows(tmp_path / "none.csv"))
