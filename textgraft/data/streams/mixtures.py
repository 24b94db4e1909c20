"""Documents of several sources of text as one endless stream: in shares by weight, resumable at any document.

The order is a function of the seed and the sources: each source reads its files in a random order, another one in each
pass, and starts again where it ends; the next document is of the source that is furthest behind its share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from textgraft.core.errors import UserError
from textgraft.data.streams.text_places import START, Place, texts_from

HELD_OUT_TEXTS = 300
_HELD_OUT_SHARE = 10
"""At most a tenth of the texts is held out, where there are few."""
_MOST_HELD_OUT_CHARACTERS = 3_000_000


@dataclass(frozen=True)
class Source:
    """Files of one kind of text.

    Attributes:
        name: For messages and run.json.
        files: Paths and URLs, in the order of their names.
        column: The column of the texts (text_places.text_column).
        weight: Its share of the characters of the stream.
        begins: Place in a file where its training text begins, by the file's index; held-out text is before it.
    """

    name: str
    files: tuple[str, ...]
    column: str | None = None
    weight: float = 1.0
    begins: Mapping[int, Place] | None = None

    @property
    def where(self) -> str:
        """Its first files, for messages."""
        return ", ".join(self.files[:3])

    def begin(self, file: int) -> Place:
        """The place in a file where its training text begins."""
        return (self.begins or {}).get(file, START)


class At(NamedTuple):
    """A place in a source: finished passes, files of this pass, rows and bytes of this file, and characters in all."""

    passes: int = 0
    file: int = 0
    row: int = 0
    byte: int = 0
    characters: int = 0


Places = tuple[At, ...]
"""A place in each source of a mixture."""


def validated_weights(names: Sequence[str], weights: Mapping[str, float]) -> dict[str, float]:
    """The weight of each source; equal ones where none is given.

    Raises:
        UserError: Only some sources have one, one is not positive, there is no such source, or the sum is not 1.
    """
    if unknown := [name for name in weights if name not in names]:
        remedy = f"Sources: {', '.join(names)}."
        raise UserError(f"there is no source '{unknown[0]}' to weigh.", where="weight", remedy=remedy)
    if not weights:
        return dict.fromkeys(names, 1 / len(names))
    if missing := [name for name in names if name not in weights]:
        message = f"the source '{missing[0]}' has no weight, and others have."
        raise UserError(message, where="weight", remedy="Give each one, or none for equal shares.")
    for name, weight in weights.items():
        if not 0 < weight < math.inf:
            raise UserError(f"the weight of '{name}' is {weight}.", where="weight", remedy="Give a number above 0.")
    total = sum(weights.values())
    if abs(total - 1) > 1e-6:
        shares = ", ".join(f"{name}={weight / total:.6g}" for name, weight in weights.items())
        raise UserError(
            f"the weights sum to {total:.6g}, not to 1.", where="weight", remedy=f"In proportion: {shares}."
        )
    return {name: weights[name] for name in names}


def documents(sources: Sequence[Source], places: Places, seed: int) -> Iterator[tuple[str, Places]]:
    """Texts of the mixture from a place on, without end, each with the places before it.

    Each source has its weight's share of the characters, to within a text.

    Raises:
        UserError: A source has no text, or cannot be read.
    """
    readers = [
        _read(source, at, [seed, 7, number]) for number, (source, at) in enumerate(zip(sources, places, strict=True))
    ]
    weights = [source.weight for source in sources]
    while True:
        behind = min(range(len(weights)), key=lambda i: places[i].characters / weights[i])
        text, after = next(readers[behind])
        yield text, places
        places = (*places[:behind], after, *places[behind + 1 :])


def _read(source: Source, at: At, seed: list[int]) -> Iterator[tuple[str, At]]:
    """Texts of one source, again and again, each with the place after it."""
    while True:
        before = at.characters
        is_whole_pass = (at.file, at.row) == (0, 0)
        order = np.random.default_rng([*seed, at.passes]).permutation(len(source.files)).tolist()
        for index in range(at.file, len(order)):
            place = max(Place(at.row, at.byte), source.begin(order[index]))
            for text, after in texts_from(source.files[order[index]], source.column, place):
                at = At(at.passes, index, *after, at.characters + len(text))
                yield text, at
            at = At(at.passes, index + 1, 0, 0, at.characters)
        if is_whole_pass and at.characters == before:
            column = f" in the column '{source.column}'" if source.column else ""
            remedy = "Check that these are the right files, or hold out other text (valid=…)."
            raise UserError(f"there is no text{column} to train on.", where=source.where, remedy=remedy)
        at = At(at.passes + 1, 0, 0, 0, at.characters)


def read_once(source: Source) -> Iterator[str]:
    """All texts of a source, in the order of its files."""
    for file in source.files:
        yield from (text for text, _ in texts_from(file, source.column))


def read_pass(source: Source, seed: int) -> Iterator[str]:
    """The texts of a source's first pass over its files, without held-out text."""
    once = takewhile(lambda item: item[1].passes == 0, _read(source, At(), [seed, 7, 0]))
    return (text for text, _ in once)


def hold_out(source: Source, count: int) -> tuple[Source, list[str]]:
    """The source without its first texts, and these: `count`, or a tenth where there are few.

    Raises:
        UserError: There are fewer than two texts.
    """
    read: list[tuple[str, int, Place]] = []
    characters = 0
    for number, file in enumerate(source.files):
        for text, after in texts_from(file, source.column):
            read.append((text, number, after))
            characters += len(text)
            if len(read) >= _HELD_OUT_SHARE * count or characters >= _HELD_OUT_SHARE * _MOST_HELD_OUT_CHARACTERS:
                break
        else:
            continue
        break
    if len(read) < 2:
        message = "there is a single text, which would be held out." if read else "there is no text."
        raise UserError(message, where=source.where, remedy="Give more text, or other text to hold out (valid=…).")
    held = read[: min(count, max(1, len(read) // _HELD_OUT_SHARE))]
    begins = {number: after for _, number, after in held}
    return replace(source, begins=begins), [text for text, _, _ in held]


def progress(sources: Sequence[Source], places: Places) -> dict[str, dict[str, Any]]:
    """Entries of run.json for each source: its weight, characters and share of them, and passes over its files."""
    total = max(1, sum(at.characters for at in places))
    return {
        source.name: {
            "weight": source.weight,
            "characters": at.characters,
            "share": at.characters / total,
            "epochs": at.passes + at.file / len(source.files),
        }
        for source, at in zip(sources, places, strict=True)
    }
