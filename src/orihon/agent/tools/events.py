"""What somebody who watches the tools hears: which file the model has seen or written, and when a program runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MAX_BYTES = 20_000_000  # a larger file is not shown to whoever watches


class FileSeen(NamedTuple):
    """The model knows a file: it has read it, or written it in the place of what was there `before`."""

    path: str
    content: bytes
    wrote: bool = False
    before: bytes | None = None  # None for a file that was made


class ProgramRan(NamedTuple):
    """A command, or a tool of a server, is about to run, or is over; in between it may change anything."""

    name: str
    is_over: bool


Watch = Callable[[FileSeen | ProgramRan], None]
