"""Ctrl-C handling, also where a library suppresses the interrupt."""

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
    """True if Ctrl-C was pressed since the outermost `reliable_interrupts` began, even if a library suppressed it."""
    pressed = _PRESSED.get()
    return pressed is not None and pressed.is_set()


@contextlib.contextmanager
def reliable_interrupts() -> Iterator[None]:
    """Context in which Ctrl-C always ends in KeyboardInterrupt, whatever a library makes of it.

    Compiled code interrupted during a call may raise an error of its own instead (`torch.asarray`, used by safetensors,
    raises ValueError) or continue as if nothing happened: check `was_interrupted` before hours of work. Python also
    drops exceptions in `__del__` and in weak reference callbacks, which occur in every import; the interrupt is then
    repeated a moment later. Nothing changes in threads other than the main one, and where Ctrl-C is ignored.
    """
    previous_handler, previous_hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    if threading.current_thread() is not threading.main_thread() or not callable(previous_handler):
        yield
        return
    anywhere, inside = _PRESSED.get() or threading.Event(), threading.Event()
    timers: list[threading.Timer] = []

    def press(number: int, frame: FrameType | None) -> None:
        anywhere.set()
        inside.set()
        raise KeyboardInterrupt

    def press_again(dropped: sys.UnraisableHookArgs) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            previous_hook(dropped)
            return
        timer = threading.Timer(AGAIN_SECONDS, _thread.interrupt_main)
        timer.daemon = True
        timers.append(timer)
        timer.start()

    token = _PRESSED.set(anywhere)
    signal.signal(signal.SIGINT, press)
    sys.unraisablehook = press_again
    try:
        yield
    except Exception as error:
        if inside.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        # Pending repetitions are cancelled: an interrupt during interpreter shutdown would kill it.
        signal.signal(signal.SIGINT, _ignored)
        for timer in timers:
            timer.cancel()
            timer.join()
        signal.signal(signal.SIGINT, previous_handler)
        sys.unraisablehook = previous_hook
        _PRESSED.reset(token)


def _ignored(number: int, frame: FrameType | None) -> None:
    pass
