"""The conversations of a directory: start, resume, list, find, search and delete them by name."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from orihon.chat.conversation import ABOUT, Conversation, Notify
from orihon.codec import clean_text
from orihon.engine import Engine
from orihon.errors import NotFound, UsageError
from orihon.ingest import mask_output
from orihon.records import Event, Message, TaskRow
from orihon.stores.base import Query, Store
from orihon.stores.files import data_home
from orihon.stores.jsonl.store import JsonlStore
from orihon.stores.lookup import choose_by_id
from orihon.stores.sql.sqlite import SqliteStore
from orihon.task_key import TaskKey

TYPE = "conversation"
SYSTEM = "orihon:system"
CHECKPOINTS = "checkpoints"
MAX_NAME_CHARS = 100
CONTEXT_CHARS = 60  # on each side of a search hit
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,62}[A-Za-z0-9_\-]|[A-Za-z0-9]", re.ASCII)
_NOT_IN_KEY = re.compile(r"[^A-Za-z0-9_\-]+", re.ASCII)


class ConversationListing(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation in a list."""

    uuid: str
    name: str
    directory: str
    mcp_enabled: bool
    row: TaskRow


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A message that contains the text of a search."""

    name: str
    seq: int
    role: str
    text: str


def start(
    engine: Engine,
    directory: Path,
    *,
    name: str = "",
    system: str = "",
    mcp_enabled: bool = True,
    notify: Notify | None = None,
    **options: Any,
) -> Conversation:
    """Start a conversation. `options` are those of a task."""
    directory = directory.resolve()
    taken = {listing.name for listing in list_conversations(engine, directory)}
    name = _check_name(name) if name else _choose_name(taken)
    if name in taken:
        raise UsageError(f"A conversation {name!a} exists already.", hint="Resume it, or choose another name.")
    task = engine.start(make_key(directory, name), inherit=False, **options)
    conversation = Conversation(task, name=name, workspace=directory, notify=notify)
    conversation.set_notes(**{ABOUT: {"name": name, "directory": str(directory), "mcp_enabled": mcp_enabled}})
    if system:
        task.add("system", system, key=SYSTEM)
    return conversation


def resume(engine: Engine, uuid: str, *, notify: Notify | None = None, **options: Any) -> Conversation:
    """Resume a conversation; raise UsageError if the task is not one."""
    row = engine.row(uuid)
    if row.task_type != TYPE:
        raise UsageError(f"Task {uuid} is not a conversation.", hint="Use `orihon run --resume` for other tasks.")
    listing = _make_listing(engine.store, row)
    task = engine.resume(listing.uuid, **options)
    return Conversation(task, name=listing.name, workspace=Path(listing.directory), notify=notify)


def list_conversations(
    engine: Engine, directory: Path | None = None, *, user: str | None = None
) -> list[ConversationListing]:
    """Return the conversations of a directory and a user, or of all, the most recently used first."""
    repo = name_directory(directory) if directory is not None else None
    rows = engine.rows(Query(status=("running", "paused", "failed"), user=user))
    rows = (row for row in rows if row.task_type == TYPE and repo in {None, row.repo})
    listings = [_make_listing(engine.store, row) for row in rows]
    return sorted(listings, key=lambda listing: listing.row.updated_at or listing.row.created_at, reverse=True)


def find(engine: Engine, directory: Path, name: str = "", *, user: str | None = None) -> ConversationListing:
    """Return the conversation with this name or beginning of an id; without either, the most recently used one."""
    known = list_conversations(engine, directory, user=user)
    named = [listing for listing in known if name in {"", listing.name}]
    if name and len(named) > 1:
        raise UsageError(f"Several conversations are called {name!a}.", hint="Give the id instead.")
    if named:
        return named[0]
    names = ", ".join(listing.name for listing in known[:10]) or "none"
    try:
        return choose_by_id(known, name, kind="conversation", hint=f"Conversations in this directory: {names}.")
    except (NotFound, UsageError):
        engine.record_refusal("conversation", name)
        raise


def search(
    engine: Engine, text: str, directory: Path | None = None, *, user: str | None = None, limit: int = 50
) -> Iterator[SearchHit]:
    """Find messages that contain a text, in the most recently used conversations first."""
    engine.trail.record("search", ["messages"], query=text)
    wanted = text.casefold()
    for listing in list_conversations(engine, directory, user=user):
        for message in engine.store.read(listing.uuid, Message):
            index = message.text.casefold().find(wanted)
            if index < 0 or message.role == "system":
                continue
            excerpt = " ".join(message.text[max(0, index - CONTEXT_CHARS) : index + len(text) + CONTEXT_CHARS].split())
            yield SearchHit(name=listing.name, seq=message.seq, role=message.role, text=excerpt)
            limit -= 1
            if not limit:
                return


def delete(engine: Engine, uuid: str) -> None:
    """Delete a conversation and its checkpoints; raise LeaseHeld while it is in use."""
    uuid = engine.row(uuid).uuid
    engine.trail.record("delete", ["row"], uuid=uuid)
    checkpoints = find_checkpoint_directory(engine.store, uuid)
    engine.store.delete(uuid)
    shutil.rmtree(checkpoints, ignore_errors=True)


def find_checkpoint_directory(store: Store, uuid: str) -> Path:
    """Return the directory for checkpoints: with the task's files, else next to the store, else in the data home."""
    if isinstance(store, JsonlStore):
        return store.task_path(uuid) / CHECKPOINTS
    if isinstance(store, SqliteStore):
        return store.sidecar_path(CHECKPOINTS) / uuid
    if store.url == "memory:":
        return Path(tempfile.gettempdir()) / f"orihon-{os.getuid()}-{uuid}"
    return data_home() / CHECKPOINTS / uuid


def list_store_files(store: Store) -> list[Path]:
    """Return the local paths where a store keeps its data."""
    if isinstance(store, JsonlStore):
        return [store.base]
    return [store.path, *store.path.parent.glob(f"{store.path.name}[-.]*")] if isinstance(store, SqliteStore) else []


def make_key(directory: Path, name: str) -> TaskKey:
    """Return the task key of a conversation. A name that a key cannot hold is replaced by its hash."""
    name = mask_output(_check_name(name))
    task_id = name if _KEY_ID.fullmatch(name) else f"named-{_hash(name)}"
    return TaskKey(task_source="local", repo=name_directory(directory), task_type=TYPE, task_id=task_id)


def name_directory(directory: Path) -> str:
    """Return a unique name for a directory, masked before it is cut and hashed."""
    path = Path(*map(mask_output, directory.resolve().parts))
    short = _NOT_IN_KEY.sub("-", path.name)[:40].strip("-") or "root"
    return f"{short}-{_hash(str(path))}".lower()


def _check_name(name: str) -> str:
    name = clean_text(name).strip()
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        hint = f"Give one line of up to {MAX_NAME_CHARS} characters."
        raise UsageError(f"{name[:MAX_NAME_CHARS]!a} cannot be the name of a conversation.", hint=hint)
    return name


def _choose_name(taken: set[str]) -> str:
    today = f"{datetime.now():%Y-%m-%d}"  # noqa: DTZ005 - the user's local date
    names = (today if number == 1 else f"{today}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _make_listing(store: Store, row: TaskRow) -> ConversationListing:
    first = next(store.read(row.uuid, Event, first=1, last=1), None)
    about = first.data.get(ABOUT) if first is not None else None
    about = about if isinstance(about, dict) else {}
    return ConversationListing(
        uuid=row.uuid,
        name=str(about.get("name", row.task_id)),
        directory=str(about.get("directory", "")),
        mcp_enabled=bool(about.get("mcp_enabled", True)),
        row=row,
    )
