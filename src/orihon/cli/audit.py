"""`orihon audit`: who looked at what."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from orihon.cli.options import json_option, store_option
from orihon.cli.output import say_json, say_line
from orihon.cli.people import first_moment, last_moment, moment
from orihon.ops.access import open_authorized_store
from orihon.settings.load import load
from orihon.stores.audit import Filter, Look, looks
from orihon.terminal import collapse


@click.command()
@click.option("--user", help="Only looks of this user.")
@click.option("--task", "uuid", metavar="UUID", help="Only looks at this task; the beginning is enough.")
@click.option("--through", metavar="COMMAND", help="Only looks through this command.")
@click.option("--from", "since", metavar="DATE", callback=first_moment, help="On this day or later.")
@click.option("--to", "until", metavar="DATE", callback=last_moment, help="On this day or earlier.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="The newest so many.")
@store_option
@json_option('One {"timestamp", "user", "admin", "through", "at", "uuid", "query", "read", "denied", …} per line.')
def audit(url: str | None, limit: int, *, as_json: bool, **chosen: Any) -> None:
    """Show who looked at what, when, and through what, the newest last. For administrators only.

    What was refused is there as well: a wrong token, a task of another user, a command for administrators. With --json
    each line is printed as it is stored; docs/access.md describes it.

    \b
    orihon audit
    orihon audit --task 550e8400
    orihon audit --user alice --from 2024-01-01 --to 2024-01-31
    orihon audit --json --limit 100000 | jq -r .user | sort | uniq -c
    """
    with open_authorized_store(load(), url, command="audit") as authorized:
        authorized.require_admin("read the audit")
        found = looks(authorized.audit, Filter(**chosen), limit)
        authorized.record_access("audit", ["audit"])
    for look in found:
        if as_json:
            say_json(look.line)
        else:
            say_line(_line(look))


def _line(look: Look) -> str:
    who = f"{look.user} (admin)" if look.admin else look.user
    query = "" if look.query is None else msgspec.json.encode(look.query).decode()
    more = msgspec.json.encode(look.more).decode() if look.more else ""
    denied = "denied" if look.denied else ""
    what = " ".join(filter(None, (look.at, look.uuid, ", ".join(look.read), query, more, denied)))
    return f"{collapse(moment(look.timestamp))}  {collapse(who)}  {collapse(f'{look.through}: {what}')}"
