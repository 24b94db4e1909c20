"""The examples in docstrings run, and print what they say."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = (
    "textgraft.linear.baselines",
    "textgraft.linear.fasttext",
    "textgraft.linear.linear_layer",
    "textgraft.linear.ngram_counts",
    "textgraft.linear.ngrams",
    "textgraft.linear.pool_words",
    "textgraft.linear.residual_idf",
    "textgraft.linear.state",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted
    assert not result.failed
