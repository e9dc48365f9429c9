"""`orihon export`: one task as a file."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from orihon.cli import documents
from orihon.cli.output import say, say_json, say_line
from orihon.cli.progress import Progress, amount
from orihon.errors import UsageError
from orihon.ops.access import AuthorizedStore, open_authorized_store
from orihon.ops.export import FORMATS, export_pieces
from orihon.ops.progress import ProgressCounter
from orihon.ops.task_file import write_task_file
from orihon.settings.load import load
from orihon.settings.schema import Settings
from orihon.stores.files import disk_errors, open_file
from orihon.task.reader import Reader

ENDINGS = {
    "portable": "orihon",
    "openai": "jsonl",
    "markdown": "md",
    "html": "html",
    "original": "original.jsonl",
    documents.NAME: "json",
}


@click.command()
@click.argument("uuid")
@click.option(
    "--format",
    type=click.Choice(["portable", *FORMATS, documents.NAME]),
    default="portable",
    show_default=True,
    help="portable is everything; `original` is the file that the task was imported from.",
)
@click.option("-o", "--output", metavar="FILE", help="Where to; `-` is standard output.  [default: UUID.ENDING]")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--store", help="The store to look in instead of that of the settings.")
@click.option("--json", "as_json", is_flag=True, help='{"uuid", "format", "file", "size_bytes"} when it is done.')
def export(uuid: str, format: str, output: str | None, store: str | None, *, force: bool, as_json: bool) -> None:
    """Write one task to a file: everything in one portable file, or a form that people and programs read.

    The beginning of the uuid is enough. A portable file is read back and compared before it gets its name; `orihon
    import` brings it into any store. What is stored is masked, and so is what is exported.

    \b
    orihon export 0f8fad5b
    orihon export 0f8fad5b --format html -o task.html
    orihon export 0f8fad5b --format markdown -o - | less
    orihon export 0f8fad5b --format openai -o - | jq -r .role
    """
    settings = load()
    with open_authorized_store(settings, store, command="export") as authorized, Progress() as progress:

        def on_progress(counter: ProgressCounter) -> None:
            progress.show(f"{counter.records:,} records, {amount(counter.size_bytes)}")

        reader = Reader(authorized.store, authorized.row(uuid))
        authorized.record_access("export", ["everything"], uuid=reader.uuid, format=format)
        if output == "-":
            _print(authorized, settings, reader, format)
            return
        path = Path(output or f"{reader.uuid}.{ENDINGS[format]}")
        if path.exists() and not force:
            raise UsageError(f"There is a file {path} already.", hint="`--force` replaces it, `-o` names another.")
        notes: list[str] = []
        if format == "portable":
            notes = write_task_file(authorized.store, reader.row, path, on_progress=on_progress).notes
        elif format == documents.NAME:
            documents.write_document(authorized, settings, reader.row, path)
        else:
            _write(path, reader, format)
    done: dict[str, object] = {"uuid": reader.uuid, "format": format, "file": str(path)}
    done |= {"size_bytes": path.stat().st_size} | ({"notes": notes} if notes else {})
    sentence = f"Task {reader.uuid} is in {path}, {amount(path.stat().st_size)}."
    if as_json:
        say_json(done)
    else:
        _tell(notes)
        say_line(sentence)


def _tell(notes: list[str]) -> None:
    """Say what was left out."""
    for sentence in notes:
        say_line(f"note     {sentence}", err=True)


def _print(authorized: AuthorizedStore, settings: Settings, reader: Reader, format: str) -> None:
    """To standard output as it is; a terminal gets only what it can write."""
    shown = sys.stdout.isatty()
    if format == "portable" and shown:
        raise UsageError("A portable file is compressed, and no text for a terminal.", hint="Name a file with -o.")
    if format in FORMATS:
        for piece in export_pieces(reader, format):
            if shown:
                say(piece, nl=False)
            else:
                sys.stdout.write(piece)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task"
        if format == documents.NAME:
            documents.write_document(authorized, settings, reader.row, path)
        else:
            _tell(write_task_file(authorized.store, reader.row, path).notes)
        if shown:
            say_json(path.read_bytes())
            return
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                sys.stdout.buffer.write(block)


def _write(path: Path, reader: Reader, format: str) -> None:
    """The whole file or none: it has its name only when it is complete."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    with disk_errors(f"{path} cannot be written"):
        fd = open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with os.fdopen(fd, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(export_pieces(reader, format))
            fresh.replace(path)
        except BaseException:
            fresh.unlink()
            raise
