"""What was typed in a directory, for the arrow keys: a line of JSON each, for its owner alone, without secrets."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from orihon.conversation.names import place_of
from orihon.secrets import mask

MOST = 1000  # lines that are kept
MAX_BYTES = 4_000_000


def place(directory: Path, environ: Mapping[str, str]) -> Path:
    """The file for a directory."""
    home = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "orihon" / "chat" / f"{place_of(directory)}.jsonl"


def load(path: Path) -> list[str]:
    """The newest lines, the oldest of them first; what cannot be read is not there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(fd, "rb") as file:
        file.seek(max(0, os.fstat(fd).st_size - MAX_BYTES))
        lines = file.read(MAX_BYTES).splitlines()[-MOST:]
    found = []
    for line in lines:
        with suppress(ValueError):
            text = json.loads(line)
            if isinstance(text, str):
                found.append(text)
    return found


def remember(path: Path, text: str) -> None:
    """Add a line; a place that cannot be written is left alone, for it is only a convenience."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _shorten(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        try:
            os.write(fd, json.dumps(mask(text)).encode() + b"\n")
        finally:
            os.close(fd)


def _shorten(path: Path) -> None:
    """Write the file anew when it has become too long."""
    with suppress(FileNotFoundError):
        if path.stat().st_size < MAX_BYTES:
            return
        kept = load(path)
        path.unlink()
        for text in kept[-MOST // 2 :]:
            remember(path, text)
