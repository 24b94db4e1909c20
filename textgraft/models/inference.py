"""From texts to logits and vectors: length-sorted token-budget batches inside, the caller's order outside."""

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
from textgraft.nn.cpu.precision import Casts, computing_in
from textgraft.nn.layer_aggregation import LAST, LayerAggregation, new_layer_aggregation
from textgraft.nn.pooling import POOLINGS

TOKENS_PER_BATCH = 16_384
FEW_TOKENS = 2_048
"""A transformer's batch on a processor: what its layers pass on stays near, and a sixth of the time is saved."""

ProgressCallback = Callable[[int], None]
"""Who hears, after each batch, how many texts (or tokens) have been read; an error of theirs ends the reading."""


def no_progress(count: int) -> None:
    """Nobody hears."""


_CASTS: WeakKeyDictionary[Model, Casts] = WeakKeyDictionary()


def casts_of(model: Model) -> Casts:
    """The model's weights as products want them, made when it is first asked, kept for as long as there is a model."""
    return _CASTS.setdefault(model, Casts())


def tokens_per_batch(model: Model) -> int:
    """How many positions are best read together."""
    few = model.device.type == "cpu" and not model.encoder.recurrent
    return FEW_TOKENS if few else TOKENS_PER_BATCH


def head_inputs(model: Model, sequences: Sequence[TokenIds]) -> Sequence[TokenIds]:
    """The examples as the model's head wants them: pairs in both orders, if it adds these up.

    Raises UserError where it does and something is no pair.
    """
    if not getattr(model.head.config, "both_orders", False):
        return sequences
    if not all(isinstance(s, PairIds) for s in sequences):
        raise UserError("this model reads pairs in both orders, and these are no pairs.", remedy="Give pairs of texts.")
    return [s.in_both_orders() for s in sequences if isinstance(s, PairIds)]


@torch.no_grad()
def predict_logits(model: Model, sequences: Sequence[TokenIds], pad_id: int, precision: str = "auto") -> np.ndarray:
    """(N, outputs) float32 logits of the head, one row a text in the order given.

    Of questions with options (N, most options), -inf where there are fewer.
    """
    return _over_batches(model, head_inputs(model, sequences), pad_id, precision, model)


@torch.no_grad()
def embed_sequences(
    model: Model,
    sequences: Sequence[TokenIds],
    pad_id: int,
    pooling: str = "mean",
    precision: str = "auto",
    *,
    layers: str = LAST,
    on_progress: ProgressCallback = no_progress,
) -> np.ndarray:
    """(N, D) float32 vectors: the encoder's top layer, or what `layers` reads (nn.layer_aggregation), pooled
    (nn.pooling).

    `on_progress` hears how many texts are done, of which the longest come first.

    Raises UserError for questions with options, which have a vector for each option, for layers that cannot be read so,
    and for a mix that the model has not learned.
    """
    if any(isinstance(s, Rows) for s in sequences):
        raise UserError("a question with options is not one text.", remedy="Embed texts or pairs.")
    layer_aggregation = frozen_layer_aggregation(model, layers)

    def pooled(batch: Batch) -> Tensor:
        batch = batch.to(model.device)
        if layer_aggregation is None:
            vectors = model.encoder(batch).top
        else:
            vectors = layer_aggregation(model.encoder(batch, keep="all").layers)
        return POOLINGS[pooling](vectors, batch.mask, model.encoder.direction)

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
    """What reads the layers, with what the model has learned of it; None for the top layer as it is.

    Raises UserError for layers that cannot be read so, and for a mix that the model has not learned.
    """
    if name == LAST:
        return None
    if model.layer_aggregation is not None and model.head.config.layer_aggregation == name:
        return model.layer_aggregation
    made = new_layer_aggregation(name, model.encoder.widths)
    if list(made.parameters()):
        remedy = f"Fine-tune it with the layer aggregation '{name}', or name another one."
        raise UserError(f"the layer aggregation '{name}' has to be learned, and this model has not.", remedy=remedy)
    return made


def _over_batches(
    model: Model,
    sequences: Sequence[TokenIds],
    pad_id: int,
    precision: str,
    answer: Callable[[Batch], Tensor],
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
                results.append(answer(batch).float().cpu())
            rows += indices
            on_progress(len(rows))
    finally:
        model.train(was_training)
    width = max(result.shape[1] for result in results)
    output = torch.cat([F.pad(r, (0, width - r.shape[1]), value=-torch.inf) for r in results])
    ordered = torch.empty_like(output)
    ordered[torch.tensor(rows)] = output
    return ordered.numpy()
