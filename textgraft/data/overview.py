"""Overview of a data set as it was read: number of texts, labels, lengths, and the first text.

Columns and kinds of label may have been guessed; the overview shows the result at a glance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from textgraft.data.examples import Choice, Examples, InputKind, Label, Pair, TargetKind, reads
from textgraft.data.targets import TARGETS, target_of

if TYPE_CHECKING:
    from rich.console import Console

_LABELS_SHOWN = 6
_CHARACTERS_SHOWN = 80
UNLABELLED = "no label"
"""Name under which texts without a label are counted."""


@dataclass(frozen=True)
class Overview:
    """Summary of N texts.

    Attributes:
        source: Name of the data.
        texts: N.
        reads: Kind of input.
        kind: Kind of labels.
        labels: Number of texts with each label, most frequent first; empty for numeric and for unlabelled texts. Each
            of several labels of a text counts; texts without one count as UNLABELLED.
        values: Minimum, median and maximum of a numeric label.
        median, longest: Lengths in characters.
        first: The first text that is not empty, with its label.
    """

    source: str
    texts: int
    reads: InputKind
    kind: TargetKind | None
    labels: dict[str, int]
    values: tuple[float, ...]
    median: int
    longest: int
    first: tuple[str, str | None]


def overview(part: Examples) -> Overview:
    """Summarise a data set."""
    lengths = np.fromiter(map(len, part.texts), dtype=np.int64, count=len(part)) if len(part) else np.zeros(1, int)
    quantities = [value for value in part.labels or () if isinstance(value, float) and not math.isnan(value)]
    labels: dict[str, int] = {}
    if part.labels is not None and target_of(part).has_classes:
        labels = dict(Counter(name for label in part.labels for name in _names(label)).most_common())
    first = next((i for i, text in enumerate(part.texts) if text.strip()), None)
    label = None if first is None or part.labels is None else ", ".join(_names(part.labels[first]))
    return Overview(
        part.source,
        len(part),
        reads(part.texts),
        part.kind,
        labels,
        (min(quantities), float(median(quantities)), max(quantities)) if quantities else (),
        int(np.quantile(lengths, 0.5, method="lower")),
        int(lengths.max()),
        ("" if first is None else _shown(part.texts[first]), label),
    )


def _names(label: Label) -> tuple[str, ...]:
    if isinstance(label, float):
        return (UNLABELLED if math.isnan(label) else f"{label:g}",)
    return (label or UNLABELLED,) if isinstance(label, str) else label or (UNLABELLED,)


def _shown(text: str) -> str:
    """A text on one line, its parts separated by a bar, shortened if long."""
    parts: tuple[str, ...] = (text,)
    if isinstance(text, Pair):
        parts = (text.first, text.second)
    elif isinstance(text, Choice):
        parts = (text.context, *filter(None, [text.question]), *text.options)
    each = _CHARACTERS_SHOWN // len(parts)
    lines = (" ".join("".join(c if c.isprintable() else " " for c in part[: 4 * each]).split()) for part in parts)
    return " | ".join(line if len(line) <= each else line[: each - 1].rstrip() + "…" for line in lines)


def to_json(overviews: Mapping[str, Overview]) -> dict[str, Any]:
    """Overviews of several parts as JSON values, for `--json`."""
    return {name: asdict(part) for name, part in overviews.items()}


def render(overviews: Mapping[str, Overview], console: Console | None = None) -> None:
    """Print overviews of several parts, two lines each."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    width = max(map(len, overviews)) + 2
    for name, part in overviews.items():
        head = Text(f"{name:<{width}}", style="bold")
        head.append(f"{part.source}: {_counted(part)}", style="default")
        console.print(head, soft_wrap=True, highlight=False)
        text, label = part.first
        if text:
            line = f"“{text}”" if label is None else f"“{text}” is {label}"
            console.print(Text(" " * width + line, style="dim"), soft_wrap=True, highlight=False)


def _counted(part: Overview) -> str:
    """`60 texts of 28 characters (median; at most 31); labels neg: 30, pos: 30`."""
    unit = {"texts": "text", "pairs": "pair", "choices": "question"}[part.reads] + "s" * (part.texts != 1)
    size = f"{part.texts:,} {unit} of {part.median:,} characters (median; at most {part.longest:,})"
    if part.values:
        low, middle, high = (f"{value:g}" for value in part.values)
        return f"{size}; numbers from {low} to {high} (median {middle})"
    shown = [f"{name}: {count:,}" for name, count in list(part.labels.items())[:_LABELS_SHOWN]]
    if more := list(part.labels.values())[_LABELS_SHOWN:]:
        sizes = f"{more[0]:,} each" if more[-1] == more[0] else f"{more[-1]:,} to {more[0]:,}"
        shown.append(f"and {len(more):,} more of {sizes}")
    return f"{size}; {TARGETS[part.kind or 'single'].labels_name} {', '.join(shown)}" if shown else size
