"""`orihon audit`: show who accessed what."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from orihon.cli._command import StoreSession, store_command
from orihon.cli._format import format_time, parse_from, parse_to
from orihon.stores.audit import Filter, Look, looks
from orihon.terminal import collapse


@store_command(
    json='One {"timestamp", "user", "admin", "through", "at", "uuid", "query", "read", "denied", …} per line.'
)
@click.option("--user", help="Only accesses by this user.")
@click.option("--task", "uuid", metavar="UUID", help="Only accesses to this task. A prefix of the id is enough.")
@click.option("--through", metavar="COMMAND", help="Only accesses by this command.")
@click.option("--from", "since", metavar="DATE", callback=parse_from, help="Only accesses from this day on.")
@click.option("--to", "until", metavar="DATE", callback=parse_to, help="Only accesses up to this day.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Accesses to show.")
def audit(session: StoreSession, limit: int, **filters: Any) -> None:
    """Show who accessed what, when and with which command, newest last. For administrators only.

    Refused attempts are included: a wrong token, a task of another user, a command for administrators. With --json
    each line is printed as it is stored; docs/access.md describes it.

    \b
    orihon audit
    orihon audit --task 550e8400
    orihon audit --user alice --from 2024-01-01 --to 2024-01-31
    orihon audit --json --limit 100000 | jq -r .user | sort | uniq -c
    """
    session.authorized.require_admin("read the audit")
    accesses = looks(session.authorized.audit, Filter(**filters), limit)
    session.authorized.record_access("audit", ["audit"])
    for access in accesses:
        session.emit(access.line, _format_access(access))


def _format_access(access: Look) -> str:
    user = f"{access.user} (admin)" if access.admin else access.user
    query = "" if access.query is None else msgspec.json.encode(access.query).decode()
    more = msgspec.json.encode(access.more).decode() if access.more else ""
    denied = "denied" if access.denied else ""
    details = " ".join(filter(None, (access.at, access.uuid, ", ".join(access.read), query, more, denied)))
    line = collapse(f"{access.through}: {details}")
    return f"{collapse(format_time(access.timestamp))}  {collapse(user)}  {line}"
