"""Tagged sentences in the column formats of the CoNLL tasks and in CoNLL-U, reading and writing.

There is a word per line and an empty line after each sentence. CoNLL-U (universaldependencies.org/format.html) has ten
columns, comments, lines for multiword tokens (1-2), and words that are not written (8.1).
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.conllu import surface
from textgraft.data.json_records import starts_like_json
from textgraft.data.tags import Scheme, TagCounts, converted, illegal_positions, is_entity_tag, tag_names, without_bilou
from textgraft.data.text_files import lines
from textgraft.text.words import spaced

Illegal = Literal["refuse", "repair"]
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_SNIFF_BYTES = 1 << 20  # bytes that decide the encoding, so that a large file is not read twice
_UNTAGGED = "_"  # CoNLL-U's empty value
_ID = re.compile(r"\d{1,9}(?:[-.]\d{1,9})?")
_DOCUMENT = "-DOCSTART-"
_SHAPE = (
    "Write a word per line, its tag in a column separated by a tab or spaces, and an empty line after each sentence."
)


@dataclass(frozen=True)
class Sentence:
    """N words with N tags, or without tags.

    Attributes:
        words: The words.
        tags: Their tags; empty for an untagged sentence.
        text: The sentence as text.
        spans: Start and end of each word in `text`.
        line: Line number of the first word in its file.
        raw: All lines of the sentence in its file, those before the first word included.
        line_indices: Index in `raw` of each word's line.
        unit: Unit that `line` counts, for messages.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    text: str = ""
    spans: tuple[tuple[int, int], ...] = ()
    line: int = 0
    raw: tuple[str, ...] = field(default=(), repr=False)
    line_indices: tuple[int, ...] = field(default=(), repr=False)
    unit: str = "line"

    @classmethod
    def of(cls, words: Sequence[str], tags: Sequence[str] = ()) -> Sentence:
        """A sentence from words, joined by spaces except in scripts without spaces and around words that are spaces."""
        parts, spans, offset = [], [], 0
        for word, space in zip(words, [*spaced(words), False][1:], strict=True):
            spans.append((offset, offset + len(word)))
            parts.append(f"{word} " if space else word)
            offset += len(parts[-1])
        return cls(tuple(words), tuple(tags), "".join(parts), tuple(spans))

    def __len__(self) -> int:
        return len(self.words)

    def line_of(self, word: int) -> int:
        """Line number in the file of the word with this index."""
        word = min(word, len(self) - 1)
        return self.line + (self.line_indices[word] - self.line_indices[0] if self.line_indices else 0)

    def where(self, word: int) -> str:
        """Where a word stands, for messages: its line, or for a sentence that is not from a file its text."""
        if self.line:
            return f"{self.unit} {self.line_of(word)}"
        start = self.text if len(self.text) <= 60 else f"{self.text[:57]}..."
        return f"sentence {start!r}, word {min(word, len(self) - 1)}"


@dataclass(frozen=True)
class Columns:
    """Layout of a file's lines: columns counted from 0, `tag` None without tags."""

    count: int
    word: int
    tag: int | None
    delimiter: Literal["\t", " "]
    conllu: bool

    def split(self, line: str) -> list[str]:
        return _split(line, self.delimiter)


def _split(line: str, delimiter: str) -> list[str]:
    # Not str.split(): a no-break space belongs to a word, and so does a space between tabs.
    return line.split("\t") if delimiter == "\t" else re.split(" +", line.strip(" "))


@dataclass(frozen=True, repr=False)
class Tagged(Brief):
    """Sentences of one file in one tagging scheme; the length is the number of sentences."""

    sentences: tuple[Sentence, ...]
    scheme: Scheme = "plain"
    source: str = "<memory>"

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def words(self) -> int:
        """Total number of words."""
        return sum(map(len, self.sentences))

    @cached_property
    def tags(self) -> list[str]:
        """The tag set (tags.tag_names)."""
        return tag_names((s.tags for s in self.sentences), self.scheme)

    def sample(self, n: int, seed: int = 0) -> Tagged:
        """`n` sentences, chosen by a hash of their words: a larger sample contains a smaller one."""
        ranked = sorted(range(len(self)), key=lambda i: (_rank(seed, self.sentences[i]), i))
        return replace(self, sentences=tuple(self.sentences[i] for i in sorted(ranked[:n])))

    def in_scheme(self, scheme: Scheme) -> Tagged:
        """The same entities in another tagging scheme."""
        changed = (replace(s, tags=tuple(converted(s.tags, scheme))) for s in self.sentences)
        return replace(self, sentences=tuple(changed), scheme=scheme)

    def content_hash(self) -> str:
        """SHA-256 of all words and tags."""
        return hashlib.sha256(json.dumps([(s.words, s.tags) for s in self.sentences]).encode()).hexdigest()


def _rank(seed: int, sentence: Sentence) -> str:
    key = f"{seed} {json.dumps(sentence.words)}"
    return hashlib.sha256(key.encode()).hexdigest()


def split_sentences(data: Tagged, share: float, seed: int = 0) -> tuple[Tagged, Tagged]:
    """Hold out a share of the sentences; copies of a sentence stay together.

    Args:
        data: The sentences.
        share: Share to hold out, between 0 and 1.
        seed: Seed of the choice.

    Returns:
        Training and held-out sentences.

    Raises:
        UserError: There are fewer than two distinct sentences, or the share is out of range.
    """
    if not 0 < share < 1:
        raise UserError(f"a share of {share} cannot be held out.", remedy="Use a share between 0 and 1.")
    ranked = sorted({_rank(seed, s) for s in data.sentences})
    if len(ranked) < 2:
        remedy = "Give more sentences, or a separate evaluation set."
        raise UserError(f"{len(ranked)} sentence cannot be split.", where=data.source, remedy=remedy)
    held_out = set(ranked[: min(len(ranked) - 1, max(1, round(share * len(ranked))))])
    is_held_out = [_rank(seed, s) in held_out for s in data.sentences]
    pairs = list(zip(data.sentences, is_held_out, strict=True))
    training = tuple(s for s, out in pairs if not out)
    return replace(data, sentences=training), replace(data, sentences=tuple(s for s, out in pairs if out))


def sniff_columns(path: str | Path, *, word: str | None = None, tag: str | None = None) -> Columns:
    """Detect the layout of a file from its first line with a word.

    Args:
        path: The file.
        word, tag: Column numbers from 1, negative from the end, or CoNLL-U names. The tag defaults to the last column,
            in CoNLL-U to UPOS.

    Raises:
        UserError: A column does not exist, or the file contains no word.
    """
    path = Path(path)
    # Only the first word's line is inspected, except that a tab may follow after lines of a single column.
    for number, line in enumerate(_lines(path), 1):
        if not line.strip() or line.startswith(_DOCUMENT) or re.match(r"#( |$)|#\t|# ?\w+ ?= ?", line):
            continue
        tab_cells, where = line.split("\t"), f"{path} line {number}"
        if starts_like_json(line):
            raise UserError("this is JSON, not columns of words.", where=where, remedy="Use textgraft.read_tagged.")
        conllu = len(tab_cells) == len(CONLLU) and bool(_ID.fullmatch(tab_cells[0]))
        delimiter: Literal["\t", " "] = "\t" if "\t" in line else " "
        count = len(_split(line, delimiter))
        chosen_word = _column(word, count, conllu, where, 1 if conllu else 0)
        last = 3 if conllu else (count - 1 if count > 1 else None)
        chosen_tag = last if tag is None else _column(tag, count, conllu, where, 0)
        if chosen_tag == chosen_word:
            raise UserError("words and tags are one column.", where=where, remedy="Name the column of the tags.")
        return Columns(count, chosen_word, chosen_tag, delimiter, conllu)
    raise UserError("the file contains no word.", where=str(path), remedy=_SHAPE)


def _column(name: str | None, count: int, conllu: bool, where: str, default: int) -> int:
    if name is None:
        return default
    if conllu and name.lower() in CONLLU:
        return CONLLU.index(name.lower())
    try:
        number = int(name)
    except ValueError:
        remedy = did_you_mean(name, CONLLU) if conllu else "Use its number, from 1, or -1 for the last."
        raise UserError(f"there is no column '{name}'.", where=where, remedy=remedy) from None
    if not 1 <= abs(number) <= count:
        message = f"there is no column {number}, but {count} columns."
        raise UserError(message, where=where, remedy=f"Use a number from 1 to {count}.")
    return number - 1 if number > 0 else count + number


def _lines(path: Path) -> Iterator[str]:
    for line in lines(path, sniff_bytes=_SNIFF_BYTES):
        yield line.rstrip("\r\n")


def stream_sentences(path: str | Path, columns: Columns) -> Iterator[Sentence]:
    """Sentences of a file one at a time, in constant memory, tags unchanged.

    Raises UserError, with the line number, for a line with another number of columns.
    """
    path = Path(path)
    raw: list[str] = []
    rows: list[tuple[int, list[str]]] = []
    first = 0
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            if rows:
                yield _sentence(rows, raw, columns, first)
                raw, rows = [], []
            elif raw:
                raw.append(line)
            continue
        raw.append(line)
        if _is_comment(line, columns):
            continue
        cells = columns.split(line)
        if len(cells) != columns.count:
            message = f"this line has {len(cells)} columns, and others have {columns.count}."
            raise UserError(message, where=f"{path} line {number}", remedy=_SHAPE)
        if columns.conllu and not _ID.fullmatch(cells[0]):
            raise UserError(f"'{cells[0]}' is no number of a word.", where=f"{path} line {number}", remedy=_SHAPE)
        if not rows:
            first = number - len(raw) + 1
        rows.append((len(raw) - 1, cells))
    if rows:
        yield _sentence(rows, raw, columns, first)


def _is_comment(line: str, columns: Columns) -> bool:
    """True for a line without a word: a comment, or a document marker."""
    if columns.conllu:
        return line.startswith("#")
    if line.startswith(_DOCUMENT):
        return True
    return line.startswith("# ") and len(columns.split(line)) != columns.count


def _sentence(rows: Sequence[tuple[int, list[str]]], raw: list[str], columns: Columns, first: int) -> Sentence:
    """A sentence from its lines with cells; `first` is the line number of the first of `raw`."""
    written = rows
    if columns.conllu:
        written = [(index, cells) for index, cells in rows if cells[0].isdigit()]
    words = tuple(cells[columns.word] for _, cells in written)
    tags = () if columns.tag is None else tuple(cells[columns.tag] for _, cells in written)
    text, spans = surface([cells for _, cells in rows]) if columns.conllu else ("", [])
    if not columns.conllu or columns.word != 1:
        plain = Sentence.of(words)
        text, spans = plain.text, list(plain.spans)
    line_indices = tuple(index for index, _ in written)
    line = first + (line_indices[0] if line_indices else 0)
    return Sentence(words, tags, text, tuple(spans), line, tuple(raw), line_indices)


def read_conll(
    path: str | Path, *, word: str | None = None, tag: str | None = None, illegal_tags: Illegal = "refuse"
) -> Tagged:
    """Read tagged sentences; entities are converted to IOB2 whatever their scheme.

    Args:
        path: The file.
        word, tag: Columns, as for `sniff_columns`.
        illegal_tags: "refuse" raises for a tag that the scheme does not allow; "repair" starts an entity there and
            warns.

    Raises:
        UserError: The file has another format, no tags or, unless repaired, illegal tags; with line numbers.
    """
    if illegal_tags not in get_args(Illegal):
        remedy = f"Known: {', '.join(get_args(Illegal))}."
        raise UserError(f"illegal_tags is '{illegal_tags}'.", remedy=remedy)
    columns = sniff_columns(path, word=word, tag=tag)
    if columns.tag is None:
        raise UserError("there is one column, and no tags.", where=str(path), remedy=_SHAPE)
    sentences = tuple(s for s in stream_sentences(path, columns) if s.words)
    return checked(Tagged(sentences, source=str(path)), illegal_tags=illegal_tags)


def checked(data: Tagged, *, illegal_tags: Illegal = "refuse") -> Tagged:
    """Validated data: scheme detected and converted to IOB2."""
    if not data.sentences:
        raise UserError("the file contains no sentence.", where=data.source, remedy=_SHAPE)
    counts = TagCounts()
    for sentence in data.sentences:
        _validate_tagged(sentence, data.source)
        counts.add(sentence.tags)
    scheme = counts.scheme()
    if scheme == "plain":
        return replace(data, scheme=scheme)
    sentences = tuple(replace(s, tags=tuple(map(without_bilou, s.tags))) for s in data.sentences)
    illegal_tags_found = [(s, i) for s in sentences for i in _illegal_positions(s.tags, scheme)]
    if illegal_tags_found:
        _report_illegal(illegal_tags_found, scheme, data.source, illegal_tags)
    return replace(data, sentences=sentences, scheme=scheme).in_scheme("IOB2")


def _validate_tagged(sentence: Sentence, source: str) -> None:
    if len(sentence.tags) != len(sentence.words):
        message = f"{len(sentence.words)} words have {len(sentence.tags)} tags."
        raise UserError(message, where=f"{source} {sentence.where(0)}", remedy="Write one tag for each word.")
    for i, tag in enumerate(sentence.tags):
        if not tag.strip() or tag == _UNTAGGED:
            where = f"{source} {sentence.where(i)}"
            raise UserError(f"'{sentence.words[i]}' has no tag.", where=where, remedy="Name another column, or tag it.")


def _illegal_positions(tags: Sequence[str], scheme: Scheme) -> list[int]:
    unknown = [i for i, tag in enumerate(tags) if not is_entity_tag(tag)]
    return unknown or illegal_positions(tags, scheme)


def _report_illegal(positions: Sequence[tuple[Sentence, int]], scheme: Scheme, source: str, policy: Illegal) -> None:
    """Raise for tags that the scheme does not allow, or warn with policy "repair"; other tags than entity tags always
    raise.
    """
    for sentence, i in positions:
        if i < len(sentence) and not is_entity_tag(sentence.tags[i]):
            where = f"{source} {sentence.where(i)}"
            remedy = "Write O, or B-, I-, E- or S- and a type, as in other lines."
            raise UserError(f"'{sentence.tags[i]}' is not an entity tag.", where=where, remedy=remedy)
    sentence, i = positions[0]
    tag = sentence.tags[i] if i < len(sentence) else "the end of a sentence"
    after = sentence.tags[i - 1] if i else "the beginning of a sentence"
    where, message = f"{source} {sentence.where(i)}", f"{tag} may not follow {after} in {scheme}."
    if policy == "repair":
        count = f"{len(positions):,} tags that {scheme} does not allow were read as beginnings or ends of entities"
        warnings.warn(f"{count}; the first: {where}: {message}", stacklevel=4)
        return
    more = f" ({len(positions):,} such tags in this file.)" if len(positions) > 1 else ""
    remedy = f'Correct it, or let entities begin there with illegal_tags="repair".{more}'
    raise UserError(message, where=where, remedy=remedy)


def conll_lines(sentence: Sentence, tags: Sequence[str], columns: Columns | None = None) -> Iterator[str]:
    """Lines of a sentence with new tags, its empty line included.

    Args:
        sentence: The sentence.
        tags: One tag per word.
        columns: Layout of the file that the sentence was read from. Then everything else is unchanged and tags go into
            their column, or into a new last one. Otherwise a line is word, tab, tag.
    """
    if columns is None or not sentence.raw:
        yield from (f"{word}\t{tag}" for word, tag in zip(sentence.words, tags, strict=True))
        yield ""
        return
    tag_at = dict(zip(sentence.line_indices, tags, strict=True))
    for index, line in enumerate(sentence.raw):
        if index not in tag_at:
            yield line
            continue
        cells = columns.split(line)
        if columns.tag is None:
            cells.append(tag_at[index])
        else:
            cells[columns.tag] = tag_at[index]
        yield columns.delimiter.join(cells)
    yield ""


def conll_text(sentences: Iterable[Sentence], tags: Iterable[Sequence[str]], columns: Columns | None = None) -> str:
    """The lines of all sentences as one string."""
    pairs = zip(sentences, tags, strict=True)
    return "".join(
        f"{line}\n" for sentence, sentence_tags in pairs for line in conll_lines(sentence, sentence_tags, columns)
    )
