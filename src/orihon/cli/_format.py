"""Dates, durations and sizes as text for the user, in the user's language and time zone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from orihon import terminal
from orihon.cli._output import Styled
from orihon.terminal import Language, detect_language

if TYPE_CHECKING:
    from orihon.ops.listing import TaskListing

NONE = "-"
STYLES = {"running": "green", "interrupted": "red", "failed": "red", "paused": "yellow", "pending": "cyan"}


def choose_language(option: str | None, environ: Mapping[str, str] | None = None) -> Language:
    """Return the language of the option, or else of the environment."""
    if option:
        return "ja" if option == "ja" else "en"
    return detect_language(os.environ if environ is None else environ)


def format_duration(seconds: float | None, lang: Language) -> str:
    """Return `15m 23s`, or a dash if the duration is unknown."""
    return NONE if seconds is None else terminal.format_duration(seconds, lang)


def format_status(task: TaskListing) -> Styled:
    """Return the status of a task in its colour. A running task whose process is gone is interrupted."""
    status = "interrupted" if task.interrupted else task.status
    return Styled(status, STYLES.get(status, ""))


def format_size(size_bytes: float) -> str:
    """Return `1.2 MB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:  # noqa: PLR2004 - a kilobyte
            return f"{size_bytes:,.0f} {unit}" if unit == "bytes" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.1f} TB"


def format_time(stored: str | None, *, seconds: bool = True) -> str:
    """Return a stored time as local time: `2024-01-15 10:30:00`. Return an invalid time unchanged."""
    try:
        local = datetime.fromisoformat(stored or "").astimezone()
    except ValueError:
        return stored or NONE
    return local.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def parse_from(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Convert a local day or time to the form that stores use. A day means its first moment."""
    return None if value is None else _to_stored(_parse_time(value))


def parse_to(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Convert a local day or time to the form that stores use. A day means its last moment."""
    if value is None:
        return None
    is_day = len(value) <= len("2024-01-31")
    return _to_stored(_parse_time(value) + (timedelta(days=1, microseconds=-1) if is_day else timedelta()))


def _parse_time(value: str) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(f"{value!a} is not a date such as 2024-01-31 or 2024-01-31T10:30.") from None


def _to_stored(local: datetime) -> str:
    try:
        return local.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError):
        raise click.BadParameter("The date is out of range.") from None
