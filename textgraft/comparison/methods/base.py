"""Interface of the methods of `compare`, and their options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from textgraft.core.errors import UserError
from textgraft.core.identity import content_hash
from textgraft.data.examples import Examples, TargetKind
from textgraft.data.labels import Labels
from textgraft.engines.base import Engine
from textgraft.engines.local import LOCAL
from textgraft.models import loading
from textgraft.models.artifact import Artifact
from textgraft.models.default_models import ENGLISH, DefaultModels
from textgraft.training.driver import allowed_seconds, weights_hash
from textgraft.training.settings import Settings

MIN_UNLABELLED = 20
"""Minimum number of unlabelled texts, as for adapting a language model."""
KINDS: tuple[TargetKind, ...] = ("single", "multi", "numeric")
ONE_LABEL: tuple[TargetKind, ...] = ("single",)


@dataclass(frozen=True)
class MethodOptions:
    """Options of the methods: language model, training and text length.

    Args:
        model: Language model (None: the method's default, else that of `default_models`; methods.model_for).
        recipe: Recipe to train it by.
        max_tokens: Maximum length of a text in tokens.
        adapt_minutes: Time limit for adaptation, in place of the recipe's epochs.
        precision: Arithmetic of training and prediction.
        seed: First seed of the training samples, and the seed of the one-time work that all trainings share.
        seeds: Number of training samples of each number of labels.
        show: Show progress on stderr.
        kind: Kind of the labels, where it is known.
        minutes: Time limit of each model selection of `default`, as in `finetune`; None: none.
        default_models: Default models for the script of the texts.
        engine: Where the trainings run (engines.registry.open_engine).
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
    default_models: DefaultModels = ENGLISH
    engine: Engine = LOCAL

    def __post_init__(self) -> None:
        allowed_seconds(self.minutes)  # raises now for an impossible value
        for name in ("seeds", "max_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")

    @property
    def sample_seeds(self) -> range:
        """The seeds of the training samples."""
        return range(self.seed, self.seed + self.seeds)

    @property
    def settings(self) -> Settings:
        """Settings of what is trained once for all samples."""
        return Settings(seed=self.seed, precision=self.precision)

    @property
    def named_model(self) -> str | Path:
        """The model of the method."""
        assert self.model is not None, "methods.new_method sets it"
        return self.model

    @cached_property
    def language_model(self) -> LanguageModel:
        """Properties of the model that methods need before training; loaded once for all of them."""
        source = loading.load_network(self.named_model)
        identity = content_hash([weights_hash(source.model), source.tokenizer.fingerprint])
        groups = len(source.model.encoder.layer_groups())
        return LanguageModel(identity, family_of(source), groups, source.recommended_recipe(self.recipe, self.kind))


@dataclass(frozen=True)
class LanguageModel:
    """Properties of a language model: hash of weights and tokenizer, encoder name, number of layer groups, recommended
    recipe.
    """

    identity: str
    family: str
    groups: int
    recipe: str


@dataclass(frozen=True)
class Predictions:
    """Predictions of one trained model for N texts, and its size.

    Args:
        outputs: (N, C) probabilities, or (N,) standardised values for a numeric target.
        model_bytes: Size of the model.
        about: Description of the model.
        seconds: Training time, where it is known more exactly than by the clock (training may have been interrupted and
            resumed); else 0.
    """

    outputs: np.ndarray
    model_bytes: int
    about: str = ""
    seconds: float = 0.0


class Method(Protocol):
    """A method that trains a classifier. Its constructor raises UserError for options that cannot work.

    Attributes:
        needs_pool: The method uses unlabelled text.
        kinds: Kinds of target that it supports.
        fingerprint: Everything that its predictions depend on besides the texts and the seed, as a string.
        model: Its default models where METHOD@MODEL names no others; a method that has one is run only on request.
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
        """Do the one-time work that needs no labels, and resume from what an earlier run or another method left in
        `folder`.

        Returns:
            Total seconds where the files in `folder` record them, else 0.
        """
        ...

    def train_and_predict(
        self, train: Examples, texts: Sequence[str], labels: Labels, seed: int, folder: Path
    ) -> Predictions:
        """Train on `train` and predict `texts`, in their order.

        `folder` is for the unfinished work of this training alone.
        """
        ...


def family_of(source: Artifact) -> str:
    """Name of a model's encoder."""
    return str(source.model.describe()["encoder"]["name"])


def validate_family(method: str, required: str, family: str, model: str | Path) -> None:
    """Raise UserError where a method supports only another family than `family`; an empty `required` allows any."""
    if required and family != required:
        message = f"method '{method}' supports models of the family '{required}'; this is '{family}'."
        raise UserError(
            message, where=str(model), remedy="Name another model, or use ulmfit or features with this one."
        )
