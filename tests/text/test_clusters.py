"""Grapheme clusters against the cases of Unicode Standard Annex 29."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textgraft.text.clusters import cluster_spans


@pytest.mark.parametrize(
    "clusters",
    [
        ["a", "b"],
        ["e\u0301", "x"],
        ["a", "\r\n", "b"],
        ["\n", "\u0301"],
        ["กำ", "ลั", "ง"],
        ["ที่", "นี่"],
        ["น้ำ"],
        ["👨‍👩‍👧", "👍🏽", "❤️"],
        ["🇹🇭", "🇩🇪", "🇫"],
        ["🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "!"],
        ["\u1112\u1161\u11ab", "\u1100\u1173", "\uac00\u11a8"],
        ["கி", "சு"],
        [],
    ],
)
def test_clusters(clusters: list[str]) -> None:
    text = "".join(clusters)
    starts, ends = cluster_spans(text)
    found = [text[start:end] for start, end in sorted(set(zip(starts, ends)))]
    assert found == clusters


@given(st.text())
def test_clusters_partition_the_text(text: str) -> None:
    starts, ends = cluster_spans(text)
    assert all(start <= i < end for i, (start, end) in enumerate(zip(starts, ends)))
    spans = sorted(set(zip(starts, ends)))
    assert "".join(text[start:end] for start, end in spans) == text
