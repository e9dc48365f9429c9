"""`orihon compact`: summarise a task by hand."""

from __future__ import annotations

import click

from orihon.cli.options import json_option, store_option
from orihon.cli.output import say, say_json, say_line
from orihon.ops.access import open_authorized_store
from orihon.ops.compact import Compacted
from orihon.ops.compact import compact as summarise
from orihon.ops.progress import format_count
from orihon.settings.load import load


@click.command()
@click.argument("uuid")
@click.option("--focus", default="", metavar="TEXT", help="What the summary should dwell on.")
@store_option
@json_option("One object; `messages` is 0 when there was nothing to gain.")
def compact(uuid: str, focus: str, url: str | None, *, as_json: bool) -> None:
    """Summarise the older messages of a task now, so that its window gets smaller.

    The model is `context_storage.summariser`; without one the summary is extracted from what was said. The newest
    messages stay, nothing is deleted, and the status of the task stays what it is. A task that somebody writes now is
    refused, and so is one that has ended.

    \b
    orihon compact 550e8400
    orihon compact 550e8400 --focus "the failing tests"
    orihon compact 550e8400 --json | jq .window_tokens_after
    """
    settings = load()
    with open_authorized_store(settings, url, command="compact") as authorized:
        made = summarise(authorized, settings, uuid, focus=focus)
    if as_json:
        say_json(made)
    else:
        _print(made)


def _print(made: Compacted) -> None:
    for problem in made.problems:
        say_line(f"note     The model failed: {problem}", err=True)
    if not made.messages:
        say_line(f"There is nothing to gain; the window has {made.window_tokens_before:,} tokens.")
        return
    say(f"{made.summary}\n")
    say_line(
        f"{format_count(made.messages, 'message')}, {made.original_tokens:,} tokens, are summarised in "
        f"{made.summary_tokens:,}. The window had {made.window_tokens_before:,} tokens and has "
        f"{made.window_tokens_after:,}."
    )
