"""Sentences of words with tags: the columns of the CoNLL tasks and CoNLL-U, in and out.

A word is a line and a sentence ends with an empty one. CoNLL-U (universaldependencies.org/format.html) has ten columns,
comments, lines for several words that are written as one (1-2), and words that are not written (8.1).
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

from textgraft.core.errors import UserError, did_you_mean
from textgraft.data.tags import Scheme, TagCounts, converted, illegal, is_entity_tag, tag_names, without_bilou
from textgraft.data.text_files import lines
from textgraft.text.words import spaced

Illegal = Literal["refuse", "repair"]
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_SNIFFED = 1 << 20  # bytes that are looked at for the encoding: a large file is not read twice
_UNTAGGED = "_"  # CoNLL-U's word for nothing
_ID = re.compile(r"\d+(?:[-.]\d+)?")
_DOCUMENT = "-DOCSTART-"
_SHAPE = "Give a word a line, its tag in a column parted by a tab or by spaces, and an empty line after each sentence."


@dataclass(frozen=True)
class Sentence:
    """N words with their N tags, or with none where they are to be found.

    `spans` (N of [start, end)) say where each word stands in `text`. `line` is where its first word stands in the
    file, `raw` all its lines, those before the first word too, and `places` which of these are the words'.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()
    text: str = ""
    spans: tuple[tuple[int, int], ...] = ()
    line: int = 0
    raw: tuple[str, ...] = field(default=(), repr=False)
    places: tuple[int, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, words: Sequence[str], tags: Sequence[str] = ()) -> Sentence:
        """Words with a space between them, but where their script runs them together or says where spaces are."""
        parts, spans, at = [], [], 0
        for word, space in zip(words, [*spaced(words), False][1:], strict=True):
            spans.append((at, at + len(word)))
            parts.append(f"{word} " if space else word)
            at += len(parts[-1])
        return cls(tuple(words), tuple(tags), "".join(parts), tuple(spans))

    def __len__(self) -> int:
        return len(self.words)

    def line_of(self, word: int) -> int:
        """The number of a word's line in its file."""
        word = min(word, len(self) - 1)
        return self.line + (self.places[word] - self.places[0] if self.places else 0)


@dataclass(frozen=True)
class Columns:
    """How a file's lines are read: columns from 0, `tag` None where there is none; `delimiter` tab or space."""

    count: int
    word: int
    tag: int | None
    delimiter: Literal["\t", " "]
    conllu: bool

    def split(self, line: str) -> list[str]:
        return _split(line, self.delimiter)


def _split(line: str, delimiter: str) -> list[str]:
    # Not str.split(): a no-break space is part of a word, and so is a space between tabs.
    return line.split("\t") if delimiter == "\t" else re.split(" +", line.strip(" "))


@dataclass(frozen=True)
class Tagged:
    """A file of sentences, of one scheme; its length is the number of sentences."""

    sentences: tuple[Sentence, ...]
    scheme: Scheme = "plain"
    source: str = "<memory>"

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def words(self) -> int:
        """How many words there are in all."""
        return sum(map(len, self.sentences))

    @cached_property
    def tags(self) -> list[str]:
        """The tags that are to be told apart (tags.tag_names)."""
        return tag_names((s.tags for s in self.sentences), self.scheme)

    def sample(self, n: int, seed: int = 0) -> Tagged:
        """`n` sentences, chosen by a hash of their words: a larger sample holds a smaller one."""
        ranked = sorted(range(len(self)), key=lambda i: (_rank(seed, self.sentences[i]), i))
        return replace(self, sentences=tuple(self.sentences[i] for i in sorted(ranked[:n])))

    def in_scheme(self, scheme: Scheme) -> Tagged:
        """The same entities, tagged by another scheme."""
        changed = (replace(s, tags=tuple(converted(s.tags, scheme))) for s in self.sentences)
        return replace(self, sentences=tuple(changed), scheme=scheme)

    def content_hash(self) -> str:
        """sha256 of all words and tags."""
        return hashlib.sha256(json.dumps([(s.words, s.tags) for s in self.sentences]).encode()).hexdigest()


def _rank(seed: int, sentence: Sentence) -> str:
    key = f"{seed} {json.dumps(sentence.words)}"
    return hashlib.sha256(key.encode()).hexdigest()


def split_sentences(data: Tagged, share: float, seed: int = 0) -> tuple[Tagged, Tagged]:
    """All but a share of the sentences, and that share; those of equal words stay on one side.

    Raises UserError for fewer than two different sentences, or a share that is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise UserError(f"a share of {share} cannot be held out.", remedy="Give one between 0 and 1.")
    ranked = sorted({_rank(seed, s) for s in data.sentences})
    if len(ranked) < 2:
        remedy = "Name a file of its own to measure on."
        raise UserError(f"{len(ranked)} sentence cannot be split.", where=data.source, remedy=remedy)
    held = set(ranked[: min(len(ranked) - 1, max(1, round(share * len(ranked))))])
    sides = [_rank(seed, s) in held for s in data.sentences]
    pairs = list(zip(data.sentences, sides, strict=True))
    kept = tuple(s for s, is_held in pairs if not is_held)
    return replace(data, sentences=kept), replace(data, sentences=tuple(s for s, is_held in pairs if is_held))


def sniff_columns(path: str | Path, *, word: str | None = None, tag: str | None = None) -> Columns:
    """How to read a file, by its first line with a word; `word` and `tag` are column numbers from 1, or CoNLL-U names.

    A negative number counts from the end. Without `tag` it is the last column, and UPOS in CoNLL-U. Raises UserError
    for columns that there are not, and for a file without a word.
    """
    path = Path(path)
    # Looked at as far as the first word goes, but for a tab, which may come after lines of one word without any.
    for number, line in enumerate(_lines(path), 1):
        if not line.strip() or line.startswith(_DOCUMENT) or re.match(r"#( |$)|#\t|# ?\w+ ?= ?", line):
            continue
        tabs, where = line.split("\t"), f"{path} line {number}"
        conllu = len(tabs) == len(CONLLU) and bool(_ID.fullmatch(tabs[0]))
        delimiter: Literal["\t", " "] = "\t" if "\t" in line else " "
        count = len(_split(line, delimiter))
        chosen_word = _column(word, count, conllu, where, 1 if conllu else 0)
        last = 3 if conllu else (count - 1 if count > 1 else None)
        chosen_tag = last if tag is None else _column(tag, count, conllu, where, 0)
        if chosen_tag == chosen_word:
            raise UserError("words and tags are one column.", where=where, remedy="Name the one of the tags.")
        return Columns(count, chosen_word, chosen_tag, delimiter, conllu)
    raise UserError("there is not one word in it.", where=str(path), remedy=_SHAPE)


def _column(name: str | None, count: int, conllu: bool, where: str, default: int) -> int:
    if name is None:
        return default
    if conllu and name.lower() in CONLLU:
        return CONLLU.index(name.lower())
    try:
        number = int(name)
    except ValueError:
        remedy = did_you_mean(name, CONLLU) if conllu else "Give its number, from 1, or -1 for the last."
        raise UserError(f"there is no column '{name}'.", where=where, remedy=remedy) from None
    if not 1 <= abs(number) <= count:
        message = f"there is no column {number}, but {count} columns."
        raise UserError(message, where=where, remedy=f"Give a number from 1 to {count}.")
    return number - 1 if number > 0 else count + number


def _lines(path: Path) -> Iterator[str]:
    for line in lines(path, sniff_bytes=_SNIFFED):
        yield line.rstrip("\r\n")


def stream_sentences(path: str | Path, columns: Columns) -> Iterator[Sentence]:
    """The sentences of a file one after the other, in memory that holds one; tags as they stand there.

    Raises UserError for a line with another number of columns, with its number.
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
        if _is_told(line, columns):
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


def _is_told(line: str, columns: Columns) -> bool:
    """Whether a line holds no word: a comment, or the mark of a document's beginning."""
    if columns.conllu:
        return line.startswith("#")
    if line.startswith(_DOCUMENT):
        return True
    return line.startswith("# ") and len(columns.split(line)) != columns.count


def _sentence(rows: Sequence[tuple[int, list[str]]], raw: list[str], columns: Columns, first: int) -> Sentence:
    """A sentence from its lines with cells; `first` is the number of the first of `raw`."""
    written = rows
    if columns.conllu:
        written = [(place, cells) for place, cells in rows if cells[0].isdigit()]
    words = tuple(cells[columns.word] for _, cells in written)
    tags = () if columns.tag is None else tuple(cells[columns.tag] for _, cells in written)
    text, spans = _surface([cells for _, cells in rows]) if columns.conllu else ("", [])
    if not columns.conllu or columns.word != 1:
        plain = Sentence.of(words)
        text, spans = plain.text, list(plain.spans)
    places = tuple(place for place, _ in written)
    line = first + (places[0] if places else 0)
    return Sentence(words, tags, text, tuple(spans), line, tuple(raw), places)


def _surface(rows: Sequence[list[str]]) -> tuple[str, list[tuple[int, int]]]:
    """The text of a CoNLL-U sentence and where its words stand; those of a 1-2 that it does not spell have it all."""
    text, spans = "", []
    covered, shared = 0, (0, 0)
    for index, cells in enumerate(rows):
        id, form, space = cells[0], cells[1], "" if "SpaceAfter=No" in cells[9].split("|") else " "
        if "." in id:
            continue
        if "-" in id:
            begin, _, end = id.partition("-")
            inside = [c[1] for c in rows[index + 1 :] if c[0].isdigit() and int(begin) <= int(c[0]) <= int(end)]
            covered, shared = int(end), (len(text), len(text) + len(form))
            if "".join(inside) == form:
                at = len(text)
                for word in inside:
                    spans.append((at, at + len(word)))
                    at += len(word)
            else:
                spans += [shared] * len(inside)
            text += form + space
        elif int(id) > covered:
            spans.append((len(text), len(text) + len(form)))
            text += form + space
    return text.rstrip(" "), spans


def read_conll(
    path: str | Path, *, word: str | None = None, tag: str | None = None, illegal_tags: Illegal = "refuse"
) -> Tagged:
    """The sentences of a file with their tags, entities as IOB2 whatever their scheme was.

    `illegal_tags` "repair" lets an entity begin where a tag may not go on with one, and tells how often. Raises
    UserError for a file that is not in this form, without tags, or with illegal ones, with line numbers.
    """
    if illegal_tags not in get_args(Illegal):
        remedy = f"Known: {', '.join(get_args(Illegal))}."
        raise UserError(f"illegal_tags is '{illegal_tags}'.", remedy=remedy)
    columns = sniff_columns(path, word=word, tag=tag)
    if columns.tag is None:
        raise UserError("there is one column, and no tags.", where=str(path), remedy=_SHAPE)
    found = tuple(s for s in stream_sentences(path, columns) if s.words)
    return checked(Tagged(found, source=str(path)), illegal_tags=illegal_tags)


def checked(data: Tagged, *, illegal_tags: Illegal = "refuse") -> Tagged:
    """Data whose tags are as a file or a program gave them, its scheme recognised and converted to IOB2."""
    if not data.sentences:
        raise UserError("there is not one sentence in it.", where=data.source, remedy=_SHAPE)
    census = TagCounts()
    for sentence in data.sentences:
        _refuse_untagged(sentence, data.source)
        census.add(sentence.tags)
    scheme = census.scheme()
    if scheme == "plain":
        return replace(data, scheme=scheme)
    known = tuple(replace(s, tags=tuple(map(without_bilou, s.tags))) for s in data.sentences)
    wrong = [(s, i) for s in known for i in _wrong(s.tags, scheme)]
    if wrong:
        _tell(wrong, scheme, data.source, illegal_tags)
    return replace(data, sentences=known, scheme=scheme).in_scheme("IOB2")


def _refuse_untagged(sentence: Sentence, source: str) -> None:
    if len(sentence.tags) != len(sentence.words):
        message = f"{len(sentence.words)} words have {len(sentence.tags)} tags."
        raise UserError(message, where=f"{source} line {sentence.line}", remedy="Give each word one tag.")
    for i, tag in enumerate(sentence.tags):
        if not tag.strip() or tag == _UNTAGGED:
            where = f"{source} line {sentence.line_of(i)}"
            raise UserError(f"'{sentence.words[i]}' has no tag.", where=where, remedy="Name another column, or tag it.")


def _wrong(tags: Sequence[str], scheme: Scheme) -> list[int]:
    unknown = [i for i, tag in enumerate(tags) if not is_entity_tag(tag)]
    return unknown or illegal(tags, scheme)


def _tell(wrong: Sequence[tuple[Sentence, int]], scheme: Scheme, source: str, policy: Illegal) -> None:
    """Refuse tags that the scheme does not allow, or warn of them; what is no tag of entities is always refused."""
    for sentence, i in wrong:
        if i < len(sentence) and not is_entity_tag(sentence.tags[i]):
            where = f"{source} line {sentence.line_of(i)}"
            remedy = "Write O, or B-, I-, E- or S- and a type, as in other lines."
            raise UserError(f"'{sentence.tags[i]}' is no tag of an entity.", where=where, remedy=remedy)
    sentence, i = wrong[0]
    tag = sentence.tags[i] if i < len(sentence) else "the end of a sentence"
    after = sentence.tags[i - 1] if i else "the beginning of a sentence"
    where, message = f"{source} line {sentence.line_of(i)}", f"{tag} may not follow {after} in {scheme}."
    if policy == "repair":
        count = f"{len(wrong):,} tags that {scheme} does not allow were read as beginnings or ends of entities"
        warnings.warn(f"{count}; the first: {where}: {message}", stacklevel=4)
        return
    more = f" ({len(wrong):,} such tags in this file.)" if len(wrong) > 1 else ""
    remedy = f'Correct it, or let entities begin there with illegal_tags="repair" (--repair-tags).{more}'
    raise UserError(message, where=where, remedy=remedy)


def conll_lines(sentence: Sentence, tags: Sequence[str], columns: Columns | None = None) -> Iterator[str]:
    """The lines of a sentence with these tags, its empty line too.

    With the `columns` of the file that it was read from, all else stays as it was, and tags are put into their column,
    or into one more where there was none. Otherwise each is a word, a tab and its tag.
    """
    if columns is None or not sentence.raw:
        yield from (f"{word}\t{tag}" for word, tag in zip(sentence.words, tags, strict=True))
        yield ""
        return
    given = dict(zip(sentence.places, tags, strict=True))
    for place, line in enumerate(sentence.raw):
        if place not in given:
            yield line
            continue
        cells = columns.split(line)
        if columns.tag is None:
            cells.append(given[place])
        else:
            cells[columns.tag] = given[place]
        yield columns.delimiter.join(cells)
    yield ""


def conll_text(sentences: Iterable[Sentence], tags: Iterable[Sequence[str]], columns: Columns | None = None) -> str:
    """A whole file of `conll_lines`."""
    pairs = zip(sentences, tags, strict=True)
    return "".join(f"{line}\n" for sentence, given in pairs for line in conll_lines(sentence, given, columns))
