"""Vectors of texts by a network: as the model describes itself, or pooled as asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from textgraft.data.sequences import TokenIds, encode_beginnings
from textgraft.data.text_forms import in_form
from textgraft.models.inference import ProgressCallback, embed_sequences, no_progress
from textgraft.models.sentence_embedding import LENGTH, SentenceEmbedding
from textgraft.nn.layer_aggregation import LAST, new_layer_aggregation
from textgraft.nn.pooling import pooled_dim

if TYPE_CHECKING:
    from textgraft.models.artifact import Artifact

MEAN = "mean"
"""The pooling of a model that does not say how it pools."""


def embed(
    artifact: Artifact,
    sequences: Sequence[TokenIds],
    precision: str = "auto",
    *,
    skipped: int = 0,
    on_progress: ProgressCallback = no_progress,
) -> np.ndarray:
    """Vectors of encoded texts, as the model describes itself, else the mean of its last layer.

    Args:
        artifact: Any network.
        sequences: Token ids of N texts or pairs, at least one.
        precision: A name of nn.cpu.precision; "auto" is float32 for a model that describes itself, so that its vectors
            are those that it was published with.
        skipped: Number of first positions that are not pooled.
        on_progress: Called with the number of texts so far; the longest are first.

    Returns:
        (N, D) float32, in the order of the texts.
    """
    pooling: str | SentenceEmbedding = artifact.embedding or MEAN
    precision = "fp32" if artifact.embedding is not None and precision == "auto" else precision
    more: dict[str, Any] = {"skipped": skipped, "on_progress": on_progress}
    return embed_sequences(artifact.model, sequences, artifact.tokenizer.pad_id, pooling, precision, **more)


def embed_texts(
    artifact: Artifact,
    texts: Sequence[str],
    *,
    pooling: str | None = None,
    max_tokens: int | None = None,
    layers: str = LAST,
    prompt: str | None = None,
    precision: str = "auto",
) -> np.ndarray:
    """Vectors of texts; arguments and result as Artifact.embed's.

    A described model keeps the beginning of a long text, as it was trained; what is asked for by `pooling` or `layers`
    keeps the beginning and more of the end.
    """
    model, embedding = artifact.model, artifact.embedding
    width = model.encoder.output_dim
    if embedding is None or pooling is not None or layers != LAST:
        pooling = pooling or MEAN
        sequences, _ = artifact.encoded(texts, artifact.run.get("max_tokens", max_tokens or LENGTH), prompt)
        if not sequences:
            width = new_layer_aggregation(layers, model.encoder.widths).output_dim
            return np.zeros((0, pooled_dim(pooling, width)), dtype=np.float32)
        return embed_sequences(model, sequences, artifact.tokenizer.pad_id, pooling, precision, layers=layers)
    limit = embedding.limit(model.encoder.max_length)
    texts = embedding.prepared(in_form(texts, artifact.text_form), prompt)
    if not texts:
        return np.zeros((0, embedding.output_dim(width)), dtype=np.float32)
    sequences, _ = encode_beginnings(artifact.tokenizer, texts, min(max_tokens or limit, limit))
    return embed(artifact, sequences, precision, skipped=_skipped(artifact, embedding.prompt(prompt)))


def _skipped(artifact: Artifact, prompt: str) -> int:
    """Number of positions of a prompt that is not pooled: its tokens, and the special ones before them."""
    embedding = artifact.embedding
    assert embedding is not None
    if embedding.pools_prompt or not prompt:
        return 0
    (ids,) = artifact.tokenizer.encode_batch([prompt.lower() if embedding.lowercase else prompt])
    return len(ids) - len(artifact.tokenizer.pair_marks.after)
