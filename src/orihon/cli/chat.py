"""`orihon chat`: talk with a model at the terminal, in conversations that are kept."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orihon.agent.queue import Job
from orihon.agent.signals import install_handler
from orihon.chat import book
from orihon.chat.terminal import typed
from orihon.chat.terminal.completion import offered
from orihon.chat.terminal.looking import listed
from orihon.chat.terminal.plain import Plain
from orihon.chat.terminal.words import Words
from orihon.cli import leave
from orihon.cli.jobs import job, some_options
from orihon.cli.output import say, say_line
from orihon.engine import Engine
from orihon.errors import UsageError
from orihon.ops.access import AccessGate
from orihon.settings.load import load
from orihon.terminal import language_of

if TYPE_CHECKING:
    from orihon.chat.terminal.screen import Screen


@click.command()
@click.option("--name", default="", help="What the new conversation is called; else it is the day.")
@click.option(
    "--resume", is_flag=False, flag_value="", metavar="[NAME|UUID]", help="Go on with the last one, or this one."
)
@some_options("store", "user", "model", "workspace", "approve", "context_length", "prices")
@click.option("--plain", is_flag=True, help="Lines in, lines out; always so when this is no terminal.")
@click.option("--no-mcp", is_flag=True, help="Without the tools of MCP servers.")
@click.option("--list", "wants_list", is_flag=True, help="List the conversations of this directory.")
@click.option("--search", metavar="TEXT", help="Show where something was said in them.")
@click.option("--delete", metavar="NAME", help="Delete one of them, with its checkpoints.")
@click.pass_context
def chat(
    context: click.Context,
    /,
    name: str,
    resume: str | None,
    search: str | None,
    delete: str | None,
    *,
    plain: bool,
    no_mcp: bool,
    wants_list: bool,
    **options: Any,
) -> None:
    """Talk with a model, in a conversation that is kept and can go on.

    /help lists the commands, Ctrl-C cancels an answer, Ctrl-D leaves. In a pipe every line is a message, the answers
    are on standard output, and the exit code is that of the last error, such as 5 for a model that failed.

    \b
    orihon chat --model ollama:qwen3
    orihon chat --name shop --approve edits
    orihon chat --resume
    echo "What does basket.py do?" | orihon chat --plain
    orihon chat --list
    """
    if name and resume is not None:
        raise UsageError("A conversation cannot be new and go on.", hint="Give --name or --resume.")
    words = Words(language_of(os.environ))
    made = job(options)
    directory = Path(made.workspace)
    settings = load()
    gate = AccessGate(settings, options["store"], command="chat")
    options["user"] = gate.owner_for(options["user"])
    with gate.open_engine() as engine:
        if wants_list:
            engine.trail.looked("tasks", query={"directory": str(directory)})
            say(listed(engine, directory, words, user=options["user"]))
        elif search is not None:
            _search(engine, search, directory, options["user"])
        elif delete is not None:
            book.delete(engine, book.find(engine, directory, delete, user=options["user"]).uuid)
        else:
            wished = {"user": options["user"], "mcp": not no_mcp}
            wished |= {"name": name} if resume is None else {"what": resume}
            context.exit(_sit(engine, made, words, is_plain=plain, **wished))


def _sit(engine: Engine, made: Job, words: Words, *, is_plain: bool, **wished: Any) -> int:
    """One sitting; its exit code."""
    from orihon.chat.terminal.opening import begun, resumed  # noqa: PLC0415 - --list needs no agent
    from orihon.chat.terminal.sitting import warnings_shown  # noqa: PLC0415

    install_handler(leave, signal.SIGHUP)
    is_plain = is_plain or not (sys.stdin.isatty() and sys.stdout.isatty())
    face = Plain(words) if is_plain else _screen(words, Path(made.workspace))
    open_it = begun if "name" in wished else resumed
    with warnings_shown(face), open_it(engine, made, face, words, **wished) as sitting:
        if not isinstance(face, Plain):
            face.offer = partial(offered, sitting)
        return sitting.run()


def _screen(words: Words, directory: Path) -> Screen:
    try:
        from orihon.chat.terminal.screen import Screen  # noqa: PLC0415 - pipes do not need the library
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != "prompt_toolkit":
            raise
        raise UsageError(
            "The library prompt_toolkit is needed and not installed.",
            hint='Run: pip install "orihon[agent]", or add --plain.',
        ) from error
    return Screen(words, typed.place(directory, os.environ))


def _search(engine: Engine, text: str, directory: Path, user: str | None) -> None:
    for found in book.search(engine, text, directory, user=user):
        say_line(f"{found.name} [{found.seq}] {found.role}: {found.text}")
