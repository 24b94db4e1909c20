"""Tagged sentences of a file in any format: CoNLL columns, JSON of annotation tools, brat, Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from textgraft.core.errors import UserError
from textgraft.data.brat import brat_sentences, is_brat, read_brat
from textgraft.data.conll import Illegal, Sentence, Tagged, checked, read_conll, sniff_columns, stream_sentences
from textgraft.data.huggingface_datasets import class_names
from textgraft.data.json_records import has_records, json_records, records
from textgraft.data.members import format_of
from textgraft.data.tag_json import ANY, Fields, JsonTags, examples
from textgraft.data.tag_spans import SpanAlignment

_UNREADABLE = {
    ".spacy": ("this is spaCy's binary format.", "Write doc.to_json() of each document as a line of a .jsonl file."),
    ".csv": (
        "tagged sentences are not read from tables.",
        "Write a word and its tag per line with a tab between them, and an empty line after each sentence; to tag "
        "texts, one per line of a .txt file.",
    ),
}
"""Message and remedy for files that would be misread, by suffix."""


@dataclass(frozen=True)
class TagReading:
    """Options of a file of tagged sentences, as for `read_tagged`."""

    word: str | None = None
    tag: str | None = None
    tag_names: Sequence[str] = ()
    illegal_tags: Illegal = "refuse"
    illegal_spans: Illegal = "refuse"


@dataclass(frozen=True)
class TagFormat:
    """`fits` is True for a path of the format, `read` returns its sentences with tags, `stream` without."""

    fits: Callable[[Path], bool]
    read: Callable[[Path, TagReading], Tagged]
    stream: Callable[[Path, TagReading], Iterator[Sentence]]


def _read_brat(path: Path, options: TagReading) -> Tagged:
    sentences = read_brat(path, SpanAlignment(options.illegal_spans))
    return checked(Tagged(sentences, source=str(path)), illegal_tags=options.illegal_tags)


def _fields(path: Path, options: TagReading) -> Fields:
    names = {ANY: options.tag_names} if options.tag_names else class_names(path)
    return Fields(options.word, options.tag, names)


def _read_records(path: Path, options: TagReading) -> Tagged:
    fields = _fields(path, options)
    reader = JsonTags(str(path), fields, SpanAlignment(options.illegal_spans))
    sentences = reader.read(examples(records(path), str(path), fields))
    return checked(Tagged(sentences, source=str(path)), illegal_tags=options.illegal_tags)


def _stream_records(path: Path, options: TagReading) -> Iterator[Sentence]:
    fields = Fields(options.word)
    return (example.sentence for example in examples(records(path), str(path), fields))


def _read_columns(path: Path, options: TagReading) -> Tagged:
    return read_conll(path, word=options.word, tag=options.tag, illegal_tags=options.illegal_tags)


def _stream_columns(path: Path, options: TagReading) -> Iterator[Sentence]:
    columns = sniff_columns(path, word=options.word, tag=options.tag)
    return (sentence for sentence in stream_sentences(path, columns) if sentence.words)


FORMATS: Mapping[str, TagFormat] = {
    "brat": TagFormat(is_brat, _read_brat, lambda path, _: brat_sentences(path)),
    "json": TagFormat(has_records, _read_records, _stream_records),
    "conll": TagFormat(lambda path: True, _read_columns, _stream_columns),
}
"""Formats in the order in which they are tried; "json" includes Parquet and Hugging Face data sets, whose rows are
alike."""


def format_name(path: str | Path) -> str:
    """Name in FORMATS of a file's format. Raises UserError for a format that is known and not read."""
    path = Path(path)
    if format_of(path) in _UNREADABLE:
        message, remedy = _UNREADABLE[format_of(path)]
        raise UserError(message, where=str(path), remedy=remedy)
    return next(name for name, format in FORMATS.items() if format.fits(path))


def read_tagged(
    path: str | Path,
    *,
    word: str | None = None,
    tag: str | None = None,
    tag_names: Sequence[str] | None = None,
    illegal_tags: Illegal = "refuse",
    illegal_spans: Illegal = "refuse",
) -> Tagged:
    """Read tagged sentences in any format; entities are converted to IOB2.

    Args:
        path: CoNLL columns or CoNLL-U (`read_conll`), JSON of Hugging Face, doccano, Prodigy, spaCy or Label Studio
            (data.tag_json), an .ann file or a folder of brat, or Parquet and data sets of the Hugging Face library.
        word, tag: Columns of a file of columns (conll.sniff_columns), else names of fields: of the words or the text,
            and of the tags or spans; detected if None.
        tag_names: Names of tags that are numbers, in the order of the numbers; data sets and their Parquet files have
            them.
        illegal_tags: "refuse" raises for a tag that the scheme does not allow; "repair" starts an entity there and
            warns.
        illegal_spans: "refuse" raises for spans of characters that cut a word, overlap or are not in the text; "repair"
            extends the first to whole words, leaves out the others, and warns with their numbers.

    Raises:
        UserError: The file has another format, no tags, or unless repaired illegal tags or spans; with the place.
    """
    for name, policy in (("illegal_tags", illegal_tags), ("illegal_spans", illegal_spans)):
        if policy not in get_args(Illegal):
            raise UserError(f"{name} is '{policy}'.", remedy=f"Known: {', '.join(get_args(Illegal))}.")
    options = TagReading(word, tag, tuple(tag_names or ()), illegal_tags, illegal_spans)
    return FORMATS[format_name(path)].read(Path(path), options)


def stream_json_sentences(physical: Iterable[str], source: str, *, word: str | None = None) -> Iterator[Sentence]:
    """Sentences of lines of JSON, without tags, one at a time.

    Args:
        physical: The lines.
        source: Name of the file for error messages.
        word: Field of the words or the text; detected if None.
    """
    return (example.sentence for example in examples(json_records(physical, source), source, Fields(word)))
