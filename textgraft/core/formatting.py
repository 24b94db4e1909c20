"""Numbers and texts as people read them: shares as per cent, no number for None, nothing unprintable."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

SHARES = ("accuracy", "f1", "precision", "recall", "exact_match")
NOT_KNOWN = "–"
# Neither a page nor a plot nor a reader can do anything with these, and NUL is forbidden in HTML.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


def printable(text: object) -> str:
    """Any user's text with U+FFFD for control characters and lone surrogates; line ends and tabs stay."""
    return _UNPRINTABLE.sub("\ufffd", str(text))


def metric_name(metric: str) -> str:
    """`macro F1` for `macro_f1`."""
    return metric.replace("_", " ").replace("f1", "F1")


def is_share(metric: str) -> bool:
    """Whether a metric lies between 0 and 1 and reads best as per cent."""
    return metric.endswith(SHARES)


def score(value: float | None, metric: str) -> str:
    """`88.3 %` for a share, `0.4121` for anything else, a dash for None."""
    if value is None:
        return NOT_KNOWN
    return f"{100 * value:.1f} %" if is_share(metric) else f"{value:.4g}"


def interval(mean: float, low: float, high: float, metric: str) -> str:
    """`88.3 % [87.4, 89.2]`."""
    if is_share(metric):
        return f"{100 * mean:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{mean:.4g} [{low:.4g}, {high:.4g}]"


def cosine(value: float) -> str:
    """`0.43`, two places; there is no negative zero."""
    return f"{value:.2f}".replace("-0.00", "0.00")


def cosine_interval(mean: float, low: float, high: float) -> str:
    """`0.43 [0.41, 0.45]`."""
    return f"{cosine(mean)} [{cosine(low)}, {cosine(high)}]"


def difference(value: float, metric: str) -> str:
    """`5.2 points` between two shares, plainly the number between anything else."""
    return f"{100 * value:.1f} points" if is_share(metric) else f"{value:.4g}"


def signed(mean: float, low: float, high: float, metric: str) -> str:
    """A difference with its interval: `+5.2 points [+1.0, +9.1]`."""
    if is_share(metric):
        return f"{100 * mean:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{mean:+.4g} [{low:+.4g}, {high:+.4g}]"


def minutes(seconds: float) -> str:
    """Seconds as minutes: `0.3`, `4.2`, `1,250`."""
    found = seconds / 60
    return f"{found:,.0f}" if found >= 10 else f"{found:.2g}"


def p_value(p: float) -> str:
    """`p = 0.031`, or `p < 0.001` where more digits would pretend to know."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def compared(by: float, p: float, metric: str, rival: str) -> str:
    """`5.2 points better than LSA (80.4 %): more than chance explains (p = 0.031).`; `by` above 0 is better.

    `rival` is what stands behind "than", in words.
    """
    gap = f"{difference(abs(by), metric)} {'better' if by > 0 else 'worse'} than"
    certain = "more than chance explains" if p < 0.05 else "no more than chance could give"
    return f"{gap if by else 'No different from'} {rival}: {certain} ({p_value(p)})."


def aligned(rows: Sequence[Sequence[str]], *, left: Container[int]) -> str:
    """A table as plain text, the columns in `left` flush left and the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
