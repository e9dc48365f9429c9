"""Dates and durations for people, in their language and at their clock."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import click

from orihon import terminal
from orihon.terminal import Language, detect_language

NONE = "-"


def language(chosen: str | None, environ: Mapping[str, str] | None = None) -> Language:
    """What was asked for, else what the environment says, by the first variable that is set."""
    return "ja" if chosen == "ja" else "en" if chosen else detect_language(os.environ if environ is None else environ)


def duration(seconds: float | None, lang: Language) -> str:
    """How long it took; a dash where nobody knows."""
    return NONE if seconds is None else terminal.format_duration(seconds, lang)


def moment(stored: str | None, *, seconds: bool = True) -> str:
    """A stored time at the clock of this machine: `2024-01-15 10:30:00`."""
    try:
        local = datetime.fromisoformat(stored or "").astimezone()
    except ValueError:
        return stored or NONE
    return local.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def first_moment(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """`2024-01-31`, or a moment of that day, at the clock of this machine, as the stores write times."""
    return None if value is None else _stored(_parsed(value))


def last_moment(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """The same, but a day means its last moment."""
    if value is None:
        return None
    whole_day = len(value) <= len("2024-01-31")
    return _stored(_parsed(value) + (timedelta(days=1, microseconds=-1) if whole_day else timedelta()))


def _parsed(value: str) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!a} is not a date such as 2024-01-31 or 2024-01-31T10:30.") from None


def _stored(moment: datetime) -> str:
    try:
        return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError):
        raise click.BadParameter("The date is out of range.") from None
