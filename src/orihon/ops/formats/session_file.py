"""A session file on disk: lines of JSON, or one JSON document, read tolerantly and in bounded memory.

A line that is not JSON (often the last one, incomplete) is kept as text, so that nothing of the file is lost.
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

_BOM = b"\xef\xbb\xbf"


class SessionFile:
    """A file with the session of an agent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(f"{path} cannot be read"):
            if not path.is_file():
                raise UsageError(f"{path} is not a file.", hint="Name the session file itself.")
            self.size = path.stat().st_size
        self.position = 0  # how many bytes `lines` or `document` has read

    @cached_property
    def sha256(self) -> str:
        """The checksum of the file."""
        with disk_errors(f"{self.path} cannot be read"), self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @cached_property
    def opening(self) -> list[Any]:
        """The values of the first lines. A line that is not JSON is a string."""
        return [value for _, value in islice(self.lines(), OPENING_LINES)]

    @cached_property
    def is_document(self) -> bool:
        """Whether the file is one JSON value, on one line or on several."""
        return len(self.opening) == 1 or not all(isinstance(value, dict) for value in self.opening[:2])

    @cached_property
    def document(self) -> Any:
        """The value of the whole file; None if it is not JSON."""
        if self.size > MAX_DOCUMENT_BYTES:
            sentence = f"{self.path} is one JSON document of {self.size:,} bytes; the limit is {MAX_DOCUMENT_BYTES:,}."
            raise UsageError(sentence, hint="Split it into smaller documents.")
        with disk_errors(f"{self.path} cannot be read"):
            value = parse_value(self.path.read_bytes())
            self.position = self.size
        return None if isinstance(value, str) else value

    def lines(self) -> Iterator[tuple[int, Any]]:
        """Yield the number (from 0) and the value of each line that is not blank."""
        with disk_errors(f"{self.path} cannot be read"), self.path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    sentence = f"{self.path}, line {number + 1} is longer than {MAX_LINE_BYTES:,} bytes."
                    raise UsageError(sentence, hint="No session has such a line; check the file.")
                self.position = file.tell()
                if line.strip():
                    yield number, parse_value(line)
                number += 1


def parse_value(data: bytes) -> Any:
    """Return the value of a JSON text, or the text itself if it is not JSON or is nested too deeply to be stored."""
    data = data.removeprefix(_BOM)
    text = data.decode("utf-8", "replace").rstrip("\r\n")
    try:
        value = decode_json(data)
    except ValueError:
        try:
            value = json.loads(text, parse_constant=str)  # accepts NaN and lone surrogates
        except (ValueError, RecursionError):
            return text
    return value if depth_fits(value) else text
