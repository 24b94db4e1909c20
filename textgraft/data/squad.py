"""Extractive question answering data in SQuAD's JSON format, reading and writing.

Articles, paragraphs and single questions with their context (Hugging Face's rows) are read, each as a list or one per
line, and as the list under "data" of SQuAD's own files.

Version 1.1 is Rajpurkar et al. 2016 (arXiv:1606.05250); version 2 (Rajpurkar, Jia & Liang 2018, arXiv:1806.03822) adds
questions that their paragraph does not answer. Offsets count characters of the context, as Python does.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.data.json_records import records

Misplaced = Literal["refuse", "drop"]
"""Policy for answers that are not at their offset."""
Rules = Literal["1.1", "2.0"]
"""Version of SQuAD's evaluation script."""
_SHAPE = 'Give a file such as {"data": [{"title": …, "paragraphs": [{"context": …, "qas": [{"id": …, "question": …, …'
_SHOWN = 40  # characters of a text in a message


@dataclass(frozen=True)
class Answer:
    """A span of the context that begins at character `start`."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """Character after the answer."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question with the answers of one or more annotators; `impossible` if the paragraph contains none."""

    id: str
    text: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False


@dataclass(frozen=True)
class Paragraph:
    """A context and its questions."""

    context: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Article:
    """Paragraphs of one article; never divided by a split."""

    title: str
    paragraphs: tuple[Paragraph, ...]


@dataclass(frozen=True, repr=False)
class Squad(Brief):
    """The articles of a file; the length is the number of questions."""

    articles: tuple[Article, ...]
    version: str = "1.1"
    source: str = "<memory>"

    def __len__(self) -> int:
        return sum(len(p.questions) for article in self.articles for p in article.paragraphs)

    def asked(self) -> Iterator[tuple[str, Question]]:
        """Each context with each of its questions, in file order."""
        for article in self.articles:
            for paragraph in article.paragraphs:
                for question in paragraph.questions:
                    yield paragraph.context, question

    @property
    def rules(self) -> Rules:
        """Version of the official script that scores these questions."""
        return "2.0" if self.version.lower().lstrip("v").startswith("2") or self.has_impossible else "1.1"

    @property
    def has_impossible(self) -> bool:
        """True if any question has no answer."""
        return any(question.impossible for _, question in self.asked())

    def only(self, keep: Callable[[Question], bool]) -> Squad:
        """The questions for which `keep` is True, without empty paragraphs and articles."""
        articles = []
        for article in self.articles:
            paragraphs = [replace(p, questions=tuple(filter(keep, p.questions))) for p in article.paragraphs]
            articles.append(replace(article, paragraphs=tuple(p for p in paragraphs if p.questions)))
        return replace(self, articles=tuple(a for a in articles if a.paragraphs))

    def sample(self, n: int, seed: int = 0) -> Squad:
        """`n` questions, chosen by a hash of their ids: a larger sample contains a smaller one. All if there are
        fewer.
        """
        ranked = sorted((question.id for _, question in self.asked()), key=lambda id: _rank(seed, id))
        ids = set(ranked[:n])
        return self.only(lambda question: question.id in ids)

    def content_hash(self) -> str:
        """SHA-256 of everything a model is given."""
        content = [(c, q.id, q.text, [(a.text, a.start) for a in q.answers], q.impossible) for c, q in self.asked()]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def split_articles(squad: Squad, share: float, seed: int = 0) -> tuple[Squad, Squad]:
    """Hold out a share of the articles, rounded, at least one and not all.

    Articles are ranked by a hash of their titles and those with one title stay together: other articles and their order
    hardly change the side of an article.

    Args:
        squad: The data.
        share: Share to hold out, between 0 and 1.
        seed: Seed of the hash.

    Returns:
        Training and held-out articles.

    Raises:
        UserError: There are fewer than two titles, or the share is out of range.
    """
    titles = sorted({article.title for article in squad.articles}, key=lambda title: _rank(seed, title))
    if not 0 < share < 1:
        raise UserError(f"a share of {share} cannot be held out.", remedy="Use a share between 0 and 1.")
    if len(titles) < 2:
        message = f"{len(titles)} titled article cannot be split."
        raise UserError(message, where=squad.source, remedy="Pass a separate evaluation file.")
    held_out = set(titles[: min(len(titles) - 1, max(1, round(share * len(titles))))])
    training = tuple(a for a in squad.articles if a.title not in held_out)
    return replace(squad, articles=training), replace(
        squad, articles=tuple(a for a in squad.articles if a.title in held_out)
    )


def _rank(seed: int, key: str) -> str:
    return hashlib.sha256(f"{seed} {key}".encode("utf-8", "surrogatepass")).hexdigest()


def read_squad(path: str | Path, *, misplaced: Misplaced = "refuse") -> Squad:
    """Read a file, plain or compressed. Answers may be missing for prediction.

    Args:
        path: JSON of SQuAD's layout; a list, or lines, of articles, of paragraphs or of questions with their context;
            or such questions as Parquet or as a Hugging Face data set.
        misplaced: "refuse" raises for answers that are not at their offset; "drop" removes them with a warning.

    Raises:
        UserError: The file has another format (with article, paragraph and question, or line), an id occurs twice, or
            an answer is misplaced (with the text found there).
    """
    source = str(path)
    try:
        found = list(records(Path(path)))
    except UserError as error:
        remedy = _SHAPE if "JSON" in error.message else error.remedy
        raise UserError(error.message, where=error.where, remedy=remedy) from error
    if len(found) == 1 and found[0].unit == "line":
        return parse_squad(found[0].value, source=source, misplaced=misplaced)
    places = [(record.value, f"{source} {record.unit} {record.number}") for record in found]
    return _parsed(places, "", source, misplaced)


def parse_squad(content: Any, *, source: str = "<memory>", misplaced: Misplaced = "refuse") -> Squad:
    """`read_squad` for JSON in memory."""
    values, version = content, ""
    if not isinstance(content, list) and not (isinstance(content, dict) and content.keys() & SHAPES.keys()):
        values, version = _Parser(source, misplaced).items(content, "data", source), str(content.get("version") or "")
    elif isinstance(content, dict):
        values = [content]
    places = [(value, f"{source} {_shape(value) or 'article'} {n}") for n, value in enumerate(values, 1)]
    return _parsed(places, version, source, misplaced)


def _parsed(values: Sequence[tuple[Any, str]], version: str, source: str, misplaced: Misplaced) -> Squad:
    """The questions of values, each with its place."""
    if misplaced not in get_args(Misplaced):
        raise UserError(f"misplaced is '{misplaced}'.", remedy=f"Known: {', '.join(get_args(Misplaced))}.")
    parser = _Parser(source, misplaced)
    for value, where in values:
        parser.add(value, where)
    squad = Squad(parser.finish(), version or "1.1", source)
    if not len(squad):
        raise UserError("the file contains no question.", where=source, remedy=_SHAPE)
    return squad if version or not squad.has_impossible else replace(squad, version="2.0")


SHAPES: Mapping[str, str] = {"paragraphs": "article", "qas": "paragraph", "question": "question"}
"""Name of what an object with this key is."""


def _shape(value: Any) -> str | None:
    keys = value.keys() if isinstance(value, dict) else ()
    return next((name for key, name in SHAPES.items() if key in keys), None)


class _Parser:
    """One pass over a file with its error locations and the state shared by all questions."""

    def __init__(self, source: str, misplaced: Misplaced) -> None:
        self.source, self.misplaced = source, misplaced
        self.seen: dict[str, str] = {}  # question id: its place
        self.misplaced_answers: list[UserError] = []
        self.without_answers: list[str] = []  # places of rows with an empty list
        self.articles: list[Article] = []
        self.rows: dict[str, dict[str, list[Question]]] = {}  # questions by title and context

    def add(self, value: Any, where: str) -> None:
        """Parse an article, a paragraph, or a question with its context."""
        kind = _shape(value)
        if kind == "question":
            self.row(value, where)
        elif kind == "paragraph":
            paragraph = self.paragraph(value, where)
            self.articles.append(Article(_title_of(paragraph.context), (paragraph,)))
        else:
            self.articles.append(self.article(value, where))

    def row(self, value: Any, where: str) -> None:
        """Parse a question with its context, as in Hugging Face's data sets.

        There a list of answers that is empty is how an impossible question is written.
        """
        context = self.value(value, "context", str, where)
        question = self.question(value, context, where)
        is_empty = value.get("answers") in ([], {}, {"text": [], "answer_start": []})
        if is_empty and value.get("is_impossible") is None:
            self.without_answers.append(where)
            question = replace(question, impossible=True)
        title = self.value(value, "title", str, where) if value.get("title") else _title_of(context)
        self.rows.setdefault(title, {}).setdefault(context, []).append(question)

    def items(self, holder: Any, key: str, where: str) -> list[Any]:
        """The list under `key` of an object."""
        value = self.value(holder, key, list, where)
        return list(value)

    def value(self, holder: Any, key: str, kind: type, where: str) -> Any:
        """The value under `key` of an object, which must be of type `kind`; null counts as missing."""
        if not isinstance(holder, dict):
            raise UserError(f"this is not a JSON object with '{key}'.", where=where, remedy=_SHAPE)
        if holder.get(key) is None:
            raise UserError(f"'{key}' is missing.", where=where, remedy=_SHAPE)
        value = holder[key]
        if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
            name = {list: "a list", str: "a string", int: "a whole number", bool: "true or false"}[kind]
            raise UserError(f"'{key}' is not {name}.", where=where, remedy=_SHAPE)
        return value

    def article(self, item: Any, where: str) -> Article:
        paragraphs = self.items(item, "paragraphs", where)
        title = self.value(item, "title", str, where) if item.get("title") is not None else ""
        location = f"{where} '{title}'" if title else where
        parsed = tuple(self.paragraph(p, f"{location}, paragraph {n}") for n, p in enumerate(paragraphs, 1))
        return Article(title or _title_of(parsed[0].context if parsed else ""), parsed)

    def paragraph(self, item: Any, where: str) -> Paragraph:
        context = self.value(item, "context", str, where)
        items = enumerate(self.items(item, "qas", where), 1)
        questions = [self.question(q, context, f"{where}, question {n}") for n, q in items]
        return Paragraph(context, tuple(questions))

    def question(self, item: Any, context: str, where: str) -> Question:
        number = item.get("id") if isinstance(item, dict) else None
        if isinstance(number, float):
            remedy = "Write ids as text or as whole numbers: a column of a table with gaps has them as 1.0."
            raise UserError(f"the id {number} is not a whole number.", where=where, remedy=remedy)
        is_number = isinstance(number, int) and not isinstance(number, bool)
        id = str(number) if is_number else self.value(item, "id", str, where)
        where = f"{where} '{id}'"
        if id in self.seen:
            raise UserError(f"the id '{id}' is also that of {self.seen[id]}.", where=where, remedy="Make ids unique.")
        self.seen[id] = where
        text = self.value(item, "question", str, where)
        impossible = item.get("is_impossible") is not None and self.value(item, "is_impossible", bool, where)
        items = self.answers(item, where) if item.get("answers") is not None else []
        answers = [self.answer(a, context, f"{where}, answer {n}") for n, a in enumerate(items, 1)]
        if impossible and items:
            raise UserError("it is impossible and has answers.", where=where, remedy="Correct one of the two.")
        return Question(id, text, tuple(a for a in answers if a is not None), impossible)

    def answers(self, item: Any, where: str) -> list[Any]:
        """The answers of a question: a list of objects, or in Hugging Face's rows an object of lists."""
        if not isinstance(item["answers"], dict):
            return self.items(item, "answers", where)
        texts, starts = (self.items(item["answers"], key, where) for key in ("text", "answer_start"))
        if len(texts) != len(starts):
            message = f"{len(texts)} answers have {len(starts)} starts."
            raise UserError(message, where=where, remedy="Give an answer_start for each text.")
        return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]

    def answer(self, item: Any, context: str, where: str) -> Answer | None:
        answer = Answer(self.value(item, "text", str, where), self.value(item, "answer_start", int, where))
        actual = context[answer.start : answer.end] if answer.start >= 0 else ""
        if answer.text and actual == answer.text:
            return answer
        if not answer.text:
            hint = "Give its text; a question without an answer has is_impossible: true and no answers"
            self.misplaced_answers.append(UserError("the answer is empty.", where=where, remedy=f"{hint}."))
            return None
        message = f"'{_short(answer.text)}' is not at {answer.start}, where the context has '{_short(actual)}'."
        occurrences = _occurrences(answer.text, context)
        nearest = min(occurrences, key=lambda start: abs(start - answer.start), default=None)
        hint = f"It is at {nearest}." if nearest is not None else "It is nowhere in the context."
        hint += " Correct answer_start."
        self.misplaced_answers.append(UserError(message, where=where, remedy=hint))
        return None

    def finish(self) -> tuple[Article, ...]:
        """The articles. Raises or warns about misplaced answers."""
        if self.without_answers:
            count = f"{len(self.without_answers):,} questions with an empty list of answers are read as impossible"
            warnings.warn(f"{count}; the first: {self.without_answers[0]}", stacklevel=5)
        if self.misplaced_answers:
            self._report_misplaced()
        of_rows = (
            Article(title, tuple(Paragraph(context, tuple(of)) for context, of in contexts.items()))
            for title, contexts in self.rows.items()
        )
        return (*self.articles, *of_rows)

    def _report_misplaced(self) -> None:
        first, count = self.misplaced_answers[0], len(self.misplaced_answers)
        if self.misplaced == "drop":
            warnings.warn(f"{count} misplaced answers were left out; the first: {first}", stacklevel=6)
            return
        more = f" ({count} such answers in this file.)" if count > 1 else ""
        remedy = f'{first.remedy}{more} misplaced="drop" leaves them out.'
        raise UserError(first.message, where=first.where, remedy=remedy)


def _title_of(context: str) -> str:
    """Identifier of an article without a title: a hash of its first context."""
    return hashlib.sha256(context.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _occurrences(text: str, context: str) -> list[int]:
    occurrences, start = [], context.find(text)
    while start >= 0:
        occurrences.append(start)
        start = context.find(text, start + 1)
    return occurrences


def squad_json(squad: Squad) -> dict[str, Any]:
    """JSON for `parse_squad`; `is_impossible` is written if any question is impossible."""
    has_impossible = squad.has_impossible

    def question(question: Question) -> dict[str, Any]:
        answers = [{"text": a.text, "answer_start": a.start} for a in question.answers]
        fields: dict[str, Any] = {"id": question.id, "question": question.text, "answers": answers}
        return fields | ({"is_impossible": question.impossible} if has_impossible else {})

    def paragraph(paragraph: Paragraph) -> dict[str, Any]:
        return {"context": paragraph.context, "qas": [question(q) for q in paragraph.questions]}

    data = [{"title": a.title, "paragraphs": [paragraph(p) for p in a.paragraphs]} for a in squad.articles]
    return {"version": squad.version, "data": data}


def single_question(question: str, context: str, id: str = "1") -> Squad:
    """A single unanswered question as a data set."""
    return Squad((Article("", (Paragraph(context, (Question(id, question),)),)),))


def unanswered_ids(questions: Sequence[Question]) -> list[str]:
    """Ids of questions without an answer that are not marked as impossible: they cannot be trained on."""
    return [question.id for question in questions if not question.answers and not question.impossible]
