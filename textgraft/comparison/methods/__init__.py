"""Ways to a classifier from a few labels, each as one small class that `compare` can put beside the others."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from textgraft.comparison.methods.base import MIN_UNLABELLED, Method, MethodOptions, Predictions
from textgraft.comparison.methods.default import Default
from textgraft.comparison.methods.features import Cove, Elmo, Features, Flair
from textgraft.comparison.methods.fine_tuned import Bert, Frozen, Gpt, MeanOf, NoAdapt, Scratch, Ulmfit
from textgraft.comparison.methods.linear import CoTraining, FastText, GivenVectors, Linear, Lsa, Vectors
from textgraft.core.errors import UserError, did_you_mean
from textgraft.models import model_folder
from textgraft.models.model_folder import models_of

METHODS: dict[str, type[Method]] = {
    "linear": Linear,
    "lsa": Lsa,
    "vectors": Vectors,
    "co-training": CoTraining,
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
"""By name, the quick ones first, and last those with models of their own."""
MODEL_METHODS: dict[str, type[Method]] = {
    **{name: kind for name, kind in METHODS.items() if issubclass(kind, NoAdapt | Features | Default)},
    "vectors": GivenVectors,
}
"""What METHOD@MODEL is, for the methods that read a model."""
MADE_BY = {"cove": "textgraft cove train train.en train.de --vectors glove.txt --out"}
"""How the models of a family are made where that is not `textgraft pretrain` by a recipe of the model's name."""


def method_class(name: str) -> type[Method]:
    """The class of a method that is named as in METHODS, or METHOD@MODEL where it reads a model.

    Raises UserError for a name that is neither.
    """
    method, at, model = name.partition("@")
    if method not in METHODS:
        raise UserError(f"unknown method '{method}'.", remedy=did_you_mean(method, METHODS))
    if at and method not in MODEL_METHODS:
        raise UserError(f"method '{method}' has no language model.", where=name, remedy=f"Call it '{method}'.")
    if at and not model:
        remedy = f"Write it behind the @, as in {method}@th-ulmfit."
        raise UserError("there is no language model.", where=name, remedy=remedy)
    return MODEL_METHODS[method] if at else METHODS[method]


def model_for(name: str, options: MethodOptions) -> str | Path:
    """The model that a method of that name reads, if it reads one, or several parted by +.

    That is the one behind its @, its own, that of the options, or what `finetune` would take.
    """
    kind, named = method_class(name), name.partition("@")[2]
    usual = options.usual.ensemble if issubclass(kind, Default) else options.usual.alone
    return named or kind.model or options.model or usual


def new_method(name: str, options: MethodOptions) -> Method:
    """The method of that name; METHOD@MODEL has that model instead of its own or the options'.

    METHOD@MODEL+MODEL reads several: `features` side by side, a method that fine-tunes each for itself, its answers
    averaged. Raises UserError for what can be known to fail.
    """
    kind, named = method_class(name), name.partition("@")[2]
    if kind.model and not named:
        _refuse_missing(name, models_of(kind.model))
    options = replace(options, model=model_for(name, options))
    method = _made(kind, options, models_of(options.named_model))
    method.name = name
    return method


def _made(kind: type[Method], options: MethodOptions, models: Sequence[str]) -> Method:
    """One of the method, or the mean of it over several models where it does not read them side by side itself."""
    if len(models) < 2 or not issubclass(kind, NoAdapt):
        return kind(options)
    return MeanOf(kind, options, models)


def _refuse_missing(method: str, models: Sequence[str]) -> None:
    """Raises UserError, with how they are made, where a method's own models are not there."""
    for model in models:
        try:
            model_folder.find(model)
        except UserError as error:
            command = MADE_BY.get(method, f"textgraft pretrain TEXTS --recipe {model} --out")
            remedy = f"Make it here ({command} {model}), or name another behind an @: {method}@FOLDER."
            raise UserError(f"its model '{model}' is not here.", where=f"method '{method}'", remedy=remedy) from error


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
