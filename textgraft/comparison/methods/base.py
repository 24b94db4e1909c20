"""The interface of the methods that `compare` compares, and their options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.examples import Examples, TargetKind
from textgraft.data.labels import Labels
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import ENGLISH, DefaultModels
from textgraft.training.driver import allowed_seconds, content_hash, weights_hash
from textgraft.training.loop import Settings

MIN_UNLABELLED = 20
"""Unlabelled texts, as many as adapting a language model takes."""
KINDS: tuple[TargetKind, ...] = ("single", "multi", "numeric")


@dataclass(frozen=True)
class MethodOptions:
    """Options of methods: the language model, how it is trained, and how long texts may be.

    Where no `model` is named each method has its usual one, of `usual` (methods.model_for), which `compare` has from
    its texts.
    `adapt_minutes` replaces the epochs of the recipe's adaptation. `seeds` training samples are drawn of each number of
    labels, from `seed` upwards, which is also that of what is done once for all trainings. `kind` is that of the
    labels, where it is known. `minutes` is what the trainings of the language model may take in each ensemble of
    `default`, as in `finetune`.
    """

    model: str | Path | None = None
    recipe: str = "default"
    max_tokens: int = 512
    adapt_minutes: float | None = None
    precision: str = "auto"
    seed: int = 0
    seeds: int = 5
    show: bool = True
    kind: TargetKind | None = None
    minutes: float | None = None
    usual: DefaultModels = ENGLISH

    def __post_init__(self) -> None:
        allowed_seconds(self.minutes)  # an impossible one is refused now
        for name in ("seeds", "max_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")

    @property
    def draws(self) -> range:
        """The seeds of the training samples."""
        return range(self.seed, self.seed + self.seeds)

    @property
    def settings(self) -> Settings:
        """Settings of what is trained once for all samples."""
        return Settings(seed=self.seed, precision=self.precision)

    @property
    def named_model(self) -> str | Path:
        """The model that a method reads, which knows by now."""
        assert self.model is not None, "methods.new_method names it"
        return self.model

    @cached_property
    def language_model(self) -> LanguageModel:
        """Facts about the model that methods need before they start, loaded once for all of them."""
        source = loading.load_network(self.named_model)
        identity = content_hash([weights_hash(source.model), source.tokenizer.fingerprint])
        groups = len(source.model.encoder.layer_groups())
        return LanguageModel(identity, family_of(source), groups, source.recommended_recipe(self.recipe, self.kind))


@dataclass(frozen=True)
class LanguageModel:
    """A hash of its weights and tokenizer, the name of its encoder, its number of layer groups, the recipe for it."""

    identity: str
    family: str
    groups: int
    recipe: str


@dataclass(frozen=True)
class Predictions:
    """Predictions of one trained model for N texts, and its size.

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
    what its answers depend on beside the texts and the seed. `model` names the models of its own that it reads where
    METHOD@MODEL names no others; a method that has such is run only where somebody asks for it.
    """

    name: str
    about: str
    model: str
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

    def answer(self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path) -> Predictions:
        """Train on `train` and answer for `texts`, in their order; `folder` is for unfinished work on just this."""
        ...


def family_of(source: Artifact) -> str:
    """The name of a model's encoder."""
    return str(source.model.describe()["encoder"]["name"])


def refuse_other_family(method: str, wanted: str, found: str, model: str | Path) -> None:
    """Raises UserError where a method is for models of another family than `found`; an empty `wanted` takes any."""
    if wanted and found != wanted:
        message = f"method '{method}' is for models of the family '{wanted}', and this is '{found}'."
        raise UserError(message, where=str(model), remedy="Name another model, or ulmfit or features with this one.")
