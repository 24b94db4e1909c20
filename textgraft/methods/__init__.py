"""Ways to a classifier from a few labels, each as one small class that `compare` can put beside the others."""

from dataclasses import replace

from textgraft.errors import UserError, did_you_mean
from textgraft.methods.base import POOL_AT_LEAST, Answers, Method, MethodOptions
from textgraft.methods.counting import FastText, Linear, Lsa, SelfTraining, Vectors
from textgraft.methods.default import Default
from textgraft.methods.language import Frozen, NoAdapt, Scratch, Ulmfit

METHODS: dict[str, type[Method]] = {
    "linear": Linear,
    "lsa": Lsa,
    "vectors": Vectors,
    "self-trained": SelfTraining,
    "fasttext": FastText,
    "scratch": Scratch,
    "frozen": Frozen,
    "no-adapt": NoAdapt,
    "ulmfit": Ulmfit,
    "default": Default,
}
"""By name, the quick ones first."""


def method_class(name: str) -> type[Method]:
    """The class of a method that is named as in METHODS, or METHOD@MODEL where it fine-tunes a language model.

    Raises UserError for a name that is neither.
    """
    method, at, model = name.partition("@")
    if method not in METHODS:
        raise UserError(f"unknown method '{method}'.", remedy=did_you_mean(method, METHODS))
    if at and not issubclass(METHODS[method], NoAdapt):
        raise UserError(f"method '{method}' has no language model.", where=name, remedy=f"Call it '{method}'.")
    if at and not model:
        remedy = f"Write it behind the @, as in {method}@th-ulmfit."
        raise UserError("there is no language model.", where=name, remedy=remedy)
    return METHODS[method]


def new_method(name: str, options: MethodOptions) -> Method:
    """The method of that name; one called METHOD@MODEL has that model instead of the options'.

    Raises UserError for what can be known to fail.
    """
    kind, model = method_class(name), name.partition("@")[2]
    method = kind(replace(options, model=model) if model else options)
    method.name = name
    return method


__all__ = ["METHODS", "POOL_AT_LEAST", "Answers", "Method", "MethodOptions", "method_class", "new_method"]
