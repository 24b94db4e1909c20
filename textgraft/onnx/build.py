"""A fine-tuned network as one graph: the operators of its encoder, its layer aggregation and its head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from textgraft.core.errors import UserError
from textgraft.data.windows import WindowSettings
from textgraft.data.words import UNLIMITED_TOKENS
from textgraft.encoders.bert import BERT
from textgraft.heads.base import Head
from textgraft.heads.classification import ClassificationConfig, ClassificationHead
from textgraft.heads.multiple_choice import ChoiceHead
from textgraft.heads.span import SpanHead
from textgraft.heads.tagging import TaggingHead
from textgraft.models.artifact import Artifact
from textgraft.models.graph import OnnxModel
from textgraft.models.inference import tokens_per_batch
from textgraft.onnx import heads
from textgraft.onnx.encoders import ENCODERS, SEGMENTS, SPELLINGS, Read
from textgraft.onnx.graph import Graph
from textgraft.onnx.layer_aggregation import read
from textgraft.tasks.classification.graph import OnnxClassifier
from textgraft.tasks.question_answering.graph import OnnxSpanModel
from textgraft.tasks.tagging.graph import OnnxTagger
from textgraft.tasks.tagging.predictor import MAX_TOKENS
from textgraft.word_embeddings.contextual import carries_state

PLACES = ("batch", "length")


def built(artifact: Artifact, name: str) -> OnnxModel:
    """The graph of a network. Raises UserError for a family or a head of which there is none."""
    encoder, head = type(artifact.model.encoder), type(artifact.model.head)
    without_labels = artifact.labels is None and head in (ChoiceHead, ClassificationHead)
    if head not in HEADS or without_labels:
        message = "only classifiers, taggers and readers can be exported, and this is none."
        raise UserError(message, where=name, remedy="Fine-tune one first (textgraft finetune, or tag or qa finetune).")
    if encoder not in ENCODERS:
        known = ", ".join(sorted(family.__name__ for family in ENCODERS))
        message = f"there is no graph of the family {encoder.__name__}."
        raise UserError(message, where=name, remedy=f"These have one: {known}.")
    return HEADS[head](artifact)


def _started(artifact: Artifact, **more: tuple[str, str]) -> tuple[Graph, Read]:
    """A graph of what every head reads, with further inputs of numbers by their shapes."""
    encoder = artifact.model.encoder
    numbers = {"ids": PLACES, **more}
    if isinstance(encoder, BERT) and encoder.segments is not None:
        numbers[SEGMENTS] = PLACES
    if encoder.uses_characters:
        numbers[SPELLINGS] = ("distinct", "characters")
    graph = Graph({"mask": ("bool", PLACES)} | {name: ("int64", shape) for name, shape in numbers.items()})
    return graph, ENCODERS[type(encoder)](graph, encoder, "ids", "mask")


def _most(artifact: Artifact, tokens: int) -> int:
    return min(tokens, artifact.model.encoder.max_length or tokens)


def _classifier(artifact: Artifact) -> OnnxClassifier:
    model, labels = artifact.model, artifact.labels
    head, temperature = model.head, artifact.run.get("temperature") or 1.0
    assert labels is not None
    if isinstance(head, ChoiceHead):
        graph, found = _started(artifact, options=("questions", "options"))
        scores = heads.classification(graph, head.score, read(graph, model.layer_aggregation, found[0]), found, "mask")
        said = heads.choice_probabilities(graph, scores, "options", temperature)
        shape: tuple[str | int, ...] = ("questions", "options")
    else:
        assert isinstance(head, ClassificationHead)
        graph, found = _started(artifact)
        logits = heads.classification(graph, head, read(graph, model.layer_aggregation, found[0]), found, "mask")
        said, shape = heads.answers(graph, logits, labels.kind, temperature), ("batch", head.config.outputs)
    return OnnxClassifier(
        graph=graph.model({"answers": (said, "float32", shape)}),
        tokenizer=artifact.tokenizer,
        max_tokens=_most(artifact, artifact.run["max_tokens"]),
        tokens_per_batch=tokens_per_batch(artifact.model),
        labels=labels,
        run=artifact.run,
        both_orders=isinstance(head.config, ClassificationConfig) and head.config.both_orders,
    )


def _tagger(artifact: Artifact) -> OnnxTagger:
    head, encoder = artifact.model.head, artifact.model.encoder
    assert isinstance(head, TaggingHead)
    shape = ("sentences", "words")
    graph, (layers, _) = _started(artifact, words=shape)
    tags, sure = heads.tagging(graph, head, read(graph, artifact.model.layer_aggregation, layers), "words")
    most = (
        UNLIMITED_TOKENS if carries_state(encoder) else _most(artifact, int(artifact.run.get("max_tokens", MAX_TOKENS)))
    )
    return OnnxTagger(
        graph=graph.model({"tags": (tags, "int64", shape), "probabilities": (sure, "float32", shape)}),
        tokenizer=artifact.tokenizer,
        max_tokens=most,
        tokens_per_batch=tokens_per_batch(artifact.model),
        run=artifact.run,
        tags=head.config.tags,
        scheme=head.config.scheme,
        subword_pooling=head.config.subword_pooling,
        direction=encoder.direction,
    )


def _reader(artifact: Artifact) -> OnnxSpanModel:
    head = artifact.model.head
    assert isinstance(head, SpanHead)
    graph, (layers, _) = _started(artifact)
    logits = heads.span(graph, head, read(graph, artifact.model.layer_aggregation, layers))
    windows = WindowSettings(**artifact.run.get("windows", asdict(WindowSettings())))
    return OnnxSpanModel(
        graph=graph.model({"logits": (logits, "float32", (*PLACES, 2))}),
        tokenizer=artifact.tokenizer,
        max_tokens=_most(artifact, windows.max_tokens),
        tokens_per_batch=tokens_per_batch(artifact.model),
        run=artifact.run,
        direction=artifact.model.encoder.direction,
    )


HEADS: dict[type[Head], Callable[[Artifact], OnnxModel]] = {
    ChoiceHead: _classifier,
    ClassificationHead: _classifier,
    SpanHead: _reader,
    TaggingHead: _tagger,
}
