"""Interrupt a piece of work at its n-th step, as a signal would, and see whether everything goes on afterwards.

    for step in itertools.count(1):
        trouble = interrupted(lambda: lease.append(record), step)
        ...                                      # what must hold now, while `trouble` keeps the frames it left
        if trouble is None:
            break                                # the work has fewer steps than that

A step is a moment at which Python listens to signals: a function of Python's begins, or one of C's has returned. The
call that returned has done its work, but its caller does not learn of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

LISTENING = ("call", "c_return")


class Interrupt(BaseException):
    """Comes out of nowhere, like KeyboardInterrupt."""


def interrupted(work: Callable[[], object], step: int) -> Interrupt | None:
    """Do some work and interrupt it at this step; the interrupt with its frames, or None when it was done before."""
    return _counted(work, step)[1]


def steps_of(work: Callable[[], object]) -> int:
    """How many steps some work has."""
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
        if unraisable.exc_value is not trouble:  # what is raised while something is forgotten reaches nobody
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
