"""Text of a pretraining: plain sources, or sources by language in smoothed shares."""

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
    """Sources of text."""

    @property
    def languages(self) -> list[str]:
        """Codes of the languages; empty where they are not known."""
        ...

    def identity(self) -> dict[str, Any]:
        """Fingerprints of the sources. Raises UserError for too little text."""
        ...

    def names(self) -> list[str]:
        """Names of the sources, for run.json."""
        ...

    def tokenizer(self, every: int, settings: Mapping[str, Any], folder: Path) -> Tokenizer:
        """Train a tokenizer on every n-th text."""
        ...

    def corpora(self, tokenizer: Tokenizer, folder: Path, *, seed: int, show: bool) -> Corpora:
        """The training and held-out corpora, as token shards in `folder`."""
        ...


@dataclass(frozen=True)
class PlainText:
    """Sources without languages; `valid` None holds out every 200th text (at most 300)."""

    sources: Paths
    valid: Paths | None
    processes: int = 0

    @property
    def languages(self) -> list[str]:
        return []

    def identity(self) -> dict[str, Any]:
        _validate_size(self.sources, self.valid)
        valid = fingerprints(self.valid) if self.valid is not None else None
        return {"sources": fingerprints(self.sources), "valid": valid}

    def names(self) -> list[str]:
        return [Path(path).name for path in self.sources]

    def tokenizer(self, every: int, settings: Mapping[str, Any], folder: Path) -> Tokenizer:
        return Tokenizer.train(islice(read_texts(self.sources), 0, None, every), **settings)

    def corpora(self, tokenizer: Tokenizer, folder: Path, *, seed: int, show: bool) -> Corpora:
        folders = folder / part("train"), folder / part("valid")
        return Corpora(
            *build_corpora(self.sources, self.valid, tokenizer, folders, show=show, processes=self.processes)
        )


@dataclass(frozen=True)
class TextByLanguage:
    """Sources by language, each in its smoothed share (data.streams.languages), in the tokenizer's sample too.

    Held-out text is separate for each language, from `valid` or as for plain text.
    """

    sources: Mapping[str, Paths]
    valid: Mapping[str, Paths] | None
    smoothing: float
    processes: int = 0

    @property
    def languages(self) -> list[str]:
        return list(self.sources)

    def identity(self) -> dict[str, Any]:
        for language, paths in self.sources.items():
            with naming_language(language):
                _validate_size(paths, None if self.valid is None else self.valid[language])
        valid = _fingerprints(self.valid) if self.valid is not None else None
        return {"sources": _fingerprints(self.sources), "valid": valid, "smoothing": self.smoothing}

    def names(self) -> list[str]:
        return [f"{language}: {Path(path).name}" for language, paths in self.sources.items() for path in paths]

    def tokenizer(self, every: int, settings: Mapping[str, Any], folder: Path) -> Tokenizer:
        return Tokenizer.train(self.for_tokenizer(every, folder), **settings)

    def for_tokenizer(self, every: int, folder: Path) -> Iterator[str]:
        """The tokenizer's sample: every n-th text of the largest language by characters, the others in proportion."""
        sizes = self._characters(folder / "characters.json")
        rates = {language: times / every for language, times in repeats(sizes, self.smoothing).items()}
        return sample({language: read_texts(paths) for language, paths in self.sources.items()}, sizes, rates)

    def corpora(self, tokenizer: Tokenizer, folder: Path, *, seed: int, show: bool) -> Corpora:
        train, held = {}, {}
        for language, paths in self.sources.items():
            folders = folder / part("train", language), folder / part("valid", language)
            valid = None if self.valid is None else self.valid[language]
            with naming_language(language):
                train[language], held[language] = build_corpora(
                    paths, valid, tokenizer, folders, show=show, processes=self.processes
                )
        return mixed(train, held, self.smoothing, seed)

    def _characters(self, path: Path) -> dict[str, int]:
        """Number of characters in each language's text, cached at `path`."""
        if not path.exists():
            sizes = {}
            for language, paths in self.sources.items():
                with naming_language(language):
                    sizes[language] = sum(map(len, read_texts(paths)))
            write_atomically(path, json.dumps(sizes).encode())
        counts = json.loads(path.read_text(encoding="utf-8"))
        return {language: int(counts[language]) for language in self.sources}


def pretraining_text(
    sources: Paths | Mapping[str, Paths],
    valid: Paths | Mapping[str, Paths] | None,
    smoothing: float,
    processes: int = 0,
) -> PretrainingText:
    """The text of a pretraining.

    Args:
        sources: Paths, a mapping from languages to paths, or a folder of tokens.
        valid: Held-out text, by language if the sources are.
        smoothing: Exponent of the languages' shares.
        processes: Number of processes that tokenize; 0: this one.

    Raises:
        UserError: A language code is invalid or has no source; the held-out text is not of the same languages, or is
            given beside a folder of tokens.
    """
    if not isinstance(sources, Mapping):
        if (tokens := TokenFolder.among(sources, smoothing)) is not None:
            if valid is not None:
                remedy = "Leave it out: the folder has held-out text, set by textgraft tokenize --valid."
                raise UserError(
                    "held-out text is given beside a folder of tokens.", where=str(tokens.folder), remedy=remedy
                )
            return tokens
        if isinstance(valid, Mapping):
            raise UserError(
                "held-out text is by language, and the sources are not.",
                remedy="Name languages for both, or for neither.",
            )
        return PlainText(_listed(sources), None if valid is None else _listed(valid), processes)
    by_language = _validated(sources)
    if valid is None:
        return TextByLanguage(by_language, None, smoothing, processes)
    if not isinstance(valid, Mapping) or (held := _validated(valid)).keys() != by_language.keys():
        remedy = f"Give held-out text of each: {', '.join(by_language)}."
        raise UserError("the sources are by language, and held-out text is not of the same ones.", remedy=remedy)
    return TextByLanguage(by_language, held, smoothing, processes)


def load_or_train_tokenizer(
    text: PretrainingText, source: Path | str | None, every: int, settings: Mapping[str, Any], folder: Path
) -> Tokenizer:
    """The tokenizer in `folder`; on first use that of the file or folder `source`, or else one trained on the text."""
    path = folder / TOKENIZER
    if not path.exists():
        (
            Tokenizer.load(tokenizer_file(source)) if source is not None else text.tokenizer(every, settings, folder)
        ).save(path)
    return Tokenizer.load(path)


def tokenizer_file(source: Path | str) -> Path:
    """The tokenizer.json in a folder, such as a model's; a file is itself."""
    path = Path(source)
    return path / TOKENIZER if path.is_dir() else path


def _validated(sources: Mapping[str, Paths]) -> dict[str, Paths]:
    """Lists of paths by language, sorted. Raises UserError for invalid codes and missing sources."""
    for language, paths in sources.items():
        if not _CODE.fullmatch(language):
            remedy = "Write its code, such as en, th or zh-Hans."
            raise UserError(f"'{language}' is not a language code.", remedy=remedy)
        if not paths:
            raise UserError("there is no source for this language.", where=f"language {language}")
    if not sources:
        raise UserError("no languages were named.", remedy="Give sources for one at least.")
    return {language: _listed(paths) for language, paths in sorted(sources.items())}


def _listed(paths: str | Path | Paths) -> Paths:
    """A list of paths, from a list or a single path."""
    return [paths] if isinstance(paths, str | Path) else list(paths)


def _fingerprints(sources: Mapping[str, Paths]) -> list[dict[str, Any]]:
    entries = []
    for language, paths in sources.items():
        with naming_language(language):
            entries += [{"language": language, **file} for file in fingerprints(paths)]
    return entries


def build_corpora(
    sources: Paths,
    valid: Paths | None,
    tokenizer: Tokenizer,
    folders: tuple[Path, Path],
    *,
    show: bool,
    processes: int = 0,
) -> tuple[Corpus, Corpus]:
    """Build the training and the held-out corpus, as token shards in two folders."""

    def build(texts: Iterable[str], folder: Path) -> Corpus:
        name = folder.name
        return build_corpus(texts, tokenizer, folder, source_description=name, progress=show, processes=processes)

    train, held = folders
    if valid is not None:
        return build(read_texts(sources), train), build(read_texts(valid), held)
    held_out = islice(read_texts(sources), 0, HELD_OUT_EVERY * HELD_OUT_TEXTS, HELD_OUT_EVERY)
    return build(_training_texts(read_texts(sources)), train), build(held_out, held)


def _validate_size(sources: Paths, valid: Paths | None) -> None:
    """Raise UserError for no text, or for a single one, which would be held out; before any file is written."""
    count = len(list(islice(read_texts(sources), 2)))
    if valid is not None:
        next(read_texts(valid))
    elif count < 2:
        raise UserError(
            "there is a single text, which would be held out, so that none is left to train on.",
            where=", ".join(map(str, sources[:3])),
            remedy="Give more texts (each line of a .txt file is one), or other text to hold out (valid=…).",
        )


def _training_texts(texts: Iterator[str]) -> Iterator[str]:
    """All texts but those that `build_corpora` holds out."""
    for index, text in enumerate(texts):
        if index % HELD_OUT_EVERY or index >= HELD_OUT_EVERY * HELD_OUT_TEXTS:
            yield text


@contextmanager
def naming_language(language: str) -> Iterator[None]:
    """Context that adds the language to the place of a UserError."""
    try:
        yield
    except UserError as error:
        where = f"language {language}" + (f", {error.where}" if error.where else "")
        raise UserError(error.message, where=where, remedy=error.remedy) from error
