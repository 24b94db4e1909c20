"""The web application: routes and error handlers."""

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
"""Headers for the browser: the page may only load from and send to this server."""


class Mistake(BaseModel):
    """An error: what is wrong, where, and the remedy."""

    error: str


def application(service: Service, name: str, *, hosts: Collection[str] | None = None) -> FastAPI:
    """Make the application that serves `service`, whose model's name is `name`; `hosts` are the allowed host names
    (None: all).
    """
    batcher = Batcher(service.answer)

    @contextlib.asynccontextmanager
    async def answering(_: FastAPI) -> AsyncIterator[None]:
        work = asyncio.create_task(batcher.work())
        yield
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work

    # FastAPI's documentation pages load scripts from other servers; the schema is at /openapi.json.
    app = FastAPI(title=name, docs_url=None, redoc_url=None, lifespan=answering)
    app.add_middleware(Guard, hosts=hosts)
    mistakes: dict[int | str, dict[str, Any]] = {status: {"model": Mistake} for status in (413, 422, 503)}
    add_route = app.post(service.path, summary=f"Predictions of {name} ({service.task}).", responses=mistakes)
    add_route(_prediction_handler(service, batcher))

    @app.get("/model", summary="Task and path of the model.")
    async def model() -> dict[str, Any]:
        return {"name": name, "task": service.task, "path": service.path, **service.about()}

    @app.get("/health", summary="Status and load.")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "waiting": batcher.waiting, "answered": batcher.answered}

    _add_page(app)
    _add_error_handlers(app, service)
    return app


def _prediction_handler(service: Service, batcher: Batcher) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def answer(body: Any) -> dict[str, Any]:
        if not body.is_slow:
            return service.to_response(body, await batcher.ask(service.to_items(body)))
        # Slow requests go to a thread; not all, since that costs a millisecond, and a short text takes four.
        items = await asyncio.to_thread(service.to_items, body)
        return await asyncio.to_thread(service.to_response, body, await batcher.ask(items))

    answer.__annotations__["body"] = service.Request  # FastAPI validates it, and adds it to its schema
    return answer


def _add_page(app: FastAPI) -> None:
    """Add the web page: three files, loaded once."""
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


def _add_error_handlers(app: FastAPI, service: Service) -> None:
    """Add error handlers: every error response is {"error": message} with what, where and remedy."""

    async def unreadable(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return _error(422, explained(error.errors(), service.Request.model_fields))

    async def mistaken(_: Request, error: Exception) -> JSONResponse:
        return _error(422, str(error))

    async def busy(_: Request, error: Exception) -> JSONResponse:
        return _error(503, "too many texts are waiting. Try again later.", {"retry-after": "1"})

    async def unknown(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if error.status_code in (404, 405):
            message = f"there is no {request.method} {request.url.path}. Send texts to POST {service.path}."
            return _error(error.status_code, message)
        return _error(error.status_code, str(error.detail))

    async def defect(_: Request, error: Exception) -> JSONResponse:
        return _error(500, f"internal error ({type(error).__name__}); see the server's terminal.")

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


def explained(errors: Sequence[Mapping[str, Any]], allowed: Collection[str]) -> str:
    """Describe the first of pydantic's validation errors in a sentence."""
    first = min(
        errors, key=lambda error: error["type"] != "extra_forbidden"
    )  # a misspelled name also reports the right one as missing
    place = [part for part in first["loc"] if part != "body"]
    if first["type"] in ("json_invalid", "model_attributes_type", "missing") and not place:
        return "the body is not a JSON object. Send one, as application/json."
    if first["type"] == "json_invalid":
        return f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}, at character {place[0]}."
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    if first["type"] == "missing":
        return f"'{where}' is missing."
    if first["type"] == "extra_forbidden":
        return f"'{where}' is not known. {did_you_mean(str(place[-1]), allowed)}"
    message = first["msg"]
    return f"{where}: {message[:1].lower()}{message[1:]}."
