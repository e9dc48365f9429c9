"""The scaffolding of the commands: shared options, and a decorator that opens the store.

    @store_command(json='{"uuid", "kept"}')
    @click.argument("uuid")
    def keep(session: StoreSession, uuid: str) -> None:
        row = keep_task(session.authorized, uuid, kept=True)
        session.emit({"uuid": row.uuid, "kept": row.kept}, f"{row.uuid} is kept.")

The decorator adds `--store` and `--json`, loads the settings, opens the store as the caller may see it, and exits with
the number that the function returns. `orihon.cli` handles errors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from orihon.cli._format import parse_from, parse_to
from orihon.cli._output import Progress, say_json, say_line
from orihon.errors import OrihonError, UsageError
from orihon.ops.access import AuthorizedStore, open_authorized_store
from orihon.records import Status
from orihon.settings.load import load
from orihon.settings.schema import Settings
from orihon.stores.base import Query
from orihon.stores.lookup import describe_query
from orihon.task_key import TaskKey

MAX_COMPLETIONS = 30

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

language_option = click.option(
    "--lang", type=click.Choice(["ja", "en"]), help="Language of durations. Default: from LC_ALL and LANG."
)


class StoreSession:
    """The open store of one command, its settings and its output."""

    def __init__(
        self, settings: Settings, authorized: AuthorizedStore, progress: Progress, *, as_json: bool = False
    ) -> None:
        self.settings, self.authorized, self.progress, self.as_json = settings, authorized, progress, as_json

    def emit(self, value: T, text: str | Callable[[T], None]) -> None:
        """Print a value as JSON, or the text that describes it. A function prints the text itself."""
        self.progress.clear()
        emit(value, text, as_json=self.as_json)


def emit(value: T, text: str | Callable[[T], None], *, as_json: bool) -> None:
    """Print a value as JSON, or the text that describes it."""
    if as_json:
        say_json(value)
    elif isinstance(text, str):
        say_line(text)
    else:
        text(value)


def store_command(
    name: str | None = None, *, json: str, create: bool = False
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Turn a function of a StoreSession into a command. With `create`, a missing store is created."""

    def decorate(function: Callable[..., int | None]) -> click.Command:
        command_name = name or function.__name__

        @functools.wraps(function)
        def invoke(*, url: str | None, as_json: bool, **arguments: Any) -> None:
            settings = load()
            if create and (url or settings.store_url) == "memory:":
                raise UsageError(
                    "A store in memory ends with this command.",
                    hint="Use a directory, sqlite:///FILE or postgresql://HOST/DATABASE.",
                )
            with (
                open_authorized_store(settings, url, command=command_name, create=create) as authorized,
                Progress() as progress,
            ):
                code = function(StoreSession(settings, authorized, progress, as_json=as_json), **arguments)
            if code:
                click.get_current_context().exit(code)

        command = click.command(command_name)(invoke)
        command.params += [
            click.Option(["--store", "url"], metavar="URL", help="Use this store instead of that of the settings."),
            click.Option(["--json", "as_json"], is_flag=True, help=json),
        ]
        return command

    return decorate


def store_option(name: str = "url") -> Callable[[F], F]:
    """Return the option `--store` for a command that does not open the store at once."""
    return click.option("--store", name, metavar="URL", help="Use this store instead of that of the settings.")


def json_option(output: str) -> Callable[[F], F]:
    """Return the option `--json`. `output` describes what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=output)


def uuid_argument(command: F) -> F:
    """Add an argument for one task, with completion in the shell."""
    return click.argument("uuid", metavar="UUID", shell_complete=_complete_uuid)(command)


def _complete_uuid(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of the newest tasks with this prefix."""
    try:
        with open_authorized_store(load(), ctx.params.get("url"), command="completion") as authorized:
            query = Query(uuid=incomplete or None, limit=MAX_COMPLETIONS)
            authorized.record_access("tasks", ["rows"], query=describe_query(query))
            return [row.uuid for row in authorized.rows(query)]
    except OrihonError:  # without a store there are no ids, and completion must not print errors
        return []


def filter_options(command: F) -> F:
    """Add the options that select tasks. Their names are fields of `Query`."""
    for option in reversed(
        (
            click.option("--user", help="Only tasks of this user."),
            click.option(
                "--status",
                multiple=True,
                type=click.Choice(get_args(Status)),
                help="Only tasks with this status. Repeatable.",
            ),
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
