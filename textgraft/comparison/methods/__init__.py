"""The methods that `compare` can train from a few labels, a small class each."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from textgraft.comparison.methods.base import MIN_UNLABELLED, Method, MethodOptions, Predictions
from textgraft.comparison.methods.default import Default
from textgraft.comparison.methods.features import Cove, Elmo, Features, Flair
from textgraft.comparison.methods.fine_tuned import Bert, Frozen, Gpt, MeanOf, NoAdapt, Scratch, Ulmfit
from textgraft.comparison.methods.linear import FastText, PretrainedVectors, linear_method
from textgraft.core.errors import UserError, did_you_mean
from textgraft.linear.methods import LINEAR_METHODS
from textgraft.models import model_folder
from textgraft.models.model_folder import models_of

METHODS: dict[str, type[Method]] = {
    **{name: linear_method(name) for name in LINEAR_METHODS},
    "fasttext": FastText,
    "features": Features,
    "scratch": Scratch,
    "frozen": Frozen,
    "no-adapt": NoAdapt,
    "ulmfit": Ulmfit,
    "default": Default,
    "cove": Cove,
    "elmo": Elmo,
    "flair": Flair,
    "bert": Bert,
    "gpt": Gpt,
}
"""Classes by name: fast ones first, then those with a default model of their own."""
MODEL_METHODS: dict[str, type[Method]] = {
    **{name: kind for name, kind in METHODS.items() if issubclass(kind, NoAdapt | Features | Default)},
    "vectors": PretrainedVectors,
}
"""Classes for METHOD@MODEL, for the methods that use a model."""
PRETRAIN_COMMANDS = {"cove": "textgraft cove train train.en train.de --vectors glove.txt --out"}
"""Commands that make a family's models, where it is not `textgraft pretrain` with a recipe of the model's name."""


def method_class(name: str) -> type[Method]:
    """Class of a method named as in METHODS, or METHOD@MODEL where it uses a model.

    Raises:
        UserError: The name is neither.
    """
    method, at, model = name.partition("@")
    if method not in METHODS:
        raise UserError(f"unknown method '{method}'.", remedy=did_you_mean(method, METHODS))
    if at and method not in MODEL_METHODS:
        raise UserError(f"method '{method}' does not use a language model.", where=name, remedy=f"Write '{method}'.")
    if at and not model:
        remedy = f"Write it after the @, as in {method}@th-ulmfit."
        raise UserError("the language model is missing.", where=name, remedy=remedy)
    return MODEL_METHODS[method] if at else METHODS[method]


def model_for(name: str, options: MethodOptions) -> str | Path:
    """Model of a method that uses one, or several models joined by +.

    The order of precedence: the model after the @, the method's own default, the options' model, the default of
    `finetune`.
    """
    kind, named = method_class(name), name.partition("@")[2]
    default = options.default_models.ensemble if issubclass(kind, Default) else options.default_models.alone
    return named or kind.model or options.model or default


def new_method(name: str, options: MethodOptions) -> Method:
    """Make the method of that name; METHOD@MODEL uses that model instead of its default or that of the options.

    With METHOD@MODEL+MODEL, `features` concatenates the vectors of several models; a method that fine-tunes trains each
    model separately and averages the predictions.

    Raises:
        UserError: The method cannot work with this model.
    """
    kind, named = method_class(name), name.partition("@")[2]
    if kind.model and not named:
        _validate_installed(name, models_of(kind.model))
    options = replace(options, model=model_for(name, options))
    method = _instantiate(kind, options, models_of(options.named_model))
    method.name = name
    return method


def _instantiate(kind: type[Method], options: MethodOptions, models: Sequence[str]) -> Method:
    """The method, or the mean of it over several models where it does not combine them itself."""
    if len(models) < 2 or not issubclass(kind, NoAdapt):
        return kind(options)
    return MeanOf(kind, options, models)


def _validate_installed(method: str, models: Sequence[str]) -> None:
    """Raise UserError, with the command that makes it, where a method's default model is not installed."""
    for model in models:
        try:
            model_folder.find(model)
        except UserError as error:
            command = PRETRAIN_COMMANDS.get(method, f"textgraft pretrain TEXTS --recipe {model} --out")
            remedy = f"Train it ({command} {model}), or name another after an @: {method}@FOLDER."
            raise UserError(
                f"its default model '{model}' is not installed.", where=f"method '{method}'", remedy=remedy
            ) from error


__all__ = [
    "METHODS",
    "MIN_UNLABELLED",
    "MODEL_METHODS",
    "Method",
    "MethodOptions",
    "Predictions",
    "method_class",
    "model_for",
    "new_method",
]
