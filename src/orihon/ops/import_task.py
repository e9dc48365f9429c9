"""Import of task files and of the session files of other agents.

A session becomes a task of the importing user: `paused`, so that it can be resumed, or `completed`. All of the file is
stored, through the same sanitiser as everything else; `formats.original` says how records that are not messages are
kept. The metadata names the file, its format and its checksum. The task id is derived from the checksum, the position
in the file and the user, so importing a file twice yields one task.

A call without a result at the end of a session gets the result "interrupted", so that resuming the task never runs a
tool that no model has asked for here.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import uuid as uuids
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from orihon import codec
from orihon.context.repair import INTERRUPTED
from orihon.context.view import RECORD_EVERY, View, record
from orihon.engine import Engine
from orihon.errors import Conflict, Corrupt, NotFound, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.ops.copy import TaskCopy
from orihon.ops.formats import SESSIONS, detect_format
from orihon.ops.formats.original import FIELD, append_parsed
from orihon.ops.formats.session_file import Parsed, SessionFile, make_message
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.ops.task_file import HINT, MAGIC, open_task_file
from orihon.records import Call, Event, Message, Metadata
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.base import FORMAT, Lease, Query, Store
from orihon.stores.files import disk_errors
from orihon.stores.lookup import row_if_there
from orihon.task.config import TaskConfig
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

FinalStatus = Literal["paused", "completed"]

PORTABLE = "portable"
DIRECTORY = "directory"
LOOKAHEAD = 50  # records in which the name of the model is looked for

_NAMESPACE = uuids.UUID("6f726968-6f6e-5c00-8000-696d706f7274")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


class ImportedTask(msgspec.Struct, kw_only=True):
    """A task that was imported."""

    uuid: str
    file: str
    format: str
    sha256: str
    task_key: str
    user: str | None
    status: str
    messages: int = 0
    kept: int = 0  # records that are not messages
    already: bool = False  # it had been imported before


def import_file(
    authorized: AuthorizedStore,
    settings: Settings,
    path: Path,
    *,
    format: str | None = None,
    key: TaskKey | None = None,
    user: str | None = None,
    status: FinalStatus = "paused",
    on_progress: OnProgress = None,
) -> list[ImportedTask]:
    """Import the tasks of a file. A file that cannot be parsed leaves nothing in the store."""
    if user not in {None, authorized.principal.user}:
        authorized.require_admin("import a task for another user")
    if path.is_dir():
        return list(_import_directory(authorized, path, on_progress))
    file = SessionFile(path)
    name = format or (PORTABLE if _is_compressed(path) else detect_format(file))
    if name not in {PORTABLE, *SESSIONS}:
        raise UsageError(f"There is no format {name!a}.", hint=f"There are {', '.join((PORTABLE, *SESSIONS))}.")
    if name == PORTABLE:
        imported = [_import_task_file(authorized, file, user, on_progress)]
    else:
        progress = ProgressCounter(on_progress, total=file.size, unit="size_bytes")
        owner = user or authorized.principal.user
        importer = _SessionImport(authorized.store, settings, file, name, owner, status, progress)
        sessions = enumerate(SESSIONS[name].sessions(file), 1)
        imported = [importer.run(number, session, key) for number, session in sessions]
    if not imported:
        raise UsageError(f"There is no session in {path}, read as {name}.", hint="`--format` forces another format.")
    for task in imported:
        source = {"file": task.file, "format": task.format, "sha256": task.sha256}
        authorized.record_access("import", ["file"], uuid=task.uuid, **source)
    return imported


def _is_compressed(path: Path) -> bool:
    with disk_errors(f"{path} cannot be read"), path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _import_task_file(
    authorized: AuthorizedStore, file: SessionFile, user: str | None, on_progress: OnProgress
) -> ImportedTask:
    """Import a task file. For an administrator it keeps id and user; for others it becomes a task of their own."""
    store, principal = authorized.store, authorized.principal
    with open_task_file(file.path, store.options) as task_file:
        uuid = task_file.content.uuid
        _check_config(file.path, task_file.content.metadata)
        if not principal.admin:
            user = principal.user
            if row_if_there(store, uuid, user=user) is None:
                uuid = str(uuids.uuid5(_NAMESPACE, f"{uuid}\n{user}"))
        task_file.rename(**{"uuid": uuid} | ({"user": user} if user is not None else {}))
        existed = row_if_there(store, uuid) is not None
        copied = task_file.copy_to(store, on_progress=on_progress)
    row = store.row(uuid)
    return ImportedTask(
        uuid=uuid,
        file=store.sanitiser.text(file.path.name),
        format=PORTABLE,
        sha256=file.sha256,
        task_key=row.task_key,
        user=row.user,
        status=row.status,
        messages=count_messages(store, uuid),
        already=existed and not copied.appended,
    )


def _import_directory(authorized: AuthorizedStore, path: Path, on_progress: OnProgress) -> Iterator[ImportedTask]:
    """Import every task of a directory of contexts, `tasks.db` included. The directory itself is not changed."""
    authorized.require_admin("import all tasks of a directory")
    if not any((path / name).exists() for name in ("tasks.db", "running", "completed")):
        raise UsageError(
            f"{path} is a directory without tasks.",
            hint="Name a session file, or a directory with running/ and completed/.",
        )
    store = authorized.store
    progress = ProgressCounter(on_progress)
    with tempfile.TemporaryDirectory() as folder, disk_errors(f"{path} cannot be read"):
        copy = Path(folder) / path.absolute().name
        shutil.copytree(path, copy, symlinks=True)
        copy.chmod(0o700)
        with open_store(copy, msgspec.structs.replace(store.options, durability="os")) as source:
            progress.total = source.count(Query())[0]
            for row in source.find():
                waits = row.status in {"pending", "running"}
                row = msgspec.structs.replace(row, status="paused", activity="") if waits else row  # noqa: PLW2901
                existed = row_if_there(store, row.uuid) is not None
                try:
                    copied = TaskCopy(source, store, row, progress, skip_unusable=True).run()
                except Conflict as error:  # it went on in the target
                    log.warning("[uuid:%s] It is not imported. %s", row.uuid[:8], error.message)
                    continue
                finally:
                    progress.add(tasks=1)
                authorized.record_access("import", ["directory"], uuid=row.uuid, file=str(path))
                yield ImportedTask(
                    uuid=row.uuid,
                    file=store.sanitiser.text(path.name),
                    format=DIRECTORY,
                    sha256="",
                    task_key=row.task_key,
                    user=row.user,
                    status=row.status,
                    messages=count_messages(store, row.uuid),
                    already=existed and not copied.appended,
                )


def _check_config(path: Path, metadata: Metadata) -> None:
    """Raise Corrupt if the config is not one that a task can have. A store would use defaults for what is wrong."""
    try:
        TaskConfig.from_foreign_metadata(metadata.config)
    except msgspec.ValidationError as error:
        sentence = f"{path} cannot be imported: the config of its metadata is wrong ({error})."
        raise Corrupt(sentence, where=str(path), hint=HINT) from error


def count_messages(store: Store, uuid: str) -> int:
    """Return the number of messages that can be read."""
    return sum(1 for _ in store.read(uuid, Message))


class _SessionImport(NamedTuple):
    """Imports the sessions of one file."""

    store: Store
    settings: Settings
    file: SessionFile
    format: str
    user: str
    status: FinalStatus
    progress: ProgressCounter

    def run(self, number: int, session: Iterator[Parsed], key: TaskKey | None) -> ImportedTask:
        """Import one session completely, or not at all."""
        file_name = self.store.sanitiser.text(self.file.path.name)
        name = _NOT_IN_NAME.sub("-", file_name.split(".")[0]).strip("-.")[:48] or "session"
        key = key or TaskKey.local(f"{name}-{number}" if number > 1 else name, workspace="imported")
        uuid = str(uuids.uuid5(_NAMESPACE, f"{self.file.sha256}\n{number}\n{self.user}"))
        imported = ImportedTask(
            uuid=uuid,
            file=file_name,
            format=self.format,
            sha256=self.file.sha256,
            task_key=str(key),
            user=self.user,
            status=self.status,
        )
        self.progress.add(tasks=1)
        if self._exists(imported):
            return imported
        opening = list(islice(session, LOOKAHEAD))
        with self.store.lease(uuid, create=self._make_metadata(uuid, key, number, opening), status="paused") as lease:
            try:
                self._fill(lease, chain(opening, session), imported)
            except BaseException:
                lease.close()
                with suppress(NotFound):
                    self.store.delete(uuid)
                raise
        if self.status == "completed":
            with Engine(self.store, self.settings).resume(uuid):
                pass  # leaving the block completes the task, with a summary that a later task can inherit
        return imported

    def _exists(self, imported: ImportedTask) -> bool:
        """Return whether the session was imported before. The remains of an interrupted import are deleted."""
        row = row_if_there(self.store, imported.uuid)
        if row is None:
            return False
        if row.activity == "initializing":
            self.store.delete(row.uuid)
            return False
        imported.already, imported.status, imported.task_key = True, row.status, row.task_key
        imported.messages = count_messages(self.store, row.uuid)
        return True

    def _make_metadata(self, uuid: str, key: TaskKey, number: int, opening: list[Parsed]) -> Metadata:
        model = next((message.model for parsed in opening for message in parsed.messages if message.model), None)
        source = {"file": self.file.path.name, "format": self.format, "sha256": self.file.sha256, "session": number}
        return Metadata(
            uuid=uuid,
            task_key=key,
            created_at=codec.now(),
            config=msgspec.to_builtins(TaskConfig.from_settings(self.settings, model=model)),
            user=self.user,
            format=FORMAT,
            unknown={FIELD: source},
        )

    def _fill(self, lease: Lease, session: Iterator[Parsed], imported: ImportedTask) -> None:
        unanswered: dict[str, Call] = {}
        replies = 0
        for parsed in session:
            append_parsed(lease, parsed)
            imported.messages += len(parsed.messages)
            imported.kept += not parsed.messages
            for message in parsed.messages:
                replies += message.role == "assistant"
                unanswered = unanswered if message.role == "tool" else {call.id: call for call in message.tool_calls}
                unanswered.pop(message.tool_call_id or "", None)
            read = self.file.position - self.progress.size_bytes
            self.progress.add(records=len(parsed.records), size_bytes=read)
        if not imported.messages:
            sentence = f"There is no message in {self.file.path}, read as {self.format}."
            raise UsageError(sentence, hint="`--format` forces another format.")
        for call in unanswered.values():
            fields = {"tool_call_id": call.id, "tool_name": call.name, "is_error": True}
            lease.append(make_message("tool", INTERRUPTED, **fields))
        if lease.last(Event) > RECORD_EVERY:  # so that the view can be read without all events before
            event = Event(id=0, after=lease.last(Message), type="view", data=record(View()), timestamp="")
            lease.append(event)
        lease.update(activity="", last_activity="imported", add={"llm_call_count": replies})
