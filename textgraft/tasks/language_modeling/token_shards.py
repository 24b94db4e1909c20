"""What a language model is pretrained on, once it is tokens: in several languages mixed, or in a folder made before."""

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
from textgraft.data.readers import TOKENS
from textgraft.data.streams.base import CountedTokens
from textgraft.data.streams.languages import Mixture, repeats
from textgraft.data.streams.shards import INDEX, Corpus, Index
from textgraft.text.tokenizer import Tokenizer

TOKENIZER = "tokenizer.json"
_FORMAT, _VERSION = "textgraft tokens", 1
_AGAIN = "Restore the folder from where it came, or make it again with textgraft tokenize."


@dataclass(frozen=True)
class Corpora:
    """What is trained on and what is held out, the latter by language too where languages are known.

    `languages` is what run.json says of each: texts and tokens to train on, its share of these and of what is read, and
    how often its text is read.
    """

    train: CountedTokens
    held: CountedTokens
    held_by_language: Mapping[str, Corpus] = field(default_factory=dict)
    languages: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def part(name: str, language: str = "") -> str:
    """The folder of a corpus inside another: train, valid, or of one language, as in train-th."""
    return f"{name}-{language}" if language else name


def mixed(train: Mapping[str, Corpus], held: Mapping[str, Corpus], smoothing: float, seed: int) -> Corpora:
    """Corpora by language, each read in its smoothed share (data.streams.languages)."""
    sizes = {language: corpus.num_tokens for language, corpus in train.items()}
    mixture = Mixture(list(train.values()), list(repeats(sizes, smoothing).values()), seed=seed)
    whole = sum(sizes.values())
    told = {
        language: {
            "texts": train[language].num_documents,
            "tokens": sizes[language],
            "share": sizes[language] / whole,
            "share_read": int(tokens) / mixture.num_tokens,
            "times_read": int(tokens) / sizes[language],
        }
        for language, tokens in zip(train, mixture.tokens_of, strict=True)
    }
    return Corpora(mixture, Mixture(list(held.values()), [1.0] * len(held), seed=0), held, told)


@dataclass(frozen=True)
class TokenFolder:
    """A folder that `textgraft tokenize` made: a source of pretraining without its text
    (tasks.language_modeling.tokenize).

    It holds tokenizer.json, the corpora train and valid (data.streams.shards; train-th and valid-th for each language),
    and tokens.json, which names the sources and vouches for the corpora's indexes, as these do for their shards.
    """

    folder: Path
    smoothing: float

    @classmethod
    def write(cls, folder: Path, tokenizer: Tokenizer, names: Sequence[str], languages: Sequence[str]) -> None:
        """tokens.json of what lies in `folder`."""
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
        """The folder of tokens that `sources` name, if they do. Raises UserError where they name more than that."""
        sources = [sources] if isinstance(sources, str | Path) else sources
        found = [path for path in sources if (Path(path) / TOKENS).is_file()]
        if found and len(sources) > 1:
            message = "a folder of tokens is read alone."
            raise UserError(message, where=str(found[0]), remedy="Tokenize all of the text together.")
        return cls(Path(found[0]), smoothing) if found else None

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """tokens.json. Raises UserError where it is damaged or from a later textgraft."""
        path = self.folder / TOKENS
        try:
            content = dict(json.loads(path.read_text(encoding="utf-8")))
            if content["format"] == _FORMAT and content["version"] != _VERSION:
                message = f"this is version {content['version']}, and this textgraft reads version {_VERSION}."
                raise UserError(message, where=str(path), remedy="Install a newer textgraft.")
            languages, indexes = list(content["languages"]), dict(content["indexes"])
            wanted = {part(kind, lang) for kind in ("train", "valid") for lang in languages or [""]}
            if content["format"] != _FORMAT or indexes.keys() != wanted or not isinstance(content["sources"], list):
                raise ValueError("it describes no tokens")
        except UserError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            message = f"damaged ({type(error).__name__}: {error})."
            raise UserError(message, where=str(path), remedy=_AGAIN) from error
        return content

    def identity(self) -> dict[str, Any]:
        """What the tokens are, wherever they lie."""
        known = {"name": TOKENS, "sha256": hashlib.sha256(json.dumps(self.manifest).encode()).hexdigest()}
        return {"sources": [known], "valid": None, **({"smoothing": self.smoothing} if self.languages else {})}

    @property
    def languages(self) -> list[str]:
        return list(self.manifest["languages"])

    def names(self) -> list[str]:
        return list(self.manifest["sources"])

    def counts(self) -> dict[str, dict[str, int]]:
        """How many documents, tokens, words and characters each corpus has, by its folder's name."""
        units = ("documents", "tokens", "words", "characters")
        shards = {name: Index.read(self.folder / name).shards for name in self.manifest["indexes"]}
        return {name: {unit: sum(getattr(s, unit) for s in found) for unit in units} for name, found in shards.items()}

    def tokenizer(self, every: int, settings: Mapping[str, Any], folder: Path) -> Tokenizer:
        """The one that made the tokens, whatever a recipe says of one."""
        return Tokenizer.load(self.folder / TOKENIZER)

    def corpora(self, tokenizer: Tokenizer, folder: Path, *, seed: int, show: bool) -> Corpora:
        """Where they lie. Raises UserError for another tokenizer, and for what is missing, truncated or altered."""
        if tokenizer.fingerprint != self.manifest["tokenizer"]:
            remedy = (
                f"Take the {TOKENIZER} beside them, or a model that has it, or make the folder with that tokenizer."
            )
            raise UserError("these tokens were made by another tokenizer.", where=str(self.folder), remedy=remedy)
        if not self.languages:
            return Corpora(self._opened("train"), self._opened("valid"))
        train, held = ({lang: self._opened(part(kind, lang)) for lang in self.languages} for kind in ("train", "valid"))
        return mixed(train, held, self.smoothing, seed)

    def _opened(self, name: str) -> Corpus:
        index = self.folder / name / INDEX
        if index.exists() and _sha256(index) != self.manifest["indexes"][name]:
            raise UserError("altered since it was made.", where=str(index), remedy=_AGAIN)
        return Corpus.open(self.folder / name)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
