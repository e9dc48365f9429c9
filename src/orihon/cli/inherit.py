"""`orihon inherit`: what a new task would take over from an earlier one, and why not from the others."""

from __future__ import annotations

from typing import Any, Literal

import click
import msgspec

from orihon.cli.output import say, say_json, say_line
from orihon.codec import now
from orihon.context.language import language_of
from orihon.inheritance import Handoff, Previous, Search, Skipped, make_handoff, max_block_tokens, search
from orihon.ops.access import AuthorizedStore, open_authorized_store
from orihon.records import Message
from orihon.settings.load import load
from orihon.settings.schema import ContextInheritance, Settings
from orihon.stores.lookup import row_if_there
from orihon.task_key import TaskKey
from orihon.tokens import counter

Language = Literal["ja", "en"]


@click.command()
@click.argument("key", metavar="KEY")
@click.option("--store", "url", help="The store to look into instead of that of the settings.")
@click.option("--user", help="Who would start the task; local tasks are inherited from the same user only.")
@click.option("--dry-run", is_flag=True, help="Only show it. It is all that this command does, with or without.")
@click.option(
    "--context-length", type=click.IntRange(1), help="The window of the model instead of that of the settings."
)
@click.option("--json", "as_json", is_flag=True, help="One object; `block` is null when nothing would be inherited.")
def inherit(
    key: str, url: str | None, user: str | None, *, dry_run: bool, context_length: int | None, as_json: bool
) -> None:
    """Show what a new task with this key would inherit, and why other runs are skipped. Nothing is changed.

    \b
    orihon inherit github/acme/shop/issue/27
    orihon inherit github/acme/shop/issue/27 --context-length 32768
    orihon inherit local/notes --user alice --store sqlite:///contexts.db
    orihon inherit github/acme/shop/issue/27 --json | jq -r '.skipped[] | .uuid + " " + .reason'
    """
    del dry_run  # nothing else is ever done
    settings = load()
    length = context_length or settings.llm.chosen.context_length
    task_key = TaskKey.parse(key)
    with open_authorized_store(settings, url, command="inherit") as authorized:
        inheriting, user = _allowed(authorized, settings, user)
        found = search(authorized.store, task_key, settings=inheriting, user=user, now=now())
        found = msgspec.structs.replace(
            found, skipped=tuple(one for one in found.skipped if _may_know(authorized, one))
        )
        authorized.record_access("inheritance", ["summary"], key=str(task_key))
        made = make_handoff(
            authorized.store,
            found,
            settings=inheriting,
            counter=counter(settings.window.tokens),
            context_length=length,
            language=_language(settings, found.previous),
        )
    if as_json:
        say_json(_object(task_key, found, made, max_block_tokens(settings.context_inheritance, length)))
    else:
        _print(task_key, found, made, settings)
        if not authorized.principal.admin and settings.context_inheritance.across_users:
            say_line("A new task may also go on from a run of another user, which is not shown here.")


def _allowed(
    authorized: AuthorizedStore, settings: Settings, user: str | None
) -> tuple[ContextInheritance, str | None]:
    """A user is shown only their own runs, although a new task may go on from those of others."""
    if authorized.principal.admin:
        return settings.context_inheritance, user
    return msgspec.structs.replace(settings.context_inheritance, across_users=False), authorized.principal.user


def _may_know(authorized: AuthorizedStore, skipped: Skipped) -> bool:
    return row_if_there(authorized.store, skipped.uuid, user=authorized.principal.scope) is not None


def _language(settings: Settings, previous: Previous | None) -> Language:
    chosen = settings.window.language
    if chosen != "auto" or previous is None:
        return "en" if chosen == "auto" else chosen
    said = Message(seq=1, role="assistant", content=previous.summary, timestamp="", tokens=0)
    return "ja" if language_of([said]) == "ja" else "en"


def _object(key: TaskKey, found: Search, made: Handoff | None, max_tokens: int) -> dict[str, Any]:
    return {
        "task_key": str(key),
        "source": made and made.uuid,
        "completed_at": made and made.completed_at,
        "tokens": made.tokens if made else 0,
        "max_tokens": max_tokens,
        "left_out": made.left_out if made else (),
        "block": made and made.text,
        "problem": found.problem,
        "skipped": found.skipped,
    }


def _print(key: TaskKey, found: Search, made: Handoff | None, settings: Settings) -> None:
    if made is not None:
        say_line(f"A new task with {key} would go on from {made.uuid}, which ended {made.completed_at[:16]}Z.")
        say(f"{made.tokens:,} of {made.max_tokens:,} tokens{_without(made.left_out)}:\n\n{made.text}")
    else:
        say_line(f"A new task with {key} would inherit nothing: {_why(found, settings)}")
    if found.skipped:
        say("\nSkipped:")
        for one in found.skipped:
            say_line(_line(one))


def _without(left_out: tuple[str, ...]) -> str:
    return f", without {', '.join(left_out)}" if left_out else ""


def _why(found: Search, settings: Settings) -> str:
    if not settings.context_inheritance.enabled:
        return "context_inheritance.enabled is off."
    if found.problem:
        return found.problem
    if found.previous is not None:
        return f"nothing of run {found.previous.short} fits into the tokens that are allowed."
    if found.skipped:
        return "none of its earlier runs can be used."
    return "it has no earlier run."


def _line(one: Skipped) -> str:
    return f"{one.uuid[:8]}  {one.status:9}  {(one.completed_at or '')[:16]:16}  {one.reason}"
