"""A fine-tuned classifier as an ONNX graph, which is checked against the original before it is written."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from textgraft import model_folder
from textgraft.artifact import Artifact
from textgraft.data.examples import TargetKind
from textgraft.data.sequences import PairIds, TokenIds, cut_pair
from textgraft.ensemble import load_one
from textgraft.errors import UserError
from textgraft.heads.classification import ClassificationHead
from textgraft.inference import predict_logits
from textgraft.onnx.model import OUTPUT, OnnxModel
from textgraft.training.calibration import probabilities

LENGTHS, ROWS = (1, 7, 64), (1, 5)
"""The texts of drawn tokens that every graph is checked on: of each length, so many in a batch, with shorter ones."""
TOLERANCE = 1e-4
"""Probabilities may differ by so much; sums in another order do, by far less."""
AGREEMENT = 0.99
"""Of int8's labels, and those of the original."""
LEAST_TEXTS = 50


@dataclass(frozen=True)
class Export:
    """Where the graph is, how large, and the largest difference from the original's answers.

    With int8 that is one on `texts` texts, of which the share `same` kept their answer.
    """

    out: Path
    megabytes: float
    difference: float
    texts: int = 0
    same: float | None = None


def export(
    model: str | Path,
    out: str | Path,
    *,
    int8: bool = False,
    texts: Sequence[str] = (),
    overwrite: bool = False,
) -> Export:
    """Write a classifier's folder with a graph from token ids to answers in the place of its weights.

    `int8` stores weights as whole numbers, and asks for `texts` on which at least AGREEMENT of the labels must stay.
    Raises UserError for a model that cannot be a graph, and for a graph whose answers differ from the original's.
    """
    out = Path(out)
    model_folder.refuse_existing(out, overwrite)
    artifact = load_one(model)
    made = graph_of(artifact, str(model))
    difference = largest_difference(artifact, made)
    if difference > TOLERANCE:
        message = f"the graph's answers differ from the model's by up to {difference:.2g}, so it is not written."
        raise UserError(message, where=str(model), remedy="Please report this with the model's config.json.")
    found = Export(out, len(made.graph) / 1e6, difference)
    if int8:
        made, found = _in_int8(made, texts, found, str(model))
    model_folder.write_folder(out, made.files())
    return found


def _in_int8(whole: OnnxModel, texts: Sequence[str], found: Export, name: str) -> tuple[OnnxModel, Export]:
    """The graph with int8 weights, and what these do to the answers. Raises UserError where that is too much."""
    if len(texts) < LEAST_TEXTS:
        message = f"{len(texts)} texts are too few to see what int8 does to the answers."
        raise UserError(message, remedy=f"Name {LEAST_TEXTS} or more with --texts; they need no labels.")
    made = replace(whole, graph=quantized(whole.graph))
    before, after = whole.outputs(texts), made.outputs(texts)
    stay = agreement(whole.labels.kind, before, after)
    if stay < AGREEMENT:
        message = f"with int8 {stay:.1%} of the answers stay, where {AGREEMENT:.0%} should: it is not written."
        raise UserError(message, where=name, remedy="Export it without --int8.")
    difference = float(np.abs(before - after).max())
    return made, replace(found, megabytes=len(made.graph) / 1e6, difference=difference, texts=len(texts), same=stay)


def agreement(kind: TargetKind, before: np.ndarray, after: np.ndarray) -> float:
    """The share of texts (N, C) that keep their label, or all of many labels; of numbers (N,) their correlation."""
    if kind == "numeric":
        return float(np.corrcoef(before, after)[0, 1])
    if kind == "multi":
        return float(((before >= 0.5) == (after >= 0.5)).all(axis=1).mean())
    return float((before.argmax(1) == after.argmax(1)).mean())


def graph_of(artifact: Artifact, name: str = "") -> OnnxModel:
    """The classifier as a graph in float32. Raises UserError for one of which there is none."""
    _refuse(artifact, name)
    try:
        from textgraft.onnx.encoders import ENCODERS
        from textgraft.onnx.graph import Graph
        from textgraft.onnx.heads import answers, classification
    except ImportError as error:
        raise UserError("exporting needs onnx.", remedy='Install it by: pip install "textgraft[onnx]"') from error
    encoder, head, labels = artifact.model.encoder, artifact.model.head, artifact.labels
    if type(encoder) not in ENCODERS:
        known = ", ".join(sorted(family.__name__ for family in ENCODERS))
        message = f"there is no graph of the family {type(encoder).__name__}."
        raise UserError(message, where=name, remedy=f"These have one: {known}.")
    assert isinstance(head, ClassificationHead)
    assert labels is not None
    segments = "segments" if getattr(encoder, "segments", None) is not None else None
    graph = Graph({"ids": "int64", "mask": "bool"} | ({"segments": "int64"} if segments else {}))
    logits = classification(
        graph, artifact.model, ENCODERS[type(encoder)](graph, encoder, "ids", "mask", segments), "mask"
    )
    said = answers(graph, logits, labels.kind, artifact.run.get("temperature") or 1.0)
    made = graph.model(said, OUTPUT, ["batch", head.config.outputs])
    most = min(artifact.run["max_tokens"], encoder.max_length or artifact.run["max_tokens"])
    both = head.config.both_orders
    return OnnxModel(made.SerializeToString(), artifact.tokenizer, labels, most, artifact.run, both_orders=both)


def _refuse(artifact: Artifact, name: str) -> None:
    """Raises UserError for what is no classifier of texts or pairs."""
    head = artifact.model.head
    if artifact.labels is None or not isinstance(head, ClassificationHead):
        message = "only classifiers of texts or pairs can be exported, and this is none."
        raise UserError(message, where=name, remedy="Fine-tune one first (textgraft finetune).")


def largest_difference(artifact: Artifact, made: OnnxModel) -> float:
    """Between the answers of the graph and of the model, over drawn texts of LENGTHS in batches of ROWS."""
    assert artifact.labels is not None
    generator = np.random.default_rng(0)
    largest = 0.0
    for length in dict.fromkeys(min(n, made.max_tokens) for n in LENGTHS):
        for rows in ROWS:
            sizes = [length, *generator.integers(1, length + 1, rows - 1)]
            drawn = [_drawn(artifact, made, int(size), generator) for size in sizes]
            logits = predict_logits(artifact.model, drawn, artifact.tokenizer.pad_id, "fp32")
            expected = logits
            if artifact.labels.kind != "numeric":
                expected = probabilities(logits, artifact.labels.kind, artifact.run.get("temperature") or 1.0)
            largest = max(largest, float(np.abs(made.answer(drawn) - expected).max()))
    return largest


def _drawn(artifact: Artifact, made: OnnxModel, size: int, generator: np.random.Generator) -> TokenIds:
    """A text of `size` tokens, or a pair whose texts have as many together (or fewer, to fit with the marks)."""
    ids = generator.integers(0, artifact.tokenizer.vocab_size, size).astype(np.int32)
    if artifact.run.get("reads") != "pairs" and not made.both_orders:
        return ids
    return cut_pair(PairIds(ids[: size // 2], ids[size // 2 :], artifact.tokenizer.pair_marks), made.max_tokens)


def quantized(graph: bytes) -> bytes:
    """The graph with weights of matrix products, LSTMs and tables as int8; what goes in is quantised as it comes.

    Of the eight bits seven are used: processors without VNNI add two products in sixteen bits, which eight would
    overflow.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder, _quiet():
        whole, small = Path(folder) / "whole.onnx", Path(folder) / "small.onnx"
        whole.write_bytes(graph)
        quantize_dynamic(whole, small, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
        return small.read_bytes()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the advice that onnxruntime gives to the root logger."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
