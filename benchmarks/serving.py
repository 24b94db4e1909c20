"""Answers a second of `textgraft serve`, and how long one waits: `python benchmarks/serving.py MODEL texts.txt`.

A server process on one thread, and clients of another process, 1, 4, 16 and 64 at a time, each of which sends the next
text when it has its answer. Beside it the same server answering text by text instead of what waits together, and
`textgraft.load(MODEL).predict` of all texts at once: what batches of a file would give. In turns, the best of
--rounds. Needs a classifier.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from textgraft.data.readers import read_texts

CLIENTS = (1, 4, 16, 64)
HEADERS = {"content-type": "application/json"}


def serve(model: str, together: bool) -> None:
    """Answers at a free port, which it prints, until it is killed."""
    import torch
    import uvicorn

    from textgraft.serving.app import application
    from textgraft.serving.server import listening_at
    from textgraft.serving.services import open_service

    torch.set_num_threads(1)
    service = open_service(model)
    if not together:
        many = service.answer
        service.answer = lambda items: [answer for item in items for answer in many([item])]  # type: ignore[method-assign]
    listening = listening_at("127.0.0.1", 0)
    print(listening.getsockname()[1], flush=True)
    settings = uvicorn.Config(application(service, "bench"), log_level="warning", access_log=False)
    uvicorn.Server(settings).run(sockets=[listening])


@contextmanager
def server(model: str, together: bool) -> Iterator[int]:
    """The port of a server in a process of its own."""
    command = [sys.executable, __file__, model, "--serve", "together" if together else "alone"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def asked(port: int, texts: Sequence[str], clients: int) -> dict[str, float]:
    """Answers a second, and milliseconds that half and 99 of a hundred waited at most."""
    waits: list[float] = []
    following = itertools.count()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        while (number := next(following)) < len(texts):
            began = time.perf_counter()
            connection.request("POST", "/predict", json.dumps({"texts": [texts[number]]}), HEADERS)
            reply = connection.getresponse()
            assert reply.status == 200, reply.read()
            reply.read()
            waits.append(time.perf_counter() - began)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    assert len(waits) == len(texts)
    p50, p99 = (1000 * float(np.quantile(waits, share)) for share in (0.5, 0.99))
    return {"per_second": len(texts) / seconds, "p50_ms": p50, "p99_ms": p99}


def in_one(model: str, texts: Sequence[str]) -> float:
    """Texts a second of `predict`, on one thread."""
    import torch

    from textgraft import load

    torch.set_num_threads(1)
    loaded = load(model)
    list(loaded.predict(texts[:8]))
    began = time.perf_counter()
    list(loaded.predict(texts))
    return len(texts) / (time.perf_counter() - began)


def best(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return max(rounds, key=lambda found: found["per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts", type=Path, nargs="?", help="a file that textgraft reads")
    parser.add_argument("--most", type=int, default=500, help="how many of the texts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", choices=("together", "alone"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.model, given.serve == "together")
        return
    if given.texts is None:
        parser.error("name a file of texts to ask about")
    texts = list(itertools.islice(read_texts([given.texts]), given.most))
    print(f"{len(texts):,} texts; predict, all at once: {in_one(given.model, texts):,.0f} a second")
    with server(given.model, True) as together, server(given.model, False) as alone:
        ports = {"together": together, "alone": alone}
        for port in ports.values():
            asked(port, texts[:16], 1)
        for clients in CLIENTS:
            rounds = [{name: asked(p, texts, clients) for name, p in ports.items()} for _ in range(given.rounds)]
            found = {name: best([one[name] for one in rounds]) for name in ports}
            said = [
                f"{name} {f['per_second']:,.0f} a second, p50 {f['p50_ms']:.1f} ms, p99 {f['p99_ms']:.1f} ms"
                for name, f in found.items()
            ]
            times = found["together"]["per_second"] / found["alone"]["per_second"]
            print(f"{clients:>3} clients: {'; '.join(said)}; {times:.2f} times", flush=True)


if __name__ == "__main__":
    main()
