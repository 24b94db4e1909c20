"""Vectors of texts are computed once, and found again by a resumed run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from textgraft.models import loading
from textgraft.tasks.classification import vector_cache
from textgraft.tasks.classification.vector_cache import VectorCache

TEXTS = [f"text number {i}" + " of many" * (i % 4) for i in range(25)]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts are encoded at a time; chunks are of ten."""
    counts: list[int] = []
    real = VectorCache._embed
    monkeypatch.setattr(VectorCache, "_embed", lambda self, texts: counts.append(len(texts)) or real(self, texts))
    monkeypatch.setattr(vector_cache, "CHUNK", 10)
    return counts


def test_each_text_is_encoded_once(tiny_lm: Path, tmp_path: Path, encoded: list[int]) -> None:
    encoder = loading.load_network(tiny_lm)
    cache = VectorCache(encoder, tmp_path / "vectors", precision="fp32")
    first = cache([*TEXTS, TEXTS[0]])
    assert encoded == [10, 10, 5]
    assert np.array_equal(first[0], first[-1])
    np.testing.assert_allclose(first[:25], encoder.embed(TEXTS, precision="fp32"), atol=1e-6)
    assert np.array_equal(cache(TEXTS[5:9]), first[5:9])
    again = VectorCache(encoder, tmp_path / "vectors", precision="fp32")
    assert np.array_equal(again(TEXTS), first[:25])
    assert encoded == [10, 10, 5]
    again(["a new one", *TEXTS])
    assert encoded[3:] == [1]
    assert again([]).shape == (0, first.shape[1])


def test_a_run_killed_between_chunks_ends_with_the_same_vectors(
    tiny_lm: Path, tmp_path: Path, encoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = loading.load_network(tiny_lm)
    whole = VectorCache(encoder, tmp_path / "whole", precision="fp32")(TEXTS)
    real = VectorCache._embed

    def killed(self: VectorCache, texts: Sequence[str]) -> np.ndarray:
        if len(texts) < 10:
            raise KeyboardInterrupt
        return real(self, texts)

    with monkeypatch.context() as patch:
        patch.setattr(VectorCache, "_embed", killed)
        with pytest.raises(KeyboardInterrupt):
            VectorCache(encoder, tmp_path / "killed", precision="fp32")(TEXTS)
    assert np.array_equal(VectorCache(encoder, tmp_path / "killed", precision="fp32")(TEXTS), whole)
