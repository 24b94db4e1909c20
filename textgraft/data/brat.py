"""brat's stand-off annotation: a text file and beside it .ann with the spans of its entities.

A line of the text is a sentence, as brat shows it. Lines of .ann other than those of entities (relations, events,
attributes, notes) are skipped. Offsets count characters of the text file, line ends included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from textgraft.core.errors import UserError
from textgraft.data.conll import Sentence
from textgraft.data.tag_spans import Span, SpanAlignment, from_text
from textgraft.data.text_files import lines

_ENTITY = re.compile(r"T\S+\t(?P<label>\S+) (?P<parts>\d{1,12} \d{1,12}(?:;\d{1,12} \d{1,12})*)(?:\t(?P<text>.*))?")
_REMEDY = "Write T1, a tab, the type with start and end, a tab, and the text: T1\tPER 0 3\tAnn."


def is_brat(path: Path) -> bool:
    """True for an .ann file, a text file beside one, and a folder with any."""
    if path.is_dir():
        return any(path.glob("*.ann"))
    return path.suffix == ".ann" or (path.suffix == ".txt" and path.with_suffix(".ann").is_file())


def _documents(path: Path) -> list[Path]:
    """The .ann files of a path."""
    return sorted(path.glob("*.ann")) if path.is_dir() else [path.with_suffix(".ann")]


def brat_sentences(path: Path) -> Iterator[Sentence]:
    """Sentences of a document, or of all in a folder, without tags; lines without a word are skipped."""
    for document in _documents(path):
        for _, sentence in _lines(document):
            yield sentence


def read_brat(path: Path, alignment: SpanAlignment) -> tuple[Sentence, ...]:
    """Sentences of a document, or of all in a folder, with IOB2 tags.

    Args:
        path: An .ann file, its text, or a folder.
        alignment: Conversion of spans, which also decides about those that do not fit.

    Raises:
        UserError: A file is missing, or a line of .ann is no annotation; with file and line.
    """
    sentences = []
    for document in _documents(path):
        numbered = list(_lines(document))
        of_line: dict[int, list[Span]] = {}
        for span in _entities(document, alignment):
            first = max((i for i, (start, _) in enumerate(numbered) if start <= span.start), default=None)
            if first is None or span.end > numbered[first][0] + len(numbered[first][1].text):
                message = f"{span.start} to {span.end} ({span.label}) is not within one line of the text."
                alignment.leave_out(UserError(message, where=span.where))
                continue
            start = numbered[first][0]
            moved = Span(span.start - start, span.end - start, span.label, span.where, span.text)
            of_line.setdefault(first, []).append(moved)
        for i, (_, sentence) in enumerate(numbered):
            tags = tuple(alignment.tags(sentence, of_line.get(i, ())))
            sentences.append(Sentence(**{**vars(sentence), "tags": tags}))
    alignment.finish()
    return tuple(sentences)


def _lines(document: Path) -> Iterator[tuple[int, Sentence]]:
    """Offset and sentence of each line of the text beside an .ann file."""
    path = document.with_suffix(".txt")
    physical = list(lines(path))
    for number, (start, line) in enumerate(zip(accumulate(map(len, physical), initial=0), physical, strict=False), 1):
        sentence = from_text(line.rstrip("\r\n"))
        if sentence.words:
            yield start, Sentence(**{**vars(sentence), "line": number, "unit": f"{path.name} line"})


def _entities(document: Path, alignment: SpanAlignment) -> Iterator[Span]:
    """The entities of an .ann file; those in several pieces are left out, unless only white space parts them."""
    text = "".join(lines(document.with_suffix(".txt")))
    for number, line in enumerate(lines(document), 1):
        if not line.startswith("T"):
            continue
        where = f"{document} line {number}"
        match = _ENTITY.fullmatch(line.rstrip("\r\n"))
        if match is None:
            raise UserError("this is no entity with start and end.", where=where, remedy=_REMEDY)
        numbers = [int(n) for part in match["parts"].split(";") for n in part.split()]
        gaps = [text[a:b] for a, b in zip(numbers[1:-1:2], numbers[2::2], strict=True)]
        if any(gap.strip() for gap in gaps):
            message = f"'{match['text']}' ({match['label']}) is in several pieces, which tags of words cannot be."
            alignment.leave_out(UserError(message, where=where))
            continue
        yield Span(numbers[0], numbers[-1], match["label"], where, match["text"])
