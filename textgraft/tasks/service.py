"""What the HTTP services of tasks share: a service turns requests into items, answers these, and tells each its own.

Items of several requests may be answered together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

from annotated_types import MaxLen, MinLen
from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

MAX_TEXTS = 1000
"""Of one request; whoever has more sends several, or a file to `textgraft predict`."""
Several = MinLen(1), MaxLen(MAX_TEXTS)


def whole(text: str) -> str:
    """The text, which JSON may have given half a surrogate pair, and UTF-8 may not give back."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise PydanticCustomError("surrogate", "Half of a surrogate pair (as \\ud800) is no character")
    return text


Text = Annotated[str, AfterValidator(whole)]


class Request(BaseModel):
    """What comes in: known names and no others, and no text that is a number."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @property
    def is_slow(self) -> bool:
        """Whether to read it and to tell its answers may take so long that nobody should wait for that."""
        return False


class Service(Protocol):
    """`path` is where requests are sent, `Request` what they look like, `task` what the model does, in a word."""

    path: str
    task: str
    Request: type[Request]

    def about(self) -> dict[str, Any]:
        """What a program or a page wants to know of the model, beside its path and task."""

    def to_items(self, request: Any) -> list[Any]:
        """The items of a request."""

    def answer(self, items: Sequence[Any]) -> list[Any]:
        """An answer to each item, computed together. Raises UserError for an item that the model cannot read."""

    def to_response(self, request: Any, answers: Sequence[Any]) -> dict[str, Any]:
        """The answers to a request's items, as JSON."""
