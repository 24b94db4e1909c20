"""Weights of another library by its names: validated against a model, copied into it, and taken out of it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from textgraft.core.errors import UserError
from textgraft.data.examples import TargetKind
from textgraft.heads.base import Head
from textgraft.heads.classification import ClassificationHead
from textgraft.models.model import Model

Part = tuple[str, int]
"""A weight of the library and its number of rows; 0: all rows of the parameter."""
Parts = dict[str, tuple[Part, ...]]
"""For each of our parameters, the library's weights that are concatenated to its rows."""
MAX_NAMES = 12
SENTENCE_ENCODER = (
    'A linear classifier on pooled vectors can be written with to="sentence-transformers": the encoder, and the layer '
    "for scikit-learn."
)
PROBLEMS: dict[str, TargetKind] = {
    "single_label_classification": "single",
    "multi_label_classification": "multi",
    "regression": "numeric",
}
"""Kinds of targets by `problem_type` of the transformers library."""


@contextmanager
def required_settings() -> Iterator[None]:
    """Raise UserError for a setting that config.json lacks, where the block looks one up."""
    try:
        yield
    except KeyError as error:
        raise UserError(f"the setting {error} is missing.", where="config.json") from error


def fill(model: Model, parts: Parts, weights: Mapping[str, Tensor]) -> None:
    """Copy `weights` into a model's parameters, in the parameters' dtype.

    Raises:
        UserError: A weight is missing, left over, or of another shape.
    """
    parameters = dict(model.named_parameters())
    assert parameters.keys() == parts.keys(), parameters.keys() ^ parts.keys()
    expected = {name: shape for ours, shapes in _shapes(parameters, parts).items() for name, shape in shapes}
    errors = [f"missing: {name}" for name in expected.keys() - weights.keys()]
    errors += [f"left over: {name}" for name in weights.keys() - expected.keys()]
    errors += [
        f"{name} is {tuple(weights[name].shape)}, not {shape}"
        for name, shape in expected.items()
        if name in weights and tuple(weights[name].shape) != shape
    ]
    if errors:
        raise UserError(
            f"the weights do not fit config.json ({_listed(sorted(errors))}).",
            remedy="Check that both are of the same model, and that the download is complete.",
        )
    with torch.no_grad():
        for ours, shapes in _shapes(parameters, parts).items():
            start = 0
            for name, shape in shapes:
                parameters[ours][start : start + shape[0]].copy_(weights[name])
                start += shape[0]


def validate_finite(model: Model, where: str) -> None:
    """Raise UserError where a weight is NaN or infinite: every vector and probability would be too."""
    wrong = [name for name, values in model.named_parameters() if not _is_finite(values.detach())]
    if wrong:
        message = f"weights that are not finite numbers are in this model ({_listed(wrong)})."
        remedy = "Its training diverged, or the file is damaged: fetch it again, or take an earlier checkpoint."
        raise UserError(message, where=where, remedy=remedy)


def _is_finite(values: Tensor) -> bool:
    # The sum takes a tenth of the time of isfinite, and may overflow.
    return bool(values.sum(dtype=torch.float32).isfinite() or values.isfinite().all())


def taken(model: Model, parts: Parts) -> dict[str, Tensor]:
    """Copies of a model's parameters by the library's names."""
    parameters = dict(model.named_parameters())
    weights: dict[str, Tensor] = {}
    for ours, shapes in _shapes(parameters, parts).items():
        rows = parameters[ours].detach().split([shape[0] for _, shape in shapes])
        weights |= {name: part.clone() for (name, _), part in zip(shapes, rows, strict=True)}
    return weights


def _shapes(parameters: Mapping[str, nn.Parameter], parts: Parts) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
    """The library's names for each parameter, and the shape that each must have."""
    shapes = {}
    for ours, named in parts.items():
        rows, *rest = parameters[ours].shape
        shapes[ours] = [(name, (count or rows, *rest)) for name, count in named]
    return shapes


def validate_settings(config: Mapping[str, Any], required: Mapping[str, Any]) -> None:
    """Raise UserError where a setting of config.json has another value than the one that is implemented."""
    for name, value in required.items():
        if config.get(name, value) != value:
            message = f"{name} is {config[name]!r}, and only {value!r} is implemented."
            raise UserError(message, where="config.json", remedy="Take a model without this setting.")


def task_of(config: Mapping[str, Any], prefix: str, tasks: Iterable[str]) -> str:
    """Suffix of the class that wrote the folder, as in ForMaskedLM; empty where config.json does not say.

    Raises:
        UserError: It is a class whose head is not supported.
    """
    known = {f"{prefix}{task}": task for task in tasks}
    names = [str(name) for name in config.get("architectures") or []]
    for name in names:
        if name not in known:
            message = f"architecture {name} is none of: {', '.join(sorted(known))}."
            raise UserError(message, where="config.json", remedy="Take one of these, or the model without a head.")
    return known[names[0]] if names else ""


def target_kind(config: Mapping[str, Any], outputs: int) -> TargetKind:
    """Kind of a classifier's target. Raises UserError for an unknown `problem_type`."""
    problem = config.get("problem_type") or ("regression" if outputs == 1 else "single_label_classification")
    if problem not in PROBLEMS or (problem == "regression" and outputs > 1):
        raise UserError(f"problem_type '{problem}' with {outputs} outputs is not known.", where="config.json")
    return PROBLEMS[problem]


def label_names(config: Mapping[str, Any], count: int) -> list[str]:
    """Names of the outputs; LABEL_0 and so on where config.json has none."""
    names = config.get("id2label") or {}
    return [str(names.get(str(i), names.get(i, f"LABEL_{i}"))) for i in range(count)]


def named_labels(labels: Iterable[str]) -> dict[str, Any]:
    """Entries of config.json for the outputs' names."""
    names = list(labels)
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


def classifier_fields(head: ClassificationHead) -> dict[str, Any]:
    """Entries of config.json for a classifier, its labels as LABEL_0 and so on."""
    problem = next(name for name, kind in PROBLEMS.items() if kind == head.config.kind)
    return {"problem_type": problem, **named_labels(f"LABEL_{i}" for i in range(head.config.outputs))}


def is_one_layer(head: object, pooling: str, *, bias: bool) -> bool:
    """True for a classifier that is one linear layer on this pooling of a text."""
    if not isinstance(head, ClassificationHead):
        return False
    config = head.config
    shape = (config.pooling, config.hidden_dim, config.batch_norm, config.words_dim, config.both_orders, config.bias)
    return shape == (pooling, 0, False, 0, False, bias) and not config.dense and not config.normalize


def no_such_head(classes: str, head: Head, remedy: str) -> UserError:
    """The error that the transformers library has no class for a head: what the head is, and what can be written.

    Args:
        classes: The library's name for models of the family.
        head: The head.
        remedy: The heads that the library has.
    """
    if not isinstance(head, ClassificationHead):
        return UserError(f"the transformers library has no {classes} with such a head.", remedy=remedy)
    config = head.config
    parts = {
        f"on pooling '{config.pooling}'": True,
        "with dense layers": bool(config.dense),
        "scaled to length 1": config.normalize,
        "with the embedding layer": bool(config.words_dim),
        "with batch normalisation": config.batch_norm,
        f"with a hidden layer of {config.hidden_dim}": bool(config.hidden_dim),
        "on pairs in both orders": config.both_orders,
        "without a bias": not config.bias,
    }
    described = ", ".join(part for part, there in parts.items() if there)
    message = f"the transformers library has no {classes} with such a head: this classifier is {described}."
    return UserError(message, remedy=f"{remedy} {SENTENCE_ENCODER}")


def _listed(errors: list[str]) -> str:
    more = f"; and {len(errors) - MAX_NAMES} more" if len(errors) > MAX_NAMES else ""
    return "; ".join(errors[:MAX_NAMES]) + more
