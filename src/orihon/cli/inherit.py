"""`orihon inherit`: show what a new task would inherit, and why other runs are skipped."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from orihon.cli._command import StoreSession, store_command
from orihon.cli._output import say, say_json, say_line
from orihon.codec import now
from orihon.inheritance import Handoff, Search, make_handoff, max_block_tokens, search
from orihon.settings.schema import ContextInheritance, Settings
from orihon.stores.lookup import row_if_there
from orihon.task_key import TaskKey
from orihon.tokens import counter


@store_command(json="One object; `block` is null if nothing would be inherited.")
@click.argument("key", metavar="KEY")
@click.option("--user", help="The user who would start the task; local tasks inherit from the same user only.")
@click.option("--dry-run", is_flag=True, help="Has no effect: this command never changes anything.")
@click.option("--context-length", type=click.IntRange(1), help="Context length of the model, instead of the settings.")
def inherit(session: StoreSession, key: str, user: str | None, *, dry_run: bool, context_length: int | None) -> None:
    """Show what a new task with this key would inherit, and why other runs are skipped. Nothing is changed.

    \b
    orihon inherit github/acme/shop/issue/27
    orihon inherit github/acme/shop/issue/27 --context-length 32768
    orihon inherit local/notes --user alice --store sqlite:///contexts.db
    orihon inherit github/acme/shop/issue/27 --json | jq -r '.skipped[] | .uuid + " " + .reason'
    """
    del dry_run
    settings, authorized = session.settings, session.authorized
    length = context_length or settings.llm.chosen.context_length
    task_key = TaskKey.parse(key)
    visible, user = _restrict_to_visible(session, user)
    result = search(authorized.store, task_key, settings=visible, user=user, now=now())
    scope = authorized.principal.scope
    known = (run for run in result.skipped if row_if_there(authorized.store, run.uuid, user=scope) is not None)
    result = msgspec.structs.replace(result, skipped=tuple(known))
    authorized.record_access("inheritance", ["summary"], key=str(task_key))
    handoff = make_handoff(
        authorized.store,
        result,
        settings=visible,
        counter=counter(settings.window.tokens),
        context_length=length,
        language=settings.window.language,
    )
    if session.as_json:
        say_json(_to_object(task_key, result, handoff, max_block_tokens(settings.context_inheritance, length)))
        return
    _print_result(task_key, result, handoff, settings)
    if not authorized.principal.admin and settings.context_inheritance.across_users:
        say_line("A new task may also inherit from a run of another user, which is not shown here.")


def _restrict_to_visible(session: StoreSession, user: str | None) -> tuple[ContextInheritance, str | None]:
    """Restrict the search to runs that the caller may see. A new task may inherit from others as well."""
    settings, principal = session.settings.context_inheritance, session.authorized.principal
    if principal.admin:
        return settings, user
    return msgspec.structs.replace(settings, across_users=False), principal.user


def _to_object(key: TaskKey, result: Search, handoff: Handoff | None, max_tokens: int) -> dict[str, Any]:
    return {
        "task_key": str(key),
        "source": handoff and handoff.uuid,
        "completed_at": handoff and handoff.completed_at,
        "tokens": handoff.tokens if handoff else 0,
        "max_tokens": max_tokens,
        "left_out": handoff.left_out if handoff else (),
        "block": handoff and handoff.text,
        "problem": result.problem,
        "skipped": result.skipped,
    }


def _print_result(key: TaskKey, result: Search, handoff: Handoff | None, settings: Settings) -> None:
    if handoff is not None:
        omitted = f", without {', '.join(handoff.left_out)}" if handoff.left_out else ""
        say_line(f"A new task with {key} would inherit from {handoff.uuid}, which ended {handoff.completed_at[:16]}Z.")
        say(f"{handoff.tokens:,} of {handoff.max_tokens:,} tokens{omitted}:\n\n{handoff.text}")
    else:
        say_line(f"A new task with {key} would inherit nothing: {_explain(result, settings)}")
    if result.skipped:
        say("\nSkipped:")
        for run in result.skipped:
            say_line(f"{run.uuid[:8]}  {run.status:9}  {(run.completed_at or '')[:16]:16}  {run.reason}")


def _explain(result: Search, settings: Settings) -> str:
    if not settings.context_inheritance.enabled:
        return "context_inheritance.enabled is off."
    if result.problem:
        return result.problem
    if result.previous is not None:
        return f"nothing of run {result.previous.short} fits into the tokens that are allowed."
    if result.skipped:
        return "none of its earlier runs can be used."
    return "it has no earlier run."
