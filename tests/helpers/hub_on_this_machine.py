"""A model hub in a thread: the API with hashes, files by redirect to a storage host, ranges, and faults on demand."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "somebody/small-bert"
CARD = b"---\nlanguage: en\nlicense: apache-2.0\ntags:\n- small\n---\n# A small BERT\n"
RETRIES = 5
"""How often `huggingface_hub` asks again for bytes when none come."""
LARGE = (".safetensors", ".bin")
"""What the hub keeps in LFS, with a sha256; everything else has git's blob sha1."""


@dataclass
class FakeHub:
    """Models by name, each a dict of files, and what to do wrong with a file by its name."""

    models: dict[str, dict[str, bytes]] = field(default_factory=dict)
    drops: dict[str, list[int]] = field(default_factory=dict)  # hang up after so many bytes, once for each number
    served_instead: dict[str, bytes] = field(default_factory=dict)
    refusals: dict[str, list[tuple[int, str]]] = field(default_factory=dict)  # (status, X-Error-Code), once each
    bytes_a_second: float | None = None
    knows_ranges: bool = True
    token: str | None = None
    commit: str = "c0ffee" * 6 + "abcd"
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # (path, Range, Authorization)
    agents: set[str] = field(default_factory=set)
    address: str = ""
    storage: str = ""

    def listing(self, name: str) -> dict[str, Any]:
        siblings = []
        for file, data in self.models[name].items():
            one: dict[str, Any] = {"rfilename": file, "size": len(data)}
            one["blobId"] = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            if file.endswith(LARGE):
                one["blobId"] = "of the pointer"
                one["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            siblings.append(one)
        return {"id": name, "modelId": name, "sha": self.commit, "gated": False, "siblings": siblings}

    def ranges(self, file: str) -> list[str]:
        """The Range header of each request that storage had for a file."""
        return [asked for path, asked, _ in self.requests if path.startswith("/storage/") and path.endswith(f"/{file}")]


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            url = urlsplit(self.path)  # a whole address when we are the proxy
            path = unquote(url.path)
            hub.agents.add(self.headers.get("User-Agent", ""))
            hub.requests.append((path, self.headers.get("Range", ""), self.headers.get("Authorization", "")))
            if path.startswith("/api/models/"):
                name, _, revision = path.removeprefix("/api/models/").partition("/revision/")
                self.api(name, revision, "blobs=true" in url.query.lower())
            elif "/resolve/" in path:
                name, _, rest = path[1:].partition("/resolve/")
                commit, _, file = rest.partition("/")
                self.resolve(name, commit, file)
            else:
                self.stored(path.removeprefix("/storage/"))

        def api(self, name: str, revision: str, blobs: bool) -> None:
            assert blobs
            if self.refused("api"):
                return
            shown = self.headers.get("Authorization")
            if hub.token and not shown:
                self.answer(401, b"{}", {"X-Error-Code": "GatedRepo"})
            elif hub.token and shown != f"Bearer {hub.token}":
                self.answer(401, b"{}", {"X-Error-Message": "Invalid credentials in Authorization header"})
            elif name not in hub.models:
                self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})
            elif revision not in ("main", hub.commit):
                self.answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            else:
                self.answer(200, json.dumps(hub.listing(name)).encode())

        def resolve(self, name: str, commit: str, file: str) -> None:
            if self.refused(file):
                return
            if commit != hub.commit or file not in hub.models.get(name, {}):
                self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
            elif file.endswith(LARGE):
                self.answer(302, b"", {"Location": f"{hub.storage}/storage/{name}/{file}", "X-Repo-Commit": commit})
            else:
                self.answer(307, b"", {"Location": f"/storage/{name}/{file}", "X-Repo-Commit": commit})

        def stored(self, path: str) -> None:
            owner, model, file = path.split("/", 2)
            name = f"{owner}/{model}"
            data = hub.served_instead.get(file, hub.models[name][file])
            headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "Accept-Ranges": "bytes"}
            asked, status, start = self.headers.get("Range"), 200, 0
            if asked and hub.knows_ranges:
                status, start = 206, int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(data):
                    self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                    return
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            drops = hub.drops.get(file)
            self.answer(status, data[start:], headers, drops.pop(0) if drops else None)

        def refused(self, what: str) -> bool:
            waiting = hub.refusals.get(what)
            if not waiting:
                return False
            status, code = waiting.pop(0)
            self.answer(status, b"", {"X-Error-Code": code})
            return True

        def answer(
            self, status: int, data: bytes, headers: dict[str, str] | None = None, most: int | None = None
        ) -> None:
            self.send_response(status)
            for key, value in ({"Content-Length": str(len(data))} | (headers or {})).items():
                self.send_header(key, value)
            self.end_headers()
            shown = data if most is None else data[:most]
            step = int(hub.bytes_a_second / 50) if hub.bytes_a_second and len(data) > 10_000 else max(len(shown), 1)
            for at in range(0, len(shown), step):
                self.wfile.write(shown[at : at + step])
                if step < len(shown):
                    time.sleep(0.02)
            if most is not None:
                self.close_connection = True

    return Handler


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that was killed is no news."""


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Inside, the hub answers at `hub.address`, and its storage, which is another host, at `hub.storage`."""
    servers = [_Quiet(("127.0.0.1", 0), _handler(hub)) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    hub.address, hub.storage = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
