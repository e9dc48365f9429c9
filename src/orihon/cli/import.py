# ruff: noqa: N999 - a command stands in the module of its name
"""`orihon import`: tasks out of files."""

from __future__ import annotations

from pathlib import Path

import click

from orihon.cli import documents
from orihon.cli.output import say_error, say_json, say_line
from orihon.cli.progress import Progress
from orihon.errors import OrihonError, UsageError
from orihon.ops.access import AuthorizedStore, open_authorized_store
from orihon.ops.import_task import FORMATS, FinalStatus, ImportedTask, import_file
from orihon.ops.progress import ProgressCounter, format_count
from orihon.settings.load import load
from orihon.task_key import TaskKey

KNOWN = (*FORMATS, documents.NAME)


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", type=click.Choice(KNOWN), help="Do not look at the content to know what it is.")
@click.option("--key", metavar="KEY", help="What it works on, such as github/acme/shop/issue/27; for one session only.")
@click.option("--user", help="Whose it is, for administrators.  [default: yours; in a portable file, what it says]")
@click.option(
    "--status",
    type=click.Choice(["paused", "completed"]),
    default="paused",
    show_default=True,
    help="Of a session: to go on with it, or to have it inherited.",
)
@click.option("--store", help="The store to import to instead of that of the settings.")
@click.option(
    "--json", "as_json", is_flag=True, help='One {"uuid", "file", "format", "messages", "already", …} per line.'
)
@click.pass_context
def command(
    context: click.Context,
    files: tuple[str, ...],
    *,
    format: str | None,
    key: str | None,
    user: str | None,
    status: FinalStatus,
    store: str | None,
    as_json: bool,
) -> None:
    """Bring tasks in: portable files, and the sessions of Claude Code, Codex, SWE-agent, mini-swe-agent, OpenHands and
    whatever writes OpenAI's messages.

    Everything in a file is kept, masked like all that is stored; docs/import.md says what becomes of what. The same
    file brought twice is one task. What cannot be understood is refused with a reason and leaves nothing behind; the
    other files come in all the same.

    \b
    orihon import task.orihon
    orihon import ~/.claude/projects/*/*.jsonl
    orihon import run.traj --key github/acme/shop/issue/27 --status completed
    orihon import chat.jsonl --format openai --json | jq -r .uuid
    """
    chosen = TaskKey.parse(key) if key else None
    if chosen is not None and len(files) > 1:
        raise UsageError("One key cannot stand for several files.", hint="Import them one by one.")
    settings = load()
    failed = 0
    with open_authorized_store(settings, store, command="import", create=True) as authorized, Progress() as progress:
        _refuse_if_gone(authorized)

        def on_progress(counter: ProgressCounter) -> None:
            progress.show(f"{counter.tasks:,} tasks, {counter.records:,} records")

        for file in files:
            given = {"format": format, "key": chosen, "user": user, "status": status}
            try:
                if format == documents.NAME or (format is None and documents.is_document(Path(file))):
                    brought = [documents.read_document(authorized, settings, Path(file), user)]
                else:
                    brought = import_file(authorized, settings, Path(file), **given, on_progress=on_progress)  # type: ignore[arg-type]
            except OrihonError as error:
                if len(files) == 1:
                    raise
                failed = error.exit_code
                say_error(error.message, error.hint)
                continue
            finally:
                progress.clear()
            for one in brought:
                if as_json:
                    say_json(one)
                else:
                    say_line(_line(one))
    context.exit(failed)


def _refuse_if_gone(authorized: AuthorizedStore) -> None:
    if authorized.store.url == "memory:":
        raise UsageError("A task in memory ends with this command.", hint="Import to a directory or to sqlite:///FILE.")


def _line(one: ImportedTask) -> str:
    what = (
        "was there already" if one.already else f"{format_count(one.messages, 'message')}, {one.kept:,} other records"
    )
    return f"{one.uuid}  {one.status:9}  {one.task_key}  {what}  ({one.file}, {one.format})"


globals()["import"] = command  # the word cannot be written as a name
