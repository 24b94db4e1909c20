"""Text files with a text a line; those of fastText begin lines with labels: `__label__pos A fine film.`"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from textgraft.data.text_files import lines

_PREFIX = "__label__"
_LABELS = re.compile(rf"\s*((?:{_PREFIX}\S+(?:\s+|$))+)")


def line_rows(path: Path, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Lines that are not blank as (line, {"text": …}); fastText's, if the first begins with a label, also a "label".

    A label of fastText is a string, or a list where any line has several; None for a line without one.
    """
    numbered = ((i, line.rstrip("\r\n")) for i, line in enumerate(lines(path, encoding=encoding), 1) if line.strip())
    if not next(lines(path, encoding=encoding), "").startswith(_PREFIX):
        yield from ((number, {"text": line}) for number, line in numbered)
        return
    several = any(len(_parsed(line)[0]) > 1 for line in lines(path, encoding=encoding))
    for number, line in numbered:
        labels, text = _parsed(line)
        yield number, {"text": text, "label": labels if several else next(iter(labels), None)}


def _parsed(line: str) -> tuple[list[str], str]:
    """The labels that a line begins with, and the text after them."""
    match = _LABELS.match(line)
    if match is None:
        return [], line
    return [label.removeprefix(_PREFIX) for label in match[1].split()], line[match.end() :]
