"""Search spaces of `tune`: the values of a recipe's fine-tuning stage to draw from, and recipes with drawn values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.toml_text import read_toml_table
from textgraft.training.phases import MINIMUM, Phase, Stage
from textgraft.training.recipes import STRICT, Recipe, as_kind

PHASES = "phases"
FIXED = {"name", "anneal", "only"}
"""Keys of a phase that a search leaves as they are."""
_SETTINGS = (*(name for name in MINIMUM if name != "bptt"), "label_smoothing", "pooling")
_PHASE = tuple(field.name for field in fields(Phase) if field.name not in FIXED)

Values: TypeAlias = dict[str, Any]
"""Drawn values by key: `batch_size`, or `phases.NAME.lr` of the phase NAME."""


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`; whole ones where both are.

    Attributes:
        low: The smallest.
        high: The largest.
        log: Draw the logarithm evenly, as for learning rates.
    """

    low: int | float
    high: int | float
    log: bool = False

    __pydantic_config__: ClassVar[Any] = STRICT

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise UserError(f"the range is from {self.low} to {self.high}.", remedy="Give low below high.")
        if self.log and self.low <= 0:
            raise UserError(f"low is {self.low}, which has no logarithm.", remedy="Give a low above 0, or no log.")

    @property
    def whole(self) -> bool:
        """True if whole numbers are drawn."""
        return all(isinstance(end, int) for end in (self.low, self.high))

    def distribution(self) -> Any:
        """The range as a distribution of scipy."""
        from scipy import stats

        if self.whole:
            first, last = int(self.low), int(self.high) + 1
            return stats.loguniform(first, last) if self.log else stats.randint(first, last)
        return stats.loguniform(self.low, self.high) if self.log else stats.uniform(self.low, self.high - self.low)

    def value(self, drawn: float) -> float:
        """A drawn number as a recipe has it: whole, or with three significant digits."""
        return min(int(drawn), int(self.high)) if self.whole else float(f"{drawn:.3g}")


Choices: TypeAlias = "list[Any] | Range"


@dataclass(frozen=True)
class SearchSpace:
    """What may be drawn for which keys of a recipe's stage `finetune`.

    Attributes:
        choices: A list of values or a range, by key.
    """

    choices: Mapping[str, Choices]

    @classmethod
    def default(cls, stage: Stage) -> SearchSpace:
        """Learning rates from a third to three times those of the stage, half to twice its length, and batch sizes.

        The length is the number of steps where the stage has a minimum, which few labels never exceed.
        """
        around: dict[str, Choices] = {"batch_size": sorted({8, 16, 32, stage.batch_size})}
        if stage.min_steps:
            around["min_steps"] = Range(stage.min_steps // 2, 2 * stage.min_steps)
        for phase in stage.phases:
            around[f"{PHASES}.{phase.name}.lr"] = Range(_rounded(phase.lr / 3), _rounded(3 * phase.lr), log=True)
            if not stage.min_steps:
                around[f"{PHASES}.{phase.name}.epochs"] = Range(_rounded(phase.epochs / 2), _rounded(2 * phase.epochs))
        return cls(around)

    @classmethod
    def read(cls, path: Path) -> SearchSpace:
        """Read a TOML file of lists and of ranges `{low = …, high = …, log = true}`.

        Settings of the stage are at the top, those of the phase NAME in the table [phases.NAME].

        Raises:
            UserError: It is not such a file, or has an unknown key, an empty list or an impossible range.
        """
        try:
            table = read_toml_table(path)
        except OSError as error:
            raise UserError(f"the file cannot be read ({error.strerror}).", where=str(path)) from error
        except ValueError as error:
            raise UserError(f"this is not a TOML file: {error}.", where=str(path)) from error
        phases = table.pop(PHASES, {})
        if not isinstance(phases, dict) or not all(isinstance(one, dict) for one in phases.values()):
            remedy = "Write a table for each phase, such as [phases.all]."
            raise UserError(f"'{PHASES}' is not a table of phases.", where=str(path), remedy=remedy)
        values = {key: _choices(value, path, key, _SETTINGS) for key, value in table.items()}
        for name, phase in phases.items():
            values |= {
                f"{PHASES}.{name}.{k}": _choices(v, path, f"{PHASES}.{name}.{k}", _PHASE) for k, v in phase.items()
            }
        if not values:
            remedy = "Name values to try, such as batch_size = [16, 32]."
            raise UserError("there is nothing to search.", where=str(path), remedy=remedy)
        return cls(values)

    def draw(self, trials: int, seed: int) -> list[Values]:
        """`trials` random sets of values, fewer where there are no more different ones (Bergstra & Bengio 2012)."""
        from sklearn.model_selection import ParameterSampler

        drawn = {k: c.distribution() if isinstance(c, Range) else c for k, c in self.choices.items()}
        listed = all(isinstance(choices, list) for choices in self.choices.values())
        most = math.prod(len(choices) for choices in self.choices.values() if isinstance(choices, list))
        sampler = ParameterSampler(drawn, min(trials, most) if listed else trials, random_state=seed)
        return [{key: self._value(key, value) for key, value in sorted(one.items())} for one in sampler]

    def _value(self, key: str, drawn: Any) -> Any:
        choices = self.choices[key]
        return choices.value(drawn) if isinstance(choices, Range) else drawn

    def identity(self) -> dict[str, Any]:
        """The choices as plain values."""
        return {k: asdict(c) if isinstance(c, Range) else list(c) for k, c in sorted(self.choices.items())}


def with_values(recipe: Recipe, values: Values) -> Recipe:
    """A recipe with drawn values in its stage `finetune`.

    Raises:
        UserError: It has no phase of that name, or the value is impossible there.
    """
    table = json.loads(json.dumps(asdict(recipe)))
    stage = table["finetune"]
    for key, value in values.items():
        if not key.startswith(f"{PHASES}."):
            stage[key] = value
            continue
        name, setting = key.removeprefix(f"{PHASES}.").rsplit(".", 1)
        named = [phase for phase in stage[PHASES] if phase["name"] == name]
        if not named:
            message, names = f"the recipe '{recipe.name}' has no phase '{name}'.", [p["name"] for p in stage[PHASES]]
            raise UserError(message, where=f"{PHASES}.{name}", remedy=did_you_mean(name, names))
        for phase in named:
            phase |= {setting: value} | ({"only": None} if setting == "trainable" else {})
    return as_kind(table, Recipe, "the search space")


def recipe_text(recipe: Recipe) -> str:
    """A recipe as the TOML file that `load_recipe` reads."""
    lines = [f"{key} = {_toml(getattr(recipe, key))}" for key in ("name", "description", "source")]
    for name, stage in (("adapt", recipe.adapt), ("finetune", recipe.finetune)):
        if not stage.phases:
            continue
        lines += ["", f"[{name}]", *_lines(replace(stage, phases=()), PHASES)]
        for phase in stage.phases:
            lines += ["", f"[[{name}.{PHASES}]]", *_lines(phase)]
    return "\n".join(lines) + "\n"


def _lines(settings: Stage | Phase, *without: str) -> list[str]:
    """The settings that are not None, a line each."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings) if field.name not in without}
    return [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]


def _toml(value: Any) -> str:
    if hasattr(value, "__dataclass_fields__"):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in asdict(value).items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _choices(value: Any, path: Path, key: str, known: Sequence[str]) -> Choices:
    name = key.rsplit(".", 1)[-1]
    where = f"{path}, {key}"
    if name not in known:
        raise UserError(f"a search cannot change '{name}'.", where=where, remedy=did_you_mean(name, list(known)))
    if isinstance(value, list) and value:
        _validate_least(value, name, where)
        return value
    if isinstance(value, dict):
        drawn = as_kind(value, Range, where)
        _validate_least([drawn.low], name, where)
        return drawn
    remedy = "Write a list of values, or a range such as {low = 1e-5, high = 1e-3, log = true}."
    raise UserError(f"{value!r} is no choice of values.", where=where, remedy=remedy)


def _validate_least(values: Sequence[Any], name: str, where: str) -> None:
    """Raise UserError for a number below what the setting can be; other values are judged with their recipe."""
    least = MINIMUM.get(name, -math.inf)
    for value in values:
        if isinstance(value, int | float) and value < least:
            raise UserError(f"{name} cannot be {value}.", where=where, remedy=f"It must be {least} or more.")


def _rounded(value: float) -> float:
    return float(f"{value:.2g}")
