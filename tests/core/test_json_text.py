"""Half a surrogate pair, which JSON may have and UTF-8 may not: refused in what is read, escaped in what is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_up_reviews import reviews

import textgraft
from textgraft.cli.console import print_json
from textgraft.core.context import QUIET
from textgraft.core.errors import UserError
from textgraft.core.json_text import encode, parse
from textgraft.data.examples import Examples
from textgraft.data.labels import Labels
from textgraft.models.model_folder import read_config
from textgraft.tasks.classification.finetune_options import FinetuneOptions

HALF = r'"\ud800"'


@pytest.mark.parametrize("text", [HALF, HALF.upper().replace("\\U", "\\u"), f'{{"a": [{HALF}]}}', f"{{{HALF}: 1}}"])
def test_half_a_pair_is_refused_wherever_it_is(text: str) -> None:
    for form in (text, text.encode()):
        with pytest.raises(ValueError, match="half of a surrogate pair"):
            parse(form)


def test_whole_pairs_and_what_only_looks_like_half_a_one_are_read() -> None:
    assert parse(r'"\ud83d\ude00"') == "\U0001f600"
    assert parse(r'"\\ud800"') == r"\ud800"
    assert parse(b'{"a": 1}') == {"a": 1}
    with pytest.raises(ValueError):
        parse("{")


def test_what_is_written_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert encode({"b": "é", "a": 1}, sort_keys=True) == '{"a": 1, "b": "é"}'.encode()
    assert json.loads(encode(["\ud800é"])) == ["\ud800é"]
    print_json({"text": "half \ud800"})
    assert json.loads(capsys.readouterr().out) == {"text": "half \ud800"}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    train = Examples(*reviews(24, 1), "single", source="train.csv")
    out = tmp_path_factory.mktemp("folder") / "out"
    return textgraft.finetune(train, out, options=FinetuneOptions(method="linear", folds=2), context=QUIET).folder


@pytest.mark.parametrize("key", ["format", "files", "name", "\ud800"])
def test_an_altered_config_is_refused_and_named(classifier: Path, tmp_path: Path, key: str) -> None:
    folder = tmp_path / "altered"
    folder.mkdir()
    for path in classifier.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: "\ud800"}))
    for use in (read_config, textgraft.load):
        with pytest.raises(UserError, match=r"config.json: damaged .*half of a surrogate pair"):
            use(folder)


def test_labels_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(UserError, match="this is not a set of labels"):
        Labels.from_json(r'{"kind": "single", "names": ["a", "\ud800"]}')
    with pytest.raises(UserError, match=r"label '.ud800' has half of a surrogate pair"):
        Labels.fit(Examples(["x", "y"], ["a", "\ud800"], "single"))
