"""What was typed in a directory, for the arrow keys: a line of JSON each, for its owner alone, without secrets."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from orihon.chat.names import place_of
from orihon.errors import StoreError
from orihon.ingest import shown
from orihon.stores.files import make_directory, open_file, warn_if_open

MOST = 1000  # lines that are kept
MAX_BYTES = 4_000_000


def place(directory: Path, environ: Mapping[str, str]) -> Path:
    """The file for a directory."""
    home = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "orihon" / "chat" / f"{place_of(directory)}.jsonl"


def load(path: Path) -> list[str]:
    """The newest lines, the oldest of them first; what cannot be read is not there."""
    warn_if_open(path)
    found = []
    for line in _tail(path, MAX_BYTES)[-MOST:]:
        with suppress(ValueError, RecursionError):
            text = json.loads(line)
            if isinstance(text, str):
                found.append(text)
    return found


def remember(path: Path, text: str) -> None:
    """Add a line; a place that cannot be written is left alone, for it is only a convenience."""
    with suppress(OSError, StoreError):
        if not path.parent.exists():
            make_directory(path.parent)
        _append(path, json.dumps(shown(text)).encode() + b"\n")
        if path.stat().st_size > MAX_BYTES:
            beside = path.with_name(f"{path.name}.{os.getpid()}.new")
            _append(beside, b"".join(line + b"\n" for line in _tail(path, MAX_BYTES // 2)))
            beside.replace(path)


def _append(path: Path, data: bytes) -> None:
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab") as file:
        file.write(data)


def _tail(path: Path, size_bytes: int) -> list[bytes]:
    """The last lines of a file, as many as have so many bytes; the first of them may be broken."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, os.fstat(fd).st_size - size_bytes))
        return file.read(size_bytes).splitlines()
