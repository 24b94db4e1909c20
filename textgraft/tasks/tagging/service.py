"""The HTTP service of a tagger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from textgraft.tasks.service import Request, Several, Text
from textgraft.tasks.tagging.predictor import Tagger


class TagRequest(Request):
    texts: Annotated[list[Text], *Several]


class TaggingService:
    """Service of a tagger: the words of each text with their tags, and the entities."""

    path, task = "/tag", "tagging"
    Request: type[Request] = TagRequest

    def __init__(self, tagger: Tagger) -> None:
        self.tagger = tagger

    def about(self) -> dict[str, Any]:
        return {"reads": "texts", "entities": self.tagger.has_entities, "tags": list(self.tagger.config.tags)}

    def read(self, request: TagRequest) -> list[str]:
        return request.texts

    def answer(self, items: Sequence[str]) -> list[dict[str, Any]]:
        return [prediction.as_json() for prediction in self.tagger.tag_texts(items)]

    def tell(self, request: TagRequest, answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"texts": list(answers)}
