"""Word boundaries in scripts without spaces: dictionary segmentation for Thai, single clusters for other scripts.

Boundaries become spaces in the normalised text, before the library's pipeline. Thai is segmented by newmm (maximal
matching bound to Thai character clusters, Chaovavanich 2016, in PyThaiNLP), in Rust if nlpo3 is installed, with
PyThaiNLP's dictionary. Unlike there, only runs of Thai letters are passed to it, in windows, and no grapheme cluster is
split. Chinese, Japanese, Lao, Khmer and Burmese, which it has no words for, are split at every cluster.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
import time
import warnings
from array import array
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from textgraft.core.errors import UserError
from textgraft.core.files import temporary_folder
from textgraft.text.clusters import joins
from textgraft.text.normalize import Aligned

WINDOW, MARGIN = 300, 60
"""Characters that newmm segments at once; words that end in the last MARGIN of a window are segmented again in the
next.
"""
SECONDS, SECONDS_PER_CHARACTER = 5.0, 2e-5
"""Limits on processor time for one document. Ordinary text takes far less than half of it; an ambiguous one may take
fifty times as long as an ordinary one, since newmm compares all segmentations.
"""

_SLOW = (
    "a text is too ambiguous to be segmented into words by a dictionary in time; the rest of it is split into "
    "characters. Check that it is natural text."
)
_INSTALL = 'Install it by: pip install "textgraft[thai]"'
_ENGINES = ("nlpo3", "pythainlp")
_THAI = "\u0e01-\u0e3a\u0e40-\u0e4e"  # without digits and punctuation, which the pipeline splits
_OTHERS = (
    "\u0e81-\u0ecf\u0edc-\u0edf\u1000-\u103f\u1050-\u109f\u1780-\u17d3\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(rf"(?P<thai>[{_THAI}]+)|[{_OTHERS}]+")
_UNSPACED_GAP = re.compile(rf"(?<=[{_THAI}{_OTHERS}]) (?=[{_THAI}{_OTHERS}])")


@dataclass(frozen=True)
class Segmenter:
    """A segmentation program and its dictionary; part of a tokenizer's file, since ids depend on them."""

    name: str
    engine: str
    dictionary: str
    dictionary_sha256: str

    @classmethod
    def installed(cls) -> Segmenter:
        """The fastest segmenter installed. Raises UserError without the extra."""
        digest = _dictionary()[1]
        engine = next(engine for engine in _ENGINES if importlib.util.find_spec(engine))
        return cls("newmm", engine, _version("pythainlp"), digest)

    @classmethod
    def from_description(cls, content: Any, *, where: str) -> Segmenter:
        """The inverse of `describe`. Raises UserError for an unknown one, and if this machine lacks its program or
        dictionary.
        """
        try:
            segmenter = cls(**content)
            if segmenter.name != "newmm" or segmenter.engine not in _ENGINES:
                raise ValueError(f"unknown segmenter '{segmenter.name}' of '{segmenter.engine}'")
        except (TypeError, ValueError) as error:
            remedy = "Use one written by this version of textgraft, or update textgraft."
            raise UserError(
                f"this tokenizer segments words in an unknown way ({error}).", where=where, remedy=remedy
            ) from error
        if not importlib.util.find_spec(segmenter.engine):
            raise UserError(f"this tokenizer needs {segmenter.engine} to split words.", where=where, remedy=_INSTALL)
        if _dictionary()[1] != segmenter.dictionary_sha256:
            message = f"this tokenizer needs the dictionary of {segmenter.dictionary}, and another one is installed."
            remedy = f"Install it by: pip install {segmenter.dictionary.replace(' ', '==')}"
            raise UserError(message, where=where, remedy=remedy)
        return segmenter

    def describe(self) -> dict[str, str]:
        return asdict(self)

    def spaced(self, text: str) -> str:
        """Normalised text with a space at every word boundary."""
        borders = self.borders(text)
        return " ".join(text[a:b] for a, b in zip([0, *borders], [*borders, len(text)]))

    def spaced_aligned(self, old: Aligned) -> Aligned:
        """`spaced` with origins; inserted spaces have empty spans."""
        borders = np.array(self.borders(old.text), dtype=np.int64)
        if not len(borders):
            return old
        starts, ends = np.array(old.starts), np.array(old.ends)
        text = " ".join(old.text[a:b] for a, b in zip([0, *borders], [*borders, len(old.text)]))
        ends = np.maximum.accumulate(np.insert(ends, borders, starts[borders]))
        return Aligned(
            text, array("q", np.insert(starts, borders, starts[borders]).tolist()), array("q", ends.tolist())
        )

    def borders(self, text: str) -> list[int]:
        """Ascending word starts inside `text` that have no space before them; never inside a grapheme cluster.

        Warns once if a text exceeds its processor time (SECONDS and SECONDS_PER_CHARACTER): the rest of it is split at
        every cluster. The time is checked between windows, each of which takes a tenth of a second at worst.
        """
        deadline = time.thread_time() + SECONDS + SECONDS_PER_CHARACTER * len(text)
        borders: list[int] = []
        for run in _UNSPACED.finditer(text):
            first, last = run.span()
            borders.append(first)
            borders += self._thai_borders(text, first, last, deadline) if run["thai"] else range(first + 1, last)
            borders.append(last)
        inside = (b for b in dict.fromkeys(borders) if 0 < b < len(text))
        return [b for b in inside if " " not in text[b - 1 : b + 1] and not joins(text[b - 1], text[b])]

    def _thai_borders(self, text: str, first: int, last: int, deadline: float) -> Iterator[int]:
        """Boundaries in a run of Thai, from overlapping windows so that the windows' ends do not matter."""
        segment = _load_newmm(self.engine, self.dictionary_sha256)
        while first < last:
            if time.thread_time() > deadline:
                warnings.warn(_SLOW, stacklevel=2)
                yield from range(first + 1, last)
                return
            window = text[first : min(last, first + WINDOW)]
            ends = np.cumsum([len(word) for word in segment(window)])
            if not len(ends) or ends[-1] != len(window):  # newmm lost or added characters
                ends = np.arange(1, len(window) + 1)
            if first + len(window) < last:
                reliable = ends[ends <= WINDOW - MARGIN]
                ends = reliable if len(reliable) else ends[:1]
            yield from (first + ends).tolist()
            first += int(ends[-1])


def joined(text: str) -> str:
    """Text without spaces between characters of scripts that do not use them."""
    return _UNSPACED_GAP.sub("", text)


@lru_cache(maxsize=2)
def _load_newmm(engine: str, digest: str) -> Callable[[str], list[str]]:
    """Newmm with the installed dictionary, whose digest is `digest`."""
    words, _ = _dictionary()
    if engine == "pythainlp":
        from pythainlp.tokenize import newmm
        from pythainlp.util import Trie

        trie = Trie(words)
        return lambda text: list(newmm.segment(text, trie))
    import nlpo3

    name = f"textgraft {digest}"
    with temporary_folder() as folder:
        path = Path(folder) / "words.txt"
        path.write_text("\n".join(words), encoding="utf-8")
        nlpo3.load_dict(str(path), name)
    return lambda text: list(nlpo3.segment(text, name))


@lru_cache(maxsize=1)
def _dictionary() -> tuple[list[str], str]:
    """PyThaiNLP's words, sorted, and their SHA-256 (hex). Read as a file: importing it would create a folder at
    home.
    """
    package = importlib.util.find_spec("pythainlp")
    if package is None or package.origin is None:
        raise UserError("splitting Thai into words needs pythainlp.", remedy=_INSTALL)
    path = Path(package.origin).parent / "corpus" / "words_th.txt"
    try:
        words = sorted({line.strip() for line in path.read_text(encoding="utf-8").splitlines()} - {""})
    except OSError as error:
        raise UserError("pythainlp has no dictionary here.", where=str(path), remedy=_INSTALL) from error
    return words, hashlib.sha256("\n".join(words).encode()).hexdigest()


def _version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"
