"""The document of a conversation for `export` and `import`: here, because conversations and the care of a store do not
know each other.

A document is written from a copy of the task, so that the task itself is neither taken nor changed, whatever its state.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from orihon.chat import document, registry
from orihon.engine import Engine
from orihon.ops.access import AuthorizedStore
from orihon.ops.copy import TaskCopy
from orihon.ops.formats.session_file import SessionFile
from orihon.ops.import_task import ImportedTask, count_messages
from orihon.records import TaskRow
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.files import disk_errors

NAME = "conversation"

_OPENING = b'{"format":"orihon-conversation"'


def write_document(authorized: AuthorizedStore, settings: Settings, row: TaskRow, path: Path) -> None:
    """The conversation of a task, as one JSON document."""
    with tempfile.TemporaryDirectory() as folder:
        options = msgspec.structs.replace(authorized.store.options, durability="os")
        with open_store(f"sqlite:///{folder}/copy.db", options) as copy:
            paused = msgspec.structs.replace(row, status="paused", activity="")
            TaskCopy(authorized.store, copy, paused).run()
            with registry.resume(Engine(copy, settings), row.uuid) as conversation:
                document.write(conversation, path)


def is_document(path: Path) -> bool:
    """Whether a file begins as `export` and `/save` begin one."""
    if not path.is_file():
        return False  # whoever reads it says so
    with disk_errors(f"{path} cannot be read"), path.open("rb") as file:
        return file.read(len(_OPENING)) == _OPENING


def read_document(authorized: AuthorizedStore, settings: Settings, path: Path, user: str | None) -> ImportedTask:
    """A new conversation in this directory that goes on where the document ends; read twice, it is two."""
    if user not in {None, authorized.principal.user}:
        authorized.require_admin("import a conversation for somebody else")
    sha256 = SessionFile(path).sha256
    source = {"file": path.name, "format": NAME, "sha256": sha256}
    engine = Engine(authorized.store, settings, user=authorized.principal.scope)
    with document.read(engine, path, Path.cwd(), user=user or authorized.principal.user) as conversation:
        conversation.task.writer.event("note", imported=source)
    row = authorized.store.row(conversation.task.uuid)
    authorized.record_access("import", ["file"], uuid=row.uuid, **source)
    return ImportedTask(
        uuid=row.uuid,
        file=path.name,
        format=NAME,
        sha256=sha256,
        task_key=row.task_key,
        user=row.user,
        status=row.status,
        messages=count_messages(authorized.store, row.uuid),
    )
