"""Where bytes live: `open_store(url)` gives the store that a URL names.

logs/contexts               plain files in a directory (the default)
sqlite:///contexts.db       everything in one SQLite file
memory:                     nothing outlives the process
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orihon.errors import UsageError

if TYPE_CHECKING:
    from orihon.stores.base import Options, Store

__all__ = ["open_store"]

SCHEMES = "a directory, sqlite:///FILE, or memory:"


def open_store(url: str | Path, options: Options | None = None) -> Store:
    """Open the store that a URL or a path names; it is made if it is not there."""
    text = str(url)
    scheme, separator, rest = text.partition(":")
    if not text or "\0" in text:
        raise UsageError(f"A store cannot be {text!a}.", hint=f"Allowed are {SCHEMES}.")
    if text == "memory:":
        from orihon.stores.memory import MemoryStore  # noqa: PLC0415 - only the store that is used is loaded

        return MemoryStore(options=options)
    if sys.platform == "win32":
        raise UsageError("Files cannot be locked safely on Windows.", hint="Use PostgreSQL there: postgresql://…")
    if scheme == "sqlite" and rest.startswith("///") and rest != "///":
        from orihon.stores.sqlite import SqliteStore  # noqa: PLC0415

        return SqliteStore(Path(rest.removeprefix("///")), options)
    if separator and ("//" in rest or scheme in {"sqlite", "postgresql", "postgres"}):
        raise UsageError(f"There is no store for {scheme}: URLs of this form.", hint=f"Allowed are {SCHEMES}.")
    from orihon.stores.jsonl import JsonlStore  # noqa: PLC0415

    return JsonlStore(Path(text), options)
