"""Interrupt a function at its n-th step, as a signal would.

    for step in itertools.count(1):
        trouble = interrupted(lambda: lease.append(record), step)
        ...                                      # check the state; `trouble` keeps the interrupted frames alive
        if trouble is None:
            break                                # the function has fewer steps

A step is a moment at which Python handles signals: a Python function begins, or a C function has returned. The C
function has then done its work, but its caller does not receive the result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

LISTENING = ("call", "c_return")


class Interrupt(BaseException):
    """Raised at any step, like KeyboardInterrupt."""


def interrupted(work: Callable[[], object], step: int) -> Interrupt | None:
    """Call a function and interrupt it at this step. Return the interrupt, or None if the function ended before."""
    return _counted(work, step)[1]


def steps_of(work: Callable[[], object]) -> int:
    """Return the number of steps of a function."""
    return _counted(work, 0)[0]


def _counted(work: Callable[[], object], last: int) -> tuple[int, Interrupt | None]:
    steps, trouble = 0, None
    profiler, hook = sys.getprofile(), sys.unraisablehook

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal steps, trouble
        steps += event in LISTENING
        if steps == last > 0 and trouble is None:
            trouble = Interrupt()
            raise trouble

    def ignore(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_value is not trouble:  # an interrupt in a finaliser does not propagate
            hook(unraisable)

    sys.unraisablehook = ignore
    sys.setprofile(profile)
    try:
        work()
    except Interrupt:
        pass
    finally:
        sys.setprofile(profiler)
        sys.unraisablehook = hook
    return steps, trouble
