"""The examples in docstrings run, and print what they say."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = (
    "textgraft.core.errors",
    "textgraft.core.formatting",
    "textgraft.metrics.calibration",
    "textgraft.metrics.classification",
    "textgraft.metrics.paired_differences",
    "textgraft.metrics.question_answering",
    "textgraft.report.html",
    "textgraft.text.clusters",
    "textgraft.text.detokenize",
    "textgraft.text.limits",
    "textgraft.text.normalize",
    "textgraft.text.sentences",
    "textgraft.text.words",
    "textgraft.data.annotation_tools",
    "textgraft.data.batch",
    "textgraft.data.cells_as_written",
    "textgraft.data.checks",
    "textgraft.data.columns",
    "textgraft.data.examples",
    "textgraft.data.fingerprint",
    "textgraft.data.json_records",
    "textgraft.data.label_cells",
    "textgraft.data.label_columns",
    "textgraft.data.label_kinds",
    "textgraft.data.labels",
    "textgraft.data.members",
    "textgraft.data.readers",
    "textgraft.data.sequences",
    "textgraft.data.tags",
    "textgraft.data.windows",
    "textgraft.data.streams.languages",
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
