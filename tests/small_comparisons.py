"""What tests of methods and of their comparison share: a recipe of seconds, and examples made of a few words."""

from __future__ import annotations

from pathlib import Path

from made_up_reviews import reviews

from textgraft.data.examples import Examples
from textgraft.methods import MethodOptions

RECIPE = """
name = "quick"
description = "For tests"
source = "none"

[adapt]
rows = 8
bptt = 35

[[adapt.phases]]
name = "all"
epochs = 1
lr = 0.01

[finetune]
rows = 8

[[finetune.phases]]
name = "all"
epochs = 2
lr = 0.01
"""


def examples(count: int = 40, seed: int = 1) -> Examples:
    texts, labels = reviews(count, seed)
    return Examples(texts, labels, "single")


def quick_options(folder: Path, language_model: Path) -> MethodOptions:
    """Options with a recipe of three epochs, which is written to `folder`."""
    (folder / "quick.toml").write_text(RECIPE)
    return MethodOptions(model=language_model, recipe=str(folder / "quick.toml"), max_tokens=32, show=False)
