"""A classifier as an ONNX graph, and how far the graph's answers are from the network's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from textgraft.data.sequences import PairIds, Rows, TokenIds, cut_pair
from textgraft.heads.classification import ClassificationConfig, ClassificationHead
from textgraft.heads.multiple_choice import ChoiceHead
from textgraft.metrics.calibration import probabilities
from textgraft.models.artifact import Artifact
from textgraft.models.inference import predict_logits, tokens_per_batch
from textgraft.onnx import heads
from textgraft.onnx.inputs import longest, new_graph
from textgraft.onnx.layer_aggregation import read
from textgraft.tasks.classification.graph import OnnxClassifier
from textgraft.tasks.export_check import drawn_ids

OPTIONS = 3


def graph_of(artifact: Artifact) -> OnnxClassifier:
    """The graph from token ids to probabilities, or to a standardised value."""
    model, labels = artifact.model, artifact.labels
    head, temperature = model.head, artifact.run.get("temperature") or 1.0
    assert labels is not None
    if isinstance(head, ChoiceHead):
        graph, found = new_graph(model.encoder, options=("questions", "options"))
        scores = heads.classification(graph, head.score, read(graph, model.layer_aggregation, found[0]), found, "mask")
        probabilities_output = heads.choice_probabilities(graph, scores, "options", temperature)
        shape: tuple[str | int, ...] = ("questions", "options")
    else:
        assert isinstance(head, ClassificationHead)
        graph, found = new_graph(model.encoder)
        logits = heads.classification(graph, head, read(graph, model.layer_aggregation, found[0]), found, "mask")
        probabilities_output, shape = (
            heads.answers(graph, logits, labels.kind, temperature),
            ("batch", head.config.outputs),
        )
    return OnnxClassifier(
        graph=graph.model({"answers": (probabilities_output, "float32", shape)}),
        tokenizer=artifact.tokenizer,
        max_tokens=longest(model.encoder, artifact.run["max_tokens"]),
        tokens_per_batch=tokens_per_batch(artifact.model),
        labels=labels,
        run=artifact.run,
        both_orders=isinstance(head.config, ClassificationConfig) and head.config.both_orders,
    )


def difference(artifact: Artifact, made: OnnxClassifier, sizes: list[int], generator: np.random.Generator) -> float:
    """The largest difference between the answers of graph and network, on drawn texts of these lengths."""
    assert made.labels is not None
    drawn = [_text(artifact, made, min(size, made.max_tokens), generator) for size in sizes]
    expected = predict_logits(artifact.model, drawn, artifact.tokenizer.pad_id, "fp32")
    if made.labels.kind != "numeric":
        expected = probabilities(expected, made.labels.kind, artifact.run.get("temperature") or 1.0)
    return float(np.abs(made.answer(drawn) - expected).max())


def outputs(model: OnnxClassifier, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The answers to texts, twice: as what should stay the same, and as numbers."""
    answers = model.outputs(texts)
    return answers, answers


def _text(artifact: Artifact, made: OnnxClassifier, size: int, generator: np.random.Generator) -> TokenIds:
    """A text of `size` tokens; or a pair whose texts have as many (fewer, to fit with the marks), or some of these."""

    def pair() -> PairIds:
        ids = drawn_ids(artifact, size, generator)
        return cut_pair(PairIds(ids[: size // 2], ids[size // 2 :], artifact.tokenizer.pair_marks), made.max_tokens)

    assert made.labels is not None
    if made.labels.kind == "choice":
        return Rows(tuple(pair() for _ in range(generator.integers(2, OPTIONS + 1))))
    reads_pairs = artifact.run.get("reads") == "pairs" or made.both_orders
    return pair() if reads_pairs else drawn_ids(artifact, size, generator)
