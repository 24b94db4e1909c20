"""The HTTP service of a QA model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import MinLen
from pydantic import Field

from textgraft.data.squad import Article, Paragraph, Question, Squad
from textgraft.tasks.question_answering.predictor import QAModel
from textgraft.tasks.service import Request, Several, Text


class Asked(Request):
    context: Text
    question: Annotated[Text, MinLen(1)]


class AnswerRequest(Request):
    """`best` of an answer lists the `n_best` likeliest."""

    questions: Annotated[list[Asked], *Several]
    n_best: int = Field(3, ge=1, le=20)


class QuestionAnsweringService:
    """A reader: the stretch of its context that answers each question."""

    path, task = "/answer", "question answering"
    Request: type[Request] = AnswerRequest

    def __init__(self, reader: QAModel) -> None:
        self.reader = reader

    def about(self) -> dict[str, Any]:
        return {"reads": "questions", "may_be_none": self.reader.search.may_be_none}

    def to_items(self, request: AnswerRequest) -> list[Paragraph]:
        return [Paragraph(asked.context, (Question("", asked.question),)) for asked in request.questions]

    def answer(self, items: Sequence[Paragraph]) -> list[dict[str, Any]]:
        replies = self.reader.answer(Squad((Article("", tuple(items)),)))
        return [{"answer": reply.text, "best": reply.listed()} for reply in replies]

    def to_response(self, request: AnswerRequest, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"answers": [answer | {"best": answer["best"][: request.n_best]} for answer in answers]}
