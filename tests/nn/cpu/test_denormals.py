"""Numbers below 1e-38: counted as zero where networks are computed, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from textgraft.nn.cpu.denormals import are_flushed, flushed
from textgraft.nn.cpu.precision import computing_in

TINY = torch.tensor(1e-38)
DESCRIPTION = {
    "encoder": {"name": "awd_lstm", "vocab_size": 2000, "embedding_dim": 64, "hidden_dim": 64, "num_layers": 2},
    "head": {"name": "language_model", "input_dim": 64, "vocab_size": 2000},
}
pytestmark = pytest.mark.skipif(not torch.set_flush_denormal(False), reason="a processor that cannot")


def test_inside_a_denormal_is_zero_and_outside_it_is_itself_again() -> None:
    with flushed():
        assert are_flushed()
        assert (TINY * 0.1).item() == 0
    assert not are_flushed()
    assert (TINY * 0.1).item() > 0


def test_an_inner_block_leaves_the_outer_one_as_it_was() -> None:
    with flushed():
        with flushed():
            pass
        assert are_flushed()


def test_who_flushed_before_still_does() -> None:
    torch.set_flush_denormal(True)
    try:
        with flushed():
            pass
        assert are_flushed()
    finally:
        torch.set_flush_denormal(False)


def test_an_error_on_the_way_changes_nothing() -> None:
    with pytest.raises(ZeroDivisionError), flushed():
        raise ZeroDivisionError
    assert not are_flushed()


def test_networks_are_read_so() -> None:
    with computing_in("fp32"):
        assert are_flushed()
    assert not are_flushed()


def printed(script: str) -> list[str]:
    """What a fresh process of two threads prints."""
    environment = os.environ | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()


@pytest.mark.slow
def test_the_threads_of_torch_flush_too() -> None:
    """Half of the numbers are another thread's, which sees nothing of a setting of this one."""
    script = f"""
import torch
from textgraft.models.model import build_fresh
from textgraft.nn.cpu.denormals import flushed
build_fresh({DESCRIPTION}, 0)
tiny = torch.full((1 << 20,), 1e-38)
with flushed():
    products = tiny * 0.1
print(torch.get_num_threads(), int((products != 0).sum()))
"""
    assert printed(script) == ["2", "0"]


@pytest.mark.slow
def test_a_process_that_has_imported_all_may_still_fork() -> None:
    """Threads of torch do not live on in a child, whose first large product would wait for them for ever."""
    script = """
import multiprocessing, signal
import textgraft.api, textgraft.training.loop, textgraft.tasks.classification.estimator
def doubled(_):
    import torch
    signal.alarm(30)
    return float((torch.ones(1 << 20) * 2).sum())
with multiprocessing.get_context("fork").Pool(1) as children:
    print(*children.map_async(doubled, [0]).get(timeout=30))
"""
    assert printed(script) == [str(2.0 * (1 << 20))]
