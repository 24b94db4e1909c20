"""`textgraft fetch` into the user's Hugging Face cache, and `hf:NAME` and short names that open what is there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import huggingface_hub
import pytest
from hub_on_this_machine import NAME, RETRIES, FakeHub

import textgraft
from textgraft import UserError, __version__
from textgraft.cli import main
from textgraft.conversion import downloads
from textgraft.models import catalogue, hub_cache, loading

BGE = "BAAI/bge-small-en-v1.5"
POOLING = b'{"pooling_mode_cls_token": true}'


def fetch(name: str = NAME, **options: str) -> Path:
    return textgraft.fetch(name, show=False, **options)


def cached_files() -> set[str]:
    """All that is in the cache, as paths inside it."""
    cache = hub_cache.cache_folder()
    return {path.relative_to(cache).as_posix() for path in cache.rglob("*") if not path.is_dir()}


def test_what_is_fetched_is_a_cache_for_every_program_and_opens_without_a_socket(
    hub: FakeHub, small_bert: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fetch()
    cache = hub_cache.cache_folder()
    assert folder == cache / "models--somebody--small-bert" / "snapshots" / hub.commit
    assert {path.name for path in folder.iterdir()} == {
        *("README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
    }
    assert (folder / "model.safetensors").read_bytes() == small_bert["model.safetensors"]
    assert hub.agents == {f"textgraft/{__version__}"}
    scanned = huggingface_hub.scan_cache_dir(cache)
    assert not scanned.warnings
    (model,) = scanned.repos
    assert (model.repo_id, set(model.refs), model.nb_files) == (NAME, {"main"}, 6)
    local = huggingface_hub.snapshot_download(NAME, cache_dir=cache, local_files_only=True)
    assert Path(local) == folder

    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    loaded = loading.load_network(f"hf:{NAME}")
    assert loaded.run["data"] == {"fetched from": NAME, "commit": hub.commit}
    assert loaded.run.items() >= {"name": "small-bert", "licence": "apache-2.0", "language": "en"}.items()
    assert loaded.embed(["a film"]).shape == (1, 32)


def test_fetched_again_only_what_is_missing_or_damaged_is_asked_for(hub: FakeHub) -> None:
    folder = fetch()
    hub.requests.clear()
    assert fetch() == folder
    assert [path for path, _, _ in hub.requests if "/resolve/" in path] == []
    (folder / "vocab.txt").unlink()
    weights = (folder / "model.safetensors").resolve()
    good = weights.read_bytes()
    weights.write_bytes(good[:-1] + b"!")
    fetch()
    assert hub.ranges("model.safetensors") == [""]
    assert hub.ranges("vocab.txt") == []  # its content was still there
    assert (folder / "model.safetensors").read_bytes() == good
    assert (folder / "vocab.txt").is_file()


def test_files_of_sentence_transformers_and_never_code(hub: FakeHub) -> None:
    modules = {"modules.json": b"[]", "sentence_bert_config.json": b"{}", "config_sentence_transformers.json": b"{}"}
    modules |= {"1_Pooling/config.json": POOLING, "2_Dense/config.json": b"{}", "2_Dense/model.safetensors": b"dense"}
    left_there = {"2_Dense/pytorch_model.bin": b"a pickle", "modeling_x.py": b"print()", "1_Pooling/x.py": b"print()"}
    hub.models[NAME] |= modules | left_there
    folder = fetch()
    for name, content in modules.items():
        assert (folder / name).read_bytes() == content
    assert not [name for name in left_there if (folder / name).exists()]


def test_a_broken_transfer_is_no_model_until_the_rest_has_come(hub: FakeHub) -> None:
    hub.drops["model.safetensors"] = [5_000, *[0] * RETRIES]
    with pytest.raises(UserError, match=r"lost at byte 5,000 of .* goes on from there"):
        fetch()
    assert all("/blobs/" in name for name in cached_files())
    with pytest.raises(UserError, match=rf"neither a folder .*`textgraft fetch {NAME}` gets it"):
        loading.load_network(f"hf:{NAME}")
    hub.requests.clear()
    fetch()
    assert hub.ranges("model.safetensors") == ["bytes=5000-"]
    assert not [name for name in cached_files() if name.endswith(".incomplete")]


@pytest.mark.slow
def test_killed_and_run_again(hub: FakeHub, small_bert: dict[str, bytes]) -> None:
    hub.bytes_a_second = 40_000
    small = "from textgraft.cli import main; from textgraft.conversion import downloads; downloads.WRITE_EVERY = 100"
    command = [sys.executable, "-c", f"{small}; main()", "fetch", NAME, "--json"]
    digest = hashlib.sha256(small_bert["model.safetensors"]).hexdigest()
    part = hub_cache.model_folder(NAME) / "blobs" / f"{digest}.textgraft.incomplete"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not (part.is_file() and part.stat().st_size > 2_000):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(UserError, match=r"another process is fetching here"):
            fetch()
        process.send_signal(signal.SIGKILL)
    have = part.stat().st_size
    assert 2_000 < have < len(small_bert["model.safetensors"])
    assert not (hub_cache.model_folder(NAME) / "snapshots").exists()
    hub.bytes_a_second = None
    hub.requests.clear()
    said = json.loads(subprocess.run(command, capture_output=True, text=True, env=os.environ, check=True).stdout)
    assert hub.ranges("model.safetensors") == [f"bytes={have}-"]
    assert said["use"] == f"hf:{NAME}"
    assert (Path(said["out"]) / "model.safetensors").read_bytes() == small_bert["model.safetensors"]


def test_a_mirror_that_lies_about_a_hash(hub: FakeHub) -> None:
    good = hub.models[NAME]["model.safetensors"]
    for served in (good[:-1] + b"!", good + b"more", good[:-9]):
        hub.served_instead["model.safetensors"] = served
        with pytest.raises(UserError, match=r"the checksum is wrong|the connection was lost at byte"):
            fetch()
        assert all("/blobs/" in name for name in cached_files())
        with pytest.raises(UserError, match=r"neither a folder"):
            loading.load_network(f"hf:{NAME}")
    hub.served_instead.clear()
    assert (fetch() / "model.safetensors").read_bytes() == good


def test_a_copy_that_another_program_left_half_written(hub: FakeHub) -> None:
    folder = fetch()
    (folder / "model.safetensors").resolve().unlink()  # its link remains
    with pytest.raises(UserError, match=r"not complete: there is no model\.safetensors\..*`textgraft fetch somebody/"):
        loading.load_network(f"hf:{NAME}")
    fetch()
    assert loading.load_network(f"hf:{NAME}").run["parameters"] > 0
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    with pytest.raises(UserError, match=r"not complete: there is no model-00002-of-00002\.safetensors"):
        loading.load_network(f"hf:{NAME}")


def test_another_revision_by_its_name(hub: FakeHub) -> None:
    folder = fetch(revision=hub.commit)
    assert not (hub_cache.model_folder(NAME) / "refs").exists()
    assert hub_cache.snapshot(NAME, hub.commit) == folder == fetch(f"hf:{NAME}@{hub.commit}")
    assert loading.load_network(f"hf:{NAME}@{hub.commit}").run["data"]["commit"] == hub.commit
    with pytest.raises(UserError, match=r"`textgraft fetch somebody/small-bert --revision v2` gets it"):
        loading.load_network(f"hf:{NAME}@v2")
    with pytest.raises(UserError, match=r"no revision 'v2'"):
        fetch(revision="v2")
    with pytest.raises(UserError, match=r"not a branch, a tag or a commit"):
        fetch(revision="../../main")


def test_tokens_that_are_missing_or_wrong(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.token = "right"
    with pytest.raises(UserError, match=r"access to this model is restricted .* HF_TOKEN"):
        fetch()
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(UserError, match=r"does not accept your token \(401\)\. Set HF_TOKEN to a valid token"):
        fetch()
    assert not hub_cache.cache_folder().exists()
    monkeypatch.setenv("HF_TOKEN", "right")
    assert fetch().is_dir()


def test_types_that_cannot_be_opened_leave_nothing(hub: FakeHub) -> None:
    config = json.loads(hub.models[NAME]["config.json"])
    hub.models[NAME]["config.json"] = json.dumps(config | {"model_type": "other"}).encode()
    with pytest.raises(UserError, match=r"the kind 'other', which cannot be read, so it is not fetched"):
        fetch()
    with_code = config | {"model_type": "other", "auto_map": {"AutoModel": "modeling_x.Model"}}
    hub.models[NAME]["config.json"] = json.dumps(with_code).encode()
    with pytest.raises(UserError, match=r"with code of its own .*, which is never run"):
        fetch()
    assert not (hub_cache.model_folder(NAME)).exists()
    hub.models[NAME]["config.json"] = json.dumps(config).encode()
    folder = fetch()
    hub.commit, hub.models[NAME]["config.json"] = "5eed" * 10, json.dumps(with_code).encode()
    before = cached_files()
    with pytest.raises(UserError, match=r"never run"):
        fetch()
    assert cached_files() == before
    assert hub_cache.snapshot(NAME) == folder


def test_a_cache_that_cannot_be_written(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot write .*A file has the name of a folder"):
        fetch()


def test_no_library_no_network_and_offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(UserError, match=r"needs the package 'huggingface_hub'.*pip install 'textgraft\[hub\]'"):
            fetch()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there
        with pytest.raises(UserError, match=r"cannot be reached \(Connection refused\)"):
            fetch(endpoint=f"http://127.0.0.1:{taken.getsockname()[1]}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "yes")
    with pytest.raises(UserError, match=r"HF_HUB_OFFLINE is set"):
        fetch()
    assert not hub_cache.cache_folder().exists()


@pytest.mark.slow
def test_a_system_without_links_has_copies(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    folder = fetch()
    assert not (folder / "vocab.txt").is_symlink()
    assert loading.load_network(f"hf:{NAME}").embed(["a film"]).shape == (1, 32)
    assert fetch() == folder


def test_short_names(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hub.models[BGE] = hub.models[NAME]
    for name in ("bge-small", "hf:bge-small", BGE, "bge-small-en-v1.5"):
        with pytest.raises(UserError, match=rf"{BGE} \('bge-small'\) is not on this machine.*`textgraft fetch"):
            loading.load_network(name)
    assert fetch("bge-small") == hub_cache.snapshot(BGE)
    for name in ("bge-small", "hf:bge-small", f"hf:{BGE}", BGE, "BGE-small"):
        assert loading.load_network(name).run["data"]["fetched from"] == BGE
    assert len(textgraft.embed("bge-small", ["a film"])) == 1
    (shown,) = textgraft.list_models("bge-small")
    assert (shown.place, shown.path, shown.command) == ("in cache", hub_cache.snapshot(BGE), "")
    (tmp_path / "bge-small").mkdir()  # a path of that name comes first
    with pytest.raises(UserError, match=r"no config\.json here"):
        loading.load_network("bge-small")


def test_an_installed_package_comes_before_the_cache(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seam for models that are installed as packages: a function that returns their folder, or None."""
    shutil.copytree(fetch(), tmp_path / "inside")
    entry = catalogue.KnownModel(
        "packaged", "somebody/packaged", "bert", 1, 1, ("en",), "MIT", ("embedding",), "", "a_package:folder"
    )
    monkeypatch.setattr(catalogue, "CATALOGUE", (entry,))
    monkeypatch.setattr(catalogue, "resolve", lambda _: lambda: tmp_path / "inside")
    assert loading.load_network("packaged").embed(["a film"]).shape == (1, 32)
    (shown,) = textgraft.list_models("packaged")
    assert (shown.place, shown.path) == ("installed", tmp_path / "inside")
    monkeypatch.setattr(catalogue, "resolve", lambda _: lambda: None)
    with pytest.raises(UserError, match=r"is not on this machine"):
        loading.load_network("packaged")


def test_a_file_that_something_else_wrote_is_read_again(tmp_path: Path) -> None:
    content = b"0123456789"
    file = downloads.RemoteFile("a", 10, "git-sha1", "")
    with open(tmp_path / "a", "a+b", buffering=0) as out:
        seen: list[int] = []
        partial = downloads._Partial(out, file, seen.append)
        partial.write(content[:4])
        (tmp_path / "a").write_bytes(content)
        partial.refresh()
        expected = file.hasher()
        expected.update(content)
        assert (partial.size, partial.digest(), sum(seen)) == (10, expected.hexdigest(), 10)
        partial.seek(0)
        partial.truncate()
        assert (partial.tell(), sum(seen)) == (0, 0)


def test_the_command_and_its_warning_of_a_pickle(hub: FakeHub, capfd: pytest.CaptureFixture[str]) -> None:
    hub.models[NAME]["pytorch_model.bin"] = hub.models[NAME].pop("model.safetensors")
    with pytest.raises(SystemExit) as gone:
        main(["fetch", NAME])
    out, err = capfd.readouterr()
    assert not gone.value.code, err
    assert out.splitlines()[-1] == f"Use it as hf:{NAME}"
    assert "no safetensors, so the weights are a pickle (pytorch_model.bin)" in err
