"""The scaffolding of the commands: shared options and arguments, and a decorator that opens the store.

    @store_command(json='{"uuid", "kept"}')
    @uuid_argument
    def keep(session: Session, uuid: str) -> None:
        row = keep_task(session.authorized, uuid, kept=True)
        session.emit({"uuid": row.uuid, "kept": row.kept}, f"{row.uuid} is kept.")

The decorator adds `--store` and `--json`, loads the settings, and exits with the number that the function returns. The
store, or an engine over it, is opened when the function first uses it. `orihon.cli` handles errors.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from orihon.cli._format import parse_from, parse_to
from orihon.cli._output import log_to_file, say_json, say_line
from orihon.errors import OrihonError, UsageError
from orihon.ops.access import AccessGate, AuthorizedStore, open_authorized_store
from orihon.records import Status
from orihon.settings.load import load
from orihon.stores.base import Query
from orihon.stores.lookup import describe_query
from orihon.task_key import TaskKey

if TYPE_CHECKING:
    from orihon.cli._progress import Progress
    from orihon.engine import Engine
    from orihon.ops.progress import OnProgress

MAX_COMPLETIONS = 30

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

language_option = click.option(
    "--lang", type=click.Choice(["ja", "en"]), help="Language of durations. Default: from LC_ALL and LANG."
)


class Session:
    """One command: its settings, its caller, its store and its output."""

    def __init__(self, command: str, store: str | None, stack: ExitStack, *, as_json: bool, create: bool) -> None:
        self.settings = load()
        if self.settings.log_file:
            stack.enter_context(log_to_file(Path(self.settings.log_file).expanduser()))
        self.command, self.store, self.as_json = command, store, as_json
        self.url = store or self.settings.store_url
        self._stack, self._creates = stack, create

    @cached_property
    def gate(self) -> AccessGate:
        """The caller, for a command that does not open the store or opens it by other means."""
        return AccessGate(self.settings, self.url, command=self.command)

    @cached_property
    def authorized(self) -> AuthorizedStore:
        """The store as the caller may see it."""
        if self._creates:
            refuse_memory(self.url)
        opened = open_authorized_store(self.settings, self.url, command=self.command, create=self._creates)
        return self._stack.enter_context(opened)

    @cached_property
    def engine(self) -> Engine:
        """An engine over the store, which is created if it is missing. It shows the caller's tasks only."""
        return self._stack.enter_context(self.gate.open_engine(self._open_hooks()))

    def _open_hooks(self) -> list[Any]:
        """Return the hooks of tasks that run in this process."""
        if not self.settings.telemetry.enabled:
            return []
        from orihon.telemetry import open_telemetry  # noqa: PLC0415 - an extra

        return [open_telemetry()]

    @cached_property
    def progress(self) -> Progress:
        """What is shown while the command works."""
        from orihon.cli._progress import Progress  # noqa: PLC0415 - only at a terminal

        return self._stack.enter_context(Progress())

    def show_progress(self, what: str) -> OnProgress:
        """Return a callback that shows how far an operation is, at a terminal."""
        return self.progress.show(what) if sys.stderr.isatty() else None

    def emit(self, value: T, text: str | Callable[[T], None]) -> None:
        """Print a value as JSON, or the text that describes it. A function prints the text itself."""
        self.clear()
        if self.as_json:
            say_json(value)
        elif isinstance(text, str):
            say_line(text)
        else:
            text(value)

    def clear(self) -> None:
        """Remove the progress before other output."""
        if "progress" in self.__dict__:
            self.progress.clear()


def store_command(
    name: str | None = None, *, json: str = "", create: bool = False, store_option: bool = True
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Turn a function of a Session into a command. With `create`, a missing store is created."""

    def decorate(function: Callable[..., int | None]) -> click.Command:
        command_name = name or function.__name__

        @functools.wraps(function)
        def invoke(*, as_json: bool = False, store: str | None = None, **arguments: Any) -> None:
            with ExitStack() as stack:
                code = function(Session(command_name, store, stack, as_json=as_json, create=create), **arguments)
            if code:
                click.get_current_context().exit(code)

        command = click.command(command_name)(invoke)
        if store_option:
            store = "Use this store instead of that of the settings."
            command.params.append(click.Option(["--store"], metavar="URL", help=store))
        if json:
            command.params.append(click.Option(["--json", "as_json"], is_flag=True, help=json))
        return command

    return decorate


def refuse_memory(url: str) -> None:
    """Raise UsageError for a store that ends with this process."""
    if url.startswith("memory:"):
        raise UsageError(
            "A store in memory ends with this command.",
            hint="Use a directory, sqlite:///FILE or postgresql://HOST/DATABASE.",
        )


# arguments and options for tasks


def complete_uuid(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of the newest tasks with this prefix, for the completion in a shell."""
    try:
        with open_authorized_store(load(), ctx.params.get("store"), command="completion") as authorized:
            query = Query(uuid=incomplete or None, limit=MAX_COMPLETIONS)
            authorized.record_access("tasks", ["rows"], query=describe_query(query))
            return [row.uuid for row in authorized.rows(query)]
    except OrihonError:  # without a store there are no ids, and completion must not print errors
        return []


uuid_argument = click.argument("uuid", metavar="UUID", shell_complete=complete_uuid)
uuids_argument = click.argument("uuids", metavar="UUID...", nargs=-1, required=True, shell_complete=complete_uuid)
optional_uuids_argument = click.argument("uuids", metavar="[UUID]...", nargs=-1, shell_complete=complete_uuid)


def filter_options(command: F) -> F:
    """Add the options that select tasks. Their names are fields of `Query`."""
    statuses = click.Choice(get_args(Status))
    for option in reversed(
        (
            click.option("--user", help="Only tasks of this user."),
            click.option("--status", multiple=True, type=statuses, help="Only tasks with this status. Repeatable."),
            click.option(
                "--from", "created_from", metavar="DATE", callback=parse_from, help="Only tasks from this day on."
            ),
            click.option("--to", "created_to", metavar="DATE", callback=parse_to, help="Only tasks up to this day."),
            click.option(
                "--key",
                metavar="KEY",
                callback=lambda _, __, key: None if key is None else str(TaskKey.parse(key)),
                help="Only tasks with this key, such as github/acme/shop/issue/27.",
            ),
        )
    ):
        command = option(command)
    return command
