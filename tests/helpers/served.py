"""Untrained models of every task that can be served, and a server of one in a thread of this process."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from made_up_questions import encoder

from textgraft.data.labels import Labels
from textgraft.models.artifact import Artifact
from textgraft.models.model import build
from textgraft.serving.server import listening_at

ASPECTS: dict[str, tuple[str, dict[str, Any], Labels | None, dict[str, Any]]] = {
    "single": ("classification", {"outputs": 3}, Labels("single", ("a", "b", "c")), {"stage": "finetune"}),
    "multi": ("classification", {"outputs": 3, "kind": "multi"}, Labels("multi", ("a", "b", "c")), {}),
    "numeric": ("classification", {"outputs": 1, "kind": "numeric"}, Labels("numeric", (), 3.0, 2.0), {}),
    "pairs": ("classification", {"outputs": 2}, Labels("single", ("no", "yes")), {"reads": "pairs"}),
    "choices": ("choice", {}, Labels("choice", ("1", "2", "3")), {}),
    "tagger": ("tagging", {"tags": ["O", "B-x", "I-x"], "scheme": "IOB2"}, None, {"stage": "tag"}),
    "reader": ("span", {}, None, {"stage": "qa", "windows": {"max_tokens": 24, "stride": 6, "max_question": 8}}),
}
"""A head, its settings, labels, and what run.json says, by what the model is."""


def made(name: str) -> Artifact:
    """An untrained model of that kind; its weights are large enough for its answers to differ."""
    head, settings, labels, run = ASPECTS[name]
    base = encoder("bert")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        described = {"name": head, "input_dim": 16, **settings}
        model = build({"encoder": base.model.describe()["encoder"], "head": described}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8 if parameter.ndim > 1 else 1)
    return Artifact(model, base.tokenizer, labels, {"name": name, "stage": "finetune", "max_tokens": 40, **run})


@dataclass(frozen=True)
class Client:
    """Asks the server at `address`; answers are (status, what the JSON says)."""

    address: str

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return self.send(urllib.request.Request(self.address + path, headers=headers))

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **headers}
        return self.send(urllib.request.Request(self.address + path, data=data, headers=headers, method="POST"))

    def send(self, request: urllib.request.Request) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@contextlib.contextmanager
def running(app: FastAPI) -> Iterator[Client]:
    """The application behind a real server on this machine."""
    listening = listening_at("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()
