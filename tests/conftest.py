"""What tests of whole stages share: a language model small enough to be pretrained in a second or two."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from made_up_reviews import reviews

from textgraft.core.context import QUIET
from textgraft.tasks.language_modeling.pretrain import PretrainOptions

# The first example of a test may load half of torch, and every machine has other work to do now and then.
settings.register_profile("textgraft", deadline=None)
settings.load_profile("textgraft")

RECIPE = """
name = "tiny"
description = "For tests"
language = "en"
licence = "Apache-2.0"
validate_every = 100

[tokenizer]
kind = "subword"
vocab_size = 120

[model]
embedding_dim = 16
hidden_dim = 24

[head]

[stage]
batch_size = 8
bptt = 35

[[stage.phases]]
name = "pretrain"
epochs = 1
lr = 0.01
"""


@pytest.fixture(scope="session", autouse=True)
def on_the_processor() -> Iterator[None]:
    """What tests promise to the bit only a processor keeps: `auto` sees no GPU here; the tests of GPUs name theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("textgraft.core.device.has_cuda", lambda: False)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_clock_and_no_downloads() -> Iterator[None]:
    """What `finetune` does by default must not depend on the machine: how fast it is, and which models are on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("textgraft.tasks.classification.finetune_options.DEFAULT_MINUTES", math.inf)
        for place in ("in_package", "in_cache"):
            patch.setattr(f"textgraft.models.default_encoders.{place}", lambda entry: None)
        yield


@pytest.fixture(scope="module", autouse=True)
def one_setting_of_linear_layers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Cross-validation has one setting to score instead of eight, which is two thirds of what a small finetune costs.

    The tests of the linear methods, in tests/linear, choose among all of them.
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name != "linear":
            for name, values in {"STRENGTHS": (10.0,), "LATENT_STRENGTHS": (10.0,), "DIMENSIONS": (20,)}.items():
                patch.setattr(f"textgraft.linear.linear_layer.{name}", values)
        yield


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Here and in the programs that tests start: what a shell runs in the background is told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def tiny_recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe for `pretrain` that takes a second."""
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="session")
def tiny_lm(tiny_recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny pretrained language model; copy it before changing it."""
    from textgraft.tasks.language_modeling.pretrain import pretrain

    folder = tmp_path_factory.mktemp("tiny")
    (folder / "pool.txt").write_text("\n".join(reviews(400)[0]))
    return pretrain(
        [folder / "pool.txt"], folder / "lm", options=PretrainOptions(recipe=str(tiny_recipe)), context=QUIET
    )
