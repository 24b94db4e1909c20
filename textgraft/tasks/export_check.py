"""Comparison of a graph's outputs with the network's, on random texts of several lengths and batch sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from textgraft.core.lazy import resolve
from textgraft.models.artifact import Artifact
from textgraft.models.graph import OnnxModel
from textgraft.tasks.registry import task_of
from textgraft.text.character_encoding import CharacterEncodingTokenizer

LENGTHS, BATCH_SIZES = (1, 7, 64), (1, 5)
"""Lengths of the longest text in a batch, and numbers of texts in it."""

Difference = Callable[[Artifact, OnnxModel, list[int], np.random.Generator], float]


def largest_difference(artifact: Artifact, graph: OnnxModel) -> float:
    """The largest difference between the outputs of graph and network, on random texts of LENGTHS in batches."""
    difference: Difference = resolve(task_of(artifact.head_name).graph_difference or "")
    generator = np.random.default_rng(0)
    largest = 0.0
    for length in LENGTHS:
        for batch_size in BATCH_SIZES:
            sizes = [length, *generator.integers(1, length + 1, batch_size - 1).tolist()]
            largest = max(largest, difference(artifact, graph, sizes, generator))
    return largest


def drawn_ids(artifact: Artifact, size: int, generator: np.random.Generator) -> np.ndarray:
    """Random token ids (T,), or character-encoded words (T, 50)."""
    ids = generator.integers(0, artifact.tokenizer.vocab_size, size).astype(np.int32)
    if isinstance(artifact.tokenizer, CharacterEncodingTokenizer):
        return artifact.tokenizer.character_ids[ids]
    return ids
