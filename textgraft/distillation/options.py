"""Options, recipes and results of distillation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.core.identity import identity_of
from textgraft.tasks.classification.evaluation import Comparison
from textgraft.training.phases import STRICT, Stage
from textgraft.training.recipes import find_recipe, read_toml
from textgraft.training.settings import Settings

TEMPERATURE, ALPHA = 2.0, 0.5


@dataclass(frozen=True)
class DistilOptions:
    """Options of a distillation.

    Args:
        recipe: How the student is trained: for a classifier a fine-tuning recipe ("default": as recommended for the
            student's encoder), for a language model one of recipes/distil ("default": distilbert).
        temperature: T of both distributions (None: 2, or as in the recipe).
        alpha: For classifiers: weight of the hard label for a text that has one (None: 0.5).
        finetune: For classifiers: fine-tune the distilled student by the same recipe on the labelled texts alone (Turc
            et al. 2019: pretrain, distil, fine-tune).
        from_scratch: Keep the student's shape, with new random weights.
        max_tokens: Longer texts lose their middle.
        settings: Seed, precision, limits.
    """

    recipe: str = "default"
    temperature: float | None = None
    alpha: float | None = None
    finetune: bool = False
    from_scratch: bool = False
    max_tokens: int = 512
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        if self.temperature is not None:
            validate_temperature(self.temperature)
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise UserError(f"alpha is {self.alpha}.", remedy="Give a number from 0 to 1.")
        if self.max_tokens < 1:
            raise UserError(f"max_tokens is {self.max_tokens}.", remedy="Give 1 or more.")

    def identity(self) -> dict[str, Any]:
        """All options: each may change what is saved."""
        return identity_of(self)


@dataclass(frozen=True)
class DistilRecipe:
    """Recipe for distilling a language model: the weights of the three losses, T, and the training.

    `soft`, `hard` and `hidden` are the weights in distillation.losses.LanguageModelDistillation.
    """

    name: str
    description: str
    source: str
    stage: Stage
    temperature: float = 2.0
    soft: float = 5.0
    hard: float = 2.0
    hidden: float = 1.0

    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        validate_temperature(self.temperature)
        for name in ("soft", "hard", "hidden"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="It must be 0 or more.")
        if not self.soft + self.hard + self.hidden > 0:
            raise UserError("soft, hard and hidden are all 0, so there is no loss.", remedy="Set one above 0.")
        if not self.stage.phases:
            raise UserError("this recipe has no phases.", remedy="Add one.")

    def identity(self) -> dict[str, Any]:
        """The whole recipe."""
        return identity_of(self)


def validate_temperature(value: float) -> None:
    """Raise UserError for a temperature that is not a positive number."""
    if not 0 < value < float("inf"):
        raise UserError(
            f"the temperature is {value}.", remedy="Give a number above 0; 1 leaves distributions unchanged."
        )


def load_distil_recipe(name: str) -> DistilRecipe:
    """Load a recipe of recipes/distil by name ("default": distilbert) or path.

    Raises:
        UserError: As read_toml, and for a recipe that needs labels.
    """
    path = find_recipe("distilbert" if name == "default" else name, "distil")
    recipe = read_toml(path, DistilRecipe, "distil")
    recipe.stage.validate_no_classifier_settings(str(path))
    return recipe


@dataclass(frozen=True, repr=False)
class Distilled(Brief):
    """A distilled student: its folder, the contents of run.json, and the comparison with its teacher on a test set.

    `record["sizes"]` has parameters (None for a model without a network), bytes and speed of both.
    """

    folder: Path
    record: dict[str, Any]
    comparison: Comparison | None = None

    def table(self) -> str:
        """Comparison of teacher and student, and the verdict, as plain text."""
        shown = [self.comparison.table(), ""] if self.comparison is not None else []
        return "\n".join([*shown, self.record["verdict"]])


def sizes_text(sizes: dict[str, Any]) -> str:
    """The student's size and speed against the teacher's, in words."""
    teacher, student = sizes["teacher"], sizes["student"]
    megabytes = f"{student['bytes'] / 1e6:,.1f} MB instead of {teacher['bytes'] / 1e6:,.1f}"
    if teacher["parameters"] is not None:
        parameters = f"{student['parameters'] / 1e6:,.3g} M parameters instead of {teacher['parameters'] / 1e6:,.3g} M"
        megabytes = f"{parameters}, {megabytes}"
    ratio = sizes["speed_ratio"]
    return f"{megabytes}; {f'{ratio:.3g} times as fast' if ratio >= 1 else f'it takes {1 / ratio:.3g} times as long'}"
