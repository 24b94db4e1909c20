"""Prediction with a QA model: from questions and contexts to spans of the contexts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from textgraft.core.brief import Brief
from textgraft.core.errors import UserError
from textgraft.core.precision import validate_precision
from textgraft.core.progress import Meter
from textgraft.data.examples import validate_types
from textgraft.data.squad import Question, Squad, single_question
from textgraft.data.windows import Window, WindowSettings, encode_questions
from textgraft.metrics.question_answering import AnswerScores, score_answers
from textgraft.models.model_folder import settings_from, to_json
from textgraft.tasks.question_answering.graph import OnnxSpanModel
from textgraft.tasks.question_answering.spec import QUESTION_ANSWERING
from textgraft.tasks.registry import open_model_of, validate_task
from textgraft.text.tokenizer import Tokenizer
from textgraft.text.visible import TextForm

if TYPE_CHECKING:
    from textgraft.data.sequences import Direction
    from textgraft.models.artifact import Artifact, Predictor
    from textgraft.models.loading import OpenedModels

QUESTIONS_AT_ONCE = 256
"""Questions whose windows are held in memory together."""


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search for answers in the logits of windows.

    Attributes:
        n_best: Number of candidates that are listed.
        max_answer_tokens: Length of the longest answer.
        may_be_none: Predict the empty answer where "no answer" scores higher than the best answer by more than
            `threshold` (Devlin et al. 2019, §4.3).
        threshold: In logits.
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
class AnswerCandidate:
    """A candidate answer: characters [start, end) of the context, its score, and its softmax among those listed."""

    text: str
    start: int
    end: int
    score: float
    probability: float


@dataclass(frozen=True, repr=False)
class QAPrediction(Brief):
    """Prediction for a question.

    Attributes:
        id: The question's id.
        text: The answer; empty for "no answer".
        best: The candidates, best first.
        no_answer_score: Score of "no answer" minus that of the best answer, in logits.
    """

    id: str
    text: str
    best: tuple[AnswerCandidate, ...]
    no_answer_score: float

    def as_json(self) -> list[dict[str, Any]]:
        """The candidates as in the n-best file of the published code, with the characters of each."""
        return [asdict(candidate) for candidate in self.best]


@dataclass(frozen=True)
class Span:
    """A window's positions [first, last], both included; the score is the sum of their logits."""

    first: int
    last: int
    score: float


def best_spans(
    start: np.ndarray, end: np.ndarray, *, begins: np.ndarray, ends: np.ndarray, count: int, longest: int
) -> list[Span]:
    """The spans of one window with the highest scores, best first; among equals the one earlier in the text.

    All pairs of positions are scored. The published code pairs the `count` best starts with the `count` best ends, and
    may return fewer.

    Args:
        start: (T,) logits of an answer's first token.
        end: (T,) logits of its last token.
        begins: (T,) bool, positions where a span may begin.
        ends: (T,) bool, positions where a span may end.
        count: Maximum number of spans.
        longest: Maximum length in tokens.
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


def predict_answer(
    question: Question,
    context: str,
    windows: Iterable[tuple[Window, np.ndarray, float]],
    settings: SearchSettings,
) -> QAPrediction:
    """Predict an answer from all windows of a question.

    An answer begins at a token that has most of its context in that window, as in the published code; of candidates
    with the same text the best is kept. The score of "no answer" is the lowest among the windows, since the others may
    merely not contain the answer.

    Args:
        question: The question.
        context: Its context.
        windows: (window, logits (T, 2), score of "no answer") of each window.
        settings: Settings of the search.
    """
    candidates: list[tuple[float, int, int]] = []
    none = float("inf")
    for window, logits, no_answer in windows:
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
    ranked = [(text, start, end, -minus) for text, (minus, start, end) in kept.items()][: settings.n_best]
    if settings.may_be_none or not ranked:
        ranked = sorted([*ranked, ("", 0, 0, none)], key=lambda item: -item[3])[: settings.n_best]
    share = _softmax(np.array([score for *_, score in ranked]))
    best = tuple(AnswerCandidate(*item, probability=float(p)) for item, p in zip(ranked, share, strict=True))
    spans = [candidate for candidate in best if candidate.end > candidate.start]
    gap = none - spans[0].score if spans else float("inf")
    is_none = not spans or (settings.may_be_none and gap > settings.threshold)
    return QAPrediction(question.id, "" if is_none else spans[0].text, best, gap)


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    shares: np.ndarray = powers / powers.sum()
    return shares


class SpanModel(Protocol):
    """Interface of a network (network.py) and of an ONNX graph (graph.py), which needs no torch.

    `max_tokens` is the longest window in tokens, None without a limit.
    """

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def direction(self) -> Direction: ...

    @property
    def max_tokens(self) -> int | None: ...

    @property
    def run(self) -> dict[str, Any]: ...

    @property
    def text_form(self) -> TextForm: ...

    def window_logits(self, windows: Sequence[Window]) -> list[np.ndarray]:
        """Logits (T, 2) of an answer's first and last token, for each window."""


def _no_answer(logits: np.ndarray, direction: Direction) -> float:
    """The score of "no answer", at the position that attends to the whole window (heads.span)."""
    return float(logits[-1 if direction == "left" else 0].sum())


def answer_all(
    model: SpanModel,
    questions: Sequence[tuple[str, Question]],
    windows: WindowSettings,
    search: SearchSettings,
    *,
    show: bool = False,
) -> list[QAPrediction]:
    """Predict answers to (context, question) pairs, in order; memory grows with the predictions only.

    Args:
        model: A network or a graph.
        questions: (context, question) pairs.
        windows: Settings of the windows.
        search: Settings of the search.
        show: Show progress on stderr.
    """
    predictions: list[QAPrediction] = []
    with Meter("answering", len(questions), shown=show, unit="questions") as meter:
        for begin in range(0, len(questions), QUESTIONS_AT_ONCE):
            part = questions[begin : begin + QUESTIONS_AT_ONCE]
            form, direction = model.text_form, model.direction
            encoded = encode_questions(part, model.tokenizer, windows, direction=direction, form=form)
            by_question: list[list[tuple[Window, np.ndarray, float]]] = [[] for _ in part]
            for window, logits in zip(encoded, model.window_logits(encoded), strict=True):
                by_question[window.question].append((window, logits, _no_answer(logits, model.direction)))
            for (context, question), scored in zip(part, by_question, strict=True):
                predictions.append(predict_answer(question, context, scored, search))
                meter.add(len(context.encode("utf-8", "replace")), sum(len(window.ids) for window, *_ in scored))
    return predictions


class QAModel:
    """A model fine-tuned for extractive question answering, or its ONNX graph.

    Args:
        model: Name or folder of a model, or an opened one. A model of the transformers library (hf:…) never predicts
            the empty answer unless there is a `threshold`.
        threshold: SearchSettings.threshold, in place of the one that the model was evaluated with.
        n_best: SearchSettings.n_best, likewise.
        max_answer_tokens: SearchSettings.max_answer_tokens, likewise.
        precision: "auto", "fp32", "bf16" or "int8".
        show: Show progress on stderr.

    Raises:
        UserError: The model is of another task, or the precision is unknown.
    """

    def __init__(
        self,
        model: str | Path | Predictor,
        *,
        threshold: float | None = None,
        n_best: int | None = None,
        max_answer_tokens: int | None = None,
        precision: str = "auto",
        show: bool = False,
    ) -> None:
        validate_precision(precision)
        opened = open_model_of(QUESTION_ANSWERING, model) if isinstance(model, str | Path) else model
        validate_task(QUESTION_ANSWERING, opened.head_name)
        if isinstance(opened, OnnxSpanModel):
            self.source: SpanModel = opened
        else:
            from textgraft.tasks.question_answering.network import NetworkSpanModel

            self.source = NetworkSpanModel(cast("Artifact", opened), precision)
        run, most = self.source.run, self.source.max_tokens
        windows = settings_from(WindowSettings, run.get("windows", {}), "windows")  # absent in other programs' models
        self.windows = replace(windows, max_tokens=min(windows.max_tokens, most or windows.max_tokens))
        replaced: dict[str, Any] = {"threshold": threshold, "n_best": n_best, "max_answer_tokens": max_answer_tokens}
        search = settings_from(SearchSettings, run.get("search", {}), "search")
        self.search = replace(search, **{name: value for name, value in replaced.items() if value is not None})
        if threshold is not None and "search" not in run:
            self.search = replace(self.search, may_be_none=True)
        self.show = show

    @classmethod
    def of(cls, models: OpenedModels, *, precision: str = "auto", **options: Any) -> QAModel:
        """The QA model of opened models."""
        return cls(models.members[0], precision=precision, **options)

    def answer(self, squad: Squad) -> list[QAPrediction]:
        """Predictions for all questions, in the order of the file."""
        validate_types(squad=squad, wanted=Squad, reader="textgraft.read_squad")
        return answer_all(self.source, list(squad.asked()), self.windows, self.search, show=self.show)

    def ask(self, question: str, context: str) -> QAPrediction:
        """Predict the answer to one question about a text."""
        return self.answer(single_question(question, context))[0]

    def evaluate(self, squad: Squad) -> dict[str, Any]:
        """Scores of the predicted answers, as AnswerScores.summary has them.

        Raises:
            UserError: Questions have no answers.
        """
        return scores(squad, answers_by_id(self.answer(squad))).summary()


def answers_by_id(predictions: Iterable[QAPrediction]) -> dict[str, str]:
    """{question id: answer}, the format of the official evaluation scripts."""
    return {prediction.id: prediction.text for prediction in predictions}


def as_file(value: Mapping[str, Any]) -> bytes:
    """Indented JSON; half a surrogate pair, which JSON may contain and UTF-8 may not, is escaped."""
    return to_json(value)


def scores(squad: Squad, answers: Mapping[str, str]) -> AnswerScores:
    """Score predicted answers ({question id: answer}) against the gold ones.

    Raises:
        UserError: A question has no gold answer.
    """
    questions = [question for _, question in squad.asked()]
    open_ids = [question.id for question in questions if not question.answers and not question.impossible]
    if open_ids:
        count = f"{len(open_ids)} of {len(questions)}"
        message = f"{count} questions have no answer to compare with, '{open_ids[0]}' the first."
        raise UserError(message, where=squad.source, remedy="Only answer them (textgraft qa answer), or add answers.")
    return score_answers(questions, answers, rules=squad.rules)


def qa_answer(model: str | Path, squad: Squad, **search: Any) -> list[QAPrediction]:
    """Predict answers with a saved model; `search` are options of `QAModel`."""
    return QAModel(model, **search).answer(squad)


def qa_evaluate(model: str | Path, squad: Squad, **search: Any) -> dict[str, Any]:
    """Exact match and F1 of a saved model, with intervals; `search` are options of `QAModel`."""
    return QAModel(model, **search).evaluate(squad)
