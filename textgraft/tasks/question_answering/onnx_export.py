"""Export of a QA model as an ONNX graph, and the difference between its logits and the network's."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from textgraft.data.windows import Window, WindowSettings
from textgraft.heads.span import SpanHead
from textgraft.models.artifact import Artifact
from textgraft.models.inference import tokens_per_batch
from textgraft.onnx import heads
from textgraft.onnx.inputs import PLACES, longest, new_graph
from textgraft.onnx.layer_aggregation import read
from textgraft.tasks.export_check import drawn_ids
from textgraft.tasks.question_answering.graph import OnnxSpanModel
from textgraft.tasks.question_answering.network import window_logits


def graph_of(artifact: Artifact) -> OnnxSpanModel:
    """Build the graph from windows of token ids to logits of an answer's first and last token."""
    head = artifact.model.head
    assert isinstance(head, SpanHead)
    graph, (layers, _) = new_graph(artifact.model.encoder)
    logits = heads.span(graph, head, read(graph, artifact.model.layer_aggregation, layers))
    windows = WindowSettings(**artifact.run.get("windows", asdict(WindowSettings())))
    return OnnxSpanModel(
        graph=graph.model({"logits": (logits, "float32", (*PLACES, 2))}),
        tokenizer=artifact.tokenizer,
        max_tokens=longest(artifact.model.encoder, windows.max_tokens),
        tokens_per_batch=tokens_per_batch(artifact.model),
        run=artifact.run,
        text_form=artifact.text_form,
        direction=artifact.model.encoder.direction,
    )


def difference(artifact: Artifact, exported: OnnxSpanModel, sizes: list[int], generator: np.random.Generator) -> float:
    """Largest absolute difference between the logits of graph and network, on random windows of `sizes` tokens."""
    windows = []
    for size in (min(size, exported.max_tokens) for size in sizes):
        ids, second = drawn_ids(artifact, size, generator), size // 2
        spans, context = np.zeros((size - second, 2), dtype=np.int64), np.ones(size - second, dtype=bool)
        windows.append(Window(0, ids, second, second, 0, spans, context))
    expected = window_logits(artifact.model, windows, artifact.tokenizer.pad_id, "fp32")
    return max(float(np.abs(a - b).max()) for a, b in zip(exported.window_logits(windows), expected, strict=True))
