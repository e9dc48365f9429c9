"""Where bytes live: `open_store(url)` gives the store that a URL names.

logs/contexts               plain files in a directory (the default)
sqlite:///contexts.db       everything in one SQLite file
postgresql://host/database  a PostgreSQL database, for many machines
memory:                     nothing outlives the process
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orihon.errors import UsageError
from orihon.settings.schema import Settings

if TYPE_CHECKING:
    from orihon.stores.base import Options, Store

__all__ = ["is_postgres", "need_psycopg", "open_store", "options_of"]

SCHEMES = "a directory, sqlite:///FILE, postgresql://HOST/DATABASE, or memory:"


def options_of(settings: Settings, environ: Mapping[str, str] | None = None) -> Options:
    """How a store behaves by the settings; the secrets that the process was given are known to it literally."""
    from orihon.ingest import sanitiser_for  # noqa: PLC0415 - only what is used is loaded
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
    """Open the store that a URL or a path names; it is made if it is not there."""
    options = options or options_of(Settings())
    text = str(url)
    scheme, separator, rest = text.partition(":")
    if not text or "\0" in text:
        raise UsageError(f"A store cannot be {text!a}.", hint=f"Allowed are {SCHEMES}.")
    if text == "memory:":
        from orihon.stores.memory import MemoryStore  # noqa: PLC0415 - only the store that is used is loaded

        return MemoryStore(options=options)
    if is_postgres(text):
        need_psycopg()
        from orihon.stores.postgres import PostgresStore  # noqa: PLC0415

        return PostgresStore(text, options)
    if sys.platform == "win32":
        raise UsageError("Files cannot be locked safely on Windows.", hint="Use PostgreSQL there: postgresql://…")
    if scheme == "sqlite" and rest.startswith("///") and rest != "///":
        from orihon.stores.sqlite import SqliteStore  # noqa: PLC0415

        return SqliteStore(Path(rest.removeprefix("///")), options)
    if separator and ("//" in rest or scheme in {"sqlite", "postgresql", "postgres"}):
        raise UsageError(f"There is no store for {scheme}: URLs of this form.", hint=f"Allowed are {SCHEMES}.")
    from orihon.stores.jsonl import JsonlStore  # noqa: PLC0415

    return JsonlStore(Path(text), options)


def is_postgres(url: str) -> bool:
    """Whether a URL names a PostgreSQL database."""
    return url.startswith(("postgresql://", "postgres://"))


def need_psycopg() -> None:
    """Say what is missing, where PostgreSQL is to be used without its driver."""
    try:
        import psycopg  # noqa: F401, PLC0415
    except ImportError as error:
        raise UsageError(f"PostgreSQL needs psycopg: {error}.", hint="pip install 'orihon[postgres]'") from error
