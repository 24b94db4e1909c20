"""Text that a pretraining reads while it trains: a corpus larger than the disk, or behind a URL."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

from textgraft.core.errors import UserError
from textgraft.data.fingerprint import fingerprint
from textgraft.data.readers import source_files
from textgraft.data.remote_files import files_below, is_url, name_of
from textgraft.data.streams.base import CountedTokens
from textgraft.data.streams.blocks import BLOCK_TOKENS, BlockCorpus, Reading
from textgraft.data.streams.mixtures import (
    HELD_OUT_TEXTS,
    At,
    Source,
    documents,
    hold_out,
    read_once,
    read_pass,
    validated_weights,
)
from textgraft.data.streams.parallel_encoding import validate_processes
from textgraft.data.streams.shards import Corpus, build_corpus
from textgraft.data.streams.text_places import STREAMED_SUFFIXES, format_suffix, text_column, validated_format
from textgraft.tasks.language_modeling.token_shards import Corpora, part
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.phases import Stage
from textgraft.training.settings import Settings

Addresses = str | Path | Sequence[str | Path]
TOKENIZER_TEXTS = 20_000
"""Number of texts of the stream that a new tokenizer is trained on."""


@dataclass(frozen=True)
class StreamedText:
    """Sources that `pretrain` and `adapt` read while they train, in constant memory and without writing them to disk.

    Formats are plain text (a text per line), JSON lines and Parquet. Files are read in another random order in each
    pass, documents in their order within a file, and shuffled within blocks of tokens.

    Attributes:
        sources: Files, folders, globs and URLs that fsspec can open (s3://…, hf://datasets/…); or a mapping from names
            to such, which are mixed by weight.
        weights: Share of each named source in the characters of the stream; equal shares if empty.
        text: Column of the texts; None: guessed by the names of columns.
        processes: Number of processes that tokenize beside the training; 0: its own process does.
        block_tokens: Tokens of a block, which are in memory, and which an interrupted run tokenizes again.

    Raises:
        UserError: A weight is not positive, or they do not sum to 1; the number of processes is out of range.
    """

    sources: Addresses | Mapping[str, Addresses]
    weights: Mapping[str, float] = field(default_factory=dict)
    text: str | None = None
    processes: int = 0
    block_tokens: int = BLOCK_TOKENS

    def __post_init__(self) -> None:
        validate_processes(self.processes)
        if self.block_tokens < 2:
            raise UserError(f"block_tokens is {self.block_tokens}.", remedy="Give some millions.")
        if self.weights and not isinstance(self.sources, Mapping):
            raise UserError("weights without named sources.", where="weight", remedy="Name each source.")
        if isinstance(self.sources, Mapping):
            if not self.sources:
                raise UserError("no source was named.", remedy="Give one at least.")
            validated_weights(list(self.sources), self.weights)

    def for_training(
        self,
        valid: Addresses | Mapping[str, Addresses] | None,
        *,
        stage: Stage,
        head: Mapping[str, Any],
        tokens: float | None,
        settings: Settings,
    ) -> ListedText:
        """`listed` for a training.

        Args:
            valid: Held-out text.
            stage: Its phases.
            head: The settings of the model's head.
            tokens: Number of tokens to train on.
            settings: Of the training.

        Raises:
            UserError: As `listed`; or the training has no known end, or an objective that needs all documents.
        """
        if tokens is None and settings.minutes is None:
            message = "streamed text has no known end, so that epochs cannot be counted."
            raise UserError(message, where="tokens", remedy="Say how many tokens to train on (tokens=…).")
        if settings.minutes is not None and len(stage.phases) > 1:
            message = "the phases of this recipe cannot share a time on streamed text."
            raise UserError(message, where="minutes", remedy="Give a number of tokens (tokens=…) instead.")
        if head.get("next_sentence"):
            message = "streamed text cannot be used for next sentence prediction: the number of pairs is not known."
            remedy = "Set next_sentence = false in a copy of the recipe, or tokenize it first (textgraft tokenize)."
            raise UserError(message, where="next_sentence", remedy=remedy)
        return self.listed(valid, tokens=tokens if settings.minutes is None else None, seed=settings.seed)

    def listed(
        self, valid: Addresses | Mapping[str, Addresses] | None, *, tokens: float | None, seed: int
    ) -> ListedText:
        """The files of the sources, and their held-out text.

        Args:
            valid: Held-out text; None: the first 300 texts of the sources, in proportion to their weights.
            tokens: Number of tokens to train on, if it is known: a block has at most so many.
            seed: Seed of the order of files.

        Raises:
            UserError: A source has no text, cannot be reached, or lacks the column; or `valid` is by language.
        """
        if isinstance(valid, Mapping):
            message = "held-out text is by language, and streamed text is not."
            raise UserError(message, where="valid", remedy="Name files of held-out text.")
        named = self.sources if isinstance(self.sources, Mapping) else {"text": self.sources}
        weights = validated_weights(list(named), self.weights)
        found = {name: _files(addresses) for name, addresses in named.items()}
        columns = {name: _column(files, self.text) for name, files in found.items()}
        sources = [Source(name, tuple(found[name]), columns[name], weights[name]) for name in named]
        held: Sequence[str] | Source
        if valid is not None:
            files = _files(valid)
            held = Source("valid", tuple(files), _column(files, self.text))
            found["valid"] = files
        else:
            parts = [hold_out(source, max(1, round(HELD_OUT_TEXTS * source.weight))) for source in sources]
            sources, held = [source for source, _ in parts], list(chain.from_iterable(texts for _, texts in parts))
        size = max(2, min(self.block_tokens, self.block_tokens if tokens is None else math.ceil(tokens)))
        reading = Reading(tuple(sources), "", size, seed, self.processes)
        names = [f"{name}: {_shown(a)}" if len(named) > 1 else _shown(a) for name in named for a in _each(named[name])]
        return ListedText(reading, held, {name: list(files.values()) for name, files in found.items()}, names)

    def first_texts(self, count: int = 50) -> list[str]:
        """Some texts from the beginning of the stream."""
        return self.listed(None, tokens=None, seed=0).first_texts(count)


@dataclass(frozen=True)
class ListedText:
    """Streamed sources whose files are known (a PretrainingText).

    Attributes:
        reading: How they are read, still without a tokenizer.
        held: Held-out texts, or where they are.
        fingerprints: Of the files, by source.
        shown: Names of the sources, for run.json.
    """

    reading: Reading
    held: Sequence[str] | Source
    fingerprints: Mapping[str, list[dict[str, Any]]]
    shown: Sequence[str]

    @property
    def languages(self) -> list[str]:
        """None: a mixture is of sources, not of languages."""
        return []

    def identity(self) -> dict[str, Any]:
        """Fingerprints of the files, and what else the order of the stream depends on."""
        valid = self.fingerprints.get("valid") if isinstance(self.held, Source) else None
        files = [
            {"source": source.name, **file}
            for source in self.reading.sources
            for file in self.fingerprints[source.name]
        ]
        mixture = {source.name: [source.weight, source.column] for source in self.reading.sources}
        return {"sources": files, "valid": valid, "stream": {"block": self.reading.block_tokens, "mixture": mixture}}

    def names(self) -> list[str]:
        """Names of the sources, for run.json."""
        return list(self.shown)

    def tokenizer(self, every: int, settings: Mapping[str, Any], folder: Path) -> Tokenizer:
        """Train a tokenizer on the first texts of the stream, which a warning says."""
        message = f"the tokenizer is trained on the first {TOKENIZER_TEXTS:,} texts; name another one with tokenizer=…."
        warnings.warn(message, stacklevel=3)
        return Tokenizer.train(self._first_pass(TOKENIZER_TEXTS), **settings)

    def first_texts(self, count: int) -> list[str]:
        """The first texts of the stream."""
        return list(self._first_pass(count))

    def _first_pass(self, count: int) -> Iterator[str]:
        """The first texts of the stream, at most until every source has been read once."""
        sources = self.reading.sources
        stream = documents(sources, (At(),) * len(sources), self.reading.seed)
        once = takewhile(lambda item: any(at.passes == 0 for at in item[1]), stream)
        return islice((text for text, _ in once), count)

    def corpora(self, tokenizer: Tokenizer, folder: Path, *, seed: int, show: bool) -> Corpora:
        """The training text block by block, and the held-out text as token shards in `folder`."""
        train = BlockCorpus(replace(self.reading, tokenizer=tokenizer.to_json()))
        return Corpora(train, self._build("valid", self._held_out(), tokenizer, folder, show=show))

    def write(self, tokenizer: Tokenizer, folder: Path, *, show: bool) -> None:
        """Write one pass over a single source, and the held-out text, as token shards in `folder`.

        Raises:
            UserError: There are several sources, whose shares one pass over each does not have.
        """
        if len(self.reading.sources) > 1:
            message = "a mixture by weight has no end that could be written."
            raise UserError(message, where="sources", remedy="Tokenize one source, or stream both while training.")
        texts = read_pass(self.reading.sources[0], self.reading.seed)
        self._build("train", texts, tokenizer, folder, show=show)
        self._build("valid", self._held_out(), tokenizer, folder, show=show)

    def _held_out(self) -> Iterator[str]:
        return read_once(self.held) if isinstance(self.held, Source) else iter(self.held)

    def _build(self, name: str, texts: Iterator[str], tokenizer: Tokenizer, folder: Path, *, show: bool) -> Corpus:
        about: dict[str, Any] = {"source_description": name, "processes": self.reading.processes}
        return build_corpus(texts, tokenizer, folder / part(name), progress=show, **about)


def amount_of(train: CountedTokens) -> dict[str, Any]:
    """Entries of run.json on the amount of training text."""
    if isinstance(train, BlockCorpus):
        return {"streamed": train.facts(), "block_tokens": train.num_tokens}
    return {"tokens": train.num_tokens, "words": train.num_words}


def _files(addresses: Addresses) -> dict[str, dict[str, Any]]:
    """Fingerprints of the files at some addresses, by path or URL, in order."""
    found: dict[str, dict[str, Any]] = {}
    for address in _each(addresses):
        if is_url(address):
            found |= _remote_files(str(address))
        else:
            found |= {str(file): fingerprint(file) for file in source_files([address])}
    for file in found:
        validated_format(file)
    return found


def _remote_files(url: str) -> dict[str, dict[str, Any]]:
    files = files_below(url)
    texts = [file for file in files if format_suffix(file.url) in STREAMED_SUFFIXES] if len(files) > 1 else files
    if not texts:
        remedy = f"Streamed are {', '.join(STREAMED_SUFFIXES)}, those of lines also as .gz, .xz, .bz2 or .zst."
        raise UserError("no file of text is here.", where=url, remedy=remedy)
    return {file.url: {"name": name_of(file.url).name, "bytes": file.size, "ends": file.version} for file in texts}


def _column(files: Mapping[str, Any], named: str | None) -> str | None:
    """The column of the texts, by the first file that has columns."""
    table = next((file for file in files if format_suffix(file) != ".txt"), None)
    return None if table is None else text_column(table, named)


def _each(addresses: Addresses) -> list[str | Path]:
    return [addresses] if isinstance(addresses, str | Path) else list(addresses)


def _shown(address: str | Path) -> str:
    """A URL, or the last part of a path."""
    return str(address) if is_url(address) else Path(address).name
