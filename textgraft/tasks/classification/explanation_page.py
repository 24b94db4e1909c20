"""Explained predictions as one self-contained HTML page: words coloured by their effect on the prediction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from textgraft.core import formatting
from textgraft.report.html import page, text

if TYPE_CHECKING:
    from textgraft.tasks.classification.explaining import Explanation

TITLE = "Explained predictions"
LEGEND = (
    "The darker a word, the more the prediction changes where the word is left out. Green: it supports the prediction; "
    "red: it opposes it. Hover over a word for its weight, in nats of log-odds (for a number, the number)."
)
_HOLE = "<!-- texts -->"


def explanations_page(explanations: Iterable[Explanation]) -> Iterator[str]:
    """The page in pieces, one a text."""
    before, after = page(TITLE, f'<p class="quiet">{text(LEGEND)}</p>{_HOLE}').split(_HOLE)
    yield before
    for one in explanations:
        yield f"<section><h2>{text(headline(one))}</h2>\n{highlighted(one)}</section>\n"
    yield after


def headline(one: Explanation) -> str:
    """`pos, 93.0 %`, or the number; and that it is a guess where the model knows nothing in the text."""
    answer = f"{one.answer:.4g}" if one.label is None else f"{one.label}, {formatting.score(one.answer, 'accuracy')}"
    return answer if one.known else f"{answer}: a guess, as the model knows nothing in this text"


def highlighted(one: Explanation) -> str:
    """A paragraph for the text, or each text of a pair, its parts shaded by their absolute weight."""
    most = max((abs(part.weight) for part in one.parts), default=0.0) or 1.0
    shown = []
    for number, side in enumerate(one.sides):
        pieces, at = [], 0
        for part in (part for part in one.parts if part.side == number):
            share = round(70 * abs(part.weight) / most)
            colour = "good" if part.weight > 0 else "bad"
            style = f"background: color-mix(in srgb, var(--{colour}) {share}%, transparent); color: inherit"
            words = text(side[part.start : part.end])
            pieces += [text(side[at : part.start]), f'<mark style="{style}" title="{part.weight:+.2f}">{words}</mark>']
            at = part.end
        shown.append(f'<p class="text" dir="auto">{"".join(pieces)}{text(side[at:])}</p>')
    return "\n".join(shown)
