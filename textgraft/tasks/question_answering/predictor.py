"""A reader at work: questions and contexts in, stretches of the contexts out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from textgraft.core.errors import UserError
from textgraft.core.progress import Meter
from textgraft.data.examples import validate_types
from textgraft.data.squad import Question, Squad, single_question
from textgraft.data.windows import Window, WindowSettings, encode_questions
from textgraft.metrics.question_answering import AnswerScores, score_answers
from textgraft.models.graph_loading import graph_in
from textgraft.models.model_folder import to_json
from textgraft.tasks.question_answering.graph import OnnxSpanModel
from textgraft.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from textgraft.data.sequences import Direction
    from textgraft.models.artifact import Artifact

AT_ONCE = 256
"""Questions whose windows are held in memory together."""


@dataclass(frozen=True)
class SearchSettings:
    """How answers are looked for: how many are listed, and how many tokens one may have.

    `may_be_none`: the empty answer is given where no answer scores higher than the best one, by more than `threshold`
    (in logits; Devlin et al. 2019, §4.3).
    """

    n_best: int = 20
    max_answer_tokens: int = 30
    may_be_none: bool = False
    threshold: float = 0.0

    def __post_init__(self) -> None:
        for name in ("n_best", "max_answer_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}.", remedy="Give 1 or more.")


@dataclass(frozen=True)
class Found:
    """One possible answer: the context's characters [start, end), its score, and its share among those listed."""

    text: str
    start: int
    end: int
    score: float
    probability: float


@dataclass(frozen=True)
class Reply:
    """What a reader says to a question: `text` (empty for "no answer") and its best answers, the best first.

    `no_answer_score` is the score of "no answer" less that of the best answer.
    """

    id: str
    text: str
    best: tuple[Found, ...]
    no_answer_score: float

    def listed(self) -> list[dict[str, Any]]:
        """The best answers as the published code's n-best file has them, with where each one stands."""
        return [asdict(found) for found in self.best]


@dataclass(frozen=True)
class Span:
    """The first and the last of a window's positions, both inside; the score is the sum of their logits."""

    first: int
    last: int
    score: float


def best_spans(
    start: np.ndarray, end: np.ndarray, *, begins: np.ndarray, ends: np.ndarray, count: int, longest: int
) -> list[Span]:
    """The `count` best spans of one window, best first, those before in the text first among equals.

    start, end (T,) logits; begins, ends (T,) bool: where one may begin and end; `longest` in tokens. A span ends no
    earlier than it begins. All pairs are looked at; the published code pairs the `count` best beginnings with the
    `count` best ends, and may find fewer.
    """
    firsts, lasts = np.flatnonzero(begins), np.flatnonzero(ends)
    scores = start[firsts].astype(np.float64)[:, None] + end[lasts].astype(np.float64)
    length = lasts - firsts[:, None] + 1
    scores[(length < 1) | (length > longest)] = -np.inf
    flat = scores.ravel()
    possible = np.flatnonzero(np.isfinite(flat))
    kept = possible[np.argsort(-flat[possible], kind="stable")[:count]]
    width = max(1, len(lasts))
    return [Span(int(firsts[i // width]), int(lasts[i % width]), float(flat[i])) for i in kept]


def reply(
    question: Question,
    context: str,
    read: Iterable[tuple[Window, np.ndarray, float]],
    settings: SearchSettings,
) -> Reply:
    """The answers that a question's windows give together, from (window, logits, score of "no answer") of each.

    An answer begins at a token that has most of its context in that window, as in the published code; of two that read
    the same the better one stays. No answer scores what it scores in the window where it scores least, since the others
    may merely not hold the answer.
    """
    candidates: list[tuple[float, int, int]] = []
    none = float("inf")
    for window, logits, no_answer in read:
        none = min(none, no_answer)
        ends = window.answerable
        begins = np.zeros_like(ends)
        begins[window.first : window.first + len(window.spans)] = window.most_context
        limits = {"count": settings.n_best, "longest": settings.max_answer_tokens}
        for span in best_spans(logits[:, 0], logits[:, 1], begins=begins & ends, ends=ends, **limits):
            first, last = window.spans[span.first - window.first], window.spans[span.last - window.first]
            candidates.append((-span.score, int(first[0]), int(last[1])))
    kept: dict[str, tuple[float, int, int]] = {}
    for candidate in sorted(candidates):
        kept.setdefault(context[candidate[1] : candidate[2]], candidate)
    listed = [(text, start, end, -minus) for text, (minus, start, end) in kept.items()][: settings.n_best]
    if settings.may_be_none or not listed:
        listed = sorted([*listed, ("", 0, 0, none)], key=lambda item: -item[3])[: settings.n_best]
    share = _softmax(np.array([score for *_, score in listed]))
    best = tuple(Found(*item, probability=float(p)) for item, p in zip(listed, share, strict=True))
    spans = [found for found in best if found.end > found.start]
    gap = none - spans[0].score if spans else float("inf")
    is_none = not spans or (settings.may_be_none and gap > settings.threshold)
    return Reply(question.id, "" if is_none else spans[0].text, best, gap)


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    shares: np.ndarray = powers / powers.sum()
    return shares


class SpanModel(Protocol):
    """What reads windows: a network (answering_network), or a graph (tasks.question_answering.graph), which needs no
    torch.

    `max_tokens` is how much it can look at, None without a limit.
    """

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def direction(self) -> Direction: ...

    @property
    def max_tokens(self) -> int | None: ...

    @property
    def run(self) -> dict[str, Any]: ...

    def window_logits(self, windows: Sequence[Window]) -> list[np.ndarray]:
        """For each window its logits (T, 2) of beginning and ending."""


def _no_answer(logits: np.ndarray, direction: Direction) -> float:
    """The score of "no answer", at the position where an encoder of this direction has read everything (heads.span)."""
    return float(logits[-1 if direction == "left" else 0].sum())


def answer_all(
    reader: SpanModel,
    asked: Sequence[tuple[str, Question]],
    windows: WindowSettings,
    search: SearchSettings,
    *,
    show: bool = False,
) -> list[Reply]:
    """The replies to questions with their contexts, in order, in memory that grows with the replies alone."""
    replies: list[Reply] = []
    with Meter("answering", len(asked), shown=show) as meter:
        for begin in range(0, len(asked), AT_ONCE):
            part = asked[begin : begin + AT_ONCE]
            encoded = encode_questions(part, reader.tokenizer, windows, direction=reader.direction)
            of_question: list[list[tuple[Window, np.ndarray, float]]] = [[] for _ in part]
            for window, scores in zip(encoded, reader.window_logits(encoded), strict=True):
                of_question[window.question].append((window, scores, _no_answer(scores, reader.direction)))
            for (context, question), read in zip(part, of_question, strict=True):
                replies.append(reply(question, context, read, search))
                meter.add(len(context.encode("utf-8", "replace")), sum(len(window.ids) for window, *_ in read))
    return replies


class QAModel:
    """A model fine-tuned to answer questions, or its graph, as a folder holds it.

    `threshold`, `n_best` and `max_answer_tokens` replace what it was measured with. One of the transformers library
    (hf:…) never gives the empty answer unless there is a `threshold`. Raises UserError for a model of another task.
    """

    def __init__(
        self,
        model: str | Path | Artifact,
        *,
        threshold: float | None = None,
        n_best: int | None = None,
        max_answer_tokens: int | None = None,
        precision: str = "auto",
        show: bool = False,
    ) -> None:
        graph = graph_in(model) if isinstance(model, str | Path) else None
        if graph is None:
            from textgraft.tasks.question_answering.network import NetworkSpanModel

            self.source: SpanModel = NetworkSpanModel(model, precision)
        elif isinstance(graph, OnnxSpanModel):
            self.source = graph
        else:
            raise UserError("this graph does not answer questions.", where=str(model), remedy="Export a reader.")
        run, most = self.source.run, self.source.max_tokens
        windows = WindowSettings(**run.get("windows", {}))  # other programs' readers say nothing of theirs
        self.windows = replace(windows, max_tokens=min(windows.max_tokens, most or windows.max_tokens))
        given = {"threshold": threshold, "n_best": n_best, "max_answer_tokens": max_answer_tokens}
        self.search = SearchSettings(
            **(run.get("search", {}) | {name: value for name, value in given.items() if value is not None})
        )
        if threshold is not None and "search" not in run:
            self.search = replace(self.search, may_be_none=True)
        self.show = show

    def answer(self, squad: Squad) -> list[Reply]:
        """The replies to all questions, in the order of the file."""
        validate_types(squad=squad, wanted=Squad, reader="textgraft.read_squad")
        asked = list(squad.asked())
        return answer_all(self.source, asked, self.windows, self.search, show=self.show)

    def ask(self, question: str, context: str) -> Reply:
        """The reply to one question about a text."""
        return self.answer(single_question(question, context))[0]

    def evaluate(self, squad: Squad) -> dict[str, Any]:
        """How good the answers are: what AnswerScores.summary says. Raises UserError for questions without answers."""
        return scores(squad, predictions(self.answer(squad))).summary()


def predictions(replies: Iterable[Reply]) -> dict[str, str]:
    """{id: answer}, what the official scripts read."""
    return {reply.id: reply.text for reply in replies}


def as_file(value: Mapping[str, Any]) -> bytes:
    """JSON as it is read best; half a surrogate pair, which JSON may carry and UTF-8 may not, is escaped."""
    try:
        return to_json(value)
    except UnicodeEncodeError:
        return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def scores(squad: Squad, given: Mapping[str, str]) -> AnswerScores:
    """Answers beside the gold ones. Raises UserError where a question has none to compare with."""
    asked = [question for _, question in squad.asked()]
    open_ = [question.id for question in asked if not question.answers and not question.impossible]
    if open_:
        message = f"{len(open_)} of {len(asked)} questions have no answer to compare with, '{open_[0]}' the first."
        raise UserError(message, where=squad.source, remedy="Only answer them (textgraft qa answer), or add answers.")
    return score_answers(asked, given)


def qa_answer(model: str | Path, squad: Squad, **search: Any) -> list[Reply]:
    """The replies of a model's folder to questions; `search` is what `QAModel` takes."""
    return QAModel(model, **search).answer(squad)


def qa_evaluate(model: str | Path, squad: Squad, **search: Any) -> dict[str, Any]:
    """How good a model's folder answers questions: exact match and F1 with intervals; `search` as for `QAModel`."""
    return QAModel(model, **search).evaluate(squad)
