"""Install signal handlers, but not for ignored signals.

A shell that starts a job in the background, and `nohup`, make it ignore a signal that is meant for others. Such a
signal stays ignored.
"""

from __future__ import annotations

import signal
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
