"""Ctrl-C where libraries swallow it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from textgraft.core import interrupts
from textgraft.core.interrupts import reliable_interrupts, was_interrupted


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Python's own handler, even where the tests run in the background and ignore the key."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Dying:
    """Whose last act meets Ctrl-C: Python drops what is raised there."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_it_is_known_until_the_outermost_is_left() -> None:
    assert not was_interrupted()
    with reliable_interrupts():
        assert not was_interrupted()
        with reliable_interrupts():
            with suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            assert was_interrupted()
        assert was_interrupted()
    assert not was_interrupted()


def test_what_was_dropped_is_not_pressed_again_once_it_is_over() -> None:
    hook = sys.unraisablehook
    for seconds in (0.0, interrupts.AGAIN_SECONDS * 0.9, interrupts.AGAIN_SECONDS * 1.1) * 10:
        threads = threading.active_count()
        with suppress(KeyboardInterrupt), reliable_interrupts():
            Dying()
            time.sleep(seconds)
        time.sleep(interrupts.AGAIN_SECONDS * 2)  # a KeyboardInterrupt here would end the tests
        assert threading.active_count() == threads
    assert sys.unraisablehook is hook
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_who_ignores_it_goes_on_doing_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with reliable_interrupts():
        signal.raise_signal(signal.SIGINT)
        assert not was_interrupted()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
