"""Tokens of a pretraining: corpora of several languages, mixed, and folders of tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from textgraft.core.errors import UserError
from textgraft.core.files import write_atomically
from textgraft.core.json_text import parse
from textgraft.data.readers import TOKENS
from textgraft.data.streams.base import CountedTokens
from textgraft.data.streams.languages import Mixture, repeats
from textgraft.data.streams.shards import INDEX, Corpus, Index
from textgraft.text.tokenizer import Tokenizer

TOKENIZER = "tokenizer.json"
_FORMAT, _VERSION = "textgraft tokens", 1
_RESTORE = "Restore the folder from its source, or create it again with textgraft tokenize."


@dataclass(frozen=True)
class Corpora:
    """Training and held-out corpora.

    Attributes:
        train: The training tokens.
        held: The held-out tokens.
        held_by_language: The held-out tokens of each language, where languages are known.
        languages: Entries of run.json for each language: texts and tokens in its sources, its share of all tokens and
            of an epoch, and the number of passes over its text in an epoch.
    """

    train: CountedTokens
    held: CountedTokens
    held_by_language: Mapping[str, Corpus] = field(default_factory=dict)
    languages: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def part(name: str, language: str = "") -> str:
    """Name of a corpus's folder: train, valid, or of one language, such as train-th."""
    return f"{name}-{language}" if language else name


def mixed(train: Mapping[str, Corpus], held: Mapping[str, Corpus], smoothing: float, seed: int) -> Corpora:
    """Mix corpora by language in smoothed shares (data.streams.languages)."""
    sizes = {language: corpus.num_tokens for language, corpus in train.items()}
    mixture = Mixture(list(train.values()), list(repeats(sizes, smoothing).values()), seed=seed)
    whole = sum(sizes.values())
    facts = {
        language: {
            "texts": train[language].num_documents,
            "tokens": sizes[language],
            "share": sizes[language] / whole,
            "share_read": int(tokens) / mixture.num_tokens,
            "times_read": int(tokens) / sizes[language],
        }
        for language, tokens in zip(train, mixture.tokens_of, strict=True)
    }
    return Corpora(mixture, Mixture(list(held.values()), [1.0] * len(held), seed=0), held, facts)


@dataclass(frozen=True)
class TokenFolder:
    """A folder of `textgraft tokenize`: a source of pretraining without its text (tasks.language_modeling.tokenize).

    It contains tokenizer.json, the corpora train and valid (data.streams.shards; train-th and valid-th for each
    language), and tokens.json with the names of the sources and the hashes of the corpora's indexes, which have those
    of their shards.
    """

    folder: Path
    smoothing: float

    @classmethod
    def write(cls, folder: Path, tokenizer: Tokenizer, names: Sequence[str], languages: Sequence[str]) -> None:
        """Write tokens.json for the tokenizer and corpora in `folder`."""
        corpora = [part(kind, language) for kind in ("train", "valid") for language in languages or [""]]
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "sources": list(names),
            "languages": list(languages),
            "tokenizer": tokenizer.fingerprint,
            "indexes": {name: _sha256(folder / name / INDEX) for name in corpora},
        }
        write_atomically(folder / TOKENS, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())

    @classmethod
    def among(cls, sources: str | Path | Sequence[str | Path], smoothing: float) -> Self | None:
        """The folder of tokens, if `sources` name one. Raises UserError if they name other paths too."""
        sources = [sources] if isinstance(sources, str | Path) else sources
        folders = [path for path in sources if (Path(path) / TOKENS).is_file()]
        if folders and len(sources) > 1:
            message = "a folder of tokens must be the only source."
            raise UserError(message, where=str(folders[0]), remedy="Tokenize all of the text together.")
        return cls(Path(folders[0]), smoothing) if folders else None

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The content of tokens.json. Raises UserError if it is damaged or of a later textgraft."""
        path = self.folder / TOKENS
        try:
            content = dict(parse(path.read_text(encoding="utf-8")))
            if content["format"] == _FORMAT and content["version"] != _VERSION:
                message = f"this is version {content['version']}, and this textgraft reads version {_VERSION}."
                raise UserError(message, where=str(path), remedy="Install a newer textgraft.")
            languages, indexes = list(content["languages"]), dict(content["indexes"])
            expected = {part(kind, lang) for kind in ("train", "valid") for lang in languages or [""]}
            if content["format"] != _FORMAT or indexes.keys() != expected or not isinstance(content["sources"], list):
                raise ValueError("it is not the manifest of a folder of tokens")
        except UserError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = f"damaged ({type(error).__name__}: {error})."
            raise UserError(message, where=str(path), remedy=_RESTORE) from error
        return content

    def identity(self) -> dict[str, Any]:
        """Hash of the manifest, in any folder."""
        source = {"name": TOKENS, "sha256": hashlib.sha256(json.dumps(self.manifest).encode()).hexdigest()}
        return {"sources": [source], "valid": None, **({"smoothing": self.smoothing} if self.languages else {})}

    @property
    def languages(self) -> list[str]:
        return list(self.manifest["languages"])

    def names(self) -> list[str]:
        return list(self.manifest["sources"])

    def counts(self) -> dict[str, dict[str, int]]:
        """Numbers of documents, tokens, words and characters of each corpus, by its folder's name."""
        units = ("documents", "tokens", "words", "characters")
        shards = {name: Index.read(self.folder / name).shards for name in self.manifest["indexes"]}
        return {
            name: {unit: sum(getattr(s, unit) for s in corpus) for unit in units} for name, corpus in shards.items()
        }

    def tokenizer(self, every: int, settings: Mapping[str, Any], folder: Path) -> Tokenizer:
        """The folder's tokenizer; the arguments are ignored."""
        return Tokenizer.load(self.folder / TOKENIZER)

    def corpora(self, tokenizer: Tokenizer, folder: Path, *, seed: int, show: bool) -> Corpora:
        """The folder's corpora. Raises UserError for another tokenizer, and for missing, truncated or altered files."""
        if tokenizer.fingerprint != self.manifest["tokenizer"]:
            remedy = f"Use the {TOKENIZER} in the folder, or a model with it, or tokenize with the other tokenizer."
            raise UserError("these tokens are of another tokenizer.", where=str(self.folder), remedy=remedy)
        if not self.languages:
            return Corpora(self._open("train"), self._open("valid"))
        train, held = ({lang: self._open(part(kind, lang)) for lang in self.languages} for kind in ("train", "valid"))
        return mixed(train, held, self.smoothing, seed)

    def _open(self, name: str) -> Corpus:
        index = self.folder / name / INDEX
        if index.exists() and _sha256(index) != self.manifest["indexes"][name]:
            raise UserError("altered since it was written.", where=str(index), remedy=_RESTORE)
        return Corpus.open(self.folder / name)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
