"""Install signal handlers, but not for ignored signals, and end a block when its time is up.

A shell that starts a job in the background, and `nohup`, make it ignore a signal that is meant for others. Such a
signal stays ignored.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Handler = Callable[[int, Any], object]


def install_handler(handler: Handler, *numbers: signal.Signals) -> dict[signal.Signals, Any]:
    """Install a handler for the signals that are not ignored. Return the handlers that it replaces."""
    handled = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in handled}


@contextmanager
def temporary_handler(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Install a handler for the length of a block."""
    previous = install_handler(handler, *numbers)
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


class TimeIsUp(KeyboardInterrupt):
    """The seconds of a run have passed. Like Ctrl-C, this ends a request, a tool, or a question to the user."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeIsUp after the seconds. Outside of the main thread, where no signal arrives, do nothing."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise TimeIsUp

    with temporary_handler(end, signal.SIGALRM):
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
