"""What fine-tunings have in common, whatever their heads answer: what was asked, what is measured on, the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from textgraft.core import formatting
from textgraft.core.resource_meter import Meter
from textgraft.models.artifact import Artifact
from textgraft.nn.layer_aggregation import LAST
from textgraft.training.driver import weights_hash
from textgraft.training.phases import Stage

Part = TypeVar("Part")


class Options(Protocol):
    """The settings of any fine-tuning: their repr says all but the layer aggregation, which is younger than some runs."""

    @property
    def layer_aggregation(self) -> str: ...


def asked(
    stage: str, data: Mapping[str, Any], sources: Iterable[Artifact], recipes: Iterable[Stage], options: Options
) -> dict[str, Any]:
    """What the result depends on: another of any of these is another run. `recipes` may be alike."""
    found = list(sources)
    return {
        "stage": stage,
        "data": data,
        "model": " ".join(weights_hash(source.model) for source in found),
        "tokenizer": " ".join(source.tokenizer.fingerprint for source in found),
        "recipe": " ".join(dict.fromkeys(recipe.identity for recipe in recipes)),
        "options": repr(options),
    } | ({"layer_aggregation": options.layer_aggregation} if options.layer_aggregation != LAST else {})


def given(**parts: Part | None) -> dict[str, Part]:
    """The parts of the data that there are, by name."""
    return {name: part for name, part in parts.items() if part is not None}


def examined(parts: Mapping[str, Any]) -> str:
    """Which of the parts is measured on: what nothing is chosen by, if there is such a one."""
    return next(name for name in ("test", "held out", "valid") if name in parts)


def cost(meter: Meter, seconds: float | None = None) -> dict[str, float]:
    """What a method took, as results.json has it; `seconds` are those of a run that was resumed."""
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
        [name, *(interval(found, metric) for metric in metrics), f"{found['minutes']:.1f}"]
        for name, found in results["methods"].items()
    ]
    return "\n".join([formatting.aligned([head, *rows], left=range(len(head))), "", results["verdict"]])
