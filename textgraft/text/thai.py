"""Where words begin in text that does not say it: dictionary segmentation for Thai, single clusters for other scripts.

Word borders are marked by spaces in the normalised text, before the library's pipeline. Thai is cut by newmm (maximal
matching bound to Thai character clusters, Chaovavanich 2016, in PyThaiNLP), in Rust where nlpo3 is there, with
PyThaiNLP's dictionary. Unlike them we hand it stretches of Thai letters only, in windows, and never cut inside a
grapheme cluster. Chinese, Japanese, Lao, Khmer and Burmese, for which it knows no words, are cut at every cluster.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
import tempfile
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
from textgraft.text.clusters import joins
from textgraft.text.normalize import Aligned

WINDOW, MARGIN = 300, 60
"""Newmm sees so many characters at once; words that end in the last MARGIN are cut again in the next window."""
SECONDS, SECONDS_PER_CHARACTER = 5.0, 2e-5
"""Processor time for one document. Ordinary text takes far less than half of it; an ambiguous one may take fifty times
as long as an ordinary one, for newmm compares all ways to cut it."""

_SLOW = (
    "a text is too ambiguous to be cut into words by a dictionary within its time; the rest of it is read character "
    "by character. Is it natural text?"
)
_INSTALL = 'Install it by: pip install "textgraft[thai]"'
_ENGINES = ("nlpo3", "pythainlp")
_THAI = "\u0e01-\u0e3a\u0e40-\u0e4e"  # without digits and punctuation, which the pipeline cuts
_OTHERS = (
    "\u0e81-\u0ecf\u0edc-\u0edf\u1000-\u103f\u1050-\u109f\u1780-\u17d3\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(rf"(?P<thai>[{_THAI}]+)|[{_OTHERS}]+")
_CUT_THAI = re.compile(rf"(?<=[{_THAI}{_OTHERS}]) (?=[{_THAI}{_OTHERS}])")


@dataclass(frozen=True)
class Segmenter:
    """Which program cuts words by which dictionary; part of a tokenizer's file, since the ids depend on it."""

    name: str
    engine: str
    dictionary: str
    dictionary_sha256: str

    @classmethod
    def installed(cls) -> Segmenter:
        """The fastest one that is here. Raises UserError without the extra."""
        digest = _dictionary()[1]
        engine = next(engine for engine in _ENGINES if importlib.util.find_spec(engine))
        return cls("newmm", engine, _version("pythainlp"), digest)

    @classmethod
    def from_description(cls, content: Any, *, where: str) -> Segmenter:
        """What `describe` gave. Raises UserError for a foreign one, and where this machine lacks what it names."""
        try:
            segmenter = cls(**content)
            if segmenter.name != "newmm" or segmenter.engine not in _ENGINES:
                raise ValueError(f"there is no segmenter '{segmenter.name}' of '{segmenter.engine}'")
        except (TypeError, ValueError) as error:
            remedy = "Give one that this version of textgraft wrote, or update textgraft."
            raise UserError(
                f"this tokenizer cuts words in an unknown way ({error}).", where=where, remedy=remedy
            ) from error
        if not importlib.util.find_spec(segmenter.engine):
            raise UserError(f"this tokenizer needs {segmenter.engine} to cut words.", where=where, remedy=_INSTALL)
        if _dictionary()[1] != segmenter.dictionary_sha256:
            message = (
                f"this tokenizer cuts words by the dictionary of {segmenter.dictionary}, and the one here is another."
            )
            remedy = f"Install that one by: pip install {segmenter.dictionary.replace(' ', '==')}"
            raise UserError(message, where=where, remedy=remedy)
        return segmenter

    def describe(self) -> dict[str, str]:
        return asdict(self)

    def spaced(self, text: str) -> str:
        """Normalised `text` with a space at every word border that has none."""
        borders = self.borders(text)
        return " ".join(text[a:b] for a, b in zip([0, *borders], [*borders, len(text)]))

    def spaced_aligned(self, old: Aligned) -> Aligned:
        """The same with origins: a space put in came from nothing."""
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
        """Where words begin inside `text` without a space before them, rising; never inside a grapheme cluster.

        Warns once where a text takes more than its processor time (SECONDS and SECONDS_PER_CHARACTER): the rest of it
        is cut at every cluster. The clock is looked at between windows, each of which takes a tenth of a second at
        worst.
        """
        until = time.thread_time() + SECONDS + SECONDS_PER_CHARACTER * len(text)
        found: list[int] = []
        for run in _UNSPACED.finditer(text):
            first, last = run.span()
            found.append(first)
            found += self._thai_borders(text, first, last, until) if run["thai"] else range(first + 1, last)
            found.append(last)
        inside = (b for b in dict.fromkeys(found) if 0 < b < len(text))
        return [b for b in inside if " " not in text[b - 1 : b + 1] and not joins(text[b - 1], text[b])]

    def _thai_borders(self, text: str, first: int, last: int, until: float) -> Iterator[int]:
        """Borders of a run of Thai, by windows that overlap so that it does not matter where they end."""
        cut = _cutter(self.engine, self.dictionary_sha256)
        while first < last:
            if time.thread_time() > until:
                warnings.warn(_SLOW, stacklevel=2)
                yield from range(first + 1, last)
                return
            window = text[first : min(last, first + WINDOW)]
            ends = np.cumsum([len(word) for word in cut(window)])
            if not len(ends) or ends[-1] != len(window):  # it lost or added characters
                ends = np.arange(1, len(window) + 1)
            if first + len(window) < last:
                sure = ends[ends <= WINDOW - MARGIN]
                ends = sure if len(sure) else ends[:1]
            yield from (first + ends).tolist()
            first += int(ends[-1])


def joined(text: str) -> str:
    """`text` without the spaces between what is written without them."""
    return _CUT_THAI.sub("", text)


@lru_cache(maxsize=2)
def _cutter(engine: str, digest: str) -> Callable[[str], list[str]]:
    """Newmm with the installed dictionary, whose digest is `digest`."""
    words, _ = _dictionary()
    if engine == "pythainlp":
        from pythainlp.tokenize import newmm
        from pythainlp.util import Trie

        trie = Trie(words)
        return lambda text: list(newmm.segment(text, trie))
    import nlpo3

    name = f"textgraft {digest}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.txt"
        path.write_text("\n".join(words), encoding="utf-8")
        nlpo3.load_dict(str(path), name)
    return lambda text: list(nlpo3.segment(text, name))


@lru_cache(maxsize=1)
def _dictionary() -> tuple[list[str], str]:
    """PyThaiNLP's words, sorted, and their SHA-256 (hex). Read as a file: importing it would make a folder at home."""
    package = importlib.util.find_spec("pythainlp")
    if package is None or package.origin is None:
        raise UserError("cutting Thai into words needs pythainlp.", remedy=_INSTALL)
    path = Path(package.origin).parent / "corpus" / "words_th.txt"
    try:
        words = sorted({line.strip() for line in path.read_text(encoding="utf-8").splitlines()} - {""})
    except OSError as error:
        raise UserError("pythainlp has no dictionary here.", where=str(path), remedy=_INSTALL) from error
    return words, hashlib.sha256("\n".join(words).encode()).hexdigest()


def _version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"
