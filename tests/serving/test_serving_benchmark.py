"""benchmarks/serving.py asks every text once, by however many clients."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from served import running

from textgraft.serving.app import application
from textgraft.serving.services import open_service


@pytest.mark.parametrize("clients", [1, 5])
def test_each_text_is_asked_once(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch, clients: int) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import serving

    with running(application(open_service(models["single"]), "bench")) as client:
        port = urlsplit(client.address).port
        assert port is not None
        found = serving.asked(port, ["river stone", "lamp"] * 6, clients)
        assert client.get("/health")[1]["answered"] == 12
    assert found["per_second"] > 0
    assert 0 < found["p50_ms"] <= found["p99_ms"]
