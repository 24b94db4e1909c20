"""A way to run commands, and a desk with tiny models, that the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up_reviews import reviews
from programs import Desk, Program, Result, write_csv

from textgraft.cli import main

QUICK = """
name = "quick"
description = "For tests"
source = "none"

[adapt]
batch_size = 8
bptt = 35

[[adapt.phases]]
name = "all"
epochs = 1
lr = 0.01

[finetune]
batch_size = 8

[[finetune.phases]]
name = "head"
epochs = 1
trainable = 1
lr = 0.01

[[finetune.phases]]
name = "all"
epochs = 2
lr = 0.01
"""


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Program:
    """Run a command in this process, which is quick because torch is there already."""

    def program(*arguments: str | Path) -> Result:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(a) for a in arguments])
        return Result(int(left.value.code or 0), *capfd.readouterr())

    return program


@pytest.fixture(scope="session")
def desk(tiny_lm: Path, tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """train.csv (24 reviews), test.csv (20), pool.txt (200), quick.toml, backward.toml and a classifier."""
    folder = tmp_path_factory.mktemp("desk")
    for name, count, seed in (("train", 24, 1), ("test", 20, 2)):
        write_csv(folder / f"{name}.csv", list(zip(*reviews(count, seed))))
    (folder / "pool.txt").write_text("\n".join(reviews(200, 3)[0]))
    (folder / "quick.toml").write_text(QUICK)
    (folder / "backward.toml").write_text(tiny_recipe.read_text().replace("[model]", '[model]\ndirection = "right"'))
    arguments = ["--model", str(tiny_lm), "--recipe", str(folder / "quick.toml"), "--no-baselines", "--quiet"]
    arguments += ["--test", str(folder / "test.csv"), "--json"]
    with pytest.raises(SystemExit) as left:
        main(["finetune", str(folder / "train.csv"), "--out", str(folder / "classifier"), *arguments])
    assert not left.value.code
    return Desk(folder, tiny_lm, folder / "classifier")
