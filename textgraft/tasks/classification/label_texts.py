"""Labels described in words: their names, descriptions and example texts, from a list, a mapping or a TOML file."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textgraft.core.errors import UserError, did_you_mean
from textgraft.core.toml_text import read_toml_table
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.data.targets import target_of

TABLES = ("labels", "examples")
MIN_LETTERS = 3
"""Letters of a name below which it is a code and does not describe its label."""
FORM = 'Write "refund, delivery", or name a .toml file with a table [labels].'


@dataclass(frozen=True)
class LabelTexts:
    """Labels with the texts that describe them.

    Attributes:
        names: The C names, sorted.
        texts: For each label its descriptions; its name where it has none.
        examples: For each label example texts, often none.
        source: The file, for messages.

    >>> LabelTexts.of("lost_card, refund").texts
    (('lost card',), ('refund',))
    """

    names: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    examples: tuple[tuple[str, ...], ...]
    source: str = "labels"

    @classmethod
    def of(cls, labels: Any) -> LabelTexts:
        """Labels in any of their forms.

        Args:
            labels: Names in one string with commas, or in a list; a mapping from name to a description or several
                (none: the name alone); the path of a .toml file (`read`); or LabelTexts, returned as they are.

        Raises:
            UserError: There are fewer than two labels; a name is empty or repeated; two labels have the same texts; or
                as `read`.
        """
        if isinstance(labels, LabelTexts):
            return labels
        if isinstance(labels, str | os.PathLike) and str(labels).strip().endswith(".toml"):
            return cls.read(str(labels).strip())
        if isinstance(labels, Mapping):
            return _label_texts([(str(name), _texts(name, value)) for name, value in labels.items()], {}, "labels")
        names = labels.split(",") if isinstance(labels, str) else labels
        if not isinstance(names, Iterable) or isinstance(names, os.PathLike):
            raise UserError(f"this is of type {type(labels).__name__}, not labels.", where="labels", remedy=FORM)
        return _label_texts([(str(name), ()) for name in names], {}, "labels")

    @classmethod
    def read(cls, path: Path | str) -> LabelTexts:
        """Labels of a TOML file.

        Its table `[labels]` has a description, or a list of them, for each name; empty: the name alone. A table
        `[examples]`, where there is one, has example texts of some of the labels.

        Raises:
            UserError: There is no such file, it is not TOML, or it has other content; or as `of`.
        """
        path = Path(path)
        try:
            content = read_toml_table(path)
        except OSError as error:
            raise UserError(f"cannot be read ({error.strerror}).", where=str(path), remedy="Check the path.") from error
        except ValueError as error:
            remedy = 'Below a line [labels], a label is a line such as refund = "The customer wants money back."'
            raise UserError(f"this is not a TOML file: {error}.", where=str(path), remedy=remedy) from error
        unknown = next((key for key in content if key not in TABLES), None)
        if unknown is not None:
            remedy = f"{did_you_mean(unknown, TABLES)} A line [labels] comes before the labels."
            raise UserError(f"unknown table '{unknown}'.", where=str(path), remedy=remedy)
        tables = {table: _table(content.get(table, {}), f"{path}, {table}") for table in TABLES}
        if not tables["labels"]:
            remedy = 'Write a line [labels], then one for each label, such as refund = "The customer wants money back."'
            raise UserError("there are no labels.", where=str(path), remedy=remedy)
        return _label_texts(list(tables["labels"].items()), tables["examples"], str(path))

    @property
    def labels(self) -> Labels:
        """The labels of a classifier."""
        return Labels("single", self.names)

    @property
    def labelled(self) -> tuple[list[str], NDArray[np.int64]]:
        """The example texts, and the number of each one's label."""
        texts = [text for examples in self.examples for text in examples]
        return texts, np.repeat(np.arange(len(self.names)), [len(examples) for examples in self.examples])

    def validate(self, test: Examples) -> None:
        """Raise UserError for labelled texts that have other labels than these."""
        if test.labels is None:
            raise UserError("there are no labels.", where=test.source, remedy="Name the column with label=….")
        if not target_of(test).has_one_label:
            message = "zero-shot classification has one label a text, and these are of another kind."
            raise UserError(message, where=test.source, remedy="Set the right column with label=….")
        for index, label in enumerate(test.labels):
            if label not in self.names:
                message = "the label is missing." if label == "" else f"'{label}' is none of the labels."
                remedy = f"Correct it, or add it to the labels. {did_you_mean(str(label), self.names)}"
                raise UserError(message, where=test.where(index), remedy=remedy)


def _label_texts(
    entries: Sequence[tuple[str, tuple[str, ...]]], examples: Mapping[str, tuple[str, ...]], source: str
) -> LabelTexts:
    """Labels by name, sorted. Raises UserError as LabelTexts.of does."""
    named = [(name.strip(), texts) for name, texts in entries]
    if any(not name for name, _ in named):
        raise UserError("a label has no name.", where=source, remedy="Remove the empty one, or name it.")
    if len(named) < 2:
        only = f", '{named[0][0]}'" if named else ""
        message = f"there {'is one label' if named else 'are no labels'}{only}: at least two are needed."
        raise UserError(message, where=source, remedy=FORM)
    repeated = [name for name, count in Counter(name for name, _ in named).items() if count > 1]
    if repeated:
        raise UserError(f"the label '{repeated[0]}' is repeated.", where=source, remedy="Write each label once.")
    described = {name: texts or (_words(name),) for name, texts in sorted(named)}
    first: dict[frozenset[str], str] = {}
    for name, texts in described.items():
        other = first.setdefault(frozenset(text.casefold() for text in texts), name)
        if other != name:
            message = f"the labels '{other}' and '{name}' have the same text, so nothing tells them apart."
            raise UserError(message, where=source, remedy="Describe each of them in a .toml file.")
    unknown = next((name for name in examples if name.strip() not in described), None)
    if unknown is not None:
        message = f"there are examples of '{unknown}', which is no label."
        raise UserError(message, where=source, remedy=did_you_mean(unknown, described))
    shown = {name.strip(): texts for name, texts in examples.items()}
    return LabelTexts(tuple(described), tuple(described.values()), tuple(shown.get(n, ()) for n in described), source)


def _table(value: Any, where: str) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        remedy = "Begin it with a line [labels]; below, one line for each label."
        raise UserError("this is not a table.", where=where, remedy=remedy)
    return {name: _texts(name, texts, where) for name, texts in value.items()}


def _texts(name: Any, value: Any, where: str = "labels") -> tuple[str, ...]:
    """A text or several, without empty ones. Raises UserError for anything else."""
    values = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(values, list | tuple) or not all(isinstance(text, str) for text in values):
        remedy = 'Write a text in quotes, or a list of texts: ["…", "…"].'
        raise UserError(f"{value!r} is neither a text nor a list of texts.", where=f"{where}, {name}", remedy=remedy)
    return tuple(" ".join(text.split()) for text in values if text.strip())


def are_descriptive(names: Sequence[str]) -> bool:
    """True for names that are words and differ in more than numbers, so that they may describe the labels.

    >>> are_descriptive(["lost card", "refund"]), are_descriptive(["0", "1"]), are_descriptive(["label_1", "label_2"])
    (True, False, False)
    """
    words = {re.sub(r"[\W\d_]+", " ", _words(name)).strip().casefold() for name in names}
    return len(words) == len(names) and all(len(word) >= MIN_LETTERS for word in words)


def _words(name: str) -> str:
    """A name as words: underscores are spaces."""
    return " ".join(name.replace("_", " ").split()) or name
