"""Phases in which only the head learns: what the encoder says of a text is asked once, and not once an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

import torch
from torch import Tensor

from textgraft.data.batch import Batch
from textgraft.data.streams.base import ExampleStream, Stream
from textgraft.heads.classification import ClassificationHead
from textgraft.models.inference import ProgressCallback, no_progress, seen_by_head
from textgraft.models.model import Model

MOST_BYTES = 1 << 30


def seen_once(
    model: Model, stream: Stream, steps: int, precision: str, tell: ProgressCallback = no_progress
) -> Tensor | None:
    """(N, D) what the head sees of each of the stream's N examples, for a phase of so many steps.

    `tell` hears how many have been read. The result is None where it is not the same each time, because the encoder
    learns or has dropout; where the phase does not read every example more than once; where it would take more than
    MOST_BYTES; and for other heads than a classifier's.
    """
    if not (isinstance(stream, ExampleStream) and isinstance(model.head, ClassificationHead) and _stands_still(model)):
        return None
    if steps <= stream.length(0) or 4 * len(stream.sequences) * model.head.width > MOST_BYTES:
        return None
    return seen_by_head(model, stream.sequences, stream.pad_id, precision, tell=tell)


def _stands_still(model: Model) -> bool:
    """Whether what lies below the head's layers gives the same for the same text, in training too."""
    below = [
        *model.encoder.parameters(),
        *(model.layer_aggregation.parameters() if model.layer_aggregation is not None else ()),
    ]
    draws = any(rate for name, rate in asdict(model.encoder.config).items() if name.endswith("dropout"))
    return not (draws or model.auxiliary or model.contrastive_temperature or any(p.requires_grad for p in below))


def still_like(model: Model, source: Model) -> bool:
    """Whether a classifier's encoder, and what reads its layers, says what that of the language model says."""
    if model.layer_aggregation is not None and any(True for _ in model.layer_aggregation.parameters()):
        return False
    own, first = (dict(one.encoder.named_parameters()) for one in (model, source))
    return own.keys() == first.keys() and all(torch.equal(own[name].cpu(), first[name].cpu()) for name in own)


def with_seen(batches: Iterator[Batch], seen: Tensor | None) -> Iterator[Batch]:
    """The batches, each with what the head sees of its examples."""
    for batch in batches:
        yield batch if seen is None else replace(batch, seen=seen[batch.rows])
