"""The conversations of a directory: each has a name, is found again, searched and deleted."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from orihon.chat.conversation import ABOUT, Conversation, Tell
from orihon.chat.names import TYPE, checked, key_of, place_of
from orihon.engine import Engine
from orihon.errors import NotFound, UsageError
from orihon.records import Event, Message, TaskRow
from orihon.stores.base import Query, Store
from orihon.stores.files import data_home
from orihon.stores.jsonl.store import JsonlStore
from orihon.stores.sql.sqlite import SqliteStore

SYSTEM = "orihon:system"
AROUND = 60  # characters on each side of what was found
SHADOW = "checkpoints"


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation, as a list shows it."""

    uuid: str
    name: str
    directory: str
    status: str
    created_at: str
    updated_at: str
    replies: int
    tokens: int
    mcp_enabled: bool = True


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A place where something was said."""

    uuid: str
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
    tell: Tell | None = None,
    **options: Any,
) -> Conversation:
    """A new conversation; `options` are those of a task."""
    directory = directory.resolve()
    name = checked(name) if name else _free_name(engine, directory)
    if any(one.name == name for one in listing(engine, directory)):
        raise UsageError(f"There is a conversation {name!a} already.", hint="Resume it, or choose another name.")
    task = engine.start(key_of(directory, name), inherit=False, **options)
    task.event("note", **{ABOUT: {"name": name, "directory": str(directory), "mcp_enabled": mcp_enabled}})
    if system:
        task.add("system", system, key=SYSTEM)
    return Conversation(task, name=name, workspace=directory, tell=tell)


def resume(engine: Engine, uuid: str, *, tell: Tell | None = None, **options: Any) -> Conversation:
    """Go on with a conversation."""
    listed = _listed(engine.store, engine.row(uuid))
    if listed is None:
        raise UsageError(f"Task {uuid} is not a conversation.", hint="`orihon run --resume` goes on with tasks.")
    return Conversation(
        engine.resume(listed.uuid, **options), name=listed.name, workspace=Path(listed.directory), tell=tell
    )


def listing(engine: Engine, directory: Path | None = None, *, user: str | None = None) -> list[Listed]:
    """The conversations of a directory, or of all, the one that was used last first; perhaps only those of a user."""
    place = place_of(directory) if directory is not None else None
    rows = engine.rows(Query(status=("running", "paused", "failed"), user=user))
    found = (_listed(engine.store, row) for row in rows if row.task_type == TYPE and place in {None, row.repo})
    return sorted((one for one in found if one is not None), key=lambda one: one.updated_at, reverse=True)


def find(engine: Engine, directory: Path, what: str = "", *, user: str | None = None) -> Listed:
    """The one of this name, or whose id begins so; without either, the one that was used last."""
    known = listing(engine, directory, user=user)
    named = (
        [one for one in known if one.name == what]
        or [one for one in known if one.uuid == what]
        or [one for one in known if what and one.uuid.startswith(what)]
    )
    chosen = named if what else known
    if not chosen:
        names = ", ".join(one.name for one in known[:10]) or "none"
        raise NotFound(kind="conversation", id=what, hint=f"In this directory there are: {names}.")
    if what and len(named) > 1:
        raise UsageError(f"Several conversations begin with {what!a}.", hint="Give more of the id, or the name.")
    return chosen[0]


def search(
    engine: Engine, text: str, directory: Path | None = None, *, user: str | None = None, most: int = 50
) -> Iterator[Found]:
    """Where something was said, in the newest conversation first."""
    wanted = text.casefold()
    engine.trail.looked("search", query=text)
    for one in listing(engine, directory, user=user):
        for message in engine.store.read(one.uuid, Message):
            place = message.text.casefold().find(wanted)
            if place < 0 or message.role == "system":
                continue
            around = message.text[max(0, place - AROUND) : place + len(text) + AROUND]
            yield Found(uuid=one.uuid, name=one.name, seq=message.seq, role=message.role, text=" ".join(around.split()))
            most -= 1
            if not most:
                return


def delete(engine: Engine, uuid: str) -> None:
    """Delete a conversation with its checkpoints; LeaseHeld while it is in use."""
    uuid = engine.row(uuid).uuid
    engine.trail.looked("delete", uuid=uuid)
    place = shadow_place(engine.store, uuid)
    engine.store.delete(uuid)
    shutil.rmtree(place, ignore_errors=True)


def shadow_place(store: Store, uuid: str) -> Path:
    """Where the checkpoints of a conversation are: with its files, else beside the store, else with the person."""
    if isinstance(store, JsonlStore):
        return store.path_of(uuid) / SHADOW
    if isinstance(store, SqliteStore):
        return store.sidecar_path(SHADOW) / uuid
    if store.url == "memory:":
        return Path(tempfile.gettempdir()) / f"orihon-{os.getuid()}-{uuid}"
    return data_home() / SHADOW / uuid


def files_of(store: Store) -> list[Path]:
    """Where a store keeps its bytes on this machine."""
    if isinstance(store, JsonlStore):
        return [store.base]
    return [store.path, *store.path.parent.glob(f"{store.path.name}[-.]*")] if isinstance(store, SqliteStore) else []


def _listed(store: Store, row: TaskRow) -> Listed | None:
    if row.task_type != TYPE:
        return None
    first = next(store.read(row.uuid, Event, first=1, last=1), None)
    about = first.data.get(ABOUT) if first is not None else None
    about = about if isinstance(about, dict) else {}
    return Listed(
        uuid=row.uuid,
        name=str(about.get("name", row.task_id)),
        directory=str(about.get("directory", "")),
        status=row.status,
        created_at=row.created_at,
        updated_at=row.updated_at or row.created_at,
        replies=row.llm_call_count,
        tokens=row.total_tokens,
        mcp_enabled=bool(about.get("mcp_enabled", True)),
    )


def _free_name(engine: Engine, directory: Path) -> str:
    taken = {one.name for one in listing(engine, directory)}
    today = f"{datetime.now():%Y-%m-%d}"  # noqa: DTZ005 - the person's own day
    names = (today if number == 1 else f"{today}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)
