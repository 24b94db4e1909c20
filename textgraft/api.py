"""`textgraft.predict`, `evaluate` and `embed`: a finished model at work in one call, on anything that `read` takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.memory import mmap_large_blocks, release_free_memory
from textgraft.data.examples import each_text
from textgraft.data.readers import read
from textgraft.models import loading
from textgraft.models.artifact import Artifact, Predictor
from textgraft.nn.layer_aggregation import LAST, validate_layer_aggregation
from textgraft.nn.pooling import POOLINGS
from textgraft.tasks.classification import predictor
from textgraft.tasks.classification.predictor import STREAM_TEXTS, Classifier, Prediction, as_classifier


def predict(
    model: Classifier | str | Path,
    texts: Iterable[str],
    *,
    abstain_below: float = 0.0,
    precision: str = "auto",
    device: str = "cpu",
) -> Iterator[Prediction]:
    """One prediction a text, or a pair (two strings in a tuple), in order, from a stream of any length.

    `model` is a folder, or what `load` gives, which has its precision and device already. There is no label below a
    confidence of `abstain_below`. `device` is one of core.device.DEVICES.

    Raises UserError where `model` is no classifier or cannot be loaded, and for a device that is not there.
    """
    return as_classifier(model, precision=precision, device=device).predict(texts, abstain_below=abstain_below)


def evaluate(
    model: Classifier | str | Path, data: Any, *, precision: str = "auto", device: str = "cpu", **columns: Any
) -> dict[str, Any]:
    """How good a classifier is on labelled texts: what Classifier.evaluate says.

    `model` is what `predict` takes, `data` and `columns` what `read` does. Raises UserError for labels unseen in
    training, and as `predict` does.
    """
    asked = as_classifier(model, precision=precision, device=device)
    if asked.reads == "choices":
        columns = {"kind": "choice", **columns}
    return asked.evaluate(read(data, **columns))


def embed(
    model: Classifier | str | Path,
    texts: Iterable[str],
    *,
    pooling: str = "mean",
    max_tokens: int = 512,
    layers: str = LAST,
    device: str = "cpu",
) -> np.ndarray:
    """(N, D) float32 vectors of the model's top layer, `pooling` one of nn.pooling.POOLINGS.

    `layers`, one of nn.layer_aggregation.LAYER_AGGREGATIONS, reads others; a mix only from a model that has learned it.
    The members of an ensemble stand side by side. A linear classifier gives a text's coordinates in its space, a folder
    of word vectors the mean (or max) of the vectors of a text's words. `max_tokens` is for language models; a
    classifier reads as much as it was trained on. Raises UserError for an unknown pooling or layer aggregation, for
    layers that the model does not have, for a model without vectors, and for a device (core.device.DEVICES) that is not
    there.
    """
    members = _embedders(model, pooling, layers, device)
    return predictor.embed(members, list(each_text(texts)), pooling=pooling, max_tokens=max_tokens, layers=layers)


def embed_stream(
    model: Classifier | str | Path,
    texts: Iterable[str],
    *,
    pooling: str = "mean",
    max_tokens: int = 512,
    layers: str = LAST,
    device: str = "cpu",
) -> Iterator[np.ndarray]:
    """What `embed` gives for a stream of any length, in blocks (n, D) of no more than STREAM_TEXTS texts, in order.

    Memory does not grow with the stream. Raises UserError at once where `embed` does for what is asked, and for a text
    when it comes.
    """
    members, source = _embedders(model, pooling, layers, device), each_text(texts)

    def blocks() -> Iterator[np.ndarray]:
        # A transformer's parts are so many and so small that taking each from the system would take a quarter longer.
        recurrent = any(isinstance(member, Artifact) and member.model.encoder.recurrent for member in members)
        with mmap_large_blocks() if recurrent else nullcontext():
            for chunk in iter(lambda: list(islice(source, STREAM_TEXTS)), []):
                yield predictor.embed(members, chunk, pooling=pooling, max_tokens=max_tokens, layers=layers)
                release_free_memory()

    return blocks()


def _embedders(model: Classifier | str | Path, pooling: str, layers: str, device: str) -> Sequence[Predictor]:
    validate_layer_aggregation(layers)
    if pooling not in POOLINGS:
        raise UserError(f"unknown pooling '{pooling}'.", remedy=did_you_mean(pooling, POOLINGS))
    return model.members if isinstance(model, Classifier) else loading.open_models(model, device=device).members
