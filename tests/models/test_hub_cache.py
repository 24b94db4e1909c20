"""Where the Hugging Face cache is, compared with the library's own answer, and the catalogue of published models."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from textgraft import UserError, list_models
from textgraft.models import catalogue, hub_cache, model_folder

VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
SETTINGS = (
    {},
    {"XDG_CACHE_HOME": "/x"},
    {"HF_HOME": "~/h", "XDG_CACHE_HOME": "/x"},
    {"HUGGINGFACE_HUB_CACHE": "$HOME/c"},
    {"HF_HUB_CACHE": "/c", "HF_HOME": "/h"},
)


def test_the_cache_is_where_the_library_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub", reason="the extra [hub] is not installed")
    ask = "from importlib import reload; from huggingface_hub import constants; import json, os\n"
    ask += f"for setting in {SETTINGS}:\n"
    ask += f"  [os.environ.pop(name, None) for name in {VARIABLES}]; os.environ.update(setting)\n"
    ask += "  print(reload(constants).HF_HUB_CACHE)"
    expected = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    for setting, path in zip(SETTINGS, expected, strict=True):
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in setting.items():
            monkeypatch.setenv(name, value)
        assert hub_cache.cache_folder() == Path(path), setting


def test_entries_of_the_catalogue() -> None:
    names = [entry.name for entry in catalogue.CATALOGUE]
    assert len({*names}) == len(names) >= 25
    assert not {*names} & {*model_folder.names()}
    for entry in catalogue.CATALOGUE:
        assert re.fullmatch(r"[a-z0-9.-]+", entry.name)
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", entry.hub)
        assert entry.tasks
        assert {*entry.tasks} <= {*catalogue.TASKS}
        assert entry.languages
        assert len({*entry.languages}) == len(entry.languages)
        # A parameter takes two bytes (half precision) or four, and a card may leave the size out.
        assert entry.megabytes is None or 1.9 <= entry.megabytes / entry.parameters <= 4.2
        assert {catalogue.find(entry.name), catalogue.find(entry.hub.lower())} == {entry}


def test_models_by_language_and_task() -> None:
    thai = list_models(language="th", task="classification")
    assert {"th-ulmfit", "wangchanberta", "multilingual-e5-small", "mbert"} <= {model.name for model in thai}
    assert not [model.name for model in thai if model.languages == ("en",)]
    assert {model.name for model in list_models(task="qa")} >= {"roberta", "en-bert-small"}
    (bundled,) = list_models("en-ulmfit")
    assert (bundled.place, bundled.parameters, bundled.hub) == ("bundled", 10_179_600, "")
    with pytest.raises(UserError, match=r"no task 'clasification'.*Did you mean 'classification'"):
        list_models(task="clasification")
    with pytest.raises(UserError, match=r"knows the language 'xx'\. Give an ISO 639 code"):
        list_models(language="xx")
    with pytest.raises(UserError, match=r"no model 'bge-smal' is known.*Did you mean 'bge-small'"):
        list_models("bge-smal")


def test_a_short_name_where_only_textgraft_folders_are_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert model_folder.is_checkpoint_name("bge-small")
    with pytest.raises(UserError, match=r"'bge-small' is a checkpoint of the transformers library"):
        model_folder.find("bge-small")
    with pytest.raises(UserError, match=r"no model 'bge-smal'.*Did you mean 'bge-small'"):
        model_folder.find("bge-smal")
    os.mkdir("bge-small")
    assert not model_folder.is_checkpoint_name("bge-small")
