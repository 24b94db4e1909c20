"""Export of a classifier as an ONNX graph, and the difference between its outputs and the network's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.sequences import PairIds, Rows, TokenIds, cut_pair
from textgraft.heads.classification import ClassificationConfig, ClassificationHead
from textgraft.heads.multiple_choice import ChoiceHead
from textgraft.metrics.calibration import activated
from textgraft.models.artifact import Artifact
from textgraft.models.encoder_graph import EncoderGraph
from textgraft.models.inference import predict_logits, tokens_per_batch
from textgraft.models.sentence_embedding import SentenceEmbedding
from textgraft.models.text_vectors import text_limit
from textgraft.onnx import heads
from textgraft.onnx.inputs import new_graph
from textgraft.onnx.layer_aggregation import read
from textgraft.onnx.layers import pooling
from textgraft.tasks.classification.graph import OnnxClassifier
from textgraft.tasks.export_check import drawn_ids

OPTIONS = 3


def graph_of(artifact: Artifact) -> OnnxClassifier:
    """Build the graph from token ids to probabilities, or to a standardised value."""
    model, labels = artifact.model, artifact.labels
    head, temperature = model.head, artifact.run.get("temperature") or 1.0
    embedding = artifact.embedding
    assert labels is not None
    if isinstance(head, ChoiceHead):
        graph, graph_inputs = new_graph(model.encoder, options=("questions", "options"))
        scores = heads.classification(
            graph, head.score, read(graph, model.layer_aggregation, graph_inputs[0]), graph_inputs, "mask"
        )
        outputs = heads.choice_probabilities(graph, scores, "options", temperature)
        shape: tuple[str | int, ...] = ("questions", "options")
    else:
        assert isinstance(head, ClassificationHead)
        graph, graph_inputs = new_graph(model.encoder)
        logits = heads.classification(
            graph, head, read(graph, model.layer_aggregation, graph_inputs[0]), graph_inputs, "mask"
        )
        outputs, shape = (
            heads.answers(graph, logits, labels.kind, temperature),
            ("batch", head.config.outputs),
        )
    return OnnxClassifier(
        graph=graph.model({"answers": (outputs, "float32", shape)}),
        tokenizer=artifact.tokenizer,
        max_tokens=text_limit(artifact, artifact.run["max_tokens"]),
        beginnings=embedding is not None,
        tokens_per_batch=tokens_per_batch(artifact.model),
        labels=labels,
        run=artifact.run,
        text_form=artifact.text_form,
        both_orders=isinstance(head.config, ClassificationConfig) and head.config.both_orders,
        prompt="" if embedding is None else embedding.prompt(),
        lowercase=embedding is not None and embedding.lowercase,
    )


def encoder_graph_of(encoder: Artifact, max_tokens: int | None) -> EncoderGraph:
    """Build the graph from token ids to the vectors that `Artifact.embed` makes by default.

    Args:
        encoder: A frozen encoder.
        max_tokens: Length in tokens that longer texts are cut to; None: the model's own.

    Raises:
        UserError: The vectors leave out the positions of a prompt, which no graph does.
    """
    model, embedding = encoder.model, encoder.embedding or SentenceEmbedding()
    prompt = embedding.prompt()
    if prompt and not embedding.pools_prompt:
        remedy = "Serve it as it is, or train it with an encoder that pools its prompt."
        raise UserError("the vectors of this encoder leave out a prompt, which cannot be exported.", remedy=remedy)
    graph, graph_inputs = new_graph(model.encoder)
    pooled = pooling(graph, embedding.pooling, graph_inputs[0][-1], "mask", model.encoder.direction)
    vectors = heads.projected(graph, pooled, embedding.dense, normalize=embedding.normalize)
    width = embedding.output_dim(model.encoder.output_dim)
    return EncoderGraph(
        graph=graph.model({"vectors": (vectors, "float32", ("batch", width))}),
        tokenizer=encoder.tokenizer,
        max_tokens=text_limit(encoder, max_tokens),
        tokens_per_batch=tokens_per_batch(model),
        run=encoder.run,
        width=width,
        beginnings=encoder.embedding is not None,
        prompt=prompt,
        lowercase=embedding.lowercase,
        text_form=encoder.text_form,
    )


def difference(artifact: Artifact, exported: OnnxClassifier, sizes: list[int], generator: np.random.Generator) -> float:
    """Largest absolute difference between the outputs of graph and network, on random texts of `sizes` tokens."""
    assert exported.labels is not None
    drawn = [_text(artifact, exported, min(size, exported.max_tokens), generator) for size in sizes]
    expected = predict_logits(artifact.model, drawn, artifact.tokenizer.pad_id, "fp32")
    expected = activated(expected, exported.labels.kind, artifact.run.get("temperature") or 1.0)
    return float(np.abs(exported.answer(drawn) - expected).max())


def outputs(model: OnnxClassifier, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The outputs for texts, twice: as the values to compare, and as numbers."""
    answers = model.outputs(texts)
    return answers, answers


def _text(artifact: Artifact, exported: OnnxClassifier, size: int, generator: np.random.Generator) -> TokenIds:
    """A random text of `size` tokens, a pair with as many (fewer, to fit with the marks), or several such pairs."""

    def pair() -> PairIds:
        ids = drawn_ids(artifact, size, generator)
        return cut_pair(PairIds(ids[: size // 2], ids[size // 2 :], artifact.tokenizer.pair_marks), exported.max_tokens)

    assert exported.labels is not None
    if exported.labels.target.reads == "choices":
        return Rows(tuple(pair() for _ in range(generator.integers(2, OPTIONS + 1))))
    reads_pairs = artifact.run.get("reads") == "pairs" or exported.both_orders
    return pair() if reads_pairs else drawn_ids(artifact, size, generator)
