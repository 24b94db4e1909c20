"""Formatting of numbers and texts for people: percentages, a dash for None, nothing unprintable."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence

SHARES = ("accuracy", "f1", "precision", "recall", "exact_match")
NOT_KNOWN = "–"
# These cannot be displayed, and NUL is forbidden in HTML.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def printable(text: object) -> str:
    """Text with U+FFFD for control characters and lone surrogates; line ends and tabs are kept."""
    return _UNPRINTABLE.sub("\ufffd", str(text))


def metric_name(metric: str) -> str:
    """Display name of a metric.

    >>> metric_name("macro_f1")
    'macro F1'
    """
    return metric.replace("_", " ").replace("f1", "F1")


def is_share(metric: str) -> bool:
    """True for metrics between 0 and 1, which are shown as percentages."""
    return metric.endswith(SHARES)


def score(value: float | None, metric: str) -> str:
    """`88.3 %` for a share, `0.4121` for other metrics, a dash for None.

    >>> score(0.883, "accuracy"), score(None, "mae")
    ('88.3 %', '–')
    """
    if value is None:
        return NOT_KNOWN
    return f"{100 * value:.1f} %" if is_share(metric) else f"{value:.4g}"


def interval(mean: float, low: float, high: float, metric: str) -> str:
    """A mean with its interval: `88.3 % [87.4, 89.2]`."""
    if is_share(metric):
        return f"{100 * mean:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{mean:.4g} [{low:.4g}, {high:.4g}]"


def cosine(value: float) -> str:
    """`0.43`, two decimals without negative zero."""
    return f"{value:.2f}".replace("-0.00", "0.00")


def cosine_interval(mean: float, low: float, high: float) -> str:
    """A cosine with its interval: `0.43 [0.41, 0.45]`."""
    return f"{cosine(mean)} [{cosine(low)}, {cosine(high)}]"


def difference(value: float, metric: str) -> str:
    """`5.2 points` for shares, a plain number for other metrics."""
    return f"{100 * value:.1f} points" if is_share(metric) else f"{value:.4g}"


def signed(mean: float, low: float, high: float, metric: str) -> str:
    """A signed difference with its interval: `+5.2 points [+1.0, +9.1]`."""
    if is_share(metric):
        return f"{100 * mean:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{mean:+.4g} [{low:+.4g}, {high:+.4g}]"


def minutes(seconds: float) -> str:
    """Seconds as minutes: `0.3`, `4.2`, `1,250`."""
    value = seconds / 60
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def duration(seconds: float) -> str:
    """Seconds up to two minutes, then minutes: `42 s`, `4.2 min`."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes(seconds)} min"


def p_value(p: float) -> str:
    """`p = 0.031`, or `p < 0.001`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def compared(difference_to_rival: float, p: float, metric: str, rival: str) -> str:
    """A sentence that compares with a rival: `5.2 points better than LSA (80.4 %): more than chance explains (p =
    0.031).`

    Args:
        difference_to_rival: Signed difference; positive is better.
        p: P value of the difference.
        metric: Name of the metric.
        rival: Description of the rival, after "than".
    """
    gap = f"{difference(abs(difference_to_rival), metric)} {'better' if difference_to_rival > 0 else 'worse'} than"
    verdict = "more than chance explains" if p < 0.05 else "no more than chance could give"
    return f"{gap if difference_to_rival else 'No different from'} {rival}: {verdict} ({p_value(p)})."


def texts(count: int) -> str:
    """`1 text`, `1,250 texts`."""
    return f"{count:,} text{'s' * (count != 1)}"


def quoted(names: Iterable[str], most: int = 8) -> str:
    """Names in quotes, the first few of many.

    >>> quoted(["ship", "hull"])
    "'ship', 'hull'"
    """
    listed = list(names)
    return ", ".join(f"'{name}'" for name in listed[:most]) + (", …" if len(listed) > most else "")


def aligned(rows: Sequence[Sequence[str]], *, left: Container[int]) -> str:
    """A table as plain text; columns in `left` are left-aligned, others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
