"""Problems of data: what `data.checks` finds, as JSON and on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from textgraft.core.brief import Brief
from textgraft.data.examples import Examples

if TYPE_CHECKING:
    from rich.console import Console

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
_LINES_KEPT = 100
_LINES_SHOWN = 8


@dataclass(frozen=True, repr=False)
class Problem(Brief):
    """One finding: `count` occurrences in `source`, the first hundred of them in `lines` (`files`, in a folder)."""

    severity: Severity
    name: str  # the kind of finding, for programs: "missing-label", "test-leak"…
    message: str
    source: str = ""
    lines: tuple[int, ...] = ()
    count: int = 0
    remedy: str = ""
    unit: str = "line"
    files: tuple[str, ...] = ()


def has_errors(problems: Iterable[Problem]) -> bool:
    """True if any problem is an error."""
    return any(problem.severity == "error" for problem in problems)


def refusing_missing_labels(problems: Iterable[Problem]) -> list[Problem]:
    """The problems, worst first, with missing labels as errors."""
    raised = [replace(p, severity="error") if p.name == "missing-label" else p for p in problems]
    return sorted(raised, key=lambda problem: SEVERITIES.index(problem.severity))


def to_json(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """The problems as JSON values, for `--json` and for the report."""
    return [asdict(problem) for problem in problems]


def render(problems: Sequence[Problem], console: Console | None = None) -> None:
    """Print the problems: severity, location, finding, remedy."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console()
    colours = {"error": "bold red", "warning": "yellow", "note": "cyan"}
    for problem in problems:
        line = Text(f"{problem.severity:<8}", style=colours[problem.severity])
        line.append(location(problem), style="bold")
        line.append(f"{problem.message} {problem.remedy}".rstrip(), style="default")
        console.print(line, soft_wrap=True)
    counts = Counter(problem.severity for problem in problems)
    summary = ", ".join(f"{counts[s]} {s}{'s' * (counts[s] > 1)}" for s in SEVERITIES if counts[s])
    console.print(summary or "Nothing wrong found.", style="bold", highlight=False)


def location(problem: Problem) -> str:
    """`train.csv lines 2, 5: `, as the beginning of a message; nothing if there is no source."""
    if not problem.source:
        return ""
    numbers = ", ".join(map(str, (problem.files or problem.lines)[:_LINES_SHOWN]))
    more = ", …" if problem.count > _LINES_SHOWN else ""
    unit = problem.unit + "s" * (len(problem.lines) > 1)
    return f"{problem.source} {unit} {numbers}{more}: " if numbers else f"{problem.source}: "


def problem_in(
    severity: Severity, name: str, message: str, part: Examples, indices: Sequence[int] = (), remedy: str = ""
) -> Problem:
    """A problem of the examples at `indices`, or of a part as a whole."""
    reported = indices[:_LINES_KEPT]
    lines = tuple(part.line(i) for i in reported)
    files = tuple(part.ids[i] for i in reported) if part.unit == "file" and part.ids is not None else ()
    return Problem(severity, name, message, part.source, lines, len(indices), remedy, part.unit, files)
