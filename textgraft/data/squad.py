"""Questions about paragraphs, with answers that are stretches of them: the JSON of SQuAD, in and out.

Version 1.1 is Rajpurkar et al. 2016 (arXiv:1606.05250); version 2 (Rajpurkar, Jia & Liang 2018, arXiv:1806.03822) adds
questions that their paragraph does not answer. Offsets count characters of the context, as Python does.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from textgraft.core.errors import UserError
from textgraft.data.text_files import explained, open_binary

Misplaced = Literal["refuse", "drop"]
_SHAPE = 'Give a file such as {"data": [{"title": …, "paragraphs": [{"context": …, "qas": [{"id": …, "question": …, …'
_SHOWN = 40  # characters of a text in a message


@dataclass(frozen=True)
class Answer:
    """A stretch of the context, which begins at its character `start`."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """Where the answer has ended."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """What is asked; `answers` are those of several people. `impossible`: the paragraph does not say."""

    id: str
    text: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False


@dataclass(frozen=True)
class Paragraph:
    """One context and all that is asked about it."""

    context: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Article:
    """Paragraphs that belong together, and are never on both sides of a split."""

    title: str
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True)
class Squad:
    """A file of articles; its length is the number of questions."""

    articles: tuple[Article, ...]
    version: str = "1.1"
    source: str = "<memory>"

    def __len__(self) -> int:
        return sum(len(p.questions) for article in self.articles for p in article.paragraphs)

    def asked(self) -> Iterator[tuple[str, Question]]:
        """Each question after its context, in the order of the file."""
        for article in self.articles:
            for paragraph in article.paragraphs:
                for question in paragraph.questions:
                    yield paragraph.context, question

    @property
    def has_impossible(self) -> bool:
        """Whether any question is without an answer."""
        return any(question.impossible for _, question in self.asked())

    def only(self, wanted: Callable[[Question], bool]) -> Squad:
        """The questions that are `wanted`; paragraphs and articles that are left with none go too."""
        articles = []
        for article in self.articles:
            kept = [replace(p, questions=tuple(filter(wanted, p.questions))) for p in article.paragraphs]
            articles.append(replace(article, paragraphs=tuple(p for p in kept if p.questions)))
        return replace(self, articles=tuple(a for a in articles if a.paragraphs))

    def sample(self, n: int, seed: int = 0) -> Squad:
        """`n` questions, chosen by a hash of their ids: a larger sample holds a smaller one. All if there are fewer."""
        ranked = sorted((question.id for _, question in self.asked()), key=lambda id: _rank(seed, id))
        kept = set(ranked[:n])
        return self.only(lambda question: question.id in kept)

    def content_hash(self) -> str:
        """sha256 of all that a model sees of it."""
        content = [(c, q.id, q.text, [(a.text, a.start) for a in q.answers], q.impossible) for c, q in self.asked()]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def split_articles(squad: Squad, share: float, seed: int = 0) -> tuple[Squad, Squad]:
    """All but a share of the articles, and that share (rounded, at least one article and not all).

    Articles are ranked by a hash of their titles, and those of one title stay together: what other articles a file has
    moves hardly any from one side to the other, and its order none. Raises UserError for fewer than two titles, or a
    share that is not between 0 and 1.
    """
    titles = sorted({article.title for article in squad.articles}, key=lambda title: _rank(seed, title))
    if not 0 < share < 1:
        raise UserError(f"a share of {share} cannot be held out.", remedy="Give one between 0 and 1.")
    if len(titles) < 2:
        message = f"{len(titles)} titled article cannot be split."
        raise UserError(message, where=squad.source, remedy="Name a file of its own to measure on.")
    held = set(titles[: min(len(titles) - 1, max(1, round(share * len(titles))))])
    left = tuple(a for a in squad.articles if a.title not in held)
    return replace(squad, articles=left), replace(squad, articles=tuple(a for a in squad.articles if a.title in held))


def _rank(seed: int, key: str) -> str:
    return hashlib.sha256(f"{seed} {key}".encode("utf-8", "surrogatepass")).hexdigest()


def is_squad(path: str | Path) -> bool:
    """Whether the name of a file says that it is JSON, compressed or not."""
    name = Path(path).name.lower()
    return any(name.endswith(".json" + suffix) for suffix in ("", ".gz", ".xz", ".bz2", ".zst"))


def read_squad(path: str | Path, *, misplaced: Misplaced = "refuse") -> Squad:
    """The questions of a file, plain or compressed. Answers may be absent, where questions are only to be answered.

    `misplaced` "drop" leaves out answers that do not stand at their offset, with a warning. Raises UserError for a
    file that is not in this form, with article, paragraph and question; for an id that comes twice; and for answers
    that are misplaced, with what stands there.
    """
    path = Path(path)
    with explained(path), open_binary(path) as file:
        data = file.read()
    try:
        content = json.loads(data.decode("utf-8-sig"))
    except ValueError as error:
        raise UserError(f"this is not JSON ({error}).", where=str(path), remedy=_SHAPE) from error
    return parse_squad(content, source=str(path), misplaced=misplaced)


def parse_squad(content: Any, *, source: str = "<memory>", misplaced: Misplaced = "refuse") -> Squad:
    """`read_squad` for JSON that is in memory."""
    if misplaced not in get_args(Misplaced):
        raise UserError(f"misplaced is '{misplaced}'.", remedy=f"Known: {', '.join(get_args(Misplaced))}.")
    reading = _Reading(source, misplaced)
    articles = reading.items(content, "data", source)
    found = tuple(reading.article(item, f"{source} article {n}") for n, item in enumerate(articles, 1))
    squad = Squad(found, str(content.get("version", "1.1")), source)
    reading.finish()
    if not len(squad):
        raise UserError("there is not one question in it.", where=source, remedy=_SHAPE)
    return squad


class _Reading:
    """One pass over a file: the places for its errors, and what must be known across questions."""

    def __init__(self, source: str, misplaced: Misplaced) -> None:
        self.source, self.misplaced = source, misplaced
        self.seen: dict[str, str] = {}  # question id: its place
        self.wrong: list[UserError] = []

    def items(self, holder: Any, key: str, where: str) -> list[Any]:
        """The list `key` of an object."""
        value = self.value(holder, key, list, where)
        return list(value)

    def value(self, holder: Any, key: str, kind: type, where: str) -> Any:
        """What an object has under `key`, which must be of this kind."""
        if not isinstance(holder, dict):
            raise UserError(f"this is no JSON object with '{key}'.", where=where, remedy=_SHAPE)
        if key not in holder:
            raise UserError(f"'{key}' is missing.", where=where, remedy=_SHAPE)
        value = holder[key]
        if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
            name = {list: "a list", str: "a string", int: "a whole number", bool: "true or false"}[kind]
            raise UserError(f"'{key}' is not {name}.", where=where, remedy=_SHAPE)
        return value

    def article(self, item: Any, where: str) -> Article:
        paragraphs = self.items(item, "paragraphs", where)
        title = self.value(item, "title", str, where) if "title" in item else ""
        named = f"{where} '{title}'" if title else where
        found = tuple(self.paragraph(p, f"{named}, paragraph {n}") for n, p in enumerate(paragraphs, 1))
        # Without a title an article is a title of its own, by what it says.
        first = found[0].context if found else ""
        return Article(title or hashlib.sha256(first.encode("utf-8", "surrogatepass")).hexdigest()[:16], found)

    def paragraph(self, item: Any, where: str) -> Paragraph:
        context = self.value(item, "context", str, where)
        asked = enumerate(self.items(item, "qas", where), 1)
        found = [self.question(q, context, f"{where}, question {n}") for n, q in asked]
        return Paragraph(context, tuple(found))

    def question(self, item: Any, context: str, where: str) -> Question:
        id = self.value(item, "id", str, where)
        where = f"{where} '{id}'"
        if id in self.seen:
            raise UserError(f"the id '{id}' is that of {self.seen[id]} too.", where=where, remedy="Give each its own.")
        self.seen[id] = where
        text = self.value(item, "question", str, where)
        impossible = self.value(item, "is_impossible", bool, where) if "is_impossible" in item else False
        given = self.items(item, "answers", where) if "answers" in item else []
        answers = [self.answer(a, context, f"{where}, answer {n}") for n, a in enumerate(given, 1)]
        if impossible and given:
            raise UserError("it is impossible, and it has answers.", where=where, remedy="Correct one of the two.")
        return Question(id, text, tuple(a for a in answers if a is not None), impossible)

    def answer(self, item: Any, context: str, where: str) -> Answer | None:
        found = Answer(self.value(item, "text", str, where), self.value(item, "answer_start", int, where))
        there = context[found.start : found.end] if found.start >= 0 else ""
        if found.text and there == found.text:
            return found
        if not found.text:
            self.wrong.append(UserError("the answer is empty.", where=where))
            return None
        message = f"'{_short(found.text)}' does not stand at {found.start}, where there is '{_short(there)}'."
        places = _places(found.text, context)
        near = min(places, key=lambda place: abs(place - found.start), default=None)
        hint = f"It stands at {near}." if near is not None else "It is nowhere in the context."
        self.wrong.append(UserError(message, where=where, remedy=hint))
        return None

    def finish(self) -> None:
        """Refuse, or tell of, answers that are not where they are said to be."""
        if not self.wrong:
            return
        first, count = self.wrong[0], len(self.wrong)
        if self.misplaced == "drop":
            warnings.warn(f"{count} misplaced answers were left out; the first: {first}", stacklevel=4)
            return
        more = f" ({count} such answers in this file.)" if count > 1 else ""
        remedy = (
            f'{first.remedy}{more} Correct answer_start, or leave them out with misplaced="drop" (--drop-misplaced).'
        )
        raise UserError(first.message, where=first.where, remedy=remedy.strip())


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _places(text: str, context: str) -> list[int]:
    places, at = [], context.find(text)
    while at >= 0:
        places.append(at)
        at = context.find(text, at + 1)
    return places


def squad_json(squad: Squad) -> dict[str, Any]:
    """The JSON that `parse_squad` reads; `is_impossible` is written where any question is."""
    has_impossible = squad.has_impossible

    def question(asked: Question) -> dict[str, Any]:
        answers = [{"text": a.text, "answer_start": a.start} for a in asked.answers]
        written: dict[str, Any] = {"id": asked.id, "question": asked.text, "answers": answers}
        return written | ({"is_impossible": asked.impossible} if has_impossible else {})

    def paragraph(one: Paragraph) -> dict[str, Any]:
        return {"context": one.context, "qas": [question(q) for q in one.questions]}

    data = [{"title": a.title, "paragraphs": [paragraph(p) for p in a.paragraphs]} for a in squad.articles]
    return {"version": squad.version, "data": data}


def single_question(question: str, context: str, id: str = "1") -> Squad:
    """A single question as a file of its own, without an answer."""
    return Squad((Article("", (Paragraph(context, (Question(id, question),)),)),))


def unanswered_ids(asked: Sequence[Question]) -> list[str]:
    """The ids of questions that nothing can be learned from: neither answered nor said to be impossible."""
    return [question.id for question in asked if not question.answers and not question.impossible]
