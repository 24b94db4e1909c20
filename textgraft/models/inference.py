"""Logits and vectors of texts, in the caller's order; computed in batches of similar lengths and limited size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from textgraft.core.errors import UserError
from textgraft.data.batch import Batch, iterate
from textgraft.data.sequences import PairIds, Rows, TokenIds, budget_batches
from textgraft.models.model import Model
from textgraft.models.sentence_embedding import SentenceEmbedding
from textgraft.nn.cpu.precision import Casts, computing_in
from textgraft.nn.layer_aggregation import LAST, LayerAggregation, new_layer_aggregation
from textgraft.nn.pooling import pool

TOKENS_PER_BATCH = 16_384
FEW_TOKENS = 2_048
"""Positions per batch of a transformer on a CPU: activations stay in the cache, which saves a sixth of the time."""

ProgressCallback = Callable[[int], None]
"""Called after each batch with the number of texts (or tokens) so far; an exception that it raises is passed on."""


def no_progress(count: int) -> None:
    """Do nothing."""


_CASTS: WeakKeyDictionary[Model, Casts] = WeakKeyDictionary()


def casts_of(model: Model) -> Casts:
    """The cache of a model's weights in the precision of its products; created on first use, freed with the model."""
    return _CASTS.setdefault(model, Casts())


def tokens_per_batch(model: Model) -> int:
    """Number of positions per batch that is fastest for a model on its device."""
    few = model.device.type == "cpu" and not model.encoder.recurrent
    return FEW_TOKENS if few else TOKENS_PER_BATCH


def head_inputs(model: Model, sequences: Sequence[TokenIds]) -> Sequence[TokenIds]:
    """The examples as the model's head takes them: pairs in both orders, if it sums over these.

    Raises:
        UserError: It does, and an example is not a pair.
    """
    if not getattr(model.head.config, "both_orders", False):
        return sequences
    if not all(isinstance(s, PairIds) for s in sequences):
        raise UserError(
            "this model takes pairs, in both orders, and these are not pairs.", remedy="Give pairs of texts."
        )
    return [s.in_both_orders() for s in sequences if isinstance(s, PairIds)]


@torch.no_grad()
def predict_logits(model: Model, sequences: Sequence[TokenIds], pad_id: int, precision: str = "auto") -> np.ndarray:
    """Logits of the head.

    Args:
        model: A classifier.
        sequences: Token ids of N examples.
        pad_id: Id of the padding token.
        precision: A name of nn.cpu.precision.

    Returns:
        (N, outputs) float32, in the order of the examples; for multiple choice (N, maximum number of options), -inf
        where there are fewer.
    """
    return _over_batches(model, head_inputs(model, sequences), pad_id, precision, model)


@torch.no_grad()
def embed_sequences(
    model: Model,
    sequences: Sequence[TokenIds],
    pad_id: int,
    pooling: str | SentenceEmbedding = "mean",
    precision: str = "auto",
    *,
    layers: str = LAST,
    skipped: int = 0,
    on_progress: ProgressCallback = no_progress,
) -> np.ndarray:
    """Pooled vectors of the encoder.

    Args:
        model: Any network.
        sequences: Token ids of N texts or pairs.
        pad_id: Id of the padding token.
        pooling: A name of nn.pooling.POOLINGS, several joined by +, or a description with more than pooling.
        precision: A name of nn.cpu.precision.
        layers: A name of nn.layer_aggregation.LAYER_AGGREGATIONS.
        skipped: Number of first positions that a SentenceEmbedding leaves out.
        on_progress: Called with the number of texts so far; the longest are first.

    Returns:
        (N, D) float32, in the order of the texts.

    Raises:
        UserError: For multiple choice, whose options have a vector each; for an aggregation that the encoder's layers
            do not allow, or whose parameters the model has not been trained with.
    """
    if any(isinstance(s, Rows) for s in sequences):
        raise UserError("a multiple-choice question is not a single text.", remedy="Embed texts or pairs.")
    layer_aggregation = frozen_layer_aggregation(model, layers)

    def pooled(batch: Batch) -> Tensor:
        batch = batch.to(model.device)
        if layer_aggregation is None:
            vectors = model.encoder(batch).top
        else:
            vectors = layer_aggregation(model.encoder(batch, keep="all").layers)
        direction = model.encoder.direction
        if isinstance(pooling, SentenceEmbedding):
            return pooling(vectors, batch.mask, direction, skipped)
        return pool(pooling, vectors, batch.mask, direction)

    return _over_batches(model, sequences, pad_id, precision, pooled, on_progress)


@torch.no_grad()
def extract_features(
    model: Model,
    sequences: Sequence[TokenIds],
    pad_id: int,
    precision: str = "auto",
    *,
    on_progress: ProgressCallback = no_progress,
) -> Tensor:
    """The input of a classifier's head for each example.

    Args:
        model: A classifier.
        sequences: Token ids, (T,) each.
        pad_id: Id of the padding token.
        precision: A name of nn.cpu.precision.
        on_progress: Called with the number of examples so far.

    Returns:
        (N, D) float32.
    """
    return torch.from_numpy(_over_batches(model, sequences, pad_id, precision, model.vectors, on_progress))


def frozen_layer_aggregation(model: Model, name: str) -> LayerAggregation | None:
    """The layer aggregation of a name, with the model's trained parameters; None for the top layer.

    Raises:
        UserError: The encoder's layers do not allow it, or the model has not been trained with its parameters.
    """
    if name == LAST:
        return None
    if model.layer_aggregation is not None and model.head.config.layer_aggregation == name:
        return model.layer_aggregation
    aggregation = new_layer_aggregation(name, model.encoder.widths)
    if list(aggregation.parameters()):
        remedy = f"Fine-tune it with the layer aggregation '{name}', or name another one."
        raise UserError(
            f"the layer aggregation '{name}' has parameters, which this model was not trained with.", remedy=remedy
        )
    return aggregation


def _over_batches(
    model: Model,
    sequences: Sequence[TokenIds],
    pad_id: int,
    precision: str,
    function: Callable[[Batch], Tensor],
    on_progress: ProgressCallback = no_progress,
) -> np.ndarray:
    was_training = model.training
    model.eval()
    casts = casts_of(model)
    results: list[Tensor] = []
    rows: list[int] = []
    batches = budget_batches([len(s) for s in sequences], tokens=tokens_per_batch(model), rows=512)
    try:
        for indices, batch in zip(batches, iterate(sequences, batches, pad_id), strict=True):
            with computing_in(precision, model.device, casts=casts):
                results.append(function(batch).float().cpu())
            rows += indices
            on_progress(len(rows))
    finally:
        model.train(was_training)
    width = max(result.shape[1] for result in results)
    output = torch.cat([F.pad(r, (0, width - r.shape[1]), value=-torch.inf) for r in results])
    ordered = torch.empty_like(output)
    ordered[torch.tensor(rows)] = output
    return ordered.numpy()
