"""A linear probe: logistic regression on a frozen language model's mean vectors, as a candidate of `finetune`.

With few labels a linear layer on what the model says already may answer better than the model fine-tuned, whose layers
the first steps under a random head spoil (Kumar et al. 2022, arXiv:2202.10054). It takes one reading of the texts. The
fitted layer, scales and all, becomes the head of an ordinary classifier.
"""

from __future__ import annotations

import time
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
from textgraft.data.sequences import TokenIds
from textgraft.linear.linear_layer import Linear, Output, fit_output
from textgraft.linear.scaling import Scale
from textgraft.metrics.calibration import fit_temperature
from textgraft.models.artifact import Artifact
from textgraft.models.inference import ProgressCallback, embed_sequences, no_progress
from textgraft.models.model import graft
from textgraft.tasks.classification.evaluation import Outcome
from textgraft.tasks.classification.fine_tuned import EarlyRejected, Reading, too_long
from textgraft.tasks.classification.linear_candidates import Candidate
from textgraft.tasks.classification.selection_context import SelectionContext
from textgraft.tasks.classification.training import EncodedTexts, outputs_from_logits
from textgraft.training.checkpoint import load_checkpoint, save_checkpoint
from textgraft.training.driver import TooSlow, projected
from textgraft.training.provenance import ancestry

POOLING = "mean"
NEVER = -30.0
"""The logit of a class that no training text had."""
Made = tuple[dict[str, NDArray], dict[str, Any]]
"""Arrays by name, and facts of how they came to be."""


def linear_probe_name(language_model: str) -> str:
    """The name of the linear probe of a language model, as a candidate."""
    return f"{language_model}-probe"


def linear_probe_candidate(
    name: str, reading: Reading, selection: SelectionContext, *, max_seconds: float | None = None
) -> Candidate:
    """The linear probe of a language model as a candidate, kept in the run's folder once it is fitted.

    Args:
        name: Name of the candidate.
        reading: The language model and the encoded parts of the data. Other parts than the training texts are encoded
            when their predictions are needed.
        selection: The data, the folds and the run.
        within: Seconds that encoding the training texts may take.

    Raises:
        EarlyRejected: It would take more than `max_seconds` seconds.
    """
    source, part = reading.source, selection.evaluation_split
    folder, labels, kind = selection.run.work / "candidates", selection.labels, selection.labels.kind
    precision = selection.run.precision or "auto"
    arrays, facts = _kept_or_made(
        folder / f"{name}.safetensors", lambda: _fit(source, reading.parts["train"], selection, max_seconds)
    )
    layer, held_out = arrays["layer"], arrays["held_out"]
    targets, indices = selection.targets, selection.held_out
    temperature = 1.0 if kind == "numeric" else fit_temperature(held_out[indices], targets[indices], kind)

    def predictions() -> Made:
        return {"logits": answers(layer, _means(source, reading.parts[part], precision))}, {}

    def evaluate() -> Outcome:
        path = folder / f"{name}-{part}.safetensors"
        logits = held_out if part == "folds" else _kept_or_made(path, predictions)[0]["logits"]
        outputs, raw = _outputs(logits, kind, temperature)[None], _outputs(logits, kind, 1.0)[None]
        return Outcome(name, outputs, raw, facts["seconds"] / 60, facts["peak_mb"], facts["about"])

    unseen = _outputs(held_out, kind, temperature)
    about = {"base": ancestry(source.run), "temperature": None if kind == "numeric" else temperature}
    predictor = partial(_artifact, source, layer, labels, about)
    slow = part != "folds"
    return Candidate(name, unseen, evaluate, facts["seconds"], facts["peak_mb"], predictor, slow)


def _kept_or_made(path: Path, make: Callable[[], Made]) -> Made:
    """Arrays and facts as they lie at `path`, where they are put first if they are not there."""
    if not path.exists():
        arrays, facts = make()
        tensors = {key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in arrays.items()}
        save_checkpoint(path, tensors, facts)
    tensors, facts = load_checkpoint(path)
    return {key: tensor.numpy() for key, tensor in tensors.items()}, facts


def _fit(source: Artifact, train: EncodedTexts, selection: SelectionContext, max_seconds: float | None) -> Made:
    """The layer, and the logits of layers fitted on the other folds for what each fold holds out."""
    labels, targets = selection.labels, selection.targets
    on_progress = no_progress if max_seconds is None else _hurried(train.sequences, max_seconds)
    try:
        with Meter() as meter:
            rows = _means(source, train, selection.run.precision or "auto", on_progress)
            layer, about = fitted(rows, targets, labels, selection.seed)
            held_out = np.full((len(targets), labels.num_outputs), np.nan)
            for kept, indices in selection.splits:
                of_fold, _ = fitted(rows[kept], targets[kept], labels, selection.seed)
                held_out[indices] = answers(of_fold, rows[indices])
    except TooSlow as slow:
        assert max_seconds is not None
        raise EarlyRejected(too_long("reading", slow.seconds, max_seconds), slow.spent, meter.peak_mb) from None
    facts = {"about": about, "seconds": meter.seconds, "peak_mb": meter.peak_mb}
    return {"layer": layer, "held_out": held_out}, facts


def _hurried(sequences: Sequence[TokenIds], max_seconds: float) -> ProgressCallback:
    """A callback that counts encoded texts, the longest first, and raises TooSlow as training.driver.drive does."""
    tokens = np.cumsum(sorted((len(ids) for ids in sequences), reverse=True))
    began = time.monotonic()

    def on_progress(count: int) -> None:
        spent = time.monotonic() - began
        whole = projected(spent, tokens[count - 1] / tokens[-1])
        if whole > max_seconds:
            raise TooSlow(whole, spent)

    return on_progress


def _outputs(logits: NDArray, kind: TargetKind, temperature: float) -> NDArray:
    with np.errstate(invalid="ignore"):  # a text that no fold holds out has NaN for an answer
        return outputs_from_logits(logits, kind, temperature)


def _means(
    source: Artifact, part: EncodedTexts, precision: str, on_progress: ProgressCallback = no_progress
) -> NDArray[np.float32]:
    pad_id = source.tokenizer.pad_id
    return part.once(
        "probe",
        lambda: embed_sequences(source.model, part.sequences, pad_id, POOLING, precision, on_progress=on_progress),
    )


def fitted(rows: NDArray, targets: NDArray, labels: Labels, seed: int) -> tuple[NDArray[np.float64], str]:
    """The layer (outputs, D + 1) that gives logits of rows (N, D), the last column what is added; and what it is."""
    scale = Scale.of(rows)
    output = fit_output(scale(rows), targets, labels.kind, labels.num_outputs, seed)
    layer = as_layer(output, labels.kind, labels.num_outputs, rows.shape[1])
    layer[:, :-1] *= scale.factors
    layer[:, -1] -= layer[:, :-1] @ scale.mean
    return layer, f"Means of the last layer -> {output.about}"


def answers(layer: NDArray, rows: NDArray) -> NDArray[np.float64]:
    """(N, outputs) logits."""
    logits: NDArray[np.float64] = rows @ layer[:, :-1].T + layer[:, -1]
    return logits


def as_layer(output: Output, kind: TargetKind, outputs: int, width: int) -> NDArray[np.float64]:
    """The fitted classifiers as one layer (outputs, width + 1) with the same softmax (several labels: sigmoids).

    Two classes were told apart by one row: the other's is zero.
    """
    layer = np.zeros((outputs, width + 1))
    if kind == "single":
        layer[:, -1] = NEVER
        _put(layer, output.layers[0], output.layers[0].classes.tolist())
    elif kind == "multi":
        for row, linear in zip(layer, output.layers, strict=True):
            both = np.zeros((2, width + 1))
            both[:, -1] = NEVER
            _put(both, linear, linear.classes.tolist())
            row[:] = both[1] - both[0]
    else:
        layer[0] = np.append(output.layers[0].coefficients[0], output.layers[0].intercepts[0])
    return layer


def _put(layer: NDArray, linear: Linear, classes: list[int]) -> None:
    """The rows of the classes that `linear` knows."""
    layer[classes] = 0.0
    of = classes[1:] if len(classes) == 2 else classes if len(classes) > 2 else []
    if of:
        layer[of] = np.column_stack([linear.coefficients, linear.intercepts])


def _artifact(
    source: Artifact, layer: NDArray, labels: Labels, about: Mapping[str, Any], run: Mapping[str, Any]
) -> Artifact:
    """The classifier that is saved: the encoder as it was, under the fitted layer."""
    head = {
        "name": "classification",
        "input_dim": source.model.encoder.output_dim,
        "outputs": labels.num_outputs,
        "kind": labels.kind,
        "direction": source.model.encoder.direction,
        "pooling": POOLING,
        "hidden_dim": 0,
        "batch_norm": False,
        "input_dropout": 0.0,
        "hidden_dropout": 0.0,
    }
    description = source.model.describe() | {"head": head}
    if "pooler" in description["encoder"]:  # which the mean does not pass through
        description["encoder"]["pooler"] = False
    model = graft(source.model.encoder, description, 0).eval()
    last: Any = model.head.layers[-1]  # type: ignore[index]
    with torch.no_grad():
        last.weight.copy_(torch.from_numpy(layer[:, :-1]))
        last.bias.copy_(torch.from_numpy(layer[:, -1]))
    return Artifact(model, source.tokenizer, labels, {**run, **about})
