"""What a language model is pretrained on: plain sources, or sources by language that are read in smoothed shares."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from textgraft.core.errors import UserError
from textgraft.core.files import write_atomically
from textgraft.data.fingerprint import fingerprints
from textgraft.data.readers import read_texts
from textgraft.data.streams.languages import repeats, sample
from textgraft.data.streams.shards import Corpus, build_corpus
from textgraft.tasks.language_modeling.token_shards import TOKENIZER, Corpora, TokenFolder, mixed, part
from textgraft.text.tokenizer import Tokenizer

HELD_OUT_EVERY = 200
HELD_OUT_TEXTS = 300
Paths = Sequence[str | Path]
_CODE = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")


class PretrainingText(Protocol):
    """Sources of text: what they are known by, their tokenizer (of every so many-th text) and the corpora.

    `languages` is empty where they are not known.
    """

    @property
    def languages(self) -> list[str]: ...

    def identity(self) -> dict[str, Any]: ...

    def names(self) -> list[str]: ...

    def tokenizer(self, every: int, settings: Mapping[str, Any], folder: Path) -> Tokenizer: ...

    def corpora(self, tokenizer: Tokenizer, folder: Path, *, seed: int, show: bool) -> Corpora: ...


@dataclass(frozen=True)
class PlainText:
    """Sources without labels, read as they come; `valid` None holds out every 200th text (at most 300)."""

    sources: Paths
    valid: Paths | None

    @property
    def languages(self) -> list[str]:
        return []

    def identity(self) -> dict[str, Any]:
        _refuse_too_few(self.sources, self.valid)
        valid = fingerprints(self.valid) if self.valid is not None else None
        return {"sources": fingerprints(self.sources), "valid": valid}

    def names(self) -> list[str]:
        return [Path(path).name for path in self.sources]

    def tokenizer(self, every: int, settings: Mapping[str, Any], folder: Path) -> Tokenizer:
        return Tokenizer.train(islice(read_texts(self.sources), 0, None, every), **settings)

    def corpora(self, tokenizer: Tokenizer, folder: Path, *, seed: int, show: bool) -> Corpora:
        folders = folder / part("train"), folder / part("valid")
        return Corpora(*built(self.sources, self.valid, tokenizer, folders, show=show))


@dataclass(frozen=True)
class TextByLanguage:
    """Sources by language, of which each is read in its smoothed share (data.streams.languages), the tokenizer's sample
    too.

    Held-out text is taken of every language by itself, from `valid` or as from plain text.
    """

    sources: Mapping[str, Paths]
    valid: Mapping[str, Paths] | None
    smoothing: float

    @property
    def languages(self) -> list[str]:
        return list(self.sources)

    def identity(self) -> dict[str, Any]:
        for language, paths in self.sources.items():
            with naming_language(language):
                _refuse_too_few(paths, None if self.valid is None else self.valid[language])
        valid = _fingerprints(self.valid) if self.valid is not None else None
        return {"sources": _fingerprints(self.sources), "valid": valid, "smoothing": self.smoothing}

    def names(self) -> list[str]:
        return [f"{language}: {Path(path).name}" for language, paths in self.sources.items() for path in paths]

    def tokenizer(self, every: int, settings: Mapping[str, Any], folder: Path) -> Tokenizer:
        return Tokenizer.train(self.for_tokenizer(every, folder), **settings)

    def for_tokenizer(self, every: int, folder: Path) -> Iterator[str]:
        """As many characters of the largest language as every so many-th text has, and of the others in proportion."""
        sizes = self._characters(folder / "characters.json")
        rates = {language: times / every for language, times in repeats(sizes, self.smoothing).items()}
        return sample({language: read_texts(paths) for language, paths in self.sources.items()}, sizes, rates)

    def corpora(self, tokenizer: Tokenizer, folder: Path, *, seed: int, show: bool) -> Corpora:
        train, held = {}, {}
        for language, paths in self.sources.items():
            folders = folder / part("train", language), folder / part("valid", language)
            valid = None if self.valid is None else self.valid[language]
            with naming_language(language):
                train[language], held[language] = built(paths, valid, tokenizer, folders, show=show)
        return mixed(train, held, self.smoothing, seed)

    def _characters(self, path: Path) -> dict[str, int]:
        """The characters of each language's text, counted in a pass over it, or earlier."""
        if not path.exists():
            sizes = {}
            for language, paths in self.sources.items():
                with naming_language(language):
                    sizes[language] = sum(map(len, read_texts(paths)))
            write_atomically(path, json.dumps(sizes).encode())
        found = json.loads(path.read_text(encoding="utf-8"))
        return {language: int(found[language]) for language in self.sources}


def pretraining_text(
    sources: Paths | Mapping[str, Paths], valid: Paths | Mapping[str, Paths] | None, smoothing: float
) -> PretrainingText:
    """Plain text; text by language, where `sources` is a mapping from such; or tokens, where it names a folder of them.

    Raises UserError for a language that is spelt like none or has no source, for held-out text that is not of the
    same languages, and for text beside a folder of tokens.
    """
    if not isinstance(sources, Mapping):
        if (made := TokenFolder.among(sources, smoothing)) is not None:
            if valid is not None:
                remedy = "Leave it out: the folder has its own, which textgraft tokenize --valid names."
                raise UserError("held-out text beside a folder of tokens.", where=str(made.folder), remedy=remedy)
            return made
        if isinstance(valid, Mapping):
            raise UserError("held-out text is by language, and the sources are not.", remedy="Label both, or neither.")
        return PlainText(_listed(sources), None if valid is None else _listed(valid))
    labelled = _checked(sources)
    if valid is None:
        return TextByLanguage(labelled, None, smoothing)
    if not isinstance(valid, Mapping) or (held := _checked(valid)).keys() != labelled.keys():
        remedy = f"Give held-out text of each: {', '.join(labelled)}."
        raise UserError("the sources are by language, and held-out text is not of the same ones.", remedy=remedy)
    return TextByLanguage(labelled, held, smoothing)


def load_or_train_tokenizer(
    text: PretrainingText, given: Path | str | None, every: int, settings: Mapping[str, Any], folder: Path
) -> Tokenizer:
    """The tokenizer that `folder` keeps; on first use the `given` one, else the text's own."""
    path = folder / TOKENIZER
    if not path.exists():
        (Tokenizer.load(given) if given is not None else text.tokenizer(every, settings, folder)).save(path)
    return Tokenizer.load(path)


def _checked(sources: Mapping[str, Paths]) -> dict[str, Paths]:
    """The languages in the order of their names, each with a list of paths."""
    for language, paths in sources.items():
        if not _CODE.fullmatch(language):
            remedy = "Write its code, such as en, th or zh-Hans."
            raise UserError(f"'{language}' is not how a language is spelt.", remedy=remedy)
        if not paths:
            raise UserError("there is no source for this language.", where=f"language {language}")
    if not sources:
        raise UserError("no languages were named.", remedy="Give sources for one at least.")
    return {language: _listed(paths) for language, paths in sorted(sources.items())}


def _listed(paths: str | Path | Paths) -> Paths:
    """Paths, one of which may have come without a list around it."""
    return [paths] if isinstance(paths, str | Path) else list(paths)


def _fingerprints(sources: Mapping[str, Paths]) -> list[dict[str, Any]]:
    found = []
    for language, paths in sources.items():
        with naming_language(language):
            found += [{"language": language, **file} for file in fingerprints(paths)]
    return found


def built(
    sources: Paths, valid: Paths | None, tokenizer: Tokenizer, folders: tuple[Path, Path], *, show: bool
) -> tuple[Corpus, Corpus]:
    """The training and the held-out corpus, as token shards in two folders."""

    def build(texts: Iterable[str], folder: Path) -> Corpus:
        return build_corpus(texts, tokenizer, folder, source_description=folder.name, progress=show)

    train, held = folders
    if valid is not None:
        return build(read_texts(sources), train), build(read_texts(valid), held)
    chosen = islice(read_texts(sources), 0, HELD_OUT_EVERY * HELD_OUT_TEXTS, HELD_OUT_EVERY)
    return build(_kept(read_texts(sources)), train), build(chosen, held)


def _refuse_too_few(sources: Paths, valid: Paths | None) -> None:
    """Raises UserError for no text, and where the only one would be held out: before there is anything to tidy up."""
    found = len(list(islice(read_texts(sources), 2)))
    if valid is not None:
        next(read_texts(valid))
    elif found < 2:
        raise UserError(
            "there is one text, and it would be held out to measure on, so that none is left to learn from.",
            where=", ".join(map(str, sources[:3])),
            remedy="Give more texts (each line of a .txt file is one), or other text to hold out (--valid).",
        )


def _kept(texts: Iterator[str]) -> Iterator[str]:
    """All texts but those that `built` holds out."""
    for index, text in enumerate(texts):
        if index % HELD_OUT_EVERY or index >= HELD_OUT_EVERY * HELD_OUT_TEXTS:
            yield text


@contextmanager
def naming_language(language: str) -> Iterator[None]:
    """Whatever UserError comes from inside says which language it is about."""
    try:
        yield
    except UserError as error:
        where = f"language {language}" + (f", {error.where}" if error.where else "")
        raise UserError(error.message, where=where, remedy=error.remedy) from error
