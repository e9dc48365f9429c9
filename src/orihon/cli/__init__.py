"""The command `orihon`: parse, make one call to the library, print.

A command's module is loaded only when the command is used. Errors end here: a sentence and a hint on standard error,
and an exit code that tells a script which branch of the error tree it was. A traceback appears only with `--debug`.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
from typing import NoReturn

import click
from click.shell_completion import CompletionItem

from orihon.agent.signals import install_handler
from orihon.cli.output import LogLines, guard_streams, say_error, say_traceback
from orihon.errors import OrihonError

COMMANDS = {
    "audit": "show who looked at what",
    "backup": "back up the tasks that have ended, one generation a day",
    "chat": "talk with a model, in conversations that are kept",
    "clean": "delete and compress what is old, and settle tasks whose process died",
    "compact": "summarise a task by hand",
    "config": "show the effective settings and where each came from",
    "copy": "copy tasks from one store to another, and compare",
    "demo": "show what Orihon does, offline",
    "doctor": "look whether all is well with a store, and repair it",
    "enqueue": "put a task into the queue",
    "export": "write one task to a file",
    "import": "bring tasks in from files, also those of other agents",
    "inherit": "show what a new task would take over from an earlier one",
    "keep": "never clean a task",
    "ls": "list tasks",
    "migrate": "make the tables of a PostgreSQL store, or bring them up to date",
    "monitor": "watch a store: what died, what takes long, what fails, what fills the disk",
    "pause": "ask one task, or all, to pause",
    "restore": "bring tasks back from a backup",
    "resume": "go on with a task that was paused or interrupted",
    "run": "work on a text, a file or an issue until it is done",
    "search": "look for words in all tasks",
    "show": "show a task: status, figures, messages, summaries, window",
    "similar": "find tasks like this one",
    "stats": "count tasks, disk, tokens and time",
    "stop": "end a task that is not wanted any more",
    "unkeep": "let a task be cleaned again",
    "unpause": "let paused tasks go on",
    "worker": "take tasks out of the queue, one process each",
}
UNEXPECTED, INTERRUPTED = 70, 130


class LazyGroup(click.Group):
    """Finds a command in the module of its name, so that `--help` costs no imports."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"orihon.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names and purposes for a shell, which must not cost the imports of all commands at each Tab."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=COMMANDS[name]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error, and what is logged.")
@click.version_option(package_name="orihon", prog_name="orihon")
def cli(*, debug: bool) -> None:
    """Keep the whole history of an LLM agent on disk and fold it so that it fits in the model's window."""
    if debug:
        show_log(logging.DEBUG)


def show_log(level: int) -> None:
    """Print what Orihon logs on standard error; other libraries stay silent."""
    log = logging.getLogger("orihon")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(LogLines("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(level)


def main(arguments: list[str] | None = None) -> None:
    """Run the command and leave with its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    guard_streams()
    install_handler(leave, signal.SIGTERM)
    try:
        sys.exit(cli.main(arguments, prog_name="orihon", standalone_mode=False) or 0)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "orihon"
        say_error(error.format_message(), f"`{command} --help` shows how it is used.")
        sys.exit(error.exit_code)
    except click.ClickException as error:
        say_error(error.format_message())
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        say_error("interrupted")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # the reader of our output has seen enough; the interpreter must not complain about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OrihonError as error:
        if debug:
            _show_where()
        say_error(error.message, error.hint)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - whatever it is, it ends here in a sentence
        if debug:
            _show_where()
        say_error(
            f"unexpected {type(error).__name__}: {error}", "Run the command again with --debug to see the traceback."
        )
        sys.exit(UNEXPECTED)
    finally:
        _let_go_of_streams()


def leave(number: int, _: object) -> None:
    """A polite kill is an interrupt: what runs is paused, and can go on."""
    sys.exit(128 + number)


def _let_go_of_streams() -> None:
    """A terminal that is gone must not change the exit code when the interpreter writes what is left."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _show_where() -> NoReturn:
    """Print the traceback of the error that is handled, and leave as Python would."""
    say_traceback()
    sys.exit(1)
