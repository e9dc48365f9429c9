"""`orihon chat`: talk to a model at the terminal, in conversations that are stored."""

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
from orihon.chat import registry
from orihon.chat.i18n import Texts
from orihon.chat.terminal.ui import PipeUI, format_listings
from orihon.cli import leave
from orihon.cli._command import Session, store_command
from orihon.cli._output import say, say_line
from orihon.cli._run_options import build_job, run_options
from orihon.engine import Engine
from orihon.errors import UsageError
from orihon.terminal import detect_language

if TYPE_CHECKING:
    from orihon.chat.terminal.ui_terminal import TerminalUI


@store_command()
@click.option("--name", default="", help="Name of the new conversation. Default: the date.")
@click.option("--resume", is_flag=False, flag_value="", metavar="[NAME|UUID]", help="Continue the last or this one.")
@run_options("user", "model", "workspace", "approve", "context_length", "prices")
@click.option("--plain", is_flag=True, help="Read and write plain lines; always on without a terminal.")
@click.option("--no-mcp", is_flag=True, help="Do not use the tools of MCP servers.")
@click.option("--list", "wants_list", is_flag=True, help="List the conversations of this directory.")
@click.option("--search", metavar="TEXT", help="Search the conversations of this directory.")
@click.option("--delete", metavar="NAME", help="Delete a conversation and its checkpoints.")
def chat(
    session: Session,
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
) -> int:
    """Talk to a model, in a conversation that is stored and can be continued.

    /help lists the commands, Ctrl-C cancels an answer, Ctrl-D exits. In a pipe every line is a message, the answers are
    printed on standard output, and the exit code is that of the last error, such as 5 if the model failed.

    \b
    orihon chat --model ollama:qwen3
    orihon chat --name shop --approve edits
    orihon chat --resume
    echo "What does basket.py do?" | orihon chat --plain
    orihon chat --list
    """
    if name and resume is not None:
        raise UsageError("--name starts a conversation, and --resume continues one.", hint="Give --name or --resume.")
    texts = Texts(detect_language(os.environ))
    job = build_job(options)
    directory = Path(job.workspace)
    user = session.gate.owner_for(options["user"])
    engine = session.engine
    if wants_list:
        engine.trail.record("tasks", ["rows"], query={"directory": str(directory)})
        say(format_listings(registry.list_conversations(engine, directory, user=user), texts))
    elif search is not None:
        for hit in registry.search(engine, search, directory, user=user):
            say_line(f"{hit.name} [{hit.seq}] {hit.role}: {hit.text}")
    elif delete is not None:
        registry.delete(engine, registry.find(engine, directory, delete, user=user).uuid)
    else:
        chosen = {"name": name or resume or "", "user": user, "mcp": not no_mcp}
        return _run_session(engine, job, texts, is_plain=plain, is_new=resume is None, **chosen)
    return 0


def _run_session(engine: Engine, job: Job, texts: Texts, *, is_plain: bool, is_new: bool, **options: Any) -> int:
    """Run one session and return its exit code."""
    from orihon.chat.terminal import commands, session  # noqa: PLC0415 - --list and --search need no agent

    install_handler(leave, signal.SIGHUP)
    is_plain = is_plain or not (sys.stdin.isatty() and sys.stdout.isatty())
    ui = PipeUI(texts) if is_plain else _make_terminal_ui(texts, Path(job.workspace))
    open_session = session.start_session if is_new else session.resume_session
    with session.show_warnings(ui), open_session(engine, job, ui, texts, **options) as chat:
        if not isinstance(ui, PipeUI):
            ui.complete = partial(commands.complete, chat)
        return commands.run_session(chat)


def _make_terminal_ui(texts: Texts, directory: Path) -> TerminalUI:
    try:
        from orihon.chat.terminal.ui_terminal import TerminalUI, find_history  # noqa: PLC0415 - pipes do not need it
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != "prompt_toolkit":
            raise
        raise UsageError(
            "The library prompt_toolkit is not installed.",
            hint='Run: pip install "orihon[agent]", or add --plain.',
        ) from error
    return TerminalUI(texts, find_history(directory, os.environ))
