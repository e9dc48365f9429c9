"""An issue as a Markdown file: front matter, a heading as the title, and the rest as the body.

    ---
    labels: [bug]
    status: closed
    author: alice
    ---
    # The login page is blank

All of it is optional. Front matter that cannot be read is part of the body: many people begin a page with a line.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from orihon.errors import SourceError

MAX_BYTES = 1_000_000
MAX_TITLE_CHARS = 100

_FRONT = re.compile(r"---[ \t]*\n(.*?\n)??---[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^#[ \t]+(.+)$", re.MULTILINE)


class Page(Struct, frozen=True):
    """What a file says."""

    title: str
    body: str
    status: str = ""
    author: str = ""
    labels: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()


def read(path: Path) -> Page:
    """The page in a file."""
    try:
        if not path.is_file():
            raise SourceError(
                f"{path} is not a file.", status=404, hint="Give a Markdown file, or a directory of them."
            )
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read ({error.strerror}).", hint="Check the path and its rights."
        ) from error
    if len(data) > MAX_BYTES:
        raise SourceError(f"{path} is larger than {MAX_BYTES:,} bytes.", hint="An issue is shorter than that.")
    return parse(data.decode("utf-8-sig", "replace"), path.stem)


def parse(text: str, name: str) -> Page:
    """The page in a text; the name is the title where there is no other."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    front, rest = _front(text)
    heading = _HEADING.search(rest)
    first = next((line.strip() for line in rest.splitlines() if line.strip()), "")
    title = "" if heading is None else heading[1].rstrip(" \t#") or heading[1]
    if heading is not None and not rest[: heading.start()].strip():
        rest = rest[heading.end() :]
    title = title or first[:MAX_TITLE_CHARS] or name
    return Page(
        title=title.strip(),
        body=rest.strip(),
        status=_text(front.get("status")).lower(),
        author=_text(front.get("author")),
        labels=_list(front.get("labels")),
        assignees=_list(front.get("assignees")),
    )


def _front(text: str) -> tuple[dict[str, object], str]:
    from orihon.settings import yaml as yamlfile  # noqa: PLC0415 - most pages have none

    found = _FRONT.match(text)
    if found is None:
        return {}, text
    try:
        entries = yamlfile.parse(found[1] or "")
    except yamlfile.YamlError:
        return {}, text
    if not isinstance(entries, tuple | None):
        return {}, text
    return {entry.key.lower(): entry.value for entry in entries or ()}, text[found.end() :]


def _text(value: object) -> str:
    return str(value).strip() if isinstance(value, str | int | float) else ""


def _list(value: object) -> tuple[str, ...]:
    """A list, or words between commas."""
    items = value if isinstance(value, list) else _text(value).split(",")
    return tuple(text for item in items if (text := _text(item)))
