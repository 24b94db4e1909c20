"""The application: which address answers what, and what becomes of mistakes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from textgraft.core.errors import UserError, did_you_mean
from textgraft.serving.batcher import Batcher, Busy
from textgraft.serving.guard import Guard
from textgraft.tasks.service import Service

HERE = Path(__file__).parent
STYLES = (HERE.parent / "report" / "style.css", HERE / "page.css")
PAGE_RULES = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""For the browser: the page loads from here and sends to here, and nowhere else."""


class Mistake(BaseModel):
    """What is wrong, where, and what to do."""

    error: str


def application(service: Service, name: str, *, hosts: Collection[str] | None = None) -> FastAPI:
    """What answers for `service`, whose model people know as `name`; only to those who call it one of `hosts`."""
    batcher = Batcher(service.answer)

    @contextlib.asynccontextmanager
    async def answering(_: FastAPI) -> AsyncIterator[None]:
        work = asyncio.create_task(batcher.work())
        yield
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    # FastAPI's own pages of documentation load their scripts from elsewhere; the schema is at /openapi.json.
    app = FastAPI(title=name, docs_url=None, redoc_url=None, lifespan=answering)
    app.add_middleware(Guard, hosts=hosts)
    mistakes: dict[int | str, dict[str, Any]] = {status: {"model": Mistake} for status in (413, 422, 503)}
    asked = app.post(service.path, summary=f"What {name} says ({service.task}).", responses=mistakes)
    asked(_answer_to(service, batcher))

    @app.get("/model", summary="What the model does, and where.")
    async def model() -> dict[str, Any]:
        return {"name": name, "task": service.task, "path": service.path, **service.about()}

    @app.get("/health", summary="Whether it answers, and how much it has to do.")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "waiting": batcher.waiting, "answered": batcher.answered}

    _add_page(app)
    _add_mistakes(app, service)
    return app


def _answer_to(service: Service, batcher: Batcher) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def answer(body: Any) -> dict[str, Any]:
        if not body.takes_long:
            return service.tell(body, await batcher.ask(service.read(body)))
        # Others want answers meanwhile. Not for all: to a thread and back takes a millisecond, a short text four.
        items = await asyncio.to_thread(service.read, body)
        return await asyncio.to_thread(service.tell, body, await batcher.ask(items))

    answer.__annotations__["body"] = service.Request  # which FastAPI checks, and writes into its schema
    return answer


def _add_page(app: FastAPI) -> None:
    """The page for people: three files, read once."""
    style = "\n".join(path.read_text("utf-8") for path in STYLES)
    files = {
        "/": ("text/html", (HERE / "page.html").read_text("utf-8")),
        "/page.js": ("text/javascript", (HERE / "page.js").read_text("utf-8")),
        "/page.css": ("text/css", style),
    }
    for path, (kind, content) in files.items():

        async def page(content: str = content, kind: str = kind) -> Response:
            return Response(content, media_type=kind, headers=PAGE_RULES)

        app.add_api_route(path, page, include_in_schema=False)


def _add_mistakes(app: FastAPI, service: Service) -> None:
    """Every mistake is answered by {"error": what, where and what to do}."""

    async def unreadable(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return _error(422, explained(error.errors(), service.Request.model_fields))

    async def mistaken(_: Request, error: Exception) -> JSONResponse:
        return _error(422, str(error))

    async def busy(_: Request, error: Exception) -> JSONResponse:
        return _error(503, "more texts are waiting than will be answered soon. Try again later.", {"retry-after": "1"})

    async def unknown(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if error.status_code in (404, 405):
            said = f"nothing answers {request.method} {request.url.path}. Texts go to POST {service.path}."
            return _error(error.status_code, said)
        return _error(error.status_code, str(error.detail))

    async def defect(_: Request, error: Exception) -> JSONResponse:
        return _error(500, f"this is a defect ({type(error).__name__}); the server's terminal says more.")

    for kind, handler in (
        (RequestValidationError, unreadable),
        (UserError, mistaken),
        (Busy, busy),
        (HTTPException, unknown),
        (Exception, defect),
    ):
        app.add_exception_handler(kind, handler)


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status, headers=headers)


def explained(errors: Sequence[Mapping[str, Any]], known: Collection[str]) -> str:
    """What is wrong with a request, in a sentence: the first of the errors that pydantic found."""
    first = min(errors, key=lambda error: error["type"] != "extra_forbidden")  # a misspelled name lacks the right one
    place = [part for part in first["loc"] if part != "body"]
    if first["type"] in ("json_invalid", "model_attributes_type", "missing") and not place:
        return "this is no JSON object. Send one, as application/json."
    if first["type"] == "json_invalid":
        return f"the body is no JSON: {first.get('ctx', {}).get('error', first['msg'])}, at character {place[0]}."
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    if first["type"] == "missing":
        return f"'{where}' is missing."
    if first["type"] == "extra_forbidden":
        return f"'{where}' is not known. {did_you_mean(str(place[-1]), known)}"
    said = first["msg"]
    return f"{where}: {said[:1].lower()}{said[1:]}."
