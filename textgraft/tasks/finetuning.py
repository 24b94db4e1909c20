"""Shared parts of all fine-tunings, whatever their head: the identity of a run, the evaluation split, the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from textgraft.core import formatting
from textgraft.core.resource_meter import Meter
from textgraft.models.artifact import Artifact
from textgraft.training.driver import weights_hash
from textgraft.training.phases import Stage

Part = TypeVar("Part")


class Options(Protocol):
    """The options of any fine-tuning."""

    def identity(self) -> dict[str, Any]: ...


def run_identity(
    stage: str, data: Mapping[str, Any], sources: Iterable[Artifact], recipes: Iterable[Stage], options: Options
) -> dict[str, Any]:
    """Everything that the result of a fine-tuning depends on; runs that differ in it are different runs.

    Args:
        stage: Name of the verb.
        data: A description of each part of the data, with its hash.
        sources: The pretrained models.
        recipes: The stage that each is trained by.
        options: Everything about the fine-tuning but the data.

    Returns:
        A dictionary as plan.json holds it.
    """
    models = list(sources)
    return {
        "stage": stage,
        "data": data,
        "model": " ".join(weights_hash(source.model) for source in models),
        "tokenizer": " ".join(source.tokenizer.fingerprint for source in models),
        "recipe": [recipe.identity() for recipe in recipes],
        "options": options.identity(),
    }


def parts_by_name(**parts: Part | None) -> dict[str, Part]:
    """The parts of the data that are not None, by name."""
    return {name: part for name, part in parts.items() if part is not None}


def evaluation_split(parts: Mapping[str, Any]) -> str:
    """Name of the evaluation split: the one that is not used for model selection, if there is one."""
    return next(name for name in ("test", "held out", "valid") if name in parts)


def cost(meter: Meter, seconds: float | None = None) -> dict[str, float]:
    """Costs of a method as in results.json; `seconds` replaces the meter's for a run that was resumed."""
    minutes = (meter.seconds if seconds is None else seconds) / 60
    return {"minutes": round(minutes, 3), "peak_mb": round(meter.peak_mb)}


def interval(method: Mapping[str, Any], metric: str) -> str:
    """A method's score with its 95 % interval, as text; a dash where there is none."""
    value = method.get(metric)
    return (
        formatting.NOT_KNOWN
        if value is None
        else formatting.interval(value["mean"], value["low"], value["high"], metric)
    )


def table(results: Mapping[str, Any], metrics: Sequence[str]) -> str:
    """Every method of `results` with its scores and minutes, and the verdict, as plain text."""
    head = ["method", *(f"{formatting.metric_name(metric)} [95 % interval]" for metric in metrics), "minutes"]
    rows = [
        [name, *(interval(method, metric) for metric in metrics), f"{method['minutes']:.1f}"]
        for name, method in results["methods"].items()
    ]
    return "\n".join([formatting.aligned([head, *rows], left=range(len(head))), "", results["verdict"]])
