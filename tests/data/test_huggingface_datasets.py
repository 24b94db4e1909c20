"""Data sets of the Hugging Face library: rows off this machine, no socket, and words for whatever is not there.

What the library itself does is tested where it is installed; what we say to it, with a stand-in.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from textgraft.core.errors import UserError
from textgraft.data import huggingface_datasets
from textgraft.data.fingerprint import fingerprints
from textgraft.data.readers import read_texts

ROWS = [{"text": "It is fine.", "label": 1}, {"text": "", "label": 0}, {"text": "It is not.", "label": 0}]
TEXTS = ["It is fine.", "It is not."]


@pytest.fixture
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


class Rows:
    """As much of the library's data set as we use; each row notes whether the library was offline meanwhile."""

    def __init__(self, library: StandIn, rows: list[dict[str, Any]]) -> None:
        self.library, self.rows, self.column_names = library, rows, list(rows[0])

    def select_columns(self, names: list[str]) -> Rows:
        return Rows(self.library, [{name: row[name] for name in names} for row in self.rows])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.rows:
            self.library.offline.append(self.library.config.HF_HUB_OFFLINE)
            yield row


class StandIn:
    """The library, with one data set in its cache."""

    def __init__(self, cache: Path) -> None:
        self.config = SimpleNamespace(HF_HUB_OFFLINE=False)
        self.constants = SimpleNamespace(HF_HUB_OFFLINE=False)
        self.offline: list[bool] = []
        self.asked: list[tuple[Any, ...]] = []
        self.cache = cache

    def load_dataset(self, name: str, config: str | None, *, split: str, streaming: bool) -> Rows:
        self.asked.append((name, config, split, streaming))
        self.offline.append(self.config.HF_HUB_OFFLINE and self.constants.HF_HUB_OFFLINE)
        if name != "them/reviews":
            raise ConnectionError(f"Couldn't reach '{name}' on the Hub (OfflineModeIsEnabled)\nand more")
        return Rows(self, ROWS)

    def load_dataset_builder(self, name: str, config: str | None) -> SimpleNamespace:
        return SimpleNamespace(cache_dir=str(self.cache))


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "reviews-train.arrow").write_bytes(b"rows")
    (tmp_path / "cache" / "some.lock").write_bytes(b"")
    made = StandIn(tmp_path / "cache")
    modules = {"datasets": made, "huggingface_hub.constants": made.constants}
    monkeypatch.setattr(huggingface_datasets, "import_module", modules.__getitem__)
    return made


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("hf:them/reviews", (None, "train")),
        ("hf:them/reviews:de", ("de", "train")),
        ("hf:them/reviews:de:test", ("de", "test")),
        ("hf:them/reviews::test:text", (None, "test")),
        ("hf:them/reviews:::text", (None, "train")),
    ],
)
def test_a_name_says_configuration_split_and_column(name: str, asked: tuple[Any, ...], library: StandIn) -> None:
    assert list(read_texts([Path(name)])) == TEXTS
    assert library.asked == [("them/reviews", *asked, True)]


def test_the_library_is_offline_while_it_is_asked_and_as_before_between_rows(library: StandIn) -> None:
    texts = read_texts("hf:them/reviews")
    for _ in texts:
        assert not library.config.HF_HUB_OFFLINE
        assert not library.constants.HF_HUB_OFFLINE
    assert len(library.offline) == 1 + len(ROWS)
    assert all(library.offline)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "hf:them/nothing",
            r"hf:them/nothing: cannot be read .*Couldn't reach.*load_dataset\('them/nothing'\).*to_pa",
        ),
        ("hf:them/reviews:::txet", r"there is no column 'txet'.*'text'"),
        ("hf:", "not the name of a data set.*hf:NAME"),
        ("hf:a:b:c:d:e", "not the name of a data set"),
    ],
)
def test_what_is_not_there(name: str, words: str, library: StandIn) -> None:
    with pytest.raises(UserError, match=words):
        list(read_texts(name))
    assert not library.config.HF_HUB_OFFLINE


def test_its_files_are_what_identifies_it(library: StandIn) -> None:
    (found,) = fingerprints(["hf:them/reviews"])
    assert (found["name"], found["bytes"]) == ("reviews-train.arrow", 4)
    (library.cache / "reviews-train.arrow").write_bytes(b"rowz")
    assert fingerprints(["hf:them/reviews"]) != [found]


@pytest.mark.parametrize("name", ["hf:them/reviews", "{}/saved"])
def test_without_the_library_the_extra_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").write_text("{}")
    monkeypatch.setattr(huggingface_datasets, "import_module", missing)
    with pytest.raises(UserError, match=r"pip install 'textgraft\[hub\]'.*to_parquet"):
        list(read_texts(name.format(tmp_path)))


def test_a_file_of_that_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hf:notes.txt").write_text("one text\n")
    assert list(read_texts("hf:notes.txt")) == ["one text"]


@pytest.fixture
def datasets(no_sockets: None) -> Any:
    library = pytest.importorskip("datasets", reason="the extra [hub] is not installed")
    library.disable_progress_bars()
    return library


def test_a_saved_folder(datasets: Any, tmp_path: Path) -> None:
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
    assert list(read_texts(tmp_path / "saved")) == TEXTS
    found = fingerprints([tmp_path / "saved"])
    assert {"data-00000-of-00001.arrow", "state.json"} <= {file["name"] for file in found}


def test_a_saved_folder_of_splits_says_which_there_are(datasets: Any, tmp_path: Path) -> None:
    part = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict(train=part, test=part.select([0])).save_to_disk(tmp_path / "saved")
    with pytest.raises(UserError, match=r"several splits.*saved/test, .*saved/train"):
        list(read_texts(tmp_path / "saved"))
    assert list(read_texts(tmp_path / "saved" / "test")) == TEXTS[:1]


def test_a_damaged_saved_folder_is_named(datasets: Any, tmp_path: Path) -> None:
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "data-00000-of-00001.arrow").write_bytes(b"no arrow")
    with pytest.raises(UserError, match="saved: cannot be read from this machine"):
        list(read_texts(tmp_path / "saved"))


def test_the_cache_of_the_library(datasets: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set laid down as the library does after a download; a name, configuration or split that is not there."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    made = datasets.load_dataset("json", data_files={"train": str(tmp_path / "rows.jsonl")})
    cached = Path(made["train"].cache_files[0]["filename"]).parent
    folder = tmp_path / "cache" / "them___reviews" / "default" / "0.0.0" / "abc"
    shutil.copytree(cached, folder)
    os.rename(folder / "json-train.arrow", folder / "reviews-train.arrow")
    info = json.loads((folder / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps(info | {"dataset_name": "reviews"}))
    assert list(read_texts("hf:them/reviews")) == TEXTS
    assert list(read_texts("hf:them/reviews:default:train:text")) == TEXTS
    assert "reviews-train.arrow" in [file["name"] for file in fingerprints(["hf:them/reviews"])]
    for absent in ("hf:them/nothing", "hf:them/reviews:de", "hf:them/reviews::test"):
        with pytest.raises(UserError, match=f"{absent}: cannot be read from this machine"):
            list(read_texts(absent))
    assert not datasets.config.HF_HUB_OFFLINE
