"""The HTTP service of a QA model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import MinLen
from pydantic import Field

from textgraft.data.squad import Article, Paragraph, Question, Squad
from textgraft.tasks.question_answering.predictor import QAModel
from textgraft.tasks.service import Request, Several, Text


class ContextQuestion(Request):
    context: Text
    question: Annotated[Text, MinLen(1)]


class AnswerRequest(Request):
    """Questions with their contexts; `best` of an answer has the `n_best` most probable candidates."""

    questions: Annotated[list[ContextQuestion], *Several]
    n_best: int = Field(3, ge=1, le=20)


class QuestionAnsweringService:
    """Service of a QA model: for each question the span of its context that answers it."""

    path, task = "/answer", "question answering"
    Request: type[Request] = AnswerRequest

    def __init__(self, model: QAModel) -> None:
        self.model = model

    def about(self) -> dict[str, Any]:
        return {"reads": "questions", "may_be_none": self.model.search.may_be_none}

    def read(self, request: AnswerRequest) -> list[Paragraph]:
        return [Paragraph(item.context, (Question("", item.question),)) for item in request.questions]

    def answer(self, items: Sequence[Paragraph]) -> list[dict[str, Any]]:
        predictions = self.model.answer(Squad((Article("", tuple(items)),)))
        return [{"answer": prediction.text, "best": prediction.as_json()} for prediction in predictions]

    def tell(self, request: AnswerRequest, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"answers": [answer | {"best": answer["best"][: request.n_best]} for answer in answers]}
