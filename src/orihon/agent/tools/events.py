"""What a listener of the toolbox receives."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MAX_BYTES = 20_000_000  # the content of a larger file is not passed on


class FileSeen(NamedTuple):
    """The model has read a file, or written it; `before` is the content that was replaced."""

    path: str
    content: bytes
    wrote: bool = False
    before: bytes | None = None


class ProgramRan(NamedTuple):
    """A command or a tool of a server is about to run, or has ended. In between it may change any file."""

    name: str
    is_over: bool


OnEvent = Callable[[FileSeen | ProgramRan], None]
