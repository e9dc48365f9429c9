"""`orihon compact`: summarise the older messages of a task."""

from __future__ import annotations

import click

from orihon.cli._command import StoreSession, store_command
from orihon.cli._output import say, say_line
from orihon.ops.compact import Compacted
from orihon.ops.compact import compact as compact_task
from orihon.ops.progress import format_count


@store_command(json="One object; `messages` is 0 if there was nothing to summarise.")
@click.argument("uuid")
@click.option("--focus", default="", metavar="TEXT", help="What the summary should concentrate on.")
def compact(session: StoreSession, uuid: str, focus: str) -> None:
    """Summarise the older messages of a task now, which makes its window smaller.

    The model is `context_storage.summariser`; without one the summary is extracted from the messages. The newest
    messages stay, nothing is deleted, and the status of the task does not change. A task that is in use or has ended is
    refused.

    \b
    orihon compact 550e8400
    orihon compact 550e8400 --focus "the failing tests"
    orihon compact 550e8400 --json | jq .window_tokens_after
    """
    session.emit(compact_task(session.authorized, session.settings, uuid, focus=focus), _print_compacted)


def _print_compacted(compacted: Compacted) -> None:
    for problem in compacted.problems:
        say_line(f"note     The model failed: {problem}", err=True)
    if not compacted.messages:
        say_line(f"There is nothing to gain; the window has {compacted.window_tokens_before:,} tokens.")
        return
    say(f"{compacted.summary}\n")
    say_line(
        f"{format_count(compacted.messages, 'message')}, {compacted.original_tokens:,} tokens, are summarised in "
        f"{compacted.summary_tokens:,}. The window had {compacted.window_tokens_before:,} tokens and has "
        f"{compacted.window_tokens_after:,}."
    )
