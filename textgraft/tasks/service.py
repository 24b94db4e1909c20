"""Shared parts of the tasks' HTTP services: a service turns requests into items, and their answers into responses.

Items of several requests may be answered in one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

from annotated_types import MaxLen, MinLen
from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

MAX_TEXTS = 1000
"""Maximum number of texts in a request; for more, send several requests or use `textgraft predict`."""
Several = MinLen(1), MaxLen(MAX_TEXTS)


def whole(text: str) -> str:
    """Validate that a text has no unpaired surrogates, which JSON allows and UTF-8 cannot encode."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise PydanticCustomError("surrogate", "Half of a surrogate pair (as \\ud800) is no character")
    return text


Text = Annotated[str, AfterValidator(whole)]


class Request(BaseModel):
    """A request; unknown keys and values of other types are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @property
    def is_slow(self) -> bool:
        """True if creating items or the response may take so long that it should run in a thread."""
        return False


class Service(Protocol):
    """An HTTP service over a predictor.

    Attributes:
        path: URL path of the requests.
        task: Name of the task.
        Request: Type of the requests.
    """

    path: str
    task: str
    Request: type[Request]

    def about(self) -> dict[str, Any]:
        """Facts on the model for clients, beside path and task."""

    def to_items(self, request: Any) -> list[Any]:
        """The items of a request."""

    def answer(self, items: Sequence[Any]) -> list[Any]:
        """Predict for items in one batch. Raises UserError for an item that is not a valid input."""

    def to_response(self, request: Any, answers: Sequence[Any]) -> dict[str, Any]:
        """The answers to a request's items, as JSON."""
