"""Issues on this machine: a Markdown file, a text, or a directory of Markdown files.

The files belong to the user and are only read. A file may have front matter and a heading, both optional:

    ---
    labels: [bug]
    status: closed
    author: alice
    ---
    # The login page is blank

Status and comments of `login.md` are in `login.orihon.json` next to it. A user may add a comment there (an author and a
body are enough). Setting the status to `queued`, or removing the file, asks for another run. A `status` of `stopped` or
`closed` in the front matter stops a run. A text has no file: its comments end with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from orihon.agent.sources import Source
from orihon.agent.sources.issue import OUTCOMES, Comment, Item, Outcome, find_label, normalise_time
from orihon.codec import clean_text, now
from orihon.coerce import decode_json
from orihon.errors import SourceError, UsageError
from orihon.ingest import Sanitiser, mask_output
from orihon.settings.schema import Forge
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

BOT = "orihon"
MAX_PATH_CHARS = 1000
MAX_BYTES = 1_000_000
MAX_TITLE_CHARS = 100
SUFFIX = ".orihon.json"

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)??---[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^#[ \t]+(.+)$", re.MULTILINE)

T = TypeVar("T")


class Page(Struct, frozen=True):
    """A parsed Markdown file."""

    title: str
    body: str
    status: str = ""
    author: str = ""
    labels: tuple[str, ...] = ()
    assignees: tuple[str, ...] = ()


class _State(Struct):
    """The content of an `.orihon.json` file; fields that a user added are kept in `others`."""

    status: str
    comments: list[dict[str, Any]]
    others: dict[str, Any]


class Local(Source):
    """The source `local`."""

    def __init__(self, what: str | Path, *, forge: Forge | None = None, sanitiser: Sanitiser) -> None:
        forge = forge or Forge()
        super().__init__(forge, sanitiser, forge.bot_name or BOT)
        self._text_state = _State("", [], {})
        self.path = _find_path(what)
        self.text = str(what) if self.path is None else ""

    def keys(self) -> list[TaskKey]:
        """Return the keys of all issues, whatever their status."""
        return list(self._map_keys())

    def find(self) -> Iterator[Item]:
        for key in self._map_keys():
            try:
                page, state = self._load_page(key), self._load_state(key)
            except SourceError as error:
                if self.path is None or not self.path.is_dir():
                    raise
                log.warning("%s is skipped: %s", key, error)
                continue
            if page.status != "closed" and _get_status(page, state) == "queued":
                yield self._make_item(key, page, state)

    def mark(self, key: TaskKey, outcome: Outcome) -> None:
        def change(state: _State) -> None:
            state.status = outcome

        if self._load_state(key).status != outcome:
            self._change_state(key, change)

    def add_comment(self, key: TaskKey, text: str) -> str:
        def change(state: _State) -> str:
            time, comment_id = now(), str(len(state.comments) + 1)
            body = self.sanitiser.text(text)
            state.comments.append(
                {"id": comment_id, "author": self.bot, "body": body, "created_at": time, "updated_at": time}
            )
            return comment_id

        return self._change_state(key, change)

    def edit_comment(self, key: TaskKey, comment_id: str, text: str) -> None:
        def change(state: _State) -> None:
            comment = next((one for one in state.comments if one["id"] == comment_id), None)
            if comment is None:
                raise SourceError(f"{key} has no comment {comment_id!a:.40}.", status=404, hint="It was deleted.")
            comment |= {"body": self.sanitiser.text(text), "updated_at": now()}

        self._change_state(key, change)

    def _load(self, key: TaskKey) -> Item:
        return self._make_item(key, self._load_page(key), self._load_state(key))

    def _iter_changed(self, key: TaskKey, since: str) -> Iterable[Comment]:  # noqa: ARG002 - the file has all of them
        return map(_make_comment, self._load_state(key).comments)

    def _list_assignees(self, key: TaskKey) -> tuple[str, ...] | None:
        page = self._load_page(key)
        return None if page.status in {"stopped", "closed"} else page.assignees

    def _map_keys(self) -> dict[TaskKey, Path | None]:
        # keys are shortened and hashed, so secrets are masked before
        if self.path is None:
            text = self.sanitiser.text(self.text)
            first_line = text.strip().split("\n", 1)[0].lstrip("# ").lower()[:40]
            return {TaskKey.local(_make_name(first_line, text)): None}
        paths = [self.path]
        if self.path.is_dir():
            paths = sorted(path for path in self.path.glob("*.md") if path.is_file() and not path.name.startswith("."))
        keys: dict[TaskKey, Path | None] = {}
        for path in paths:
            other = keys.setdefault(self._make_key(path), path)
            if other is not path:
                raise SourceError(
                    f"{path.name} and {other.name if other else ''} have the same name once secrets are masked.",
                    hint="Rename one of them, or see masking.kinds in docs/masking.md.",
                )
        return keys

    def _make_key(self, path: Path) -> TaskKey:
        directory = [self.sanitiser.text(part) for part in path.parent.resolve().parts]
        digest = hashlib.sha256(os.fsencode(Path(*directory))).hexdigest()[:8]
        workspace = f"{_make_slug(directory[-1], 60).lower() or 'root'}-{digest}"
        name = path.stem if path.suffix == ".md" else path.name
        return TaskKey.local(_make_name(self.sanitiser.text(name)), workspace=workspace)

    def _locate(self, key: TaskKey) -> Path | None:
        keys = self._map_keys()
        if key not in keys:
            raise SourceError(f"There is no {key} here.", status=404, hint="Its file was moved or renamed.")
        return keys[key]

    def _load_page(self, key: TaskKey) -> Page:
        path = self._locate(key)
        return parse_page(self.text, "text") if path is None else _read_page(path)

    def _make_item(self, key: TaskKey, page: Page, state: _State) -> Item:
        ours = {find_label(self.forge, outcome).casefold() for outcome in OUTCOMES}
        labels = [label for label in page.labels if label.casefold() not in ours]
        status = _get_status(page, state)
        labels += [find_label(self.forge, outcome) for outcome in OUTCOMES if outcome == status]
        path = self._locate(key)
        return Item(
            key=key,
            title=clean_text(page.title),
            body=clean_text(page.body),
            author=page.author,
            assignees=page.assignees,
            labels=tuple(labels),
            url=str(path) if path else "",
            comments=self._keep_users(map(_make_comment, state.comments)),
        )

    def _load_state(self, key: TaskKey) -> _State:
        path = self._locate(key)
        return self._text_state if path is None else _read_state(_make_state_path(path))

    def _change_state(self, key: TaskKey, change: Callable[[_State], T]) -> T:
        """Apply a change to the state of an issue, one process at a time."""
        path = self._locate(key)
        if path is None:
            return change(self._text_state)
        state_path = _make_state_path(path)
        try:
            with _lock(state_path.parent):
                state = _read_state(state_path)
                result = change(state)
                _write_state(state_path, state)
        except OSError as error:
            raise SourceError(
                f"{state_path} cannot be written ({error.strerror}).", hint="Check the disk and the permissions."
            ) from error
        return result


def parse_page(text: str, name: str) -> Page:
    """Return the page in a text. `name` is the title if there is no other. Invalid front matter is body."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    front, rest = _split_front_matter(text)
    heading = _HEADING.search(rest)
    first_line = next((line.strip() for line in rest.splitlines() if line.strip()), "")
    title = "" if heading is None else heading[1].rstrip(" \t#") or heading[1]
    if heading is not None and not rest[: heading.start()].strip():
        rest = rest[heading.end() :]
    title = title or first_line[:MAX_TITLE_CHARS] or name
    return Page(
        title=title.strip(),
        body=rest.strip(),
        status=_to_text(front.get("status")).lower(),
        author=_to_text(front.get("author")),
        labels=_to_list(front.get("labels")),
        assignees=_to_list(front.get("assignees")),
    )


def _read_page(path: Path) -> Page:
    try:
        if not path.is_file():
            raise SourceError(f"{path} is not a file.", status=404, hint="Give a Markdown file or a directory of them.")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SourceError(
            f"{path} cannot be read ({error.strerror}).", hint="Check the path and its permissions."
        ) from error
    if len(data) > MAX_BYTES:
        raise SourceError(f"{path} is larger than {MAX_BYTES:,} bytes.", hint="Shorten the issue.")
    return parse_page(data.decode("utf-8-sig", "replace"), path.stem)


def _split_front_matter(text: str) -> tuple[dict[str, object], str]:
    from orihon.settings import yaml as yamlfile  # noqa: PLC0415 - most pages have none

    match = _FRONT_MATTER.match(text)
    if match is None:
        return {}, text
    try:
        entries = yamlfile.parse(match[1] or "")
    except yamlfile.YamlError:
        return {}, text
    if not isinstance(entries, tuple | None):
        return {}, text
    return {entry.key.lower(): entry.value for entry in entries or ()}, text[match.end() :]


def _to_text(value: object) -> str:
    return str(value).strip() if isinstance(value, str | int | float) else ""


def _to_list(value: object) -> tuple[str, ...]:
    """Return the items of a list, or of a text with commas."""
    items = value if isinstance(value, list) else _to_text(value).split(",")
    return tuple(text for item in items if (text := _to_text(item)))


def _find_path(what: str | Path) -> Path | None:
    """Return the file or directory that is named, or None for a text."""
    text = str(what)
    may_be_path = text.strip() == text and "\n" not in text and "\0" not in text and len(text) <= MAX_PATH_CHARS
    if not text.strip():
        raise UsageError("The task is empty.", hint="Give a file, a directory or a text.")
    with contextlib.suppress(OSError):
        if may_be_path and Path(text).exists():
            return Path(text)
    if isinstance(what, Path) or (may_be_path and re.fullmatch(r"\S+\.(?:md|txt|markdown)|\.{0,2}/\S*", text)):
        hint = "Check the path; a text has more than one word."
        raise UsageError(f"There is no file {mask_output(text)!a:.200}.", hint=hint)
    return None


def _make_name(name: str, text: str = "") -> str:
    """Return a name that a key can hold; a hash tells changed names apart."""
    slug = _make_slug(name, 50)
    if slug == name and not text:
        return slug
    return f"{slug or 'issue'}-{hashlib.sha256(os.fsencode(text or name)).hexdigest()[:8]}"


def _make_slug(text: str, limit: int) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text)[:limit].strip("-._")


def _make_state_path(path: Path) -> Path:
    return path.with_name((path.stem if path.suffix == ".md" else path.name) + SUFFIX)


def _get_status(page: Page, state: _State) -> str:
    """Return the status that Orihon set last, else that of the file; a file without one asks for work."""
    return state.status or page.status or "queued"


def _read_state(path: Path) -> _State:
    try:
        data = path.read_bytes()
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
    except FileNotFoundError:
        return _State("", [], {})
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror}).", hint="Check its permissions.") from error
    try:
        value = decode_json(data, type=dict[str, Any])
        comments = msgspec.convert(value.pop("comments", []), list[dict[str, Any]])
        completed = [_complete_comment(comment, number, written) for number, comment in enumerate(comments, 1)]
        status = msgspec.convert(value.pop("status", ""), str)
    except ValueError as error:
        raise SourceError(
            f"{path} is not a state file of Orihon ({error}).",
            hint="Repair the JSON, or remove the file to start over.",
        ) from error
    return _State(status, completed, value)


def _complete_comment(comment: dict[str, Any], number: int, written: str) -> dict[str, Any]:
    """Return a comment that a user wrote, with the missing fields."""
    texts = {name: str(comment.get(name) or "") for name in ("id", "author", "body", "created_at", "updated_at")}
    created = normalise_time(texts["created_at"] or written)
    updated = normalise_time(texts["updated_at"]) or created
    return {**comment, **texts, "id": texts["id"] or str(number), "created_at": created, "updated_at": updated}


def _make_comment(comment: dict[str, Any]) -> Comment:
    return msgspec.convert(comment, Comment)


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Hold a lock on the directory itself, so that no lock file is left behind."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _write_state(path: Path, state: _State) -> None:
    value = {"status": state.status, **state.others, "comments": state.comments}
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
