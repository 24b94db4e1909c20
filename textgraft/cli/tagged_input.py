"""Options and inputs of commands on tagged sentences: files in any format, texts, and stdin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textgraft.core.errors import UserError

if TYPE_CHECKING:
    from textgraft.data.conll import Columns, Sentence, Tagged

File = Annotated[
    Path,
    typer.Argument(
        help="Sentences with tags: CoNLL columns or CoNLL-U, JSON of doccano, Prodigy, Label Studio, spaCy or Hugging "
        "Face, Parquet, brat's .ann or a folder of them."
    ),
]
WordColumn = Annotated[
    str | None,
    typer.Option(
        "--word-column",
        help="The column of the words, from 1, or a CoNLL-U name; in JSON the field of the words or the text; else "
        "inferred.",
    ),
]
TagColumn = Annotated[
    str | None,
    typer.Option(
        "--tag-column",
        help="The column of the tags, -1 for the last, or a CoNLL-U name; in JSON the field of the tags or spans; else "
        "inferred.",
    ),
]
TagNames = Annotated[
    str | None,
    typer.Option(
        "--tag-names", help="The names of tags that are numbers, in their order: O,B-PER,…, or a file with one a line."
    ),
]
RepairTags = Annotated[
    bool, typer.Option("--repair-tags", help="Turn an I- tag without a preceding entity into a B- tag.")
]
RepairSpans = Annotated[
    bool,
    typer.Option(
        "--repair-spans",
        help="Extend spans that cut a word to whole words, and leave out those that overlap or are not in the text.",
    ),
]


@dataclass(frozen=True)
class TaggedFiles:
    """Values of the options above."""

    word: str | None = None
    tag: str | None = None
    names: str | None = None
    repair_tags: bool = False
    repair_spans: bool = False

    def read(self, path: Path) -> Tagged:
        """Return the sentences of a file."""
        from textgraft.data.tagged import read_tagged

        return read_tagged(
            path,
            word=self.word,
            tag=self.tag,
            tag_names=_names(self.names),
            illegal_tags="repair" if self.repair_tags else "refuse",
            illegal_spans="repair" if self.repair_spans else "refuse",
        )


def _names(names: str | None) -> list[str] | None:
    """Return the names of tags of the option: a list, or a file."""
    from textgraft.data.text_files import lines

    if names is None:
        return None
    parts = lines(Path(names)) if Path(names).is_file() else names.split(",")
    return [part.strip() for part in parts if part.strip()]


@dataclass(frozen=True)
class Untagged:
    """A stream of sentences, the columns of their file, and the format of the output if none is named."""

    sentences: Iterable[Sentence]
    columns: Columns | None = None
    output_format: str = "conll"


def untagged(file: Path | None, texts: list[str] | None, word: str | None, tag: str | None) -> Untagged:
    """Return the sentences to tag. Raises UserError for both a file and texts, or neither."""
    from textgraft.data.conll import sniff_columns, stream_sentences
    from textgraft.data.members import format_of
    from textgraft.data.tag_spans import from_text
    from textgraft.data.tagged import FORMATS, TagReading, format_name
    from textgraft.data.text_files import lines

    if (file is None) == (not texts):
        remedy = "For example: textgraft tag predict MODEL --input-text Yes."
        raise UserError("name either a file or --input-text.", remedy=remedy)
    if file is None:
        return Untagged((s for s in map(from_text, texts or ()) if s.words), output_format="colour")
    if str(file) == "-":
        return _from_stdin(word)
    name = format_name(file)
    if name == "conll" and format_of(file) == ".txt":
        return Untagged(s for s in map(from_text, (line.rstrip("\r\n") for line in lines(file))) if s.words)
    if name == "conll":
        columns = sniff_columns(file, word=word, tag=tag)
        return Untagged((s for s in stream_sentences(file, columns) if s.words), columns)
    return Untagged(FORMATS[name].stream(file, TagReading(word)), output_format="json")


def _from_stdin(word: str | None) -> Untagged:
    """Return the sentences of stdin: lines of JSON, or a text per line."""
    from textgraft.cli.input_texts import stdin_lines
    from textgraft.data.json_records import first_line_and_all, starts_like_json
    from textgraft.data.tag_spans import from_text
    from textgraft.data.tagged import stream_json_sentences

    first, stream = first_line_and_all(stdin_lines(None))
    if starts_like_json(first):
        return Untagged(stream_json_sentences(stream, "stdin", word=word), output_format="json")
    return Untagged(s for s in map(from_text, stream) if s.words)
