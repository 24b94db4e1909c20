"""Export of a linear classifier or an ensemble: the folder of one without torch, each network in it as an ONNX graph.

Networks become graphs to probabilities. Linear classifiers stay arrays and counts, and the encoders whose vectors they
use become graphs. A linear probe whose encoder another member uses becomes a linear classifier on that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError
from textgraft.data.examples import Choice, InputKind, Pair
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.encoder_features import EncoderVectors
from textgraft.models.artifact import Artifact
from textgraft.models.encoder_graph import EncoderGraph
from textgraft.models.graph import OnnxModel
from textgraft.models.loading import OpenedModels
from textgraft.tasks.classification.ensemble import ensemble_files
from textgraft.tasks.classification.onnx_export import encoder_graph_of
from textgraft.tasks.classification.predictor import Classifier
from textgraft.tasks.classification.shared_encoder import encoders_of, grouped, on_frozen_encoders
from textgraft.tasks.network_graph import families, graph_of, validate_family

LENGTHS = (1, 7, 64, 400)
"""Numbers of words of the texts on which an exported classifier is compared with the original, where none are given."""
TEXTS = 5
"""Texts of each length, for each member."""


@dataclass(frozen=True)
class ExportedClassifier:
    """A classifier whose members need no torch.

    Attributes:
        members: The members by name; a single one has no name.
        weights: Of their predictions.
        saved_weights: As in the original's config.json.
        run: Content of run.json of the whole.
    """

    members: dict[str, Any]
    weights: Sequence[float]
    saved_weights: Sequence[float] | None
    run: dict[str, Any]

    @property
    def classifier(self) -> Classifier:
        return Classifier(list(self.members.values()), weights=self.weights)

    def outputs(self, texts: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities or values, as Classifier.outputs, twice: as predictions and as scores."""
        outputs = self.classifier.outputs(texts)
        return outputs, outputs

    def same(self, before: NDArray, after: NDArray) -> float:
        """Share of predictions that are the same."""
        return self.classifier.labels.target.agreement(before, after)

    def validate_int8(self) -> None:
        """Raise UserError where there is no graph."""
        if not self.graphs:
            remedy = "Export it without int8=True."
            raise UserError("there is no network in this classifier to store in int8.", remedy=remedy)

    def in_int8(self, products: str) -> ExportedClassifier:
        """The same with the weights of all graphs, and these products, in int8."""
        from textgraft.onnx.int8 import in_int8

        return self._with_graphs(lambda graph: in_int8(graph, products))

    def size(self, files: Mapping[str, bytes]) -> int:
        """Bytes of all files."""
        return sum(map(len, files.values()))

    def _with_graphs(self, change: Callable[[bytes], bytes]) -> ExportedClassifier:
        """The same with every graph changed; one that members share is changed once."""
        changed: dict[int, Any] = {}

        def of(model: Any) -> Any:
            if id(model) not in changed:
                changed[id(model)] = replace(model, graph=change(model.graph))
            return changed[id(model)]

        def of_member(member: Any) -> Any:
            if isinstance(member, OnnxModel):
                return of(member)
            model = member.model.with_encoders(lambda features: features.on(of(features.encoder)))
            return LinearArtifact(model, member.labels, member.run)

        return replace(self, members={name: of_member(member) for name, member in self.members.items()})

    @property
    def graphs(self) -> list[OnnxModel]:
        """The graphs, each once."""
        found: dict[int, OnnxModel] = {}
        for member in self.members.values():
            encoders = [] if isinstance(member, OnnxModel) else [f.encoder for f in encoders_of(member.model)]
            for model in [member] if isinstance(member, OnnxModel) else encoders:
                found[id(model)] = model
        return list(found.values())

    def files(self) -> dict[str, bytes]:
        """The files of its folder by name."""
        if len(self.members) > 1:
            return ensemble_files(self.members, self.run, self.saved_weights)
        (member,) = self.members.values()
        files: dict[str, bytes] = member.files()
        return files


def exported_and_compared(models: OpenedModels, texts: Sequence[str] = ()) -> tuple[ExportedClassifier, float]:
    """The exported form of a classifier, and the largest difference between its outputs and the original's.

    Args:
        models: As in `exported`.
        texts: Texts to compare on; else `trial_texts`.

    Raises:
        UserError: As `exported`, or the texts are not of the kind that the classifier reads.
    """
    original = Classifier(models.members, weights=models.weights, precision="fp32", where=models.name)
    whole = exported(models)
    texts = list(texts) or trial_texts(models, original.reads)
    return whole, float(np.abs(whole.classifier.outputs(texts) - original.outputs(texts)).max())


def exported(models: OpenedModels) -> ExportedClassifier:
    """The exported form of a classifier.

    Args:
        models: A linear classifier, or the members of an ensemble.

    Raises:
        UserError: A member is of another task, is exported already, or cannot be exported; or onnx is not installed.
    """
    families()
    Classifier.of(models)  # raises UserError
    names = models.folders or [""]
    for name, member in zip(names, models.members, strict=True):
        _validate(member, f"{models.name}/{name}" if name else models.name)
    linear = [on_frozen_encoders(member) for member in models.members]
    features = [features for one in linear if one is not None for features in encoders_of(one.model)]
    groups = grouped(features)
    graphs: dict[int, EncoderGraph] = {}

    def of_encoder(one: EncoderVectors) -> EncoderVectors:
        number = next(i for i, group in enumerate(groups) if any(other is one for other in group))
        if number not in graphs:
            where = f"{models.name}: the encoder '{one.encoder.run.get('name') or one.encoder.model.family}'"
            validate_family(one.encoder, where)
            graphs[number] = encoder_graph_of(one.encoder, one.max_tokens)
        return one.on(graphs[number])

    def of_member(name: str, member: Any, one: Any) -> Any:
        if isinstance(member, Artifact) and (one is None or _is_alone(one, groups)):
            return graph_of(member, f"{models.name}/{name}" if name else models.name)
        if one is None:
            return member
        return LinearArtifact(one.model.with_encoders(of_encoder), one.labels, one.run)

    members = {name: of_member(name, *pair) for name, *pair in zip(names, models.members, linear, strict=True)}
    return ExportedClassifier(members, models.weights, models.saved_weights, models.run)


def _is_alone(one: Any, groups: Sequence[Sequence[Any]]) -> bool:
    """True if no other member uses the encoder of a linear probe."""
    (features,) = encoders_of(one.model)
    return all(len(group) == 1 for group in groups if any(other is features for other in group))


def _validate(member: Any, where: str) -> None:
    """Raise UserError for a member that is exported already, or that is neither a network nor a linear classifier."""
    if isinstance(member, OnnxModel) or (
        isinstance(member, LinearArtifact) and any(isinstance(f.encoder, OnnxModel) for f in encoders_of(member.model))
    ):
        remedy = "Use it as it is, or export the model that it was exported from."
        raise UserError("this is an exported graph, not a network.", where=where, remedy=remedy)
    if not isinstance(member, Artifact | LinearArtifact):
        message = f"a member of the kind {type(member).__name__} cannot be exported."
        raise UserError(message, where=where, remedy="Train a classifier without it, and export that.")


def trial_texts(models: OpenedModels, reads: InputKind) -> list[Any]:
    """Texts of words that the members know, of LENGTHS, to compare an exported classifier with the original on."""
    generator, texts = np.random.default_rng(0), []
    for member in models.members:
        for length in LENGTHS:
            texts += [" ".join(_words(member, length, generator)) for _ in range(TEXTS)]
    if reads == "pairs":
        return [Pair(one, other) for one, other in zip(texts, texts[::-1], strict=True)]
    if reads == "choices":
        return [Choice(one, (other, one[:20] or "a")) for one, other in zip(texts, texts[::-1], strict=True)]
    return texts


def _words(member: Any, count: int, generator: np.random.Generator) -> Iterator[str]:
    """Some of the n-grams or tokens of a member."""
    if isinstance(member, Artifact):
        tokenizer = member.tokenizer
        yield tokenizer.decode(generator.integers(0, tokenizer.vocab_size, count).tolist())
        return
    documents: Mapping[str, Any] = member.model.state().documents
    known = [word for value in documents.values() if isinstance(value, list) for word in value] or ["a"]
    yield from (known[i] for i in generator.integers(0, len(known), count))
