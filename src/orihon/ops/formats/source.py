"""A session file as it lies on the disk: lines of JSON, or one JSON document, read tolerantly and in bounded memory.

A line that is not JSON (often the last one, torn) is its own text, so that nothing of the file is lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from orihon.codec import depth_fits
from orihon.coerce import decode_json
from orihon.errors import UsageError
from orihon.stores.files import disk_errors

MAX_LINE_BYTES = 64 * 1024 * 1024
MAX_DOCUMENT_BYTES = 256 * 1024 * 1024
OPENING_LINES = 50  # by which a format is recognised

_BLOCK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class SessionFile:
    """A file with the session of some agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(f"{path} cannot be read"):
            if not path.is_file():
                raise UsageError(f"{path} is not a file.", hint="Give the session file itself.")
            self.size = path.stat().st_size

    @cached_property
    def sha256(self) -> str:
        """The checksum of the whole file."""
        digest = hashlib.sha256()
        with disk_errors(f"{self.path} cannot be read"), self.path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        return digest.hexdigest()

    @cached_property
    def opening(self) -> list[Any]:
        """What the first lines say; a text is a line that is not JSON."""
        return [value for _, value in islice(self.lines(), OPENING_LINES)]

    @cached_property
    def is_document(self) -> bool:
        """Whether it is one JSON value, on one line or on many."""
        return len(self.opening) == 1 or not all(isinstance(value, dict) for value in self.opening[:2])

    @cached_property
    def document(self) -> Any:
        """The value of the whole file; None when it is not one."""
        if self.size > MAX_DOCUMENT_BYTES:
            sentence = f"{self.path} is one JSON document of {self.size:,} bytes; {MAX_DOCUMENT_BYTES:,} are allowed."
            raise UsageError(sentence, hint="Cut it into smaller ones.")
        with disk_errors(f"{self.path} cannot be read"):
            value = value_of(self.path.read_bytes())
        return None if isinstance(value, str) else value

    def lines(self) -> Iterator[tuple[int, Any]]:
        """The value of each line that is not blank, with its number from 0 on."""
        with disk_errors(f"{self.path} cannot be read"), self.path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    sentence = f"{self.path}, line {number + 1} is longer than {MAX_LINE_BYTES:,} bytes."
                    raise UsageError(sentence, hint="No session has such a line; look at the file.")
                if line.strip():
                    yield number, value_of(line)
                number += 1


def value_of(data: bytes) -> Any:
    """The value of a JSON text; the text itself when it is none, or nested deeper than a store keeps it."""
    data = data.removeprefix(_BOM)
    try:
        value = decode_json(data)
    except ValueError:
        value = _tolerantly(data)
    return value if depth_fits(value) else data.decode("utf-8", "replace").rstrip("\r\n")


def _tolerantly(data: bytes) -> Any:
    text = data.decode("utf-8", "replace")
    try:
        return json.loads(text, parse_constant=str)  # NaN, and half characters, which the strict decoder refuses
    except (ValueError, RecursionError):
        return text.rstrip("\r\n")
