"""`textgraft serve` as its users run it: a process that listens, answers and ends in order."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Client

from textgraft import UserError, load, serve
from textgraft.serving.server import is_local, listening_at
from textgraft.tasks.export import export

SECRET = "river secret stone"


PROGRAM = ("-m", "textgraft")
WITHOUT_TORCH = """
import sys

for name in ("torch", "scipy", "sklearn", "duckdb", "pandas", "safetensors", "matplotlib", "onnx", "transformers"):
    sys.modules[name] = None
from textgraft.cli import main

main()
"""


@contextlib.contextmanager
def served(
    *arguments: str | Path, program: tuple[str, str] = PROGRAM
) -> Iterator[tuple[subprocess.Popen[str], Client, str]]:
    """The program, a client of it, and what it has said so far."""
    command = [sys.executable, *program, "serve", *map(str, arguments), "--port", "0", "--threads", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as run:
        said = ""
        assert run.stderr is not None
        try:
            while not (found := re.search(r"is served at (http://\S+);", said)):
                line = run.stderr.readline()
                assert line, said
                said += line
            yield run, Client(found[1].replace("0.0.0.0", "127.0.0.1")), said
        finally:
            run.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM)])
def test_it_answers_until_it_is_stopped(models: dict[str, Path], sent: signal.Signals, code: int) -> None:
    with served(models["single"], "--precision", "fp32") as (run, client, said):
        assert said.startswith(f"textgraft: {models['single']} (classification) is served at http://127.0.0.1:")
        (expected,) = load(models["single"], precision="fp32").predict([SECRET])
        status, answer = client.post("/predict", {"texts": [SECRET]})
        assert (status, answer["predictions"][0]["label"]) == (200, expected.label)
        assert answer["predictions"][0]["confidence"] == pytest.approx(expected.confidence, abs=1e-5)
        assert client.get("/health", host="evil.example")[0] == 421
        run.send_signal(sent)
        out, err = run.communicate(timeout=60)
    assert (run.returncode, out, err) == (code, "", ""), "nothing is said of what was asked"


@pytest.mark.slow
def test_a_graph_is_served_without_torch(models: dict[str, Path], tmp_path: Path) -> None:
    graph = export(models["single"], tmp_path / "graph").out
    (expected,) = load(models["single"], precision="fp32").predict([SECRET])
    with served(graph, program=("-c", WITHOUT_TORCH)) as (_, client, _):
        status, answer = client.post("/predict", {"texts": [SECRET]})
    assert (status, answer["predictions"][0]["label"]) == (200, expected.label)
    assert answer["predictions"][0]["confidence"] == pytest.approx(expected.confidence, abs=1e-5)


@pytest.mark.slow
def test_whoever_opens_it_to_others_is_told(models: dict[str, Path]) -> None:
    with served(models["tagger"], "--host", "0.0.0.0") as (_, client, said):
        assert "anyone who can reach this machine can use the model, without a password" in said
        assert client.post("/tag", {"texts": ["river stone"]}, host="any.example")[0] == 200


@pytest.mark.slow
def test_any_address_of_this_machine_alone_will_do(models: dict[str, Path]) -> None:
    with served(models["reader"], "--host", "127.8.0.1") as (_, client, _):
        assert client.get("/model")[1]["task"] == "question answering"


def test_places_where_nobody_can_listen(models: dict[str, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"port {port} is taken"):
            serve(models["single"], port=port)
    with pytest.raises(UserError, match="is not this machine"):
        serve(models["single"], host="192.0.2.1", port=0)
    with pytest.raises(UserError, match="no machine is called"):
        serve(models["single"], host="no machine", port=0)
    with pytest.raises(UserError, match="no model 'nowhere'"):
        serve("nowhere", port=0)


def test_an_answer_is_sent_at_once() -> None:
    """asyncio turns Nagle's algorithm off where it sees TCP by name; else each answer takes 40 ms."""
    with listening_at("127.0.0.1", 0) as listening:
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
        assert accepted.proto == socket.IPPROTO_TCP
        accepted.close()


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(UserError, match=r"serving needs fastapi. Install it by: pip install \"textgraft\[serve\]\""):
        serve("anything")


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
    ],
)
def test_who_is_on_this_machine(host: str, local: bool) -> None:
    assert is_local(host) == local
