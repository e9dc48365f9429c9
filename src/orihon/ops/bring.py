"""`bring(authorized, settings, path)`: a task out of a portable file, or out of the session file of another agent.

A session becomes a task of whoever brings it: paused, so that it can be resumed and go on, or completed. Every word of
the file comes in, through the same sanitiser as everything else; what is not a message is kept beside (see
`formats.origin`), and `told_again` tells the file as it was. The metadata says where it came from: the name of the
file, its format and its checksum. The id of the task is made of that checksum, of the place in the file and of the
user, so the same file brought twice is one task.

A call that nobody answered when the session ended is answered "interrupted": a file from elsewhere never makes a
resumed task run something that no model has asked for here.
"""

from __future__ import annotations

import re
import uuid as uuids
from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import merge
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from orihon import codec
from orihon.context.events import Imported, sound
from orihon.context.repair import INTERRUPTED
from orihon.context.view import RECORD_EVERY, View, record
from orihon.engine import Engine
from orihon.errors import Conflict, Corrupt, NotFound, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.ops.blobs import load_blobs
from orihon.ops.formats import SESSIONS, format_of
from orihon.ops.formats.origin import FIELD, At, Said, restored, without
from orihon.ops.formats.saying import saying
from orihon.ops.formats.source import SessionFile
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.ops.task_file import MAGIC, open_task_file
from orihon.records import Call, Event, Message, Metadata
from orihon.settings.schema import Settings
from orihon.stores.base import FORMAT, LISTS, Lease, Problem, Store
from orihon.stores.files import disk_errors
from orihon.stores.lookup import row_if_there
from orihon.task.config import config_from_settings
from orihon.task_key import TaskKey

Ending = Literal["paused", "completed"]

PORTABLE = "portable"
FORMATS = (PORTABLE, *SESSIONS)
LARGE_BYTES = 256 * 1024  # what is larger lives in a blob
AHEAD = 50  # records in which the name of the model is looked for

_NAMESPACE = uuids.UUID("6f726968-6f6e-5c00-8000-696d706f7274")
_FOREIGN = re.compile(r"[^A-Za-z0-9_.-]+")


class Brought(msgspec.Struct, kw_only=True):
    """A task that is in the store now."""

    uuid: str
    file: str
    format: str
    sha256: str
    task_key: str
    user: str | None
    status: str
    messages: int = 0
    kept: int = 0  # records that are no messages
    already: bool = False  # it was there before


def bring(
    authorized: AuthorizedStore,
    settings: Settings,
    path: Path,
    *,
    format: str | None = None,
    key: TaskKey | None = None,
    user: str | None = None,
    status: Ending = "paused",
    on_progress: OnProgress = None,
) -> list[Brought]:
    """Bring in what a file holds; a file that cannot be understood leaves nothing behind."""
    if user not in {None, authorized.principal.user}:
        authorized.require_admin("import a task for somebody else")
    file = SessionFile(path)
    chosen = format or (PORTABLE if _is_packed(path) else format_of(file))
    if chosen not in FORMATS:
        raise UsageError(f"There is no format {chosen!a}.", hint=f"There are {', '.join(FORMATS)}.")
    progress = ProgressCounter(on_progress)
    if chosen == PORTABLE:
        brought = [_portable(authorized, file, user, on_progress)]
    else:
        importer = _Import(
            authorized.store,
            settings,
            file,
            format=chosen,
            user=user or authorized.principal.user,
            status=status,
            progress=progress,
        )
        sessions = enumerate(SESSIONS[chosen].sessions(file), 1)
        brought = [importer.run(number, session, key) for number, session in sessions]
    if not brought:
        raise UsageError(f"There is no session in {path}, read as {chosen}.", hint="`--format` forces another format.")
    for one in brought:
        authorized.record_access("import", uuid=one.uuid, file=one.file, format=one.format, sha256=one.sha256)
    return brought


def _is_packed(path: Path) -> bool:
    with disk_errors(f"{path} cannot be read"), path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _portable(
    authorized: AuthorizedStore,
    file: SessionFile,
    user: str | None,
    on_progress: Callable[[ProgressCounter], None] | None,
) -> Brought:
    """A portable task; an administrator's keeps its id and its user, anybody else's becomes his own."""
    with open_task_file(file.path, authorized.store.options) as portable:
        (row,) = portable.find()
        mine = row.uuid
        if not authorized.principal.admin:
            seen = row_if_there(authorized.store, row.uuid, user=authorized.principal.user) is not None
            mine = row.uuid if seen else str(uuids.uuid5(_NAMESPACE, f"{row.uuid}\n{authorized.principal.user}"))
            user = authorized.principal.user
        portable.rename(**{"uuid": mine} | ({"user": user} if user is not None else {}))
        already = row_if_there(authorized.store, mine) is not None
        figures = portable.copy_to(authorized.store, on_progress=on_progress)
    row = authorized.store.row(mine)
    return Brought(
        uuid=mine,
        file=authorized.store.sanitiser.text(file.path.name),
        format=PORTABLE,
        sha256=file.sha256,
        task_key=row.task_key,
        user=row.user,
        status=row.status,
        messages=sum(1 for _ in authorized.store.read(mine, Message)),
        already=already and not figures.appended,
    )


class _Import:
    """The sessions of one file on their way into a store."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        file: SessionFile,
        *,
        format: str,
        user: str,
        status: Ending,
        progress: ProgressCounter,
    ) -> None:
        self.store, self.settings, self.file = store, settings, file
        self.format, self.user, self.status, self.progress = format, user, status, progress

    def run(self, number: int, session: Iterator[Said], key: TaskKey | None) -> Brought:
        """One session; it is whole in the store, or not there."""
        called = self.store.sanitiser.text(self.file.path.name)
        name = _FOREIGN.sub("-", called.split(".")[0]).strip("-.")[:48] or "session"
        key = key or TaskKey.local(f"{name}-{number}" if number > 1 else name, workspace="imported")
        uuid = str(uuids.uuid5(_NAMESPACE, f"{self.file.sha256}\n{number}\n{self.user}"))
        brought = Brought(
            uuid=uuid, file=called, format=self.format, sha256=self.file.sha256, task_key=str(key),
            user=self.user, status=self.status,
        )  # fmt: skip
        self.progress.add(tasks=1)
        if self._is_there(brought):
            return brought
        begun = list(islice(session, AHEAD))
        with self.store.lease(uuid, create=self._metadata(uuid, key, number, begun), status="paused") as lease:
            try:
                self._fill(lease, chain(begun, session), brought)
            except BaseException:
                lease.close()
                with suppress(NotFound):
                    self.store.delete(uuid)
                raise
        if self.status == "completed":
            with Engine(self.store, self.settings).resume(uuid):
                pass  # leaving it completes it, with a summary that a later task can inherit
        return brought

    def _is_there(self, brought: Brought) -> bool:
        """Whether it was brought before; what a crash left of it is taken away."""
        found = row_if_there(self.store, brought.uuid)
        if found is None:
            return False
        if found.activity == "initializing":
            self.store.delete(found.uuid)
            return False
        brought.already, brought.status, brought.task_key = True, found.status, found.task_key
        brought.messages = sum(1 for _ in self.store.read(found.uuid, Message))
        return True

    def _metadata(self, uuid: str, key: TaskKey, number: int, begun: list[Said]) -> Metadata:
        model = next((message.model for said in begun for message in said.messages if message.model), None)
        config = config_from_settings(self.settings, model=model)
        source = {"file": self.file.path.name, "format": self.format, "sha256": self.file.sha256, "session": number}
        return Metadata(
            uuid=uuid,
            task_key=key,
            created_at=codec.now(),
            config=msgspec.to_builtins(config),
            user=self.user,
            format=FORMAT,
            unknown={FIELD: source},
        )

    def _fill(self, lease: Lease, session: Iterator[Said], brought: Brought) -> None:
        unanswered: dict[str, Call] = {}
        replies = 0
        for said in session:
            self._append(lease, said)
            brought.messages += len(said.messages)
            brought.kept += not said.messages
            for message in said.messages:
                replies += message.role == "assistant"
                unanswered = unanswered if message.role == "tool" else {call.id: call for call in message.tool_calls}
                unanswered.pop(message.tool_call_id or "", None)
            self.progress.add(records=len(said.origin))
        if not brought.messages:
            sentence = f"There is no message in {self.file.path}, read as {self.format}."
            raise UsageError(sentence, hint="`--format` forces another format.")
        for call in unanswered.values():
            fields = {"tool_call_id": call.id, "tool_name": call.name, "is_error": True}
            lease.append(saying("tool", INTERRUPTED, **fields))
        if lease.last(Event) > RECORD_EVERY:  # so that nobody has to read all of them to know what is visible
            event = Event(id=0, after=lease.last(Message), type="view", data=record(View()), timestamp="")
            lease.append(event)
        lease.update(activity="", last_activity="imported", add={"llm_call_count": replies})

    def _append(self, lease: Lease, said: Said) -> None:
        """The messages, the first with what the records say beside them; that is an event if it is large."""
        records = [{"at": at, "record": without(value, said.messages)} for at, value in said.origin]
        rest: dict[str, Any] = {"messages": len(said.messages), "records": records}
        is_large = len(msgspec.json.encode(codec.clean_value(rest))) > LARGE_BYTES
        for place, message in enumerate(said.messages):
            beside = {FIELD: rest} if place == 0 and not is_large else {}
            lease.append(msgspec.structs.replace(message, unknown=beside))
        if is_large or not said.messages:
            after = lease.last(Message)
            if is_large:
                masked = msgspec.json.encode(self.store.sanitiser.value(rest))
                rest = {"blob": msgspec.to_builtins(lease.put(masked))}
            lease.append(Event(id=0, after=after, type=FIELD, data=rest, timestamp=""))


def told_again(store: Store, uuid: str) -> Iterator[tuple[At, Any]]:
    """The records of the file that a task was imported from, each with its place, in the order of the file."""
    yield from merge(_of_messages(store, uuid), _of_events(store, uuid), key=_order)


def _order(found: tuple[At, Any]) -> list[tuple[bool, int | str]]:
    return [(isinstance(step, str), step) for step in found[0]]


def _kept(rest: Any) -> Imported:
    """What was kept of a file; it may have been in anybody's hands since."""
    try:
        return msgspec.convert(rest, Imported)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"The file that the task was imported from cannot be told again: {error}.") from error


def _of_messages(store: Store, uuid: str) -> Iterator[tuple[At, Any]]:
    messages = store.read(uuid, Message)
    for message in messages:
        if FIELD in message.unknown:
            kept = _kept(message.unknown[FIELD])
            group = [message, *islice(messages, max(0, kept.messages - 1))]
            yield from _told(kept, [load_blobs(store, uuid, one) for one in group])


def _of_events(store: Store, uuid: str) -> Iterator[tuple[At, Any]]:

    def tell(event: Event, reason: str) -> None:
        store.report(Problem(uuid, LISTS[Event][0], event.id, reason))

    for event in sound(store.read(uuid, Event), tell):
        if event.type != FIELD:
            continue
        kept = _kept(event.data)
        if kept.blob is not None:
            kept = _kept(codec.json_or_text(store.blob(uuid, kept.blob.sha256).decode("utf-8", "replace")))
        first = max(1, event.after - kept.messages + 1)
        group = store.read(uuid, Message, first=first, last=event.after) if kept.messages else ()
        yield from _told(kept, [load_blobs(store, uuid, one) for one in group])


def _told(kept: Imported, messages: list[Message]) -> Iterator[tuple[At, Any]]:
    for one in kept.records:
        yield one.at, restored(one.record, messages)


def origin_of(metadata: Metadata) -> dict[str, Any]:
    """Which file a task was imported from; Conflict when it was not."""
    found = metadata.unknown.get(FIELD)
    if not isinstance(found, dict):
        sentence = f"Task {metadata.uuid} was not imported from a session file."
        raise Conflict(sentence, hint="Export it in another format.", retryable=False)
    return found
