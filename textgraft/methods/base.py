"""What `compare` asks of a method, and what a method may be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from textgraft.data.examples import Examples, TargetKind
from textgraft.data.labels import Labels
from textgraft.ensemble import load_one
from textgraft.errors import UserError
from textgraft.training.loop import Settings
from textgraft.training.phases import suited
from textgraft.training.session import content_hash, weights_hash

POOL_AT_LEAST = 20
"""Unlabelled texts, as many as adapting a language model takes."""
KINDS: tuple[TargetKind, ...] = ("single", "multi", "numeric")


@dataclass(frozen=True)
class MethodOptions:
    """What methods may be told: the language model, how it trains, and how much of a text it reads.

    `adapt_minutes` replaces the epochs of the recipe's adaptation; `seed` is that of what is done once for all
    trainings, which have seeds of their own.
    """

    model: str | Path = "en-ulmfit"
    recipe: str = "default"
    max_tokens: int = 512
    adapt_minutes: float | None = None
    precision: str = "auto"
    seed: int = 0
    show: bool = True

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UserError(f"max_tokens is {self.max_tokens}.", remedy="Give 1 or more.")

    @property
    def settings(self) -> Settings:
        return Settings(seed=self.seed, precision=self.precision)

    @cached_property
    def language_model(self) -> tuple[str, int, str]:
        """A hash of the model's weights and tokenizer, its number of layer groups, and the recipe for it.

        Read once for all methods.
        """
        source = load_one(self.model)
        identity = content_hash([weights_hash(source.model), source.tokenizer.fingerprint])
        return identity, len(source.model.encoder.layer_groups()), suited(self.recipe, source.model.encoder)


@dataclass(frozen=True)
class Answers:
    """What one trained model says of N texts, and its size.

    `outputs` are (N, C) probabilities, or (N,) standardised values for a numeric target. `seconds` is how long
    training took where that is known better than by the clock: it may have been interrupted and taken up again.
    """

    outputs: np.ndarray
    model_bytes: int
    about: str = ""
    seconds: float = 0.0


class Method(Protocol):
    """A way to a classifier, made from options; making it raises UserError for what can be known to fail.

    `needs_pool` says that it learns from unlabelled text, `kinds` which targets it can do, and `fingerprint` (a string)
    what its answers depend on beside the texts and the seed.
    """

    name: str
    about: str
    needs_pool: bool
    kinds: tuple[TargetKind, ...]

    def __init__(self, options: MethodOptions) -> None: ...

    @property
    def fingerprint(self) -> str: ...

    def prepare(self, pool: Sequence[str], folder: Path) -> float:
        """Do once what needs no labels; work in `folder`, and take up there what a killed run or another method left.

        Returns how many seconds all of it took where files tell, else 0.
        """
        ...

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Answers:
        """Train on `train` and answer for `texts`, in their order; `folder` is for unfinished work on just this."""
        ...
