"""The application over real connections: answers, mistakes, the page, and who is sent away."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from served import Client, running

from textgraft.serving import app as serving_app
from textgraft.serving.app import application
from textgraft.serving.batcher import Busy
from textgraft.serving.guard import MAX_BYTES, Guard
from textgraft.serving.services import open_service
from textgraft.tasks.classification.service import ClassificationService, PredictTexts


def documented_routes() -> set[str]:
    """The routes in the first table of the page on serving."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "serving.md"
    return set(re.findall(r"`(?:GET |POST )?(/\w+)`", page.read_text("utf-8").partition("## Requests")[0]))


@pytest.fixture(scope="module")
def client(models: dict[str, Path]) -> Iterator[Client]:
    with running(application(open_service(models["single"], precision="fp32"), "reviews")) as found:
        yield found


def test_many_at_once_get_what_one_alone_gets(client: Client) -> None:
    texts = [f"river {i} stone how many lamp {'.' * (i % 7)}" for i in range(40)]
    alone = [client.post("/predict", {"texts": [text]})[1]["predictions"][0] for text in texts]
    with ThreadPoolExecutor(16) as pool:
        batch_items = list(pool.map(lambda text: client.post("/predict", {"texts": [text]}), texts * 3))
    assert {status for status, _ in batch_items} == {200}
    for (_, said), one in zip(batch_items, alone * 3, strict=True):
        assert said["predictions"][0]["label"] == one["label"]
        assert said["predictions"][0]["probabilities"] == pytest.approx(one["probabilities"], abs=1e-5)
    assert client.get("/health")[1]["answered"] >= 160


def test_what_it_is(client: Client) -> None:
    expected = {"name": "reviews", "task": "classification", "path": "/predict"}
    assert client.get("/model") == (200, expected | {"reads": "texts", "kind": "single", "labels": ["a", "b", "c"]})
    schema = client.get("/openapi.json")[1]
    assert set(schema["paths"]) == documented_routes() - {"/tag", "/answer"}  # of the other tasks
    replies = schema["paths"]["/predict"]["post"]["responses"]
    assert replies["422"]["content"]["application/json"]["schema"]["$ref"].endswith("/Mistake")
    assert schema["components"]["schemas"]["PredictTexts"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"texts": ["a", ', "the body is not JSON: expecting value, at character 16."),
        ([], "the body is not a JSON object"),
        (b"", "the body is not a JSON object"),
        ({}, "'texts' is missing."),
        (
            {"text": ["a"]},
            "'text' is not known. Known: texts, abstain_below, probabilities, explain. Did you mean 'texts'?",
        ),
        ({"texts": ["a", 3]}, "texts[1]: input should be a valid string."),
        ({"texts": "a"}, "texts: input should be a valid list."),
        ({"texts": []}, "texts: list should have at least 1 item"),
        ({"texts": ["a"] * 1001}, "texts: list should have at most 1000 items"),
        ({"texts": [["a", "b"]]}, "texts[0]: input should be a valid string."),
        ({"texts": ["a"], "abstain_below": 2}, "abstain_below: input should be less than or equal to 1."),
        ({"texts": ["half a pair \ud800"]}, "texts[0]: half of a surrogate pair (as \\ud800) is no character."),
    ],
)
def test_a_mistake_is_explained(client: Client, body: Any, said: str) -> None:
    status, answer = client.post("/predict", body)
    assert status == 422
    assert answer["error"].lower().startswith(said.lower())


def test_a_body_of_another_kind_and_other_addresses(client: Client) -> None:
    status, answer = client.post("/predict", {"texts": ["a"]}, **{"content-type": "text/plain"})
    assert (status, answer["error"]) == (422, "the body is not a JSON object. Send one, as application/json.")
    assert client.get("/nope") == (404, {"error": "there is no GET /nope. Send texts to POST /predict."})
    assert client.get("/predict")[0] == 405
    assert client.get("/docs")[0] == 404  # which would load scripts from elsewhere


def test_a_request_that_is_too_large_is_not_read(client: Client) -> None:
    body = json.dumps({"texts": ["a" * MAX_BYTES]}).encode()
    connection = http.client.HTTPConnection(urlsplit(client.address).netloc, timeout=60)
    connection.putrequest("POST", "/predict")
    connection.putheader("content-type", "application/json")
    connection.putheader("content-length", str(len(body)))
    connection.endheaders()  # and no body: the length alone is enough
    assert connection.getresponse().status == 413
    connection.close()
    chunks = iter([body[:4_000_000], body[4_000_000:]])
    headers = {"content-type": "application/json", "transfer-encoding": "chunked"}
    request = urllib.request.Request(client.address + "/predict", data=chunks, headers=headers, method="POST")
    assert client.send(request) == (413, {"error": "a request has at most 8 MB. Send several."})
    assert client.post("/predict", {"texts": ["a"]})[0] == 200


def test_a_length_of_thousands_of_digits_is_too_large() -> None:
    """Python converts no such number: it was an internal error."""
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    async def nothing(*_: Any) -> None:
        raise AssertionError

    scope = {"type": "http", "headers": [(b"content-length", b"9" * 5000)]}
    asyncio.run(Guard(nothing)(scope, nothing, send))
    assert said[0]["status"] == 413


def test_the_page_loads_from_here_and_nowhere_else(client: Client) -> None:
    with urllib.request.urlopen(client.address + "/") as reply:
        page = reply.read().decode()
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert reply.headers["x-content-type-options"] == "nosniff"
    loaded = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert {"page.js", "page.css"} <= set(loaded)
    for name in loaded:
        with urllib.request.urlopen(f"{client.address}/{name}") as reply:
            content = reply.read().decode()
        assert reply.status == 200
        assert "http" not in content or name.endswith("json")
    script = urllib.request.urlopen(client.address + "/page.js").read().decode()
    assert "innerHTML" not in script
    assert all(f'"{field}"' in script or f"{field}:" in script for field in ("texts", "pairs", "choices", "questions"))


def test_only_who_calls_it_by_its_name_is_answered(models: dict[str, Path]) -> None:
    app = application(open_service(models["single"]), "reviews", hosts={"localhost", "127.0.0.1", "[::1]"})
    with running(app) as client:
        port = client.address.rpartition(":")[2]
        assert client.get("/health")[0] == 200
        for host in ("localhost", "LOCALHOST:1", "[::1]", f"[::1]:{port}"):
            assert client.get("/health", host=host)[0] == 200, host
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
            status, said = client.get("/health", host=host)
            assert (status, said["error"]) == (421, "the host must be 127.0.0.1 or [::1] or localhost.")


def test_who_comes_when_too_much_waits_may_come_again(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(serving_app.Batcher):
        async def ask(self, items: Any) -> list[Any]:
            raise Busy

    monkeypatch.setattr(serving_app, "Batcher", Full)
    with running(application(open_service(models["single"]), "reviews")) as client:
        status, said = client.post("/predict", {"texts": ["a"]})
    assert status == 503
    assert "Try again later" in said["error"]


def test_a_defect_says_so_and_gives_nothing_away(models: dict[str, Path]) -> None:
    class Broken(ClassificationService):
        def answer(self, items: Any) -> Any:
            raise RuntimeError(f"secret: {items}")

    service = open_service(models["single"])
    assert isinstance(service, ClassificationService)
    assert service.Request is PredictTexts
    with running(application(Broken(service.classifier), "reviews")) as client:
        status, said = client.post("/predict", {"texts": ["my secret"]})
    assert (status, said) == (500, {"error": "internal error (RuntimeError); see the server's terminal."})


def test_a_text_that_takes_long_to_cut_keeps_nobody_else(models: dict[str, Path]) -> None:
    free = threading.Event()

    class Slow(ClassificationService):
        def to_items(self, request: Any) -> Any:
            assert free.wait(60)
            return super().to_items(request)

        def to_response(self, request: Any, answers: Any) -> Any:
            told.set()
            assert shown.wait(60)
            return super().to_response(request, answers)

    told, shown = threading.Event(), threading.Event()
    service = open_service(models["single"])
    assert isinstance(service, ClassificationService)
    with running(application(Slow(service.classifier), "reviews")) as client, ThreadPoolExecutor(1) as other:
        answer = other.submit(client.post, "/predict", {"texts": ["a"], "explain": True})
        assert client.get("/health")[0] == 200
        free.set()
        assert told.wait(60)
        assert client.get("/health")[1]["answered"] == 2  # the text, and the text without its word
        shown.set()
        assert answer.result()[0] == 200
