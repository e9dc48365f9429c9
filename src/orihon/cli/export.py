"""`orihon export` and `orihon import`: tasks to files and back.

The JSON document of a conversation is written and read here, because `orihon.ops` does not know conversations.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from orihon.chat import document, registry
from orihon.cli._command import Session, store_command, uuid_argument
from orihon.cli._format import format_size
from orihon.cli._output import say, say_error, say_json, say_notes
from orihon.engine import Engine
from orihon.errors import OrihonError, UsageError
from orihon.ops.copy import TaskCopy
from orihon.ops.export import FORMATS
from orihon.ops.formats import SESSIONS
from orihon.ops.formats.session_file import SessionFile
from orihon.ops.import_task import PORTABLE, FinalStatus, ImportedTask, count_messages, import_file
from orihon.ops.progress import format_count
from orihon.ops.task_file import write_task_file
from orihon.records import TaskRow
from orihon.stores import open_store
from orihon.stores.files import disk_errors, open_file
from orihon.task.reader import Reader
from orihon.task_key import TaskKey
from orihon.telemetry.spans import render_otlp

EXPORT_FORMATS = {**FORMATS, "otlp": render_otlp}
CONVERSATION = "conversation"
CONVERSATION_START = b'{"format":"orihon-conversation"'
BLOCK_BYTES = 1 << 20
SUFFIXES = {
    "portable": "orihon",
    "openai": "jsonl",
    "markdown": "md",
    "html": "html",
    "otlp": "otlp.json",
    "original": "original.jsonl",
    CONVERSATION: "json",
}


@store_command(json='{"uuid", "format", "file", "size_bytes"} at the end.')
@uuid_argument
@click.option(
    "--format",
    type=click.Choice(["portable", *EXPORT_FORMATS, CONVERSATION]),
    default="portable",
    show_default=True,
    help="`portable` holds everything; `original` is the file that the task was imported from.",
)
@click.option("-o", "--output", metavar="FILE", help="Output file; `-` is standard output.  [default: UUID.SUFFIX]")
@click.option("--force", is_flag=True, help="Replace an existing file.")
def export(session: Session, uuid: str, format: str, output: str | None, *, force: bool) -> None:
    """Write one task to a file: everything in one portable file, or a format that people and programs read.

    A prefix of the id is enough. A portable file is read back and compared before it gets its name; `orihon import`
    imports it into any store. Stored texts are masked, and so are exported ones.

    \b
    orihon export 0f8fad5b
    orihon export 0f8fad5b --format html -o task.html
    orihon export 0f8fad5b --format markdown -o - | less
    orihon export 0f8fad5b --format openai -o - | jq -r .role
    orihon export 0f8fad5b --format otlp -o - | curl -d @- -H Content-Type:application/json localhost:4318/v1/traces
    """
    reader = Reader(session.authorized.store, session.authorized.row(uuid))
    session.authorized.record_access("export", ["everything"], uuid=reader.uuid, format=format)
    if output == "-":
        _print_export(session, reader, format)
        return
    path = Path(output or f"{reader.uuid}.{SUFFIXES[format]}")
    if path.exists() and not force:
        raise UsageError(
            f"The file {path} already exists.", hint="Replace it with `--force`, or name another with `-o`."
        )
    notes: list[str] = []
    if format in EXPORT_FORMATS:
        _write_text(path, reader, format)
    else:
        notes = _write_file(session, reader.row, format, path)
    size_bytes = path.stat().st_size
    result: dict[str, object] = {"uuid": reader.uuid, "format": format, "file": str(path), "size_bytes": size_bytes}
    if not session.as_json:
        session.clear()
        say_notes(notes)
    session.emit(
        result | ({"notes": notes} if notes else {}), f"Task {reader.uuid} is in {path}, {format_size(size_bytes)}."
    )


def _export_pieces(reader: Reader, format: str) -> Iterator[str]:
    """Yield the task in a format, masked: an older version may have stored text without."""
    return map(reader.store.sanitiser.text, EXPORT_FORMATS[format](reader))


def _print_export(session: Session, reader: Reader, format: str) -> None:
    """Write to standard output: unchanged, or without control characters if it is a terminal."""
    is_terminal = sys.stdout.isatty()
    if format in EXPORT_FORMATS:
        for piece in _export_pieces(reader, format):
            if is_terminal:
                say(piece, nl=False)
            else:
                sys.stdout.write(piece)
        return
    if format == "portable" and is_terminal:
        raise UsageError(
            "A portable file is compressed and cannot be shown on a terminal.", hint="Name a file with -o."
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task"
        say_notes(_write_file(session, reader.row, format, path))
        session.clear()
        if is_terminal:
            say_json(path.read_bytes())
            return
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                sys.stdout.buffer.write(block)


def _write_file(session: Session, row: TaskRow, format: str, path: Path) -> list[str]:
    """Write a portable file or the document of a conversation. Return notes on what was left out."""
    if format == CONVERSATION:
        _write_conversation(session, row, path)
        return []
    on_progress = session.show_progress("exporting")
    return write_task_file(session.authorized.store, row, path, on_progress=on_progress).notes


def _write_text(path: Path, reader: Reader, format: str) -> None:
    """Write a text format. The file gets its name only when it is complete."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    with disk_errors(f"{path} cannot be written"):
        fd = open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with os.fdopen(fd, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(_export_pieces(reader, format))
            fresh.replace(path)
        except BaseException:
            fresh.unlink()
            raise


def _write_conversation(session: Session, row: TaskRow, path: Path) -> None:
    """Write the document from a copy of the task. The task is neither leased nor changed."""
    store = session.authorized.store
    with tempfile.TemporaryDirectory() as folder:
        options = msgspec.structs.replace(store.options, durability="os")
        with open_store(f"sqlite:///{folder}/copy.db", options) as copy:
            TaskCopy(store, copy, msgspec.structs.replace(row, status="paused", activity="")).run()
            with registry.resume(Engine(copy, session.settings), row.uuid) as conversation:
                document.write(conversation, path)


@store_command("import", json='One {"uuid", "file", "format", "messages", "already", …} per line.', create=True)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", type=click.Choice((PORTABLE, *SESSIONS, CONVERSATION)), help="Default: detected.")
@click.option("--key", metavar="KEY", help="Key of the task, such as github/acme/shop/issue/27; for one file only.")
@click.option("--user", help="Owner, for administrators.  [default: you; for a portable file, its owner]")
@click.option(
    "--status",
    type=click.Choice(["paused", "completed"]),
    default="paused",
    show_default=True,
    help="Status of a session: `paused` to continue it, `completed` to inherit from it.",
)
def import_(
    session: Session,
    files: tuple[str, ...],
    *,
    format: str | None,
    key: str | None,
    user: str | None,
    status: FinalStatus,
) -> int:
    """Import tasks: portable files, directories of contexts, and the sessions of Claude Code, Codex, SWE-agent,
    mini-swe-agent, OpenHands and programs that write OpenAI's messages.

    Everything in a file is kept and masked; docs/import.md describes the conversion. Importing a file twice creates
    one task. A file that cannot be read is refused with a reason and leaves nothing behind; the other files are
    imported.

    \b
    orihon import task.orihon
    orihon import old/logs/contexts
    orihon import ~/.claude/projects/*/*.jsonl
    orihon import run.traj --key github/acme/shop/issue/27 --status completed
    orihon import chat.jsonl --format openai --json | jq -r .uuid
    """
    task_key = TaskKey.parse(key) if key else None
    if task_key is not None and len(files) > 1:
        raise UsageError("One key cannot stand for several files.", hint="Import them one by one.")
    exit_code = 0
    options = {"format": format, "key": task_key, "user": user, "status": status}
    for path in map(Path, files):
        try:
            tasks = _import(session, path, **options)
        except OrihonError as error:
            if len(files) == 1:
                raise
            exit_code = error.exit_code
            session.clear()
            say_error(error.message, error.hint)
            continue
        for task in tasks:
            session.emit(task, _format_imported(task))
    return exit_code


def _import(session: Session, path: Path, **options: Any) -> list[ImportedTask]:
    if options["format"] == CONVERSATION or (options["format"] is None and _is_conversation(path)):
        return [_read_conversation(session, path, options["user"])]
    on_progress = session.show_progress("importing")
    return import_file(session.authorized, session.settings, path, **options, on_progress=on_progress)


def _format_imported(task: ImportedTask) -> str:
    if task.already:
        result = "was there already"
    else:
        result = f"{format_count(task.messages, 'message')}, {task.kept:,} other records"
    return f"{task.uuid}  {task.status:9}  {task.task_key}  {result}  ({task.file}, {task.format})"


def _is_conversation(path: Path) -> bool:
    """Return whether a file begins like a document that `export` or `/save` wrote."""
    if not path.is_file():
        return False  # reading it raises the error
    with disk_errors(f"{path} cannot be read"), path.open("rb") as file:
        return file.read(len(CONVERSATION_START)) == CONVERSATION_START


def _read_conversation(session: Session, path: Path, user: str | None) -> ImportedTask:
    """Create a conversation in this directory that continues the document. Every import creates a new one."""
    authorized = session.authorized
    if user not in {None, authorized.principal.user}:
        authorized.require_admin("import a conversation for another user")
    sha256 = SessionFile(path).sha256
    source = {"file": path.name, "format": CONVERSATION, "sha256": sha256}
    engine = Engine(authorized.store, session.settings, user=authorized.principal.scope)
    with document.read(engine, path, Path.cwd(), user=user or authorized.principal.user) as conversation:
        conversation.task.writer.event("note", imported=source)
    row = authorized.store.row(conversation.task.uuid)
    authorized.record_access("import", ["file"], uuid=row.uuid, **source)
    return ImportedTask(
        uuid=row.uuid,
        file=path.name,
        format=CONVERSATION,
        sha256=sha256,
        task_key=row.task_key,
        user=row.user,
        status=row.status,
        messages=count_messages(authorized.store, row.uuid),
    )
