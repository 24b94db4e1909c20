"""Whether a graph answers as the network does, on drawn texts of several lengths and batches of several sizes."""

from __future__ import annotations

import numpy as np

from textgraft.data.sequences import PairIds, Rows, TokenIds, cut_pair
from textgraft.data.windows import Window
from textgraft.data.words import WordPieces, windows_of
from textgraft.metrics.calibration import probabilities
from textgraft.models.artifact import Artifact
from textgraft.models.graph import OnnxModel
from textgraft.models.inference import predict_logits
from textgraft.tasks.classification.graph import OnnxClassifier
from textgraft.tasks.question_answering.graph import OnnxSpanModel
from textgraft.tasks.question_answering.network import window_logits
from textgraft.tasks.tagging.graph import OnnxTagger
from textgraft.tasks.tagging.network import decoded, word_logits
from textgraft.text.character_encoding import CharacterEncodingTokenizer

LENGTHS, ROWS = (1, 7, 64), (1, 5)
"""The texts of drawn tokens that every graph is checked on: of each length, so many in a batch, with shorter ones."""
WINDOW = 32
"""A tagger's longest sentence has more tokens, and lies in several windows."""
OPTIONS = 3


def largest_difference(artifact: Artifact, made: OnnxModel) -> float:
    """Between the answers of the graph and of the model, over drawn texts of LENGTHS in batches of ROWS.

    Of probabilities, or logits of a reader's; another tag counts as 1.
    """
    generator = np.random.default_rng(0)
    largest = 0.0
    for length in LENGTHS:
        for rows in ROWS:
            sizes = [length, *generator.integers(1, length + 1, rows - 1).tolist()]
            if isinstance(made, OnnxTagger):
                found = _of_tags(artifact, made, sizes, generator)
            elif isinstance(made, OnnxSpanModel):
                found = _of_windows(artifact, made, sizes, generator)
            else:
                assert isinstance(made, OnnxClassifier)
                found = _of_answers(artifact, made, sizes, generator)
            largest = max(largest, found)
    return largest


def _of_answers(artifact: Artifact, made: OnnxClassifier, sizes: list[int], generator: np.random.Generator) -> float:
    assert made.labels is not None
    drawn = [_text(artifact, made, min(size, made.max_tokens), generator) for size in sizes]
    expected = predict_logits(artifact.model, drawn, artifact.tokenizer.pad_id, "fp32")
    if made.labels.kind != "numeric":
        expected = probabilities(expected, made.labels.kind, artifact.run.get("temperature") or 1.0)
    return float(np.abs(made.answer(drawn) - expected).max())


def _of_tags(artifact: Artifact, made: OnnxTagger, sizes: list[int], generator: np.random.Generator) -> float:
    pieces = []
    for size in sizes:  # words of one piece or of two
        ends = np.flatnonzero(generator.random(size - 1) < 0.7) + 1
        pieces.append(WordPieces(_drawn(artifact, size, generator), np.array([0, *ends, size]), 0))
    marks, lengths = artifact.tokenizer.pair_marks, [len(one.bounds) - 1 for one in pieces]
    most = min(WINDOW, made.max_tokens) if made.max_tokens < 1 << 30 else made.max_tokens
    windows, _ = windows_of(pieces, marks, most, made.direction)
    logits = word_logits(artifact.model, windows, lengths, artifact.tokenizer.pad_id, "fp32")
    largest = 0.0
    for (tags, sure), (best, share) in zip(made.decoded(windows, lengths), decoded(artifact.model, logits)):
        same = [made.tags[i] for i in tags] == best
        largest = max(largest, float(np.abs(sure - share).max()) if same else 1.0)
    return largest


def _of_windows(artifact: Artifact, made: OnnxSpanModel, sizes: list[int], generator: np.random.Generator) -> float:
    windows = []
    for size in (min(size, made.max_tokens) for size in sizes):
        ids, second = _drawn(artifact, size, generator), size // 2
        spans, context = np.zeros((size - second, 2), dtype=np.int64), np.ones(size - second, dtype=bool)
        windows.append(Window(0, ids, second, second, 0, spans, context))
    expected = window_logits(artifact.model, windows, artifact.tokenizer.pad_id, "fp32")
    return max(float(np.abs(a - b).max()) for a, b in zip(made.window_logits(windows), expected, strict=True))


def _text(artifact: Artifact, made: OnnxClassifier, size: int, generator: np.random.Generator) -> TokenIds:
    """A text of `size` tokens; or a pair whose texts have as many (fewer, to fit with the marks), or some of these."""

    def pair() -> PairIds:
        ids = _drawn(artifact, size, generator)
        return cut_pair(PairIds(ids[: size // 2], ids[size // 2 :], artifact.tokenizer.pair_marks), made.max_tokens)

    assert made.labels is not None
    if made.labels.kind == "choice":
        return Rows(tuple(pair() for _ in range(generator.integers(2, OPTIONS + 1))))
    reads_pairs = artifact.run.get("reads") == "pairs" or made.both_orders
    return pair() if reads_pairs else _drawn(artifact, size, generator)


def _drawn(artifact: Artifact, size: int, generator: np.random.Generator) -> np.ndarray:
    """As many tokens (T,), or spelled words (T, 50)."""
    ids = generator.integers(0, artifact.tokenizer.vocab_size, size).astype(np.int32)
    if isinstance(artifact.tokenizer, CharacterEncodingTokenizer):
        return artifact.tokenizer.character_ids[ids]
    return ids
