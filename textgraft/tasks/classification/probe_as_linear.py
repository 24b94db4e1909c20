"""A network that is a linear layer on a frozen encoder's default vectors, as the linear classifier that it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from textgraft.core.errors import UserError
from textgraft.data.examples import TargetKind
from textgraft.heads.classification import ClassificationHead
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.encoder_features import EncoderVectors
from textgraft.linear.fitted import FeatureMapModel
from textgraft.linear.linear_layer import Linear, Output, Setting
from textgraft.models.artifact import Artifact
from textgraft.models.model_folder import RESTORE
from textgraft.models.sentence_embedding import SentenceEmbedding
from textgraft.nn.layer_aggregation import LAST

ABOUT = "a linear layer on the vectors of a frozen model"


def as_linear(artifact: Artifact) -> LinearArtifact | None:
    """The linear classifier with the outputs of a linear probe; None for a network that is none.

    A temperature is folded into its layer.
    """
    head, labels = artifact.model.head, artifact.labels
    if labels is None or not isinstance(head, ClassificationHead) or not _is_on_default_vectors(artifact, head):
        return None
    (last,) = (layer for layer in head.layers if isinstance(layer, nn.Linear))
    weights = last.weight.detach().cpu().double().numpy()
    bias = np.zeros(len(weights)) if last.bias is None else last.bias.detach().cpu().double().numpy()
    temperature = (artifact.run.get("temperature") or 1.0) if labels.target.has_classes else 1.0
    layers = LAYERS[labels.kind](weights / temperature, bias / temperature)
    output = Output(labels.kind, layers, labels.num_outputs, Setting(1.0), ABOUT)
    if not isinstance(longest := artifact.run.get("max_tokens"), int):
        raise UserError("run.json has no 'max_tokens'.", where=str(artifact.run.get("name", "")), remedy=RESTORE)
    features = EncoderVectors(artifact, max_tokens=longest)
    return LinearArtifact(FeatureMapModel(features, output), labels, {**artifact.run, "temperature": None})


def _is_on_default_vectors(artifact: Artifact, head: ClassificationHead) -> bool:
    """True if the input of the head's only layer is what Artifact.embed returns by default."""
    embedding, config = artifact.embedding or SentenceEmbedding(), head.config
    plain = (config.words_dim, config.both_orders, config.batch_norm, config.hidden_dim) == (0, False, False, 0)
    same = (config.pooling, config.normalize, tuple(config.dense)) == (
        embedding.pooling,
        embedding.normalize,
        embedding.shapes,
    )
    if not plain or not same or config.layer_aggregation != LAST or config.kind not in LAYERS:
        return False
    if embedding.prompt() and not embedding.pools_prompt:
        return False
    pairs = zip(head.dense, embedding.dense, strict=True)
    return all(
        torch.equal(one.cpu(), other.cpu())
        for a, b in pairs
        for one, other in zip(a.parameters(), b.parameters(), strict=True)
    )


def _softmax(weights: NDArray[np.float64], bias: NDArray[np.float64]) -> list[Linear]:
    classes = np.arange(len(weights))
    if len(classes) == 1:
        return [Linear(np.zeros((0, 0)), np.zeros(0), classes)]
    if len(classes) == 2:
        weights, bias = weights[1:] - weights[:1], bias[1:] - bias[:1]
    return [Linear(weights, bias, classes)]


def _sigmoids(weights: NDArray[np.float64], bias: NDArray[np.float64]) -> list[Linear]:
    return [Linear(weights[[i]], bias[[i]], np.arange(2)) for i in range(len(weights))]


def _value(weights: NDArray[np.float64], bias: NDArray[np.float64]) -> list[Linear]:
    return [Linear(weights, bias, np.zeros(0, np.int64))]


LAYERS: Mapping[TargetKind, Callable[[NDArray[np.float64], NDArray[np.float64]], list[Linear]]] = {
    "single": _softmax,
    "multi": _sigmoids,
    "numeric": _value,
}
"""Linear layers with the outputs of a layer's weights (C, D) and bias (C,), by kind of target."""
