"""Vectors of texts by a network: as the model describes itself, or pooled as asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

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
    texts = embedding.prepared(in_form(texts, artifact.text_form), prompt)
    if not texts:
        return np.zeros((0, embedding.output_dim(width)), dtype=np.float32)
    sequences, _ = encode_beginnings(artifact.tokenizer, texts, text_limit(artifact, max_tokens))
    return embed(artifact, sequences, precision, skipped=_skipped(artifact, embedding.prompt(prompt)))


def vectors_alike(one: Artifact, max_tokens: int | None, other: Artifact, other_max_tokens: int | None) -> bool:
    """True if two networks, each with texts cut to so many tokens, have the same default vectors, by their weights."""
    encoders = [_without_pooler(artifact) for artifact in (one, other)]
    if text_limit(one, max_tokens) != text_limit(other, other_max_tokens) or encoders[0] != encoders[1]:
        return False
    if one.text_form != other.text_form:
        return False
    embeddings = [None if a.embedding is None else a.embedding.describe() for a in (one, other)]
    if embeddings[0] != embeddings[1] or one.tokenizer.fingerprint != other.tokenizer.fingerprint:
        return False
    weights = [_frozen_weights(artifact) for artifact in (one, other)]
    return weights[0].keys() == weights[1].keys() and all(
        torch.equal(value.cpu(), weights[1][name].cpu()) for name, value in weights[0].items()
    )


def _without_pooler(artifact: Artifact) -> dict[str, Any]:
    """The description of an encoder without what does not change its vectors: dropout, and a pooler on top."""
    encoder: dict[str, Any] = artifact.model.describe()["encoder"]
    return {name: value for name, value in encoder.items() if name != "pooler" and "dropout" not in name}


def _frozen_weights(artifact: Artifact) -> dict[str, torch.Tensor]:
    """The weights that default vectors depend on, by name."""
    encoder = {n: v for n, v in artifact.model.encoder.state_dict().items() if not n.startswith("pooler")}
    return encoder | ({} if artifact.embedding is None else artifact.embedding.values())


def text_limit(artifact: Artifact, max_tokens: int | None) -> int:
    """Maximum number of tokens of a text by a model's default vectors; `max_tokens` where that is fewer."""
    longest = artifact.model.encoder.max_length
    if artifact.embedding is not None:
        limit = artifact.embedding.limit(longest)
        return min(max_tokens or limit, limit)
    limit = int(artifact.run.get("max_tokens", max_tokens or LENGTH))
    return min(limit, longest or limit)


def _skipped(artifact: Artifact, prompt: str) -> int:
    """Number of positions of a prompt that is not pooled: its tokens, and the special ones before them."""
    embedding = artifact.embedding
    assert embedding is not None
    if embedding.pools_prompt or not prompt:
        return 0
    (ids,) = artifact.tokenizer.encode_batch([prompt.lower() if embedding.lowercase else prompt])
    return len(ids) - len(artifact.tokenizer.pair_marks.after)
