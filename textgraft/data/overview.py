"""What a file was read as: how many texts, of which labels and lengths, and the first of them.

Columns and kinds of label are guessed where nobody names them; here a person sees at a glance what was guessed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median, median_low
from typing import TYPE_CHECKING, Any

from textgraft.data.examples import Choice, Examples, InputKind, Label, Pair, TargetKind, reads

if TYPE_CHECKING:
    from rich.console import Console

_LABELS_SHOWN = 6
_CHARACTERS_SHOWN = 80
UNLABELLED = "no label"


@dataclass(frozen=True)
class Overview:
    """Of N texts: `labels` counts the texts of each, the commonest first, and `values` has the lowest, the median and
    the highest of a quantity; each is empty where the other belongs, and both of texts without labels. Of several
    labels a text each counts; a text that lacks one counts as UNLABELLED, as a text with an empty set does. `median`
    and `longest` are characters; `first` is the first text that is not empty, with its label.
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
    """What `part` was read as."""
    lengths = [len(text) for text in part.texts] or [0]
    quantities = [value for value in part.labels or () if isinstance(value, float) and not math.isnan(value)]
    labels: dict[str, int] = {}
    if part.labels is not None and part.kind != "numeric":
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
        median_low(lengths),
        max(lengths),
        ("" if first is None else _shown(part.texts[first]), label),
    )


def _names(label: Label) -> tuple[str, ...]:
    if isinstance(label, float):
        return (UNLABELLED if math.isnan(label) else f"{label:g}",)
    return (label or UNLABELLED,) if isinstance(label, str) else label or (UNLABELLED,)


def _shown(text: str) -> str:
    """A text on one line, its parts with a bar between them, cut where it is long."""
    parts: tuple[str, ...] = (text,)
    if isinstance(text, Pair):
        parts = (text.first, text.second)
    elif isinstance(text, Choice):
        parts = (text.context, *filter(None, [text.question]), *text.options)
    each = _CHARACTERS_SHOWN // len(parts)
    lines = (" ".join("".join(c if c.isprintable() else " " for c in part[: 4 * each]).split()) for part in parts)
    return " | ".join(line if len(line) <= each else line[: each - 1].rstrip() + "…" for line in lines)


def to_json(found: Mapping[str, Overview]) -> dict[str, Any]:
    """The overviews of several parts as plain values, for `--json`."""
    return {name: asdict(one) for name, one in found.items()}


def render(found: Mapping[str, Overview], console: Console | None = None) -> None:
    """Print the overviews for people: two lines for each part."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    width = max(map(len, found)) + 2
    for name, one in found.items():
        head = Text(f"{name:<{width}}", style="bold")
        head.append(f"{one.source}: {_counted(one)}", style="default")
        console.print(head, soft_wrap=True, highlight=False)
        text, label = one.first
        if text:
            said = f"“{text}”" if label is None else f"“{text}” is {label}"
            console.print(Text(" " * width + said, style="dim"), soft_wrap=True, highlight=False)


def _counted(one: Overview) -> str:
    """`60 texts of 28 characters (median; at most 31); labels neg: 30, pos: 30`."""
    what = {"texts": "text", "pairs": "pair", "choices": "question"}[one.reads] + "s" * (one.texts != 1)
    size = f"{one.texts:,} {what} of {one.median:,} characters (median; at most {one.longest:,})"
    if one.values:
        low, middle, high = (f"{value:g}" for value in one.values)
        return f"{size}; numbers from {low} to {high} (median {middle})"
    shown = [f"{name}: {count:,}" for name, count in list(one.labels.items())[:_LABELS_SHOWN]]
    if more := list(one.labels.values())[_LABELS_SHOWN:]:
        shown.append(f"and {len(more):,} more of {more[-1]:,} to {more[0]:,}")
    called = {"multi": "labels (several a text)", "choice": "right answers"}.get(one.kind or "", "labels")
    return f"{size}; {called} {', '.join(shown)}" if shown else size
