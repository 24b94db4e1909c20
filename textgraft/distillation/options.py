"""Options and results of distillations, and the recipes for language models."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from textgraft.core.errors import UserError
from textgraft.core.identity import identity_of
from textgraft.tasks.classification.evaluation import Comparison
from textgraft.training.loop import Settings
from textgraft.training.phases import STRICT, Stage
from textgraft.training.recipes import find_recipe, read_toml

TEMPERATURE, ALPHA = 2.0, 0.5


@dataclass(frozen=True)
class DistilOptions:
    """Everything about a distillation but teacher, texts and student; each has a default that works.

    `recipe` is how the student trains: for a classifier one that fine-tunes ("default": what suits the student's
    encoder), for a language model one of recipes/distil ("default": distilbert). `temperature` T softens both answers
    (None: 2, or what the recipe says). `from_scratch` keeps the student's shape and draws its weights anew.

    For classifiers: `alpha` is the share of the hard label in the loss of a text that has one (None: a half).
    `finetune` trains the taught student once more by the same recipe on the labelled texts and their labels alone
    (Turc et al. 2019: pretrain, distil, fine-tune). Longer texts than `max_tokens` lose their middle.
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
            raise UserError(f"alpha is {self.alpha}.", remedy="It is a share: give a number from 0 to 1.")
        if self.max_tokens < 1:
            raise UserError(f"max_tokens is {self.max_tokens}.", remedy="Give 1 or more.")

    def identity(self) -> dict[str, Any]:
        """All options: each may change what is saved."""
        return identity_of(self)


@dataclass(frozen=True)
class DistilRecipe:
    """How a language model learns from a larger one: the weights of the three losses, T, and the training.

    `soft`, `hard` and `hidden` weigh what distillation.losses.FromLanguageModel says.
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
            raise UserError("soft, hard and hidden are all 0, so there is nothing to learn.", remedy="Raise one.")
        if not self.stage.phases:
            raise UserError("this recipe has no phases to train in.", remedy="Add one.")

    def identity(self) -> dict[str, Any]:
        """The whole recipe."""
        return identity_of(self)


def validate_temperature(value: float) -> None:
    """Raises UserError for a temperature that is not a positive number."""
    if not 0 < value < float("inf"):
        raise UserError(f"the temperature is {value}.", remedy="Give a number above 0; 1 leaves answers as they are.")


def load_distil_recipe(name: str) -> DistilRecipe:
    """A recipe of recipes/distil by name ("default": distilbert) or path.

    Raises UserError as read_toml does, and for one that wants labels.
    """
    path = find_recipe("distilbert" if name == "default" else name, "distil")
    recipe = read_toml(path, DistilRecipe, "distil")
    recipe.stage.refuse_for_classifiers(str(path))
    return recipe


@dataclass(frozen=True)
class Distilled:
    """A taught student: its folder and what run.json says; a classifier's test beside its teacher's, if there was one.

    `record["sizes"]` has parameters (None for what is no network), bytes and speed of both.
    """

    folder: Path
    record: dict[str, Any]
    comparison: Comparison | None = None

    def table(self) -> str:
        """Teacher and student side by side, and the verdict, as plain text."""
        shown = [self.comparison.table(), ""] if self.comparison is not None else []
        return "\n".join([*shown, self.record["verdict"]])


def sizes_text(sizes: dict[str, Any]) -> str:
    """How much smaller and faster the student is, in words."""
    teacher, student = sizes["teacher"], sizes["student"]
    megabytes = f"{student['bytes'] / 1e6:,.1f} MB instead of {teacher['bytes'] / 1e6:,.1f}"
    if teacher["parameters"] is not None:
        parameters = f"{student['parameters'] / 1e6:,.3g} M parameters instead of {teacher['parameters'] / 1e6:,.3g} M"
        megabytes = f"{parameters}, {megabytes}"
    ratio = sizes["speed_ratio"]
    return f"{megabytes}; {f'{ratio:.3g} times as fast' if ratio >= 1 else f'it takes {1 / ratio:.3g} times as long'}"
