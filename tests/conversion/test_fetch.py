"""`textgraft fetch` against a hub on this machine: what it takes, how it goes on, what it says of faults."""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest
from hub_on_this_machine import CARD, NAME, RETRIES, FakeHub
from tiny_checkpoints import save_checkpoint

import textgraft
from textgraft import UserError
from textgraft.cli import main
from textgraft.conversion import downloads
from textgraft.conversion.model_cards import read_head
from textgraft.models import loading

TAKEN = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"}


def fetch(out: Path, **options: str) -> Path:
    return textgraft.fetch(NAME, out, show=False, **options)


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_fetched_folder_loads_without_a_socket(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bert: dict[str, bytes]
) -> None:
    folder = fetch(tmp_path / "bert")
    assert left(folder) == TAKEN | {"run.json"}
    assert left(tmp_path) == {"bert"}
    for name in TAKEN:
        assert (folder / name).read_bytes() == small_bert[name], name
    record = json.loads((folder / "run.json").read_text())
    expected = {"name": NAME, "revision": "main", "commit": hub.commit, "licence": "apache-2.0", "language": "en"}
    assert record.items() >= (expected | {"stage": "fetch", "endpoint": hub.address}).items()
    weights = small_bert["model.safetensors"]
    described = {"bytes": len(weights), "sha256": hashlib.sha256(weights).hexdigest()}
    assert record["files"]["model.safetensors"] == described
    git = subprocess.run(["git", "hash-object", folder / "vocab.txt"], capture_output=True, text=True, check=True)
    assert record["files"]["vocab.txt"]["git-sha1"] == git.stdout.strip()

    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    loaded = loading.load_network(f"hf:{folder}")
    assert loaded.run.items() >= {"name": NAME, "licence": "apache-2.0", "language": "en"}.items()
    assert loaded.run["data"]["fetched from"] == f"{hub.address}/{NAME}"
    assert loaded.run["data"]["commit"] == hub.commit
    assert loaded.embed(["a film"]).shape == (1, 32)
    with pytest.raises(UserError, match="neither a folder"):
        loading.load_network("hf:somebody/unknown")


def test_the_module_is_not_in_the_functions_place() -> None:
    importlib.import_module("textgraft.conversion.fetch")
    importlib.import_module("textgraft.cli.fetch")
    assert callable(textgraft.fetch)


def test_what_is_there_is_replaced_only_when_told_and_when_all_has_come(hub: FakeHub, tmp_path: Path) -> None:
    folder = fetch(tmp_path / "bert")
    (folder / "mine.txt").write_text("kept until then")
    hub.models[NAME]["README.md"] = CARD + b"More.\n"
    hub.drops["README.md"] = [0] * (1 + RETRIES)
    with pytest.raises(UserError, match="the connection was lost at byte 0"):
        textgraft.fetch(NAME, folder, overwrite=True, show=False)
    assert (folder / "mine.txt").exists()
    textgraft.fetch(NAME, folder, overwrite=True, show=False)
    assert left(folder) == TAKEN | {"run.json"}
    assert (folder / "README.md").read_bytes().endswith(b"More.\n")


def test_shards_by_their_index(hub: FakeHub, tmp_path: Path, small_bert: dict[str, bytes]) -> None:
    from safetensors.torch import load, save

    values = load(small_bert["model.safetensors"])
    names = sorted(values)
    parts = {"model-00001-of-00002.safetensors": names[:3], "model-00002-of-00002.safetensors": names[3:]}
    index = {"weight_map": {name: part for part, inside in parts.items() for name in inside}}
    model = hub.models[NAME]
    del model["model.safetensors"]
    model |= {part: save({n: values[n] for n in inside}) for part, inside in parts.items()}
    model["model.safetensors.index.json"] = json.dumps(index).encode()
    model["pytorch_model.bin"] = b"never asked for"
    folder = fetch(tmp_path / "bert")
    expected = TAKEN - {"model.safetensors"} | {*parts, "model.safetensors.index.json", "run.json"}
    assert left(folder) == expected
    assert loading.load_network(f"hf:{folder}").run["parameters"] > 0
    index["weight_map"]["x"] = "../../outside.safetensors"
    model["model.safetensors.index.json"] = json.dumps(index).encode()
    with pytest.raises(UserError, match=r"names '\.\./\.\./outside\.safetensors', which is not there"):
        fetch(tmp_path / "other")
    assert left(tmp_path) == {"bert"}


def test_a_pickle_only_where_there_is_nothing_else_and_said(hub: FakeHub, tmp_path: Path) -> None:
    model = hub.models[NAME]
    model["pytorch_model.bin"] = b"a pickle"
    assert "pytorch_model.bin" not in left(fetch(tmp_path / "one"))
    del model["model.safetensors"]
    with pytest.warns(UserWarning, match=r"no safetensors, so the weights are a pickle \(pytorch_model\.bin\)"):
        assert "pytorch_model.bin" in left(fetch(tmp_path / "two"))
    del model["pytorch_model.bin"]
    with pytest.raises(UserError, match="no weights of PyTorch"):
        fetch(tmp_path / "three")


def test_a_lost_connection_is_taken_up_where_it_broke(hub: FakeHub, tmp_path: Path) -> None:
    hub.drops["model.safetensors"] = [1_000, 2_345]
    fetch(tmp_path / "bert")
    assert hub.ranges("model.safetensors") == ["", "bytes=1000-", "bytes=3345-"]


def test_what_came_before_a_failure_is_not_asked_for_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.drops["model.safetensors"] = [5_000, *[0] * RETRIES]  # more often in a row than it tries
    with pytest.raises(UserError, match=r"lost at byte 5,000 of [\d,]+.*goes on from there"):
        fetch(tmp_path / "bert")
    assert left(tmp_path) == {".bert.fetch"}
    hub.requests.clear()
    fetch(tmp_path / "bert")
    assert [path for path, _, _ in hub.requests if path.startswith("/storage/")] == [
        f"/storage/{NAME}/model.safetensors"
    ]
    assert hub.ranges("model.safetensors") == ["bytes=5000-"]


def test_a_server_without_ranges_sends_all_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.knows_ranges, hub.drops["model.safetensors"] = False, [1_000]
    folder = fetch(tmp_path / "bert")
    assert hub.ranges("model.safetensors") == ["", "bytes=1000-"]
    assert (folder / "model.safetensors").read_bytes() == hub.models[NAME]["model.safetensors"]


def test_the_revision_moves_on_between_two_tries(hub: FakeHub, tmp_path: Path) -> None:
    """Bytes of another content are never mixed in; files that are the same are not asked for again."""
    model = hub.models[NAME]
    hub.drops["model.safetensors"] = [5_000, *[0] * RETRIES]
    with pytest.raises(UserError):
        fetch(tmp_path / "bert")
    hub.commit = "5eed" * 10
    model["README.md"] = CARD.replace(b"apache-2.0", b"mit")
    model["model.safetensors"] = b"changed" + model["model.safetensors"][7:]
    hub.requests.clear()
    folder = fetch(tmp_path / "bert")
    assert hub.ranges("model.safetensors") == [""]
    assert hub.ranges("README.md") == [""]
    assert hub.ranges("vocab.txt") == []
    assert (folder / "model.safetensors").read_bytes() == model["model.safetensors"]
    record = json.loads((folder / "run.json").read_text())
    assert (record["commit"], record["licence"]) == ("5eed" * 10, "mit")
    assert left(folder) == TAKEN | {"run.json"}


@pytest.mark.parametrize("name", ["model.safetensors", "vocab.txt"])
def test_a_corrupted_file_is_refused_and_removed(hub: FakeHub, tmp_path: Path, name: str) -> None:
    good = hub.models[NAME][name]
    hub.served_instead[name] = good[:-1] + b"!"
    with pytest.raises(UserError, match="the checksum is wrong"):
        fetch(tmp_path / "bert")
    assert not [path for path in (tmp_path / ".bert.fetch").iterdir() if path.name.startswith(name)]
    assert not (tmp_path / "bert").exists()
    hub.served_instead.clear()
    assert (fetch(tmp_path / "bert") / name).read_bytes() == good


def test_too_little_space_is_known_before_anything_large_is_asked_for(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    with pytest.raises(UserError, match=r"0\.00 GB are free on this disk"):
        fetch(tmp_path / "bert")
    assert hub.ranges("model.safetensors") == []


def test_a_disk_that_fills_up_keeps_what_came(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_bert: dict[str, bytes]
) -> None:
    hub.drops["model.safetensors"] = [5_000]
    append = downloads.append

    def full_after_5000(out: BinaryIO, data: memoryview) -> int:
        if "model.safetensors" in out.name and out.tell() >= 5_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return append(out, data)

    with monkeypatch.context() as patch:
        patch.setattr(downloads, "append", full_after_5000)
        with pytest.raises(UserError, match=r"The disk is full: make room .* goes on from there"):
            fetch(tmp_path / "bert")
    hub.requests.clear()
    folder = fetch(tmp_path / "bert")
    assert hub.ranges("model.safetensors") == ["bytes=5000-"]
    assert (folder / "model.safetensors").read_bytes() == small_bert["model.safetensors"]


REFUSED = {
    "no model": ("RepoNotFound", 401, "no such model, or it is private"),
    "gated": ("GatedRepo", 403, "access to this model is restricted .* HF_TOKEN"),
    "no revision": ("RevisionNotFound", 404, "no revision 'main'"),
    "not found": ("", 404, "no model 'somebody/small-bert'"),
    "down": ("", 500, "the hub answers 500 .* Try again later"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_hub_refuses(hub: FakeHub, tmp_path: Path, case: str) -> None:
    code, status, expected = REFUSED[case]
    hub.refusals["api"] = [(status, code)] * 3
    with pytest.raises(UserError, match=expected):
        fetch(tmp_path / "bert")
    assert not left(tmp_path)


def test_a_file_that_is_gone_and_answers_that_pass(hub: FakeHub, tmp_path: Path) -> None:
    hub.refusals = {"model.safetensors": [(404, "EntryNotFound")]}
    with pytest.raises(UserError, match=r"no file 'model\.safetensors' \(404\)"):
        fetch(tmp_path / "bert")
    hub.refusals = {"api": [(503, "")], "model.safetensors": [(429, ""), (502, "")]}
    assert "model.safetensors" in left(fetch(tmp_path / "bert"))


def test_the_token_is_for_the_hub_and_not_for_its_storage(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "secret"
    with pytest.raises(UserError, match="restricted"):
        fetch(tmp_path / "bert")
    monkeypatch.setenv("HF_TOKEN", "secret")
    hub.requests.clear()
    folder = fetch(tmp_path / "bert")
    shown = {(path.split("/")[1], path.rsplit("/")[-1]): token for path, _, token in hub.requests}
    assert shown["api", "main"] == "Bearer secret"
    assert shown["storage", "vocab.txt"] == "Bearer secret"  # redirected on the same host
    assert shown["storage", "model.safetensors"] == ""  # another host
    assert "secret" not in (folder / "run.json").read_text()


def test_without_a_network(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        closed = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match=r"cannot be reached \(Connection refused\).*HTTPS_PROXY.*endpoint=…"):
            fetch(tmp_path / "bert", endpoint=closed)
    with pytest.raises(UserError, match="not the address of a hub"):
        fetch(tmp_path / "bert", endpoint="ftp://host")
    hub.listing = lambda name: {"siblings": [{"rfilename": "config.json"}], "sha": "1"}  # type: ignore[method-assign]
    with pytest.raises(UserError, match="the server is not a model hub, or gives no hashes"):
        fetch(tmp_path / "bert")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
        fetch(tmp_path / "bert")
    assert not left(tmp_path)


def test_through_a_proxy(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", hub.address)
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    folder = fetch(tmp_path / "bert", endpoint="http://hub.invalid")  # a name that only the proxy knows
    assert left(folder) == TAKEN | {"run.json"}


def test_names_and_kinds_that_are_not_read(hub: FakeHub, tmp_path: Path) -> None:
    for name in ("../etc", "a/b/c", "a b", ""):
        with pytest.raises(UserError, match="not the name of a model on a hub"):
            textgraft.fetch(name, tmp_path / "bert", show=False)
    config = json.loads(hub.models[NAME]["config.json"])
    for kind, reason in (("t6", "has no architecture 't6'"), ("bart", "is an encoder-decoder")):
        hub.models[NAME]["config.json"] = json.dumps(config | {"model_type": kind}).encode()
        with pytest.raises(UserError, match=f"a model of the kind '{kind}', which cannot be read.*{reason}"):
            fetch(tmp_path / "bert")
    assert hub.ranges("model.safetensors") == []
    (tmp_path / "bert").mkdir()
    with pytest.raises(UserError, match="exists already"):
        fetch(tmp_path / "bert")
    assert left(tmp_path) == {"bert"}


def test_an_architecture_that_runs_through_transformers_is_fetched(hub: FakeHub, tmp_path: Path) -> None:
    pytest.importorskip("transformers", minversion="5")
    files = {path.name: path.read_bytes() for path in save_checkpoint("deberta-v2", tmp_path / "source").iterdir()}
    hub.models[NAME] = {**files, "spm.model": b"pieces", "modeling.py": b"raise SystemExit"}
    folder = fetch(tmp_path / "fetched")
    assert {"spm.model", "tokenizer.json", "tokenizer_config.json"} <= left(folder)
    assert "modeling.py" not in left(folder)
    assert loading.load_network(f"hf:{folder}").model.family == "transformers"


IN_SMALL_CHUNKS = (
    *(sys.executable, "-c"),
    "from textgraft.cli import main; from textgraft.conversion import downloads; downloads.WRITE_EVERY = 100; main()",
)


@pytest.mark.slow
def test_killed_and_run_again(hub: FakeHub, tmp_path: Path, small_bert: dict[str, bytes]) -> None:
    hub.bytes_a_second = 40_000
    command = [*IN_SMALL_CHUNKS, "fetch", NAME, "--out", str(tmp_path / "bert"), "--json"]
    work = tmp_path / ".bert.fetch"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not (begun := [p for p in work.glob("model.safetensors.*") if p.stat().st_size > 2_000]):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(UserError, match="another process is fetching here"):
            fetch(tmp_path / "bert")
        process.send_signal(signal.SIGKILL)
    have = begun[0].stat().st_size
    assert 2_000 < have < len(small_bert["model.safetensors"])
    assert not (tmp_path / "bert").exists()
    hub.bytes_a_second = None
    hub.requests.clear()
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=True)
    assert hub.ranges("model.safetensors") == [f"bytes={have}-"]
    assert hub.ranges("vocab.txt") == []
    said = json.loads(done.stdout)
    assert said["out"] == str(tmp_path / "bert")
    assert said["commit"] == hub.commit
    assert (tmp_path / "bert" / "model.safetensors").read_bytes() == small_bert["model.safetensors"]
    assert left(tmp_path) == {"bert"}


def test_what_the_command_says(hub: FakeHub, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as gone:
        main(["fetch", f"hf:{NAME}", "--out", str(tmp_path / "bert"), "--endpoint", hub.address])
    out, err = capfd.readouterr()
    assert not gone.value.code, err
    assert "commit c0ffeec0ffee, licence: apache-2.0" in out
    assert out.splitlines()[-1] == f"Use it as hf:{tmp_path / 'bert'}"
    (tmp_path / "texts.txt").write_text("a film\n")
    with pytest.raises(SystemExit) as gone:
        main(["embed", str(tmp_path / "bert"), str(tmp_path / "texts.txt"), "--out", str(tmp_path / "vectors.npz")])
    assert gone.value.code == 2
    assert f"Name it hf:{tmp_path / 'bert'}" in capfd.readouterr().err


CARDS = {
    "none": ("# A model\n\nlicense: mit\n", {}),
    "plain": ("---\nlicense: mit\n---\ntext", {"license": ["mit"]}),
    "listed": ("---\r\nlicense:\r\n- mit\r\n- 'gpl-3.0'\r\n---\r\n", {"license": ["mit", "gpl-3.0"]}),
    "in brackets": ('---\nlanguage: [en, "th"]\n---\n', {"language": ["en", "th"]}),
    "with what is deeper": (
        "---\nmodel-index:\n- name: x\n  results:\n    license: no\nlicense: mit\n---\n",
        {"model-index": [], "license": ["mit"]},
    ),
    "without an end": ("---\nlicense: mit\n", {}),
}


@pytest.mark.parametrize("case", CARDS)
def test_heads_of_cards(case: str) -> None:
    card, expected = CARDS[case]
    assert read_head(card) == expected
