"""A tagger as an ONNX graph, and how far the graph's tags are from the network's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from textgraft.data.words import UNLIMITED_TOKENS, WordPieces, windows_of
from textgraft.heads.tagging import TaggingHead
from textgraft.models.artifact import Artifact
from textgraft.models.inference import tokens_per_batch
from textgraft.onnx import heads
from textgraft.onnx.inputs import longest, new_graph
from textgraft.onnx.layer_aggregation import read
from textgraft.tasks.export_check import drawn_ids
from textgraft.tasks.tagging.graph import OnnxTagger
from textgraft.tasks.tagging.network import decoded, word_logits
from textgraft.tasks.tagging.predictor import MAX_TOKENS, from_text
from textgraft.word_embeddings.contextual import carries_state

WINDOW = 32
"""A tagger's longest sentence has more tokens, and lies in several windows."""


def graph_of(artifact: Artifact) -> OnnxTagger:
    """The graph from token ids to the best tags of sentences and their probabilities."""
    head, encoder = artifact.model.head, artifact.model.encoder
    assert isinstance(head, TaggingHead)
    shape = ("sentences", "words")
    graph, (layers, _) = new_graph(encoder, words=shape)
    tags, sure = heads.tagging(graph, head, read(graph, artifact.model.layer_aggregation, layers), "words")
    most = (
        UNLIMITED_TOKENS
        if carries_state(encoder)
        else longest(encoder, int(artifact.run.get("max_tokens", MAX_TOKENS)))
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


def difference(artifact: Artifact, made: OnnxTagger, sizes: list[int], generator: np.random.Generator) -> float:
    """The largest difference between the tags' probabilities of graph and network; another tag counts as 1."""
    pieces = []
    for size in sizes:  # words of one piece or of two
        ends = np.flatnonzero(generator.random(size - 1) < 0.7) + 1
        pieces.append(WordPieces(drawn_ids(artifact, size, generator), np.array([0, *ends, size]), 0))
    marks, lengths = artifact.tokenizer.pair_marks, [len(one.bounds) - 1 for one in pieces]
    most = min(WINDOW, made.max_tokens) if made.max_tokens < 1 << 30 else made.max_tokens
    windows, _ = windows_of(pieces, marks, most, made.direction)
    logits = word_logits(artifact.model, windows, lengths, artifact.tokenizer.pad_id, "fp32")
    largest = 0.0
    for (tags, sure), (best, share) in zip(made.decoded(windows, lengths), decoded(artifact.model, logits)):
        same = [made.tags[i] for i in tags] == best
        largest = max(largest, float(np.abs(sure - share).max()) if same else 1.0)
    return largest


def outputs(model: OnnxTagger, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The tags of all words of texts, and their probabilities."""
    words = [sentence.words for sentence in map(from_text, texts) if sentence.words]
    tagged, _ = model.reading(model.max_tokens)(words)
    tags, probabilities = ([value for one in tagged for value in one[part]] for part in (0, 1))
    return np.array(tags), np.array(probabilities)
