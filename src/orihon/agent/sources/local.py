"""Issues on this machine: a Markdown file, a text, or a directory of Markdown files.

The files belong to people and are only read. What Orihon has to say about `login.md` stands beside it in
`login.orihon.json`: the status, and the comments of both sides. A person may add a comment there by hand (an author and
a body are enough), or set the status to `queued` to ask again. Who takes the file away asks again too. A `status` of
`stopped` or `closed` at the top of the Markdown file stops a run.

A text has no file: its comments end with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from orihon.agent.sources import markdown
from orihon.agent.sources.base import Comment, Item, Outcome, masked, moment, same
from orihon.agent.sources.issue_prompt import is_ours, prompt_of
from orihon.agent.sources.labels import label_of
from orihon.codec import clean_text, now
from orihon.coerce import decode_json
from orihon.errors import SourceError, UsageError
from orihon.ingest import Sanitiser, shown
from orihon.settings.schema import Forge
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

BOT = "orihon"
MAX_PATH_CHARS = 1000
SUFFIX = ".orihon.json"
OUTCOMES = ("queued", "processing", "done", "failed", "paused", "stopped")

T = TypeVar("T")


class _State(Struct):
    """What stands in the file beside an issue; whatever else a person writes there stays."""

    status: str
    comments: list[dict[str, Any]]
    others: dict[str, Any]


class Local:
    """The source `local`."""

    def __init__(self, what: str | Path, *, forge: Forge | None = None, sanitiser: Sanitiser) -> None:
        self.forge, self.sanitiser = forge or Forge(), sanitiser
        self.bot = self.forge.bot_name or BOT
        self._assigned: set[TaskKey] = set()
        self._state = _State("", [], {})  # of a text
        self.path = _path(what)
        self.text = str(what) if self.path is None else ""

    def keys(self) -> list[TaskKey]:
        """What there is, whatever its status."""
        return list(self._keys())

    def find(self) -> Iterator[Item]:
        for key in self._keys():
            try:
                page, state = self._page(key), self._read(key)
            except SourceError as error:
                if self.path is None or not self.path.is_dir():
                    raise
                log.warning("%s is left out: %s", key, error)
                continue
            if page.status != "closed" and _status(page, state) == "queued":
                yield self._item(key, page, state)

    def get(self, key: TaskKey) -> Item:
        item = self._item(key, self._page(key), self._read(key))
        if any(same(name, self.bot) for name in item.assignees):
            self._assigned.add(key)
        return item

    def prompt(self, item: Item) -> str:
        return prompt_of(masked(item, self.sanitiser), self.bot)

    def mark(self, key: TaskKey, outcome: Outcome) -> None:
        def change(state: _State) -> None:
            state.status = outcome

        if self._read(key).status != outcome:
            self._change(key, change)

    def say(self, key: TaskKey, text: str) -> str:
        def change(state: _State) -> str:
            at, number = now(), len(state.comments) + 1
            state.comments.append(
                {
                    "id": str(number),
                    "author": self.bot,
                    "body": self.sanitiser.text(text),
                    "created_at": at,
                    "updated_at": at,
                }
            )
            return str(number)

        return self._change(key, change)

    def edit(self, key: TaskKey, comment_id: str, text: str) -> None:
        def change(state: _State) -> None:
            found = next((one for one in state.comments if one["id"] == comment_id), None)
            if found is None:
                raise SourceError(f"{key} has no comment {comment_id!a:.40}.", status=404, hint="It was deleted.")
            found |= {"body": self.sanitiser.text(text), "updated_at": now()}

        self._change(key, change)

    def new_comments(self, key: TaskKey, since: str) -> list[Comment]:
        found = [one for one in self._of_people(self._read(key)) if one.updated_at >= since]
        return sorted(found, key=lambda one: one.updated_at)

    def is_wanted(self, key: TaskKey, *, was_assigned: bool | None = None) -> bool:
        try:
            page = self._page(key)
        except SourceError:
            return True
        if page.status in {"stopped", "closed"}:
            return False
        if any(same(name, self.bot) for name in page.assignees):
            self._assigned.add(key)
            return True
        return not (key in self._assigned if was_assigned is None else was_assigned)

    def user_of(self, item: Item) -> str:
        return item.author

    def linked(self, what: Item | TaskKey) -> TaskKey | None:  # noqa: ARG002 - files do not become others
        return None

    def close(self) -> None:
        """Nothing is held."""

    def _keys(self) -> dict[TaskKey, Path | None]:
        if self.path is None:
            text = self._unsecret(self.text)
            return {TaskKey.local(_safe(_first_line(text), text)): None}
        paths = [self.path]
        if self.path.is_dir():
            paths = sorted(path for path in self.path.glob("*.md") if path.is_file() and not path.name.startswith("."))
        found: dict[TaskKey, Path | None] = {}
        for path in paths:
            other = found.setdefault(self._key(path), path)
            if other is not path:
                raise SourceError(
                    f"{path.name} and {other.name if other else ''} have the same name once secrets are hidden.",
                    hint="Rename one of them, or see masking.kinds in docs/masking.md.",
                )
        return found

    def _key(self, path: Path) -> TaskKey:
        directory = [self._unsecret(part) for part in path.parent.resolve().parts]
        place = hashlib.sha256(os.fsencode(Path(*directory))).hexdigest()[:8]
        workspace = f"{_slug(directory[-1], 60).lower() or 'root'}-{place}"
        return TaskKey.local(
            _safe(self._unsecret(path.stem if path.suffix == ".md" else path.name)), workspace=workspace
        )

    def _unsecret(self, text: str) -> str:
        """A text that a key is made of: a key is cut and hashed, so no secret may be in it before."""
        return self.sanitiser.text(text)

    def _where(self, key: TaskKey) -> Path | None:
        keys = self._keys()
        if key not in keys:
            raise SourceError(f"There is no {key} here.", status=404, hint="Its file was moved or renamed.")
        return keys[key]

    def _page(self, key: TaskKey) -> markdown.Page:
        path = self._where(key)
        return markdown.parse(self.text, "text") if path is None else markdown.read(path)

    def _item(self, key: TaskKey, page: markdown.Page, state: _State) -> Item:
        ours = {label_of(self.forge, one).casefold() for one in OUTCOMES}  # type: ignore[arg-type]
        labels = [label for label in page.labels if label.casefold() not in ours]
        status = _status(page, state)
        if status in OUTCOMES:
            labels.append(label_of(self.forge, status))  # type: ignore[arg-type]
        where = self._where(key)
        return Item(
            key=key,
            title=clean_text(page.title),
            body=clean_text(page.body),
            author=page.author,
            assignees=page.assignees,
            labels=tuple(labels),
            url=str(where) if where else "",
            comments=self._of_people(state),
        )

    def _of_people(self, state: _State) -> tuple[Comment, ...]:
        comments = (msgspec.convert(one, Comment) for one in state.comments)
        return tuple(one for one in comments if one.body.strip() and not is_ours(one, self.bot))

    def _read(self, key: TaskKey) -> _State:
        path = self._where(key)
        return self._state if path is None else _load(_beside(path))

    def _change(self, key: TaskKey, change: Callable[[_State], T]) -> T:
        """Change the file beside an issue, whoever else is about to."""
        path = self._where(key)
        if path is None:
            return change(self._state)
        beside = _beside(path)
        try:
            with _locked(beside.parent):
                state = _load(beside)
                result = change(state)
                _store(beside, state)
        except OSError as error:
            raise SourceError(
                f"{beside} cannot be written ({error.strerror}).", hint="Check the disk and its rights."
            ) from error
        return result


def _path(what: str | Path) -> Path | None:
    """The file or directory that is meant, or None for a text."""
    text = str(what)
    short = text.strip() == text and "\n" not in text and "\0" not in text and len(text) <= MAX_PATH_CHARS
    if not text.strip():
        raise UsageError("The task is empty.", hint="Give a file, a directory or a text.")
    with contextlib.suppress(OSError):
        if short and Path(text).exists():
            return Path(text)
    if isinstance(what, Path) or (short and re.fullmatch(r"\S+\.(?:md|txt|markdown)|\.{0,2}/\S*", text)):
        raise UsageError(
            f"There is no file {shown(text)!a:.200}.", hint="Check the path; a text has more than one word."
        )
    return None


def _safe(name: str, whole: str = "") -> str:
    """A name that a key can hold; what had to be changed for it has a number that tells it from others."""
    slug = _slug(name, 50)
    if slug == name and not whole:
        return slug
    return f"{slug or 'issue'}-{hashlib.sha256(os.fsencode(whole or name)).hexdigest()[:8]}"


def _slug(text: str, limit: int) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text)[:limit].strip("-._")


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0].lstrip("# ").lower()[:40]


def _beside(path: Path) -> Path:
    return path.with_name((path.stem if path.suffix == ".md" else path.name) + SUFFIX)


def _status(page: markdown.Page, state: _State) -> str:
    """What Orihon said last; before that what the file says; a file that says nothing asks for work."""
    return state.status or page.status or "queued"


def _load(path: Path) -> _State:
    try:
        data = path.read_bytes()
        written = _written(path)
    except FileNotFoundError:
        return _State("", [], {})
    except OSError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror}).", hint="Check its rights.") from error
    try:
        value = decode_json(data, type=dict[str, Any])
        comments = msgspec.convert(value.pop("comments", []), list[dict[str, Any]])
        found = [_completed(one, number, written) for number, one in enumerate(comments, 1)]
        status = msgspec.convert(value.pop("status", ""), str)
    except ValueError as error:
        raise SourceError(
            f"{path} is not what Orihon wrote ({error}).", hint="Mend the JSON, or take the file away to begin anew."
        ) from error
    return _State(status, found, value)


def _completed(comment: dict[str, Any], number: int, written: str) -> dict[str, Any]:
    """A comment as a person may leave it, with the rest filled in."""
    texts = {name: str(comment.get(name) or "") for name in ("id", "author", "body", "created_at", "updated_at")}
    created = moment(texts["created_at"] or written)
    filled = {
        "id": texts["id"] or str(number),
        "created_at": created,
        "updated_at": moment(texts["updated_at"]) or created,
    }
    return {**comment, **texts, **filled}


def _written(path: Path) -> str:
    """When a file was written."""
    return moment(datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat())


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One writer at a time; the lock is on the directory, so that no lock file is left behind."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _store(path: Path, state: _State) -> None:
    value = {"status": state.status, **state.others, "comments": state.comments}
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
