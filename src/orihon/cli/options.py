"""Options that several commands share, so that they have one name and one meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from orihon.cli.people import first_moment, last_moment
from orihon.errors import OrihonError
from orihon.records import Status
from orihon.task_key import TaskKey

COMPLETED = 30  # ids that a shell is given

F = TypeVar("F", bound=Callable[..., Any])

store_option = click.option("--store", "url", metavar="URL", help="The store instead of that of the settings.")
language_option = click.option(
    "--lang", type=click.Choice(["ja", "en"]), help="Language of durations instead of that of LC_ALL, LANG."
)


def uuid_argument(command: F) -> F:
    """One task; a shell can complete its id."""
    return click.argument("uuid", metavar="UUID", shell_complete=_uuids)(command)


def _uuids(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The newest tasks whose ids begin so."""
    from orihon.ops.access import open_authorized_store  # noqa: PLC0415
    from orihon.settings.load import load  # noqa: PLC0415 - only a shell that completes needs it
    from orihon.stores.base import Query  # noqa: PLC0415
    from orihon.stores.lookup import describe_query  # noqa: PLC0415

    try:
        with open_authorized_store(load(), ctx.params.get("url"), command="completion") as authorized:
            query = Query(uuid=incomplete or None, limit=COMPLETED)
            authorized.record_access("tasks", ["rows"], query=describe_query(query))
            return [row.uuid for row in authorized.rows(query)]
    except OrihonError:  # no store, no ids: a Tab is not the place for a message
        return []


def json_option(what: str) -> Callable[[F], F]:
    """`--json`, and what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=what)


def filter_options(command: F) -> F:
    """Which tasks."""
    for option in reversed(
        (
            click.option("--user", help="Only tasks of this user."),
            click.option(
                "--status", multiple=True, type=click.Choice(get_args(Status)), help="Only these. Repeatable."
            ),
            click.option(
                "--from", "created_from", metavar="DATE", callback=first_moment, help="Made on this day or later."
            ),
            click.option(
                "--to", "created_to", metavar="DATE", callback=last_moment, help="Made on this day or earlier."
            ),
        )
    ):
        command = option(command)
    return command


def canonical(key: str | None) -> str | None:
    """A task key as it is stored."""
    return None if key is None else str(TaskKey.parse(key))
