"""What a shadow answers with. Paths begin at the workspace; bytes that are no UTF-8 are surrogates in them."""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["A", "M", "D", "T"]


class Change(msgspec.Struct, frozen=True):
    """One file that differs: added, modified (its bytes or whether it can be run), deleted, or of another type."""

    status: Status
    path: str


class Skipped(msgspec.Struct, frozen=True):
    """A file that was left alone, and why, as the end of a sentence that begins with its path."""

    path: str
    reason: str


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of the files; `changes` are those since the one before, and none for the first."""

    commit: str
    changes: tuple[Change, ...] = ()
    skipped: tuple[Skipped, ...] = ()


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore did. `before` and `after` are checkpoints too; restoring `before` hard takes it back."""

    before: str
    after: str
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # made since, and left in place
    skipped: tuple[Skipped, ...] = ()
