"""Members of an ensemble on one frozen encoder: a text is encoded once for all of them.

Encoders are compared by their content, so that it makes no difference how an ensemble was saved, or whether its members
are folders of their own. Without torch the encoders are graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.lazy import resolve
from textgraft.models.graph import OnnxModel

AS_LINEAR = "textgraft.tasks.classification.probe_as_linear:as_linear"
VECTORS_ALIKE = "textgraft.models.text_vectors:vectors_alike"
"""By name, because a graph does not need torch."""
FROZEN = "frozen"
"""Key of run.json that is true for a linear layer on a frozen encoder: its scores are those on the vectors of `embed`,
whose precision is not that of a network's predictions."""
SHARED_PRECISIONS = ("auto", "fp32")
"""The precisions of frozen vectors, on which classifiers are fitted; in others members compute for themselves."""


class LastVectors:
    """Function from texts to an encoder's vectors that keeps those of the last call: members have the same texts."""

    def __init__(self, encoder: Any, max_tokens: int | None, precision: str) -> None:
        self._encoder, self._options = encoder, {"max_tokens": max_tokens, "precision": precision}
        self._texts: list[str] | None = None
        self._vectors = np.zeros((0, 0), np.float32)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors (N, D) of N texts."""
        texts = list(texts)
        if texts != self._texts:
            self._vectors, self._texts = self._encoder.embed(texts, **self._options), texts
        return self._vectors


def encoding_once(members: Sequence[Any], precision: str = "auto") -> tuple[Any, ...]:
    """The members of an ensemble, those on one encoder as linear classifiers on its vectors of a batch.

    Args:
        members: Classifiers.
        precision: Of prediction.
    """
    if precision not in SHARED_PRECISIONS:
        return tuple(members)
    if len(members) == 1:
        (alone,) = members
        measured = on_frozen_encoders(alone) if getattr(alone, "run", {}).get(FROZEN) else None
        return (measured or alone,)
    linear = [on_frozen_encoders(member) for member in members]
    groups = grouped([features for one in linear if one is not None for features in encoders_of(one.model)])
    shared: dict[int, tuple[Any, LastVectors]] = {}
    for group in groups:
        if len(group) > 1:
            first = next((one for one in group if not isinstance(one.encoder, OnnxModel)), group[0])
            vectors = LastVectors(first.encoder, first.max_tokens, precision)
            shared |= {id(features): (first.encoder, vectors) for features in group}
            if isinstance(first.encoder, OnnxModel):  # one session of onnxruntime, and one graph in memory
                for features in group:
                    features.encoder = first.encoder

    def once(member: Any, one: Any) -> Any:
        if one is None or not any(id(features) in shared for features in encoders_of(one.model)):
            return member
        model = one.model.with_encoders(lambda features: features.on(*shared.get(id(features), (features.encoder,))))
        return type(one)(model, one.labels, one.run)

    return tuple(once(*pair) for pair in zip(members, linear, strict=True))


def on_frozen_encoders(member: Any) -> Any:
    """The member as a linear classifier with an encoder (linear.artifact.LinearArtifact); None where it is none."""
    if isinstance(member, OnnxModel):
        return None
    if hasattr(member, "tokenizer"):
        return resolve(AS_LINEAR)(member)
    model = getattr(member, "model", None)
    return member if model is not None and encoders_of(model) else None


def encoders_of(model: Any) -> list[Any]:
    """The feature maps of a fitted model that are an encoder's vectors."""
    found: list[Any] = []

    def kept(features: Any) -> Any:
        found.append(features)
        return features

    model.with_encoders(kept)
    return found


def grouped(features: Sequence[Any]) -> list[list[Any]]:
    """Feature maps (linear.encoder_features.EncoderVectors) by their encoders, those with the same vectors together."""
    groups: list[list[Any]] = []
    for one in features:
        group = next((group for group in groups if _alike(group[0], one)), None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return groups


def _alike(one: Any, other: Any) -> bool:
    a, b = one.encoder, other.encoder
    if a is b:
        return bool(one.max_tokens == other.max_tokens)
    if isinstance(a, OnnxModel) or isinstance(b, OnnxModel):
        return _described(a) == _described(b) if type(a) is type(b) else False
    return bool(resolve(VECTORS_ALIKE)(a, one.max_tokens, b, other.max_tokens))


def _described(graph: Any) -> tuple[Any, ...]:
    return graph.graph, graph.settings(), graph.tokenizer.fingerprint
