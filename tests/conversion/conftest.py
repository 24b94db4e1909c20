"""What tests of downloads share: a hub on this machine, with a small BERT."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace

import huggingface_hub
import huggingface_hub.file_download
import pytest
import torch
from hub_on_this_machine import CARD, NAME, FakeHub, serving
from made_up_reviews import reviews

from textgraft.conversion import downloads, huggingface
from textgraft.models.model import build
from textgraft.text.wordpiece import train

CLEARED = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"),
    *("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"),
)


@pytest.fixture(scope="module")
def small_bert(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A repository's files: a BERT with its tokenizer and card, and things that are not asked for."""
    tokenizer = train(reviews(100, 7)[0], vocab_size=200)
    torch.manual_seed(0)
    size = {"vocab_size": tokenizer.vocab_size, "embedding_dim": 32, "max_length": 40}
    encoder = {"name": "bert", **size, "num_layers": 2, "num_heads": 2, "feed_forward_dim": 64}
    head = {"name": "masked_language_model", "vocab_size": tokenizer.vocab_size, "input_dim": 32}
    model = build({"encoder": encoder, "head": head})
    folder = tmp_path_factory.mktemp("repository") / "bert"
    huggingface.save(model, folder, others=tokenizer.huggingface_files())
    files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    files["config.json"] = json.dumps(json.loads(files["config.json"]) | {"_note": "é"}).encode()
    return files | {"README.md": CARD, ".gitattributes": b"x", "flax_model.msgpack": b"y" * 50_000, "onnx/a.onnx": b"z"}


@pytest.fixture
def hub(small_bert: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHub]:
    """A hub, and a user who has no token, proxy or cache; the library waits for nothing and writes small chunks."""
    with pytest.MonkeyPatch.context() as patch:
        for name in CLEARED:
            patch.delenv(name, raising=False)
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("user")))
        patch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", "/nowhere")
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        patch.setattr(downloads, "WRITE_EVERY", 5)
        patch.setattr(huggingface_hub.file_download, "time", SimpleNamespace(sleep=lambda _: None))
        patch.setattr(huggingface_hub.utils._http, "time", SimpleNamespace(sleep=lambda _: None, time=time.time))
        patch.setattr(downloads, "RETRY_DELAYS", (0.0, 0.0))
        huggingface_hub.close_session()  # a session keeps the proxies of its first request
        with serving(FakeHub({NAME: dict(small_bert)})) as hub:
            patch.setenv("HF_ENDPOINT", hub.address)
            yield hub
        huggingface_hub.close_session()
