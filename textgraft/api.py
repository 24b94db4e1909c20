"""`textgraft.predict`, `evaluate` and `embed`: use a trained model in one call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from textgraft.core.memory import mmap_large_blocks, release_free_memory
from textgraft.data.examples import each_text
from textgraft.data.readers import read
from textgraft.data.unlabelled import labelled_only
from textgraft.models import loading
from textgraft.models.artifact import Artifact, Predictor
from textgraft.models.loading import OpenedModels
from textgraft.nn.layer_aggregation import LAST, validate_layer_aggregation
from textgraft.nn.pooling import validate_pooling
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
    """Predict labels for a stream of texts of any length, in order.

    Args:
        model: Name or folder of a classifier, or a loaded one, which has its precision and device.
        texts: Texts, or pairs (tuples of two strings).
        abstain_below: Predictions of lower confidence have no label.
        precision: A name of nn.cpu.precision.
        device: A name of core.device.DEVICES.

    Raises:
        UserError: `model` is not a classifier or cannot be loaded, or the device is not available.
    """
    return as_classifier(model, precision=precision, device=device).predict(texts, abstain_below=abstain_below)


def evaluate(
    model: Classifier | str | Path, data: Any, *, precision: str = "auto", device: str = "cpu", **columns: Any
) -> dict[str, Any]:
    """Evaluate a classifier on labelled texts (Classifier.evaluate); texts without a label are left out.

    Args:
        model: As in `predict`.
        data: As in `read`.
        precision: A name of nn.cpu.precision.
        device: A name of core.device.DEVICES.
        columns: Further arguments of `read`.

    Raises:
        UserError: No label occurred in training, or as `predict`.
    """
    classifier = as_classifier(model, precision=precision, device=device)
    if not classifier.labels.target.has_sets:
        columns = {"kind": classifier.labels.kind, **columns}
    return classifier.evaluate(labelled_only(read(data, **columns)))


def embed(
    model: Classifier | str | Path,
    texts: Iterable[str],
    *,
    pooling: str | None = None,
    max_tokens: int | None = None,
    layers: str = LAST,
    prompt: str | None = None,
    device: str = "cpu",
) -> np.ndarray:
    """Embed texts.

    The vectors of an ensemble's members are concatenated. A linear classifier's are its features, those of static word
    vectors the mean (or maximum) over a text's words.

    Args:
        model: As in `predict`, or any other model with vectors.
        texts: N texts or pairs.
        pooling: A name of nn.pooling.POOLINGS, without what a model does above it. None: as a model describes itself
            (a sentence encoder: pooling, dense layers, length 1), else "mean".
        max_tokens: Maximum length, for language models; a classifier has that of its training. None: as a model
            describes itself, else 512.
        layers: A name of nn.layer_aggregation.LAYER_AGGREGATIONS; one with parameters only for a model trained with it.
        prompt: Name of one of the model's prompts, such as "query", or a text to write before each text. None: the
            model's default, if it has one.
        device: A name of core.device.DEVICES.

    Returns:
        (N, D) float32.

    Raises:
        UserError: An unknown pooling, prompt or layer aggregation, layers that the model does not have, a model without
            vectors, or a device that is not available.
    """
    members = _embedders(model, pooling, layers, device)
    options: dict[str, Any] = {"pooling": pooling, "max_tokens": max_tokens, "layers": layers, "prompt": prompt}
    return predictor.embed(members, list(each_text(texts)), **options)


def embed_stream(
    model: Classifier | OpenedModels | str | Path,
    texts: Iterable[str],
    *,
    pooling: str | None = None,
    max_tokens: int | None = None,
    layers: str = LAST,
    prompt: str | None = None,
    device: str = "cpu",
) -> Iterator[np.ndarray]:
    """`embed` for a stream of any length, in constant memory.

    Returns:
        An iterator over blocks (n, D) of at most STREAM_TEXTS texts, in order.

    Raises:
        UserError: As `embed`; for invalid texts during iteration.
    """
    members, source = _embedders(model, pooling, layers, device), each_text(texts)
    options: dict[str, Any] = {"pooling": pooling, "max_tokens": max_tokens, "layers": layers, "prompt": prompt}

    def blocks() -> Iterator[np.ndarray]:
        # A transformer's tensors are many and small: allocating each from the system would take a quarter longer.
        recurrent = any(isinstance(member, Artifact) and member.model.encoder.recurrent for member in members)
        with mmap_large_blocks() if recurrent else nullcontext():
            for chunk in iter(lambda: list(islice(source, STREAM_TEXTS)), []):
                yield predictor.embed(members, chunk, **options)
                release_free_memory()

    return blocks()


def _embedders(
    model: Classifier | OpenedModels | str | Path, pooling: str | None, layers: str, device: str
) -> Sequence[Predictor]:
    validate_layer_aggregation(layers)
    if pooling is not None:
        validate_pooling(pooling)
    if isinstance(model, Classifier | OpenedModels):
        return model.members
    return loading.open_models(model, device=device).members
