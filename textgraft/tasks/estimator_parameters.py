"""Validation of the parameters of estimators, which `fit` does and `__init__` does not, as scikit-learn demands."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from textgraft.core.errors import UserError, did_you_mean

Rule = Callable[[Any], str]
"""From the value of a parameter to what to give instead; empty for a valid value."""


def validate_parameters(estimator: BaseEstimator, rules: Mapping[str, Rule]) -> None:
    """Raise UserError that names the first parameter whose value is not valid.

    Args:
        estimator: The estimator, with any values.
        rules: By parameter.
    """
    for name, rule in rules.items():
        value = getattr(estimator, name)
        if remedy := rule(value):
            where = type(estimator).__name__
            raise UserError(f"the parameter {name} is {value!r}.", where=where, remedy=remedy)


def optional(rule: Rule) -> Rule:
    """A rule that allows None too."""

    def remedy(value: Any) -> str:
        instead = "" if value is None else rule(value)
        return instead.removesuffix(".") + ", or None." if instead.startswith("Give") else instead

    return remedy


def integer(minimum: int) -> Rule:
    """A whole number of `minimum` or more; numpy's integers are, and True and 2.0 are not.

    >>> integer(2)(True)
    'Give an integer of 2 or more.'
    """

    def remedy(value: Any) -> str:
        valid = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= minimum
        return "" if valid else f"Give an integer of {minimum} or more."

    return remedy


def one_of(names: Collection[str]) -> Rule:
    """One of these names."""
    return lambda value: "" if isinstance(value, str) and value in names else did_you_mean(str(value), names)


def positive(value: Any) -> str:
    """A finite number above 0; True is none."""
    return "" if _is_number(value) and 0 < value < math.inf else "Give a number above 0."


def limit(value: Any) -> str:
    """A number above 0, or infinity; True is none."""
    return "" if _is_number(value) and value > 0 else "Give a number above 0, or infinity."


def flag(value: Any) -> str:
    """True or False, or 1 or 0."""
    valid = isinstance(value, bool | np.bool_ | Integral) and value in (0, 1)
    return "" if valid else "Give True or False."


def text(value: Any) -> str:
    """A string, which may be empty."""
    return "" if isinstance(value, str) else "Give a string."


def name(value: Any) -> str:
    """A name, or a path."""
    valid = isinstance(value, str | os.PathLike) and str(value)
    return "" if valid else "Give a name, or the path of a file or folder."


def names(value: Any) -> str:
    """Several names or paths."""
    is_list = isinstance(value, list | tuple) and len(value) > 0 and not any(map(name, value))
    return "" if is_list else "Give a list of names, or of paths of files or folders."


def instance(of: type) -> Rule:
    """An object of the class."""
    return lambda value: "" if isinstance(value, of) else f"Give an object of textgraft.{of.__name__}."


def class_weights(value: Any) -> str:
    """The word none or balanced, or positive weights by label."""
    if isinstance(value, Mapping):
        return "Give each label a number above 0." if any(map(positive, value.values())) else ""
    valid = isinstance(value, str) and value in ("none", "balanced")
    return "" if valid else 'Give "none", "balanced", or a dictionary of weights by label.'


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)
