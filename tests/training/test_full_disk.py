"""Every write of every stage fails in turn: a clear error, nothing lost, the same end in the end."""

from __future__ import annotations

import builtins
import errno
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_comparisons import backwards

from textgraft.core.context import QUIET, RunContext
from textgraft.core.errors import UserError
from textgraft.data.examples import Examples
from textgraft.models import artifact
from textgraft.tasks.classification.finetune import finetune
from textgraft.tasks.classification.finetune_options import FinetuneOptions
from textgraft.tasks.language_modeling.adapt import adapt
from textgraft.tasks.language_modeling.pretrain import PretrainOptions, pretrain
from textgraft.training.loop import Settings

TEXTS = [f"The film was {word} and the plot was {word} too, I think." for word in ("good", "bad", "long", "odd")] * 20
SETTINGS = Settings(precision="fp32")  # too quick for more saves than the last
FULL = OSError(errno.ENOSPC, "No space left on device")
READ_ONLY = OSError(errno.EROFS, "Read-only file system")
RECIPE = """
name = "one epoch"
description = "d"
source = "s"
[finetune]
[[finetune.phases]]
name = "all"
epochs = 1
lr = 0.01
"""


def make_pretrained(out: Path, inputs: Path) -> None:
    pretrain(
        [inputs / "pool.txt"],
        out,
        options=PretrainOptions(recipe=str(inputs / "tiny.toml"), tokens=1000, settings=SETTINGS),
        context=QUIET,
    )


def make_adapted(out: Path, inputs: Path) -> None:
    adapt(
        TEXTS,
        out,
        model=inputs / "lm",
        own_vocabulary=True,
        settings=SETTINGS,
        context=RunContext(show=False, overwrite=True),
    )


def make_classifier(out: Path, inputs: Path, *others: str) -> None:
    train = Examples(TEXTS[:16], ["dull" if i % 4 == 2 else "fine" for i in range(16)], "single")
    options = FinetuneOptions(recipe=str(inputs / "recipe.toml"), folds=2, baselines=False, settings=SETTINGS)
    model = "+".join(str(inputs / name) for name in ("lm", *others))
    finetune(train, out, model=model, options=options, context=RunContext(show=False, overwrite=True))


def make_ensemble(out: Path, inputs: Path) -> None:
    make_classifier(out, inputs, "backward")


@pytest.fixture
def inputs(tiny_lm: Path, tiny_recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("textgraft.tasks.classification.report.render", lambda report: "drawn")
    folder = tmp_path / "inputs"
    shutil.copytree(tiny_lm, folder / "lm")
    artifact.save(backwards(tiny_lm), folder / "backward")
    shutil.copy(tiny_recipe, folder / "tiny.toml")
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "pool.txt").write_text("\n".join(TEXTS * 3))
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def weights(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in files(folder).items() if name.endswith("model.safetensors")}


class FailsOnceForEachFile:
    """`open` or `os.replace`, but that it fails the first time that a file or folder is to be written."""

    def __init__(self, original: Callable[..., Any], error: OSError) -> None:
        self.original, self.error, self.renames = original, error, original is os.replace
        self.failed: set[Path] = set()

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        path = Path(arguments[1 if self.renames else 0]) if self.renames or "wb" in arguments else None
        # Clearing away the work folder is no write that a result depends on.
        if path is not None and path not in self.failed and path.suffix != ".done":
            self.failed.add(path)
            raise self.error
        return self.original(*arguments, **options)


def refusal(make: Callable[[Path, Path], None], out: Path, inputs: Path) -> UserError | None:
    try:
        make(out, inputs)
    except UserError as error:
        return error
    return None


@pytest.mark.parametrize(
    ("make", "replaces", "writes"),
    [
        (make_pretrained, False, 14),
        (make_adapted, True, 8),
        (make_classifier, True, 14),
        pytest.param(make_ensemble, True, 29, marks=pytest.mark.slow),
    ],
    ids=["pretrain", "adapt", "finetune", "ensemble"],
)
@pytest.mark.parametrize(
    ("module", "call", "error", "remedy"),
    [
        (os, "replace", FULL, "The disk is full"),
        (builtins, "open", READ_ONLY, "Choose a folder that you may write to"),
    ],
    ids=["full", "read-only"],
)
def test_every_file_fails_once(
    make: Callable[[Path, Path], None],
    replaces: bool,
    writes: int,
    module: Any,
    call: str,
    error: OSError,
    remedy: str,
    inputs: Path,
    tmp_path: Path,
) -> None:
    """Each try comes one file further; where the stage can, an older model is there that is to be overwritten."""
    make(tmp_path / "expected", inputs)
    out = tmp_path / "out"
    if replaces:
        shutil.copytree(inputs / "lm", out)
    before = files(out)
    with pytest.MonkeyPatch.context() as patch:
        failing = FailsOnceForEachFile(getattr(module, call), error)
        patch.setattr(module, call, failing)
        for tries in itertools.count():
            assert len(failing.failed) == tries
            told = refusal(make, out, inputs)
            if told is None:
                break
            assert told.remedy.startswith(remedy)
            assert str(tmp_path) in str(told.where)
            assert files(out) == before
            assert {path.name for path in tmp_path.iterdir()} <= {"inputs", "expected", "out", "out.run"}
            assert not list(tmp_path.rglob("*.part"))
    assert len(failing.failed) >= writes
    assert weights(out) == weights(tmp_path / "expected")
    assert {path.name for path in tmp_path.iterdir()} == {"inputs", "expected", "out"}
