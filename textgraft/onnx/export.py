"""A fine-tuned network as an ONNX graph, which is checked against the original before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from textgraft import model_folder
from textgraft.artifact import Artifact
from textgraft.ensemble import load_one
from textgraft.errors import UserError
from textgraft.onnx.check import largest_difference
from textgraft.onnx.classifier import OnnxClassifier
from textgraft.onnx.int8 import AGREEMENT, LEAST_TEXTS, agreement, quantized
from textgraft.onnx.model import OnnxModel

TOLERANCE = 1e-4
"""Probabilities may differ by so much; sums in another order do, by far less."""


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
    """Write a model's folder with a graph from token ids to answers in the place of its weights.

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
    if not isinstance(whole, OnnxClassifier):
        raise UserError("only classifiers are made int8 so far.", where=name, remedy="Export it without --int8.")
    assert whole.labels is not None
    made = replace(whole, graph=quantized(whole.graph))
    before, after = whole.outputs(texts), made.outputs(texts)
    stay = agreement(whole.labels.kind, before, after)
    if stay < AGREEMENT:
        message = f"with int8 {stay:.1%} of the answers stay, where {AGREEMENT:.0%} should: it is not written."
        raise UserError(message, where=name, remedy="Export it without --int8.")
    difference = float(np.abs(before - after).max())
    return made, replace(found, megabytes=len(made.graph) / 1e6, difference=difference, texts=len(texts), same=stay)


def graph_of(artifact: Artifact, name: str = "") -> OnnxModel:
    """The network as a graph in float32. Raises UserError for one of which there is none."""
    try:
        from textgraft.onnx.build import built
    except ModuleNotFoundError as error:
        raise UserError("exporting needs onnx.", remedy='Install it by: pip install "textgraft[onnx]"') from error
    return built(artifact, name)
