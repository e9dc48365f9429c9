"""`orihon audit` and `orihon config`: who accessed what, and which settings apply."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from orihon.cli._command import Session, complete_uuid, store_command
from orihon.cli._format import format_time, parse_from, parse_to
from orihon.cli._output import say_json, say_line
from orihon.settings.load import iter_settings, load_with_origins
from orihon.settings.section import Secret, Section, redact
from orihon.stores.audit import Filter, Look, looks
from orihon.task.config import EXTRACTIVE
from orihon.terminal import collapse

IDLE_THRESHOLD = (
    "context_storage.compression_threshold has no effect: context_storage.summariser is `extractive`, and windows are "
    "folded."
)
AUDIT_FIELDS = '{"timestamp", "user", "admin", "through", "at", "uuid", "query", "read", "denied", …}'


@store_command(json=f"One {AUDIT_FIELDS} per line.")
@click.option("--user", help="Only accesses by this user.")
@click.option(
    "--task",
    "uuid",
    metavar="UUID",
    shell_complete=complete_uuid,
    help="Only accesses to this task. A prefix of the id is enough.",
)
@click.option("--through", metavar="COMMAND", help="Only accesses by this command.")
@click.option("--from", "since", metavar="DATE", callback=parse_from, help="Only accesses from this day on.")
@click.option("--to", "until", metavar="DATE", callback=parse_to, help="Only accesses up to this day.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Accesses to show.")
def audit(session: Session, limit: int, **filters: Any) -> None:
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


@click.command()
@click.option("--file", "path", help="Read this file instead of config.yaml.")
@click.option("--changed", is_flag=True, help="Only settings that differ from the defaults.")
@click.option("--json", "as_json", is_flag=True, help='A list of {"path", "value", "origin"}.')
def config(path: str | None, *, changed: bool, as_json: bool) -> None:
    """Show the effective settings and where each came from. Secrets are hidden.

    \b
    orihon config                    everything
    orihon config --changed          what config.yaml and the environment changed
    orihon config --json | jq        for programs
    """
    settings, origins = load_with_origins(path)
    listed = [
        {"path": setting.path, "value": _to_plain(setting.value), "origin": origins[setting.path]}
        for setting in iter_settings(settings)
        if not changed or origins[setting.path] != "default"
    ]
    if as_json:
        say_json(listed)
        return
    width = max((len(str(item["path"])) for item in listed), default=0)
    for item in listed:
        value = msgspec.json.encode(item["value"]).decode()
        say_line(f"{item['path']:{width}}  {value:24}  {item['origin']}")
    if settings.context_storage.summariser == EXTRACTIVE and settings.window.policy != "plain":
        say_line(f"note     {IDLE_THRESHOLD}", err=True)


def _to_plain(value: object) -> object:
    """Return a value of a setting as plain JSON, without secrets."""
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, Section):
        return {name: _to_plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: _to_plain(item) for name, item in value.items()}
    return str(value) if isinstance(value, Secret) else redact(value)
