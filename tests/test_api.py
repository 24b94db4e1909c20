"""The verbs in Python: what they take for data and for a model, and what they say of anything else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_up_reviews import reviews
from safetensors.numpy import load_file

import textgraft
from textgraft.core.errors import UserError
from textgraft.data.labels import Labels
from textgraft.linear.artifact import LinearArtifact
from textgraft.linear.baselines import LsaBaseline
from textgraft.linear.lsa import LSAFeatures
from textgraft.models import artifact

TEXTS, LABELS = reviews(60, 1)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "train.csv"
    rows = zip(TEXTS, LABELS, strict=True)
    path.write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a classifier that also gives vectors."""
    targets = np.array([int(label == "pos") for label in LABELS])
    model = LsaBaseline(feature_maps=[LSAFeatures(dimensions=8).fit(TEXTS)]).fit(TEXTS, targets).fitted
    made = LinearArtifact(model, Labels("single", ("neg", "pos")), {"stage": "finetune"})
    return artifact.save(made, tmp_path_factory.mktemp("model") / "model")


def test_data_may_be_a_path_as_for_read(table: Path, tmp_path: Path) -> None:
    options = textgraft.MethodOptions(seeds=1, show=False)
    asked: dict[str, Any] = {"methods": ["linear"], "labels": ["all"], "options": options}
    textgraft.compare(str(table), tmp_path / "path", test=table, **asked)
    read = textgraft.read(table)
    textgraft.compare(read, tmp_path / "read", test=read, **asked)
    of_path, of_read = (load_file(tmp_path / name / "answers.safetensors") for name in ("path", "read"))
    assert of_path.keys() == of_read.keys()
    for name, answers in of_path.items():
        np.testing.assert_array_equal(answers, of_read[name])
    assert textgraft.check(table, test=table) == textgraft.check(read, test=read) != []


def test_data_that_is_not_there_is_named(folder: Path, tmp_path: Path) -> None:
    gone, out = str(tmp_path / "none.csv"), tmp_path / "out"
    for ask in (
        lambda: textgraft.finetune(gone, out),
        lambda: textgraft.finetune((TEXTS, LABELS), out, test=gone),
        lambda: textgraft.compare(gone, out),
        lambda: textgraft.inspect_transfer(gone, out),
        lambda: textgraft.distil(folder, TEXTS, out, test=gone),
        lambda: textgraft.check(gone),
    ):
        with pytest.raises(UserError, match=r"none\.csv: no such file"):
            ask()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda out: textgraft.adapt("pool.txt", out), "texts: this is one text. Pass a list"),
        (lambda out: textgraft.distil("m", "pool.txt", out), "texts: this is one text. Pass a list"),
        (lambda out: textgraft.finetune(TEXTS, out, unlabelled="pool.txt"), "unlabelled: this is one text"),
        (lambda out: textgraft.compare(TEXTS, out, unlabelled="pool.txt"), "unlabelled: this is one text"),
        (lambda out: textgraft.lr_find("train.csv"), "data: this is one text. .*textgraft.read"),
        (lambda out: textgraft.tag_finetune("a.conll", out), "train: this is of type str. .*read_tagged"),
        (lambda out: textgraft.qa_finetune("a.json", out), "train: this is of type str. .*read_squad"),
        (lambda out: textgraft.cove_train("a.tsv", out), "train: this is of type str. .*read_parallel"),
        (lambda out: textgraft.inspect_layers("a", out, test="b"), "train: this is of type str. .*or read_tagged"),
    ],
)
def test_where_a_path_is_none_it_says_what_is_wanted(ask: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        ask(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_model_may_be_loaded_already(folder: Path) -> None:
    model = textgraft.load(folder)
    assert list(textgraft.predict(model, TEXTS)) == list(textgraft.predict(folder, TEXTS))
    assert textgraft.evaluate(model, (TEXTS, LABELS)) == textgraft.evaluate(folder, (TEXTS, LABELS))
    np.testing.assert_array_equal(textgraft.embed(model, TEXTS), textgraft.embed(folder, TEXTS))
    np.testing.assert_array_equal(
        np.concatenate(list(textgraft.embed_stream(model, TEXTS))), textgraft.embed(folder, TEXTS)
    )


def test_what_is_no_model_is_refused() -> None:
    for ask in (
        lambda: textgraft.predict(7, TEXTS),
        lambda: textgraft.evaluate(None, (TEXTS, LABELS)),
        lambda: textgraft.embed(textgraft.TextClassifier(), TEXTS),
        lambda: textgraft.generate(7, TEXTS),
    ):
        with pytest.raises(UserError, match=r"model: this is of type \w+, not the name of a model. Give the path"):
            ask()


def test_the_public_names_show_before_they_are_used() -> None:
    program = "import textgraft, sys; print(*dir(textgraft)); print('torch' in sys.modules)"
    names, torch = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.splitlines()
    assert set(textgraft.__all__) <= set(names.split())
    assert torch == "False"  # showing them imports nothing
    assert all(hasattr(textgraft, name) for name in dir(textgraft))
