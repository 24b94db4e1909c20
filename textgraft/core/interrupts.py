"""Ctrl-C, also where a library swallows it."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType

AGAIN_SECONDS = 0.01

_PRESSED: ContextVar[threading.Event | None] = ContextVar("pressed", default=None)


def was_interrupted() -> bool:
    """Whether Ctrl-C came since the outermost `reliable_interrupts` around this began, whatever has become of it."""
    pressed = _PRESSED.get()
    return pressed is not None and pressed.is_set()


@contextlib.contextmanager
def reliable_interrupts() -> Iterator[None]:
    """Inside, Ctrl-C leaves as KeyboardInterrupt, whatever a library made of it on the way.

    Compiled code that meets it amid a call may raise an error of its own instead (`torch.asarray`, by which safetensors
    reads, says ValueError), or go on as if nothing had been: who is about to work for hours asks `was_interrupted`. And
    Python drops what is raised in a `__del__` or in a weak reference's callback, of which every import has some: there
    the key is pressed again a moment later. In a thread other than the main one, and where Ctrl-C is ignored, nothing
    changes.
    """
    before, dropped_before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    ever, here = _PRESSED.get() or threading.Event(), threading.Event()
    waiting: list[threading.Timer] = []

    def press(number: int, frame: FrameType | None) -> None:
        ever.set()
        here.set()
        raise KeyboardInterrupt

    def press_again(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            dropped_before(dropped)
            return
        again = threading.Timer(AGAIN_SECONDS, _thread.interrupt_main)
        again.daemon = True
        waiting.append(again)
        again.start()

    known = _PRESSED.set(ever)
    signal.signal(signal.SIGINT, press)
    sys.unraisablehook = press_again
    try:
        yield
    except Exception as error:
        if here.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        # What is still to be pressed again is over: pressed while the interpreter ends, it would kill it.
        signal.signal(signal.SIGINT, _ignored)
        for again in waiting:
            again.cancel()
            again.join()
        signal.signal(signal.SIGINT, before)
        sys.unraisablehook = dropped_before
        _PRESSED.reset(known)


def _ignored(number: int, frame: FrameType | None) -> None:
    pass
