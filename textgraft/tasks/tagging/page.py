"""Tagged sentences as one self-contained HTML page: tags in colours, with a legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from textgraft.report.html import page, text

if TYPE_CHECKING:
    from textgraft.tasks.tagging.predictor import TaggedSentence

COLOURS = 8
"""Number of series in the style; further tags reuse the colours and differ by their names."""
TITLE = "Tagged sentences"
_HOLE = "<!-- sentences -->"


def tagged_sentences_page(predictions: Iterable[TaggedSentence]) -> Iterator[str]:
    """The page in pieces, one a sentence; the last one is the legend with the frequency of each tag."""
    before, after = page(TITLE, _HOLE).split(_HOLE)
    yield before
    numbers: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for prediction in predictions:
        shown, at = [], 0
        for start, end, name in prediction.spans:
            if start < at:  # a word of several that are written as one
                continue
            number = numbers.setdefault(name, len(numbers))
            counts[name] += 1
            shown += [
                text(prediction.sentence.text[at:start]),
                _marked(prediction.sentence.text[start:end], name, number),
            ]
            at = end
        yield f'<p dir="auto">{"".join(shown)}{text(prediction.sentence.text[at:])}</p>'
    legend = [f"<li>{_marked(f'{counts[name]:,}', name, number)}</li>" for name, number in numbers.items()]
    yield f"<section><h2>Legend</h2><ul>{''.join(legend)}</ul></section>" if legend else ""
    yield after


def _marked(words: str, name: str, number: int) -> str:
    colour = f"var(--series-{number % COLOURS + 1})"
    style = f"background: var(--panel); color: inherit; border-bottom: 3px solid {colour}"
    return f'<mark style="{style}">{text(words)} <small style="color: {colour}">{text(name)}</small></mark>'
