"""Export of a model as ONNX graphs, verified against the original before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.core.lazy import resolve
from textgraft.metrics.agreement import MIN_AGREEMENT
from textgraft.models import loading, model_folder
from textgraft.models.graph import OnnxModel
from textgraft.tasks.export_check import largest_difference
from textgraft.tasks.network_graph import graph_of
from textgraft.tasks.registry import task_of

TOLERANCE = 1e-4
"""Largest accepted difference of probabilities; another order of summation causes far smaller ones."""
MIN_TEXTS = 50
WITHOUT_INT8 = "Export it without int8=True."
CLASSIFIER_EXPORT = "textgraft.tasks.classification.classifier_export:exported_and_compared"


@dataclass(frozen=True, repr=False)
class Export(Brief):
    """Facts on an exported graph.

    Attributes:
        out: Its folder.
        megabytes: Size of the graph; of a linear classifier and an ensemble, of the folder.
        difference: Largest difference from the original's outputs; with int8, on `texts`.
        texts: Number of texts that int8 was evaluated on.
        same: Share of the texts (or words) with the same prediction in int8.
        products: The matrix products in int8.
    """

    out: Path
    megabytes: float
    difference: float
    texts: int = 0
    same: float | None = None
    products: str | None = None


def export(
    model: str | Path,
    out: str | Path,
    *,
    int8: bool = False,
    texts: Sequence[str] = (),
    overwrite: bool = False,
) -> Export:
    """Write a model folder with an ONNX graph, from token ids to outputs, in place of the weights.

    A linear classifier and an ensemble become a folder of the same kind that needs no torch: each network and each
    encoder in it is a graph, and what members share is stored once.

    Args:
        model: Name or folder of a classifier, tagger or QA model.
        out: The new folder.
        int8: Store the weights in int8, and compute as many products in int8 as the predictions allow.
        texts: For int8: unlabelled texts, of which a share of MIN_AGREEMENT must keep their prediction. A linear
            classifier and an ensemble are compared with the original on them too, else on texts of known words.
        overwrite: Replace an existing model folder.

    Raises:
        UserError: The model cannot be exported, or the graph's outputs differ from the original's.
    """
    out = Path(out)
    model_folder.validate_new_path(out, overwrite)
    whole, difference = _exported(model, texts)
    if difference > TOLERANCE:
        message = f"the graph's outputs differ from the model's by up to {difference:.2g}, so it is not written."
        raise UserError(message, where=str(model), remedy="Please report this with the model's config.json.")
    facts = Export(out, 0.0, difference)
    if int8:
        whole, facts = _in_int8(whole, texts, facts, str(model))
    files = whole.files()
    model_folder.write_folder(out, files)
    return replace(facts, megabytes=whole.size(files) / 1e6)


class Exported(Protocol):
    """A model in its exported form."""

    def outputs(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Predictions for texts, and scores, to evaluate int8."""
        ...

    def same(self, before: np.ndarray, after: np.ndarray) -> float:
        """Share of predictions that are the same."""
        ...

    def validate_int8(self) -> None:
        """Raise UserError where int8 is not supported."""
        ...

    def in_int8(self, products: str) -> Exported:
        """The same with weights, and these products, in int8."""
        ...

    def size(self, files: Mapping[str, bytes]) -> int:
        """Bytes of the graph, or of all files."""
        ...

    def files(self) -> dict[str, bytes]: ...


@dataclass(frozen=True)
class ExportedNetwork:
    """A network as a graph."""

    graph: OnnxModel
    name: str

    def outputs(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        path = task_of(self.graph.head_name).graph_outputs
        assert path is not None
        answers: tuple[np.ndarray, np.ndarray] = resolve(path)(self.graph, texts)
        return answers

    def same(self, before: np.ndarray, after: np.ndarray) -> float:
        return _share_of_same(self.graph, before, after)

    def in_int8(self, products: str) -> Exported:
        from textgraft.onnx.int8 import in_int8

        return replace(self, graph=replace(self.graph, graph=in_int8(self.graph.graph, products)))

    def validate_int8(self) -> None:
        """Raise UserError for a task without an evaluation of int8."""
        if task_of(self.graph.head_name).graph_outputs is None:
            raise UserError("int8 is not supported for QA models.", where=self.name, remedy=WITHOUT_INT8)

    def size(self, files: Mapping[str, bytes]) -> int:
        return len(self.graph.graph)

    def files(self) -> dict[str, bytes]:
        return self.graph.files()


def _exported(model: str | Path, texts: Sequence[str]) -> tuple[Exported, float]:
    """The exported form of a model, and the largest difference between its outputs and the original's."""
    if not model_folder.is_checkpoint_name(model):
        kind = loading.kind_of(model_folder.read_config(model_folder.find(model)))
        if kind in ("linear", loading.ENSEMBLE):
            pair: tuple[Exported, float] = resolve(CLASSIFIER_EXPORT)(loading.open_models(model), texts)
            return pair
    artifact = loading.load_network(model)
    graph = graph_of(artifact, str(model))
    return ExportedNetwork(graph, str(model)), largest_difference(artifact, graph)


def _in_int8(whole: Exported, texts: Sequence[str], facts: Export, name: str) -> tuple[Exported, Export]:
    """The model with int8 weights and as many int8 products as the agreement allows, and its evaluation.

    Raises UserError if int8 weights alone change too many predictions.
    """
    if len(texts) < MIN_TEXTS:
        message = f"{len(texts)} texts are too few to evaluate int8 on."
        raise UserError(message, remedy=f"Give {MIN_TEXTS} or more with texts=…; labels are not needed.")
    from textgraft.onnx.int8 import LADDER

    whole.validate_int8()
    before, shares = whole.outputs(texts), []
    for products in LADDER:
        small = whole.in_int8(products)
        after = small.outputs(texts)
        same = whole.same(before[0], after[0])
        shares.append(f"{same:.1%}")
        if same >= MIN_AGREEMENT:
            difference = float(np.abs(before[1] - after[1]).max())
            return small, Export(facts.out, 0.0, difference, texts=len(texts), same=same, products=products)
    message = f"in int8 {', '.join(shares)} of the predictions are the same, below {MIN_AGREEMENT:.0%}: not written."
    raise UserError(message, where=name, remedy=WITHOUT_INT8)


def _share_of_same(model: OnnxModel, before: np.ndarray, after: np.ndarray) -> float:
    """Share of predictions, or of words' tags, that are the same."""
    if model.labels is None:
        return float((before == after).mean())
    return model.labels.target.agreement(before, after)
