"""Options of a fine-tuning of a classifier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from textgraft.core.device import resolve_device
from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.identity import identity_of
from textgraft.data.examples import Examples
from textgraft.data.labels import ClassWeights
from textgraft.linear.methods import LINEAR_METHODS
from textgraft.models.default_encoders import default_encoder
from textgraft.models.default_models import default_models_for
from textgraft.nn.layer_aggregation import LAST, validate_layer_aggregation
from textgraft.tasks.classification.budget import DEFAULT_MINUTES
from textgraft.tasks.classification.linear_candidates import CANDIDATE_METHODS
from textgraft.training.driver import allowed_seconds
from textgraft.training.settings import Settings

MAX_TOKENS = 512
ENSEMBLE, LINEAR_PROBE, FINE_TUNED = "ensemble", "linear-probe", "fine-tuned"
METHODS = (ENSEMBLE, *LINEAR_METHODS, LINEAR_PROBE, FINE_TUNED)
"""The methods of a fine-tuning: the weighted ensemble of all candidates, or one of them alone."""


@dataclass(frozen=True)
class FinetuneOptions:
    """Options of a fine-tuning.

    Attributes:
        recipe: Name or file of a recipe for the language model, which then is the only candidate; None: a weighted
            ensemble of the language model (by the recipe "default") and linear classifiers, see `finetune`.
        method: "ensemble", or one of its candidates alone (of METHODS).
        seeds: Number of classifiers to train, from `settings.seed` upwards; their mean and spread are reported.
        folds: Number of folds of a cross-validation (None: five where there is neither a validation nor a test set,
            or for model selection without a recipe; else none).
        max_tokens: Length in tokens that longer texts are cut to.
        class_weights: Weights of the classes in the loss: "none", "balanced", or by label.
        from_scratch: Keep the network's shape but not its weights, to measure the effect of pretraining.
        words: Let the head use the embedding layer beside the top one.
        both_orders: Encode each pair in both orders and add the two vectors (Radford et al. 2018, "similarity").
        baselines: Evaluate linear baselines too.
        report: Write report.html.
        settings: Settings of the training.
        layer_aggregation: The encoder layers that the head uses (nn.layer_aggregation.LAYER_AGGREGATIONS).
        minutes: Time limit of the model selection, in minutes of the wall clock: candidates that would take longer
            than what is left are not begun (tasks.classification.budget). Infinity: none. None: DEFAULT_MINUTES on a
            processor for the ensemble, else none.
        rungs: Amounts by rung of the ladder, from the run.json of an earlier run, to repeat its choices; None: choose
            by the time limit.
        adapt: Settings of the adaptation of the language models to the unlabelled texts; None: no adaptation.
    """

    recipe: str | None = None
    method: str = ENSEMBLE
    seeds: int = 1
    folds: int | None = None
    max_tokens: int = MAX_TOKENS
    class_weights: ClassWeights = "none"
    from_scratch: bool = False
    words: bool = True
    both_orders: bool = False
    baselines: bool = True
    report: bool = True
    settings: Settings = field(default_factory=Settings)
    layer_aggregation: str = LAST
    minutes: float | None = None
    rungs: Mapping[str, int] | None = None
    adapt: Settings | None = None

    def __post_init__(self) -> None:
        validate_layer_aggregation(self.layer_aggregation)
        self._validate_method()
        if self.minutes != math.inf:
            allowed_seconds(self.minutes)  # raises UserError
        for name in ("minutes", "rungs"):
            if getattr(self, name) is not None and not self.selects:
                message = f"{name} limit a language model that may be left out, and here it is the only candidate."
                raise UserError(message, remedy=f"Leave out the {name}, or what makes it so, such as a recipe.")
        for name in ("seeds", "max_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")

    def identity(self) -> dict[str, Any]:
        """All options but the adaptation, which depends on the data too and has a key of its own in the plan."""
        return identity_of(self, without=("adapt",))

    def _validate_method(self) -> None:
        """Raise UserError for an unknown method, and for options that a method without fine-tuning does not have."""
        if self.method not in METHODS:
            raise UserError(f"unknown method '{self.method}'.", remedy=did_you_mean(self.method, METHODS))
        if self.method in (ENSEMBLE, FINE_TUNED):
            return
        wrong = {
            "a recipe": self.recipe is not None,
            "class_weights": self.class_weights != "none",
            "from_scratch": self.from_scratch,
            "baselines=False": not self.baselines,
        }
        for option in (name for name, is_set in wrong.items() if is_set):
            remedy = f"Leave it out, or choose the method '{FINE_TUNED}'."
            raise UserError(f"{option} has no meaning for the method '{self.method}'.", remedy=remedy)
        if self.folds == 0:
            message = f"folds is 0, and the method '{self.method}' is measured on folds."
            raise UserError(message, remedy="Leave it out, or give 2 or more.")
        if self.minutes is not None:
            message = f"minutes has no meaning for the method '{self.method}': nothing is left out for its time."
            raise UserError(message, remedy=f"Leave it out, or choose the method '{ENSEMBLE}'.")

    @property
    def budget_seconds(self) -> float | None:
        """Time limit of the model selection in seconds; None: none."""
        minutes = self.minutes
        limited = self.method == ENSEMBLE and self.selects
        if minutes is None and limited and resolve_device(self.settings.device).type == "cpu":
            minutes = DEFAULT_MINUTES
        return None if minutes is None or math.isinf(minutes) else 60 * minutes

    @property
    def candidate_methods(self) -> tuple[str, ...]:
        """The linear methods (of linear.methods) that are candidates."""
        if self.method == ENSEMBLE:
            return CANDIDATE_METHODS
        return (self.method,) if self.method in LINEAR_METHODS else ()

    @property
    def needs_language_model(self) -> bool:
        """True where any candidate uses a language model."""
        return self.method not in LINEAR_METHODS

    @property
    def language_recipe(self) -> str:
        """The recipe of the language model."""
        return self.recipe or "default"

    def default_model(self, train: Examples) -> str:
        """The language model where none is named: a sentence encoder that is here, else a bundled model."""
        defaults = default_models_for(train.texts)
        if not self.selects:
            return defaults.alone
        return (default_encoder(train.texts) if self.recipe is None else None) or defaults.ensemble

    @property
    def selects(self) -> bool:
        """True where linear classifiers may be part of the ensemble.

        Not where the options are about the language model, nor with class weights, which linear classifiers do not use.
        """
        fine_tuned = self.recipe is not None or self.method == FINE_TUNED
        language_model_only = fine_tuned or self.from_scratch or not self.baselines
        return not language_model_only and self.class_weights == "none"
