"""A candidate of `finetune` that begins with the names of the labels, as zero-shot classification does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from textgraft.data.examples import reads
from textgraft.models.artifact import Artifact
from textgraft.tasks.classification.label_texts import LabelTexts, are_descriptive
from textgraft.tasks.classification.linear_candidates import Candidate
from textgraft.tasks.classification.linear_probe import layer_candidate
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.self_training import ZeroShot
from textgraft.tasks.classification.vector_cache import VectorCache
from textgraft.word_embeddings.word_vectors import unit

MAX_LABELS_PER_CLASS = 8
"""Mean number of labelled texts a class above which the names of the classes add nothing to them."""


def label_names_name(encoder: str) -> str:
    """The name of the candidate that begins with label names, on an encoder."""
    return f"{encoder}-label-names"


def knows_by_name(selection: SelectionContext) -> bool:
    """True where the classes have names that describe them, and few labelled texts."""
    labels, train = selection.labels, selection.train
    if not labels.target.has_one_label or reads(train.texts) == "pairs" or len(labels.names) < 2:
        return False
    return len(train) <= MAX_LABELS_PER_CLASS * len(labels.names) and are_descriptive(labels.names)


def label_names_candidate(
    name: str,
    source: Artifact,
    selection: SelectionContext,
    vectors: VectorCache,
    evaluated: VectorCache,
    pool: Sequence[str],
) -> Candidate:
    """A linear layer on a frozen sentence encoder, fitted to label names, labelled and unlabelled texts (ZeroShot).

    Args:
        name: Name of the candidate.
        source: The sentence encoder.
        selection: The data, the folds and the run.
        vectors: Its vectors of labelled and unlabelled texts, and of label names.
        evaluated: Its vectors of the texts that are measured on.
        pool: Unlabelled texts; may be empty.
    """
    assert source.embedding is not None
    names = LabelTexts.of(list(selection.labels.names))
    columns = [names.names.index(label) for label in selection.labels.names]
    targets, texts = np.array(columns)[selection.targets], selection.train.texts

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        return unit(vectors(texts))

    def of_part(part: str) -> NDArray[np.float32]:
        if part == "train" or selection.evaluation is None:
            return embed(texts)
        return unit(evaluated(selection.evaluation.texts))

    def fit(indices: Sequence[int]) -> tuple[NDArray[np.float64], str]:
        model = ZeroShot(embed, seed=selection.seed)
        model.fit(names, pool, texts=[texts[i] for i in indices], targets=targets[list(indices)])
        about = f"Label names and a few labels on the frozen model: {model.about}"
        return model.layer[columns] / model.temperature, about

    normalized = replace(source, embedding=replace(source.embedding, normalize=True))
    return layer_candidate(name, normalized, selection, of_part, fit)
