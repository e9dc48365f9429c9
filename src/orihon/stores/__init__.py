"""Open the store that a URL names.

logs/contexts               plain files in a directory (the default)
sqlite:///contexts.db       everything in one SQLite file
postgresql://host/database  a PostgreSQL database, for many machines
memory:                     nothing outlives the process
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orihon.errors import NotFound, UsageError
from orihon.settings.schema import Settings

if TYPE_CHECKING:
    from orihon.stores.base import Options, Store

__all__ = [
    "is_postgres",
    "is_store_directory",
    "open_store",
    "require_psycopg",
    "require_store",
    "sidecar_path",
    "store_options",
]

SCHEMES = "a directory, sqlite:///FILE, postgresql://HOST/DATABASE, or memory:"
SQLITE_PREFIX = "sqlite:///"
MARKS = ("tasks.db", "pending", "running", "paused", "completed")  # what the directory of a store contains


def store_options(settings: Settings, environ: Mapping[str, str] | None = None) -> Options:
    """Return the options that the settings ask for. Secrets in the environment are masked literally."""
    from orihon.ingest import sanitiser_for  # noqa: PLC0415 - `import orihon` stays cheap
    from orihon.stores.base import Options  # noqa: PLC0415

    sanitiser = sanitiser_for(settings, environ)

    return Options(
        durability=settings.context_storage.durability,
        heartbeat_seconds=settings.lease.heartbeat_seconds,
        expiry_seconds=settings.lease.expiry_seconds,
        known=sanitiser.known,
        kinds=sanitiser.kinds,
    )


def open_store(url: str | Path, options: Options | None = None) -> Store:
    """Open the store that a URL or a path names. A missing store is created."""
    options = options or store_options(Settings())
    text = str(url)
    scheme, separator, rest = text.partition(":")
    if not text or "\0" in text:
        raise UsageError(f"A store cannot be {text!a}.", hint=f"Allowed are {SCHEMES}.")
    if text == "memory:":
        from orihon.stores.memory import MemoryStore  # noqa: PLC0415 - only the store that is used is loaded

        return MemoryStore(options=options)
    if is_postgres(text):
        require_psycopg()
        from orihon.stores.sql.postgres import PostgresStore  # noqa: PLC0415

        return PostgresStore(text, options)
    if sys.platform == "win32":
        raise UsageError("Files cannot be locked safely on Windows.", hint="Use PostgreSQL there: postgresql://…")
    if text.startswith(SQLITE_PREFIX) and text != SQLITE_PREFIX:
        from orihon.stores.sql.sqlite import SqliteStore  # noqa: PLC0415

        return SqliteStore(Path(text.removeprefix(SQLITE_PREFIX)), options)
    if separator and ("//" in rest or scheme in {"sqlite", "postgresql", "postgres"}):
        raise UsageError(f"There is no store for {scheme}: URLs of this form.", hint=f"Allowed are {SCHEMES}.")
    from orihon.stores.jsonl.store import JsonlStore  # noqa: PLC0415

    return JsonlStore(Path(text), options)


def sidecar_path(url: str, name: str) -> Path | None:
    """Return the path of a file that belongs to a store of files as a whole; None for other stores."""
    if url == "memory:" or is_postgres(url):
        return None
    if url.startswith(SQLITE_PREFIX):
        path = Path(url.removeprefix(SQLITE_PREFIX))
        return path.with_name(f"{path.name}.{name}")
    return Path(url) / name


def is_postgres(url: str) -> bool:
    """Return whether a URL names a PostgreSQL database."""
    return url.startswith(("postgresql://", "postgres://"))


def require_psycopg() -> None:
    """Raise UsageError if the driver for PostgreSQL is not installed."""
    try:
        import psycopg  # noqa: F401, PLC0415
    except ImportError as error:
        raise UsageError(f"PostgreSQL needs psycopg: {error}.", hint="pip install 'orihon[postgres]'") from error


def require_store(url: str) -> None:
    """Raise NotFound if there is no store at this URL, UsageError if there can be none. Nothing is created."""
    if url == "memory:":
        return
    if is_postgres(url):
        require_psycopg()
        return  # connecting tells whether it exists
    is_file = url.startswith(SQLITE_PREFIX)
    path = Path(url.removeprefix(SQLITE_PREFIX))
    hint = "`orihon config` shows where the store is."
    if "\0" in url or (not is_file and "://" in url):
        raise UsageError(f"There is no store for {url!a}.", hint=f"Allowed are {SCHEMES}.")
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link, which Orihon does not follow.", hint="Name the store itself.")
    if is_file and not path.is_file():
        raise NotFound(f"There is no file {path}.", kind="store", id=url, hint=hint)
    if not is_file and not is_store_directory(path):
        reason = "there is no tasks.db and no running/ in it" if path.is_dir() else "there is no such directory"
        raise NotFound(f"{path} is not a store: {reason}.", kind="store", id=url, hint=hint)


def is_store_directory(path: Path) -> bool:
    """Return whether a directory is a store of plain files, or what is left of one."""
    return path.is_dir() and any(os.path.lexists(path / name) for name in MARKS)
