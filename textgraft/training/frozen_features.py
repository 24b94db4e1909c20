"""Phases that train the head only: the frozen encoder's features are computed once, not once an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

import torch
from torch import Tensor

from textgraft.core.processes import ALONE, Processes
from textgraft.data.batch import Batch
from textgraft.data.streams.base import ExampleStream, Stream
from textgraft.heads.classification import ClassificationHead
from textgraft.models.inference import ProgressCallback, extract_features, no_progress
from textgraft.models.model import Model

MAX_BYTES = 1 << 30


def extract_frozen_features(
    model: Model,
    stream: Stream,
    steps: int,
    precision: str,
    processes: Processes,
    on_progress: ProgressCallback = no_progress,
) -> Tensor | None:
    """The head's input for each example of a stream, computed once for a whole phase.

    Args:
        model: A model whose `requires_grad` flags are those of the phase.
        stream: The training examples.
        steps: Number of optimizer steps in the phase.
        precision: A name of nn.cpu.precision.
        processes: Of the training; each encodes its share of the examples.
        on_progress: Called with the number of examples that are done.

    Returns:
        (N, D) features of the stream's N examples. None where they are not constant, because the encoder is trained or
        has dropout; where the phase takes no example more than once; where they would take more than MAX_BYTES; and
        for other heads than a classifier's.
    """
    if not (isinstance(stream, ExampleStream) and isinstance(model.head, ClassificationHead) and _is_constant(model)):
        return None
    if steps <= stream.length(0) or 4 * len(stream.sequences) * model.head.width > MAX_BYTES:
        return None
    if len(stream.sequences) < processes.size:
        processes = ALONE
    own = stream.sequences[processes.share(len(stream.sequences))]
    return processes.rows(extract_features(model, own, stream.pad_id, precision, on_progress=on_progress))


def _is_constant(model: Model) -> bool:
    """True if everything below the head gives the same output for the same text, in training mode too."""
    below = [
        *model.encoder.parameters(),
        *(model.layer_aggregation.parameters() if model.layer_aggregation is not None else ()),
    ]
    has_dropout = any(rate for name, rate in asdict(model.encoder.config).items() if name.endswith("dropout"))
    return not (has_dropout or model.auxiliary or model.contrastive_temperature or any(p.requires_grad for p in below))


def has_same_encoder(model: Model, source: Model) -> bool:
    """True if a classifier's encoder has the weights of `source`, and its layer aggregation has none."""
    if model.layer_aggregation is not None and any(True for _ in model.layer_aggregation.parameters()):
        return False
    weights, others = (dict(m.encoder.named_parameters()) for m in (model, source))
    return weights.keys() == others.keys() and all(torch.equal(weights[n].cpu(), others[n].cpu()) for n in weights)


def with_features(batches: Iterator[Batch], features: Tensor | None) -> Iterator[Batch]:
    """The batches, each with the features of its examples (None: as they are)."""
    for batch in batches:
        yield batch if features is None else replace(batch, features=features[batch.rows])
