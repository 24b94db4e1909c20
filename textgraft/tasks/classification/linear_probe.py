"""A linear probe: logistic regression on a frozen model's vectors (models.text_vectors), as a candidate of `finetune`.

With few labels a linear layer on the frozen features may be better than fine-tuning, whose first steps under a random
head distort the pretrained layers (Kumar et al. 2022, arXiv:2202.10054). The texts are encoded once. The fitted layer,
with the scaling folded into it, becomes the head of an ordinary classifier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from textgraft.core.resource_meter import Meter
from textgraft.data.examples import TargetKind
from textgraft.data.labels import Labels
from textgraft.linear.linear_layer import Linear, Output, fit_output
from textgraft.linear.scaling import Scale
from textgraft.metrics.calibration import fit_temperature, outputs_from_logits
from textgraft.models.artifact import Artifact
from textgraft.models.model import graft
from textgraft.models.sentence_embedding import SentenceEmbedding
from textgraft.tasks.classification.evaluation import Outcome
from textgraft.tasks.classification.linear_candidates import Candidate
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.shared_encoder import FROZEN
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint
from textgraft.training.provenance import ancestry

ABSENT_LOGIT = -30.0
"""The logit of a class that no training text had."""
Cached = tuple[dict[str, NDArray], dict[str, Any]]
"""Arrays by name, and facts about their computation."""
FitLayer = Callable[[Sequence[int]], tuple[NDArray[np.float64], str]]
"""From indices of training texts to a layer (outputs, D + 1) fitted to these, and a description."""


def linear_probe_name(language_model: str) -> str:
    """The name of the linear probe of a language model, as a candidate; its method is "linear-probe"."""
    return f"{language_model}-probe"


def linear_probe_candidate(
    name: str, source: Artifact, selection: SelectionContext, vectors: Callable[[str], NDArray[np.float32]]
) -> Candidate:
    """The linear probe of a language model as a candidate: layer_candidate with fit_probe."""

    def fit(indices: Sequence[int]) -> tuple[NDArray[np.float64], str]:
        return fit_probe(vectors("train")[indices], selection.targets[indices], selection.labels, selection.seed)

    return layer_candidate(name, source, selection, vectors, fit)


def layer_candidate(
    name: str,
    source: Artifact,
    selection: SelectionContext,
    vectors: Callable[[str], NDArray[np.float32]],
    fit: FitLayer,
) -> Candidate:
    """A linear layer on a frozen language model as a candidate, cached in the run's folder.

    Args:
        name: Name of the candidate.
        source: The language model.
        selection: The data, the folds and the run.
        vectors: Function from the name of a part of the data, "train" or that which is measured on, to the model's
            vectors (N, D) of its texts. Others than the training texts are asked for when they are predicted.
        fit: Fits the layer to some of the training texts.
    """
    part = selection.evaluation_split
    folder, labels, kind = selection.run.work / "candidates", selection.labels, selection.labels.kind
    arrays, facts = _load_or_compute(folder / f"{name}.safetensors", lambda: _fit(vectors, selection, fit))
    layer, held_out = arrays["layer"], arrays["held_out"]
    targets, indices = selection.targets, selection.held_out
    temperature = fit_temperature(held_out[indices], targets[indices], kind)

    def predictions() -> Cached:
        return {"logits": answers(layer, vectors(part))}, {}

    def evaluate() -> Outcome:
        path = folder / f"{name}-{part}.safetensors"
        logits = held_out if part == "folds" else _load_or_compute(path, predictions)[0]["logits"]
        outputs, raw = _outputs(logits, kind, temperature)[None], _outputs(logits, kind, 1.0)[None]
        return Outcome(name, outputs, raw, facts["seconds"] / 60, facts["peak_mb"], facts["about"])

    unseen = _outputs(held_out, kind, temperature)
    about = {"base": ancestry(source.run), "temperature": None if labels.num_classes is None else temperature}
    predictor = partial(probe_artifact, source, layer, labels, about)
    slow = part != "folds"
    return Candidate(name, unseen, evaluate, facts["seconds"], facts["peak_mb"], predictor, slow)


def _load_or_compute(path: Path, make: Callable[[], Cached]) -> Cached:
    """Arrays and facts from the file at `path`, which is written first if it does not exist."""
    if not path.exists():
        arrays, facts = make()
        tensors = {key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in arrays.items()}
        save_checkpoint(path, tensors, facts)
    tensors, facts = load_checkpoint(path)
    return {key: tensor.numpy() for key, tensor in tensors.items()}, facts


def _fit(vectors: Callable[[str], NDArray[np.float32]], selection: SelectionContext, fit: FitLayer) -> Cached:
    """Fit the layer, and predict the texts that each fold holds out by layers fitted on the other folds."""
    texts, labels = len(selection.train), selection.labels
    with Meter() as meter:
        rows = vectors("train")
        layer, about = fit(range(texts))
        held_out = np.full((texts, labels.num_outputs), np.nan)
        for kept, indices in selection.splits:
            held_out[indices] = answers(fit(kept)[0], rows[indices])
    facts = {"about": about, "seconds": meter.seconds, "peak_mb": meter.peak_mb}
    return {"layer": layer, "held_out": held_out}, facts


def _outputs(logits: NDArray, kind: TargetKind, temperature: float) -> NDArray:
    with np.errstate(invalid="ignore"):  # a text that no fold holds out has NaN for an answer
        return outputs_from_logits(logits, kind, temperature)


def fit_probe(rows: NDArray, targets: NDArray, labels: Labels, seed: int) -> tuple[NDArray[np.float64], str]:
    """Fit a linear layer on features.

    Args:
        rows: (N, D) features.
        targets: Targets of the N texts.
        labels: The labels.
        seed: Random seed.

    Returns:
        Weights (outputs, D + 1), the last column the bias, and a description.
    """
    scale = Scale.of(rows)
    output = fit_output(scale(rows), targets, labels.kind, labels.num_outputs, seed)
    layer = as_layer(output, labels.kind, labels.num_outputs, rows.shape[1])
    layer[:, :-1] *= scale.factors
    layer[:, -1] -= layer[:, :-1] @ scale.mean
    return layer, f"Vectors of the frozen model -> {output.about}"


def answers(layer: NDArray, rows: NDArray) -> NDArray[np.float64]:
    """(N, outputs) logits."""
    logits: NDArray[np.float64] = rows @ layer[:, :-1].T + layer[:, -1]
    return logits


def as_layer(output: Output, kind: TargetKind, outputs: int, width: int) -> NDArray[np.float64]:
    """The fitted classifiers as one layer (outputs, width + 1) with the same softmax (several labels: sigmoids).

    A binary classifier has one row of coefficients: the other class has zeros.
    """
    return LAYERS[kind](output, outputs, width)


def _softmax_layer(output: Output, outputs: int, width: int) -> NDArray[np.float64]:
    return _logit_layer(output.layers[0], outputs, width)


def _sigmoid_layer(output: Output, outputs: int, width: int) -> NDArray[np.float64]:
    both = [_logit_layer(linear, 2, width) for linear in output.layers]
    return np.stack([present - absent for absent, present in both])


def _value_layer(output: Output, outputs: int, width: int) -> NDArray[np.float64]:
    return np.append(output.layers[0].coefficients[0], output.layers[0].intercepts[0])[None].astype(np.float64)


LAYERS: Mapping[TargetKind, Callable[[Output, int, int], NDArray[np.float64]]] = {
    "single": _softmax_layer,
    "multi": _sigmoid_layer,
    "numeric": _value_layer,
}


def _logit_layer(linear: Linear, classes: int, width: int) -> NDArray[np.float64]:
    """Rows (classes, width + 1) of a classifier; classes without training texts have ABSENT_LOGIT."""
    layer = np.zeros((classes, width + 1))
    layer[:, -1] = ABSENT_LOGIT
    _put(layer, linear, linear.classes.tolist())
    return layer


def _put(layer: NDArray, linear: Linear, classes: list[int]) -> None:
    """Write the rows of the classes of `linear`."""
    layer[classes] = 0.0
    of = classes[1:] if len(classes) == 2 else classes if len(classes) > 2 else []
    if of:
        layer[of] = np.column_stack([linear.coefficients, linear.intercepts])


def probe_artifact(
    source: Artifact, layer: NDArray, labels: Labels, about: Mapping[str, Any], run: Mapping[str, Any]
) -> Artifact:
    """The classifier that is saved: the encoder as it was, under its embedding's layers and the fitted one."""
    embedding = source.embedding or SentenceEmbedding()
    head = {
        "name": "classification",
        "input_dim": source.model.encoder.output_dim,
        "outputs": labels.num_outputs,
        "kind": labels.kind,
        "direction": source.model.encoder.direction,
        "pooling": embedding.pooling,
        "dense": embedding.shapes,
        "normalize": embedding.normalize,
        "hidden_dim": 0,
        "batch_norm": False,
        "input_dropout": 0.0,
        "hidden_dropout": 0.0,
    }
    description = source.model.describe() | {"head": head}
    if "pooler" in description["encoder"]:  # not used by these poolings
        description["encoder"]["pooler"] = False
    model = graft(source.model.encoder, description, 0).eval()
    head_layers: Any = model.head
    last = head_layers.layers[-1]
    with torch.no_grad():
        for layer_of_head, given in zip(head_layers.dense, embedding.dense, strict=True):
            layer_of_head.load_state_dict(given.state_dict())
        last.weight.copy_(torch.from_numpy(layer[:, :-1]))
        last.bias.copy_(torch.from_numpy(layer[:, -1]))
    more: dict[str, Any] = {"embedding": source.embedding, "text_form": source.text_form}
    return Artifact(model, source.tokenizer, labels, {**run, **about, FROZEN: True}, **more)
