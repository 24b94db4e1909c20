"""One value that carries folder, seed, device, precision, threads and progress."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from textgraft.core.context import QUIET, RunContext
from textgraft.training.settings import Settings, prepared


def test_the_context_prevails_and_takes_the_rest_from_the_settings() -> None:
    settings = Settings(seed=3, precision="fp32", minutes=2.0)
    spread = {"sharding": "none", "activation_checkpointing": False}
    assert prepared(None, settings) == (RunContext(seed=3, device="auto", precision="fp32", **spread), settings)
    context, changed = prepared(RunContext(seed=5, device="cpu", show=False), settings)
    assert changed == Settings(seed=5, precision="fp32", minutes=2.0, device="cpu")
    assert context == RunContext(seed=5, device="cpu", precision="fp32", show=False, **spread)
    assert prepared(context, changed) == (context, changed)


def test_threads_are_those_of_torch() -> None:
    before = torch.get_num_threads()
    try:
        prepared(RunContext(threads=1), Settings())
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_run_has_a_folder_once_it_is_given_one() -> None:
    with pytest.raises(ValueError, match="no folder"):
        _ = QUIET.work
    context = QUIET.at(Path("out.run")).with_seed(2)
    assert (context.work, context.first_seed, context.show) == (Path("out.run"), 2, False)
    assert RunContext().first_seed == 0
