"""Export of a tagger as an ONNX graph, and the difference between its tags and the network's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from textgraft.data.tag_spans import from_text
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
from textgraft.tasks.tagging.predictor import MAX_TOKENS
from textgraft.word_embeddings.contextual import carries_state

WINDOW = 32
"""Tokens of a window in the comparison, so that its longest sentence is split into several."""


def graph_of(artifact: Artifact) -> OnnxTagger:
    """Build the graph from token ids to the best tags of sentences and their probabilities."""
    head, encoder = artifact.model.head, artifact.model.encoder
    assert isinstance(head, TaggingHead)
    shape = ("sentences", "words")
    graph, (layers, _) = new_graph(encoder, words=shape)
    tags, probabilities = heads.tagging(graph, head, read(graph, artifact.model.layer_aggregation, layers), "words")
    most = (
        UNLIMITED_TOKENS
        if carries_state(encoder)
        else longest(encoder, int(artifact.run.get("max_tokens", MAX_TOKENS)))
    )
    return OnnxTagger(
        graph=graph.model({"tags": (tags, "int64", shape), "probabilities": (probabilities, "float32", shape)}),
        tokenizer=artifact.tokenizer,
        max_tokens=most,
        tokens_per_batch=tokens_per_batch(artifact.model),
        run=artifact.run,
        text_form=artifact.text_form,
        tags=head.config.tags,
        scheme=head.config.scheme,
        subword_pooling=head.config.subword_pooling,
        direction=encoder.direction,
    )


def difference(artifact: Artifact, exported: OnnxTagger, sizes: list[int], generator: np.random.Generator) -> float:
    """Largest difference between the tags' probabilities of graph and network; a different tag counts as 1.

    Args:
        artifact: The tagger.
        exported: Its graph.
        sizes: Numbers of tokens of the random sentences to tag.
        generator: Random number generator.
    """
    pieces = []
    for size in sizes:  # words of one piece or of two
        ends = np.flatnonzero(generator.random(size - 1) < 0.7) + 1
        pieces.append(WordPieces(drawn_ids(artifact, size, generator), np.array([0, *ends, size]), 0))
    marks, lengths = artifact.tokenizer.pair_marks, [len(one.bounds) - 1 for one in pieces]
    most = min(WINDOW, exported.max_tokens) if exported.max_tokens < 1 << 30 else exported.max_tokens
    windows, _ = windows_of(pieces, marks, most, exported.direction)
    logits = word_logits(artifact.model, windows, lengths, artifact.tokenizer.pad_id, "fp32")
    largest = 0.0
    of_network = decoded(artifact.model, logits)
    for (tags, probabilities), (expected_tags, expected) in zip(exported.decoded(windows, lengths), of_network):
        same = [exported.tags[i] for i in tags] == expected_tags
        largest = max(largest, float(np.abs(probabilities - expected).max()) if same else 1.0)
    return largest


def outputs(model: OnnxTagger, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The tags of all words of the texts, and their probabilities."""
    words = [sentence.words for sentence in map(from_text, texts) if sentence.words]
    predictions, _ = model.batch_tagger(model.max_tokens)(words)
    tags, probabilities = ([value for prediction in predictions for value in prediction[part]] for part in (0, 1))
    return np.array(tags), np.array(probabilities)
