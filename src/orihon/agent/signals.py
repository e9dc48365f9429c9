"""Signals that a process handles: those that it was not told to ignore.

A shell that starts a job in the background, and `nohup`, let it ignore a signal that is meant for others. Such a signal
stays ignored, as it does in every program that follows the convention.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Handler = Callable[[int, Any], object]


def install_handler(handler: Handler, *numbers: signal.Signals) -> dict[signal.Signals, Any]:
    """Install a handler for those of the signals that are not ignored; the handlers that were there before."""
    heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heard}


@contextmanager
def temporary_handler(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """The same for the length of a block."""
    before = install_handler(handler, *numbers)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
