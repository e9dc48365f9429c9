"""The command `orihon`: parse the arguments, call the library once, print the result.

The module of a command is imported when the command is used. Errors are handled here: they become a sentence and a hint
on standard error, and an exit code that depends on the class of the error. A traceback is printed with `--debug` only.
"""

from __future__ import annotations

import importlib
import keyword
import logging
import os
import signal
import sys
from typing import NoReturn

import click
from click.shell_completion import CompletionItem

from orihon.agent.signals import install_handler
from orihon.cli._output import LogFormatter, guard_streams, say_error, say_traceback
from orihon.cli._translate import is_japanese, localise, prepare_click, translate
from orihon.errors import OrihonError

COMMANDS = {
    "audit": "show who accessed what",
    "backup": "back up ended tasks, one generation a day",
    "chat": "talk to a model, in conversations that are stored",
    "clean": "delete and compress old tasks, and recover tasks whose process died",
    "compact": "summarise the older messages of a task",
    "config": "show the effective settings and where each came from",
    "copy": "copy tasks from one store to another, and compare",
    "demo": "show what Orihon does, offline",
    "doctor": "check a store or the installation, and repair",
    "enqueue": "put a task into the queue",
    "export": "write one task to a file",
    "import": "import tasks from files, including those of other agents",
    "init": "write config.yaml and try the model",
    "inherit": "show what a new task would inherit from an earlier one",
    "keep": "exclude tasks from cleaning",
    "ls": "list tasks",
    "migrate": "create or update the tables of a PostgreSQL store",
    "monitor": "watch a store: dead and long-running tasks, failures, disk",
    "pause": "ask one task, or all, to pause",
    "restore": "restore tasks from a backup",
    "resume": "continue a task that was paused or interrupted",
    "run": "work on a text, a file or an issue until it is done",
    "search": "search all tasks for words",
    "show": "show a task: status, figures, messages, summaries, window",
    "similar": "find tasks that resemble another",
    "stats": "count tasks, disk, tokens and time",
    "stop": "end a task permanently",
    "unkeep": "let kept tasks be cleaned again",
    "unpause": "let paused tasks continue",
    "view": "show in the browser what the model saw, and why",
    "worker": "run the tasks of the queue, one process each",
}
# the module of each command that has no module of its own name
MODULES = {
    "demo": "orihon.demo.play",  # `examples/demo` in the source
    **dict.fromkeys(("audit", "config"), "orihon.cli.admin"),
    **dict.fromkeys(("backup", "copy", "migrate", "restore"), "orihon.cli.transfer"),
    **dict.fromkeys(("clean", "doctor", "keep", "monitor", "unkeep"), "orihon.cli.maintenance"),
    **dict.fromkeys(("compact", "inherit"), "orihon.cli.show"),
    "enqueue": "orihon.cli.worker",
    "import": "orihon.cli.export",
    "resume": "orihon.cli.run",
    "similar": "orihon.cli.search",
    "stats": "orihon.cli.ls",
    **dict.fromkeys(("stop", "unpause"), "orihon.cli.pause"),
}
UNEXPECTED, INTERRUPTED = 70, 130


class LazyGroup(click.Group):
    """Imports a command when it is used, which keeps `--help` fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(MODULES.get(cmd_name, f"orihon.cli.{cmd_name}"))
        command: click.Command = getattr(module, f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name)
        return localise(command)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands and options without importing all commands."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=COMMANDS[name]) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section(translate("Commands")):
            formatter.write_dl([(name, translate(purpose)) for name, purpose in sorted(COMMANDS.items())])


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Print the traceback of an error, and log messages.")
@click.version_option(package_name="orihon", prog_name="orihon")
@click.pass_context
def cli(context: click.Context, *, debug: bool) -> None:
    """Keep the whole history of an LLM agent on disk and fold it so that it fits in the model's window."""
    if debug:
        show_log(logging.DEBUG)
    if context.invoked_subcommand is None:
        importlib.import_module("orihon.cli.ls").print_next_steps()


def show_log(level: int) -> None:
    """Print the log of Orihon, but not of other libraries, on standard error."""
    log = logging.getLogger("orihon")
    if logging.lastResort in log.handlers:  # beside a log file
        log.removeHandler(logging.lastResort)
    if all(isinstance(handler, logging.FileHandler) for handler in log.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(level)


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    guard_streams()
    install_handler(leave, signal.SIGTERM)
    if is_japanese():
        prepare_click()
    try:
        sys.exit(localise(cli).main(arguments, prog_name="orihon", standalone_mode=False) or 0)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "orihon"
        say_error(error.format_message(), f"`{command} --help` shows the usage.")
        sys.exit(error.exit_code)
    except click.ClickException as error:
        say_error(error.format_message())
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        say_error("interrupted")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # the reader of the output has gone, and the interpreter must not report it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OrihonError as error:
        if debug:
            _exit_with_traceback()
        say_error(error.message, error.hint)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - every error becomes a sentence
        if debug:
            _exit_with_traceback()
        say_error(
            f"unexpected {type(error).__name__}: {error}", "Run the command again with --debug to see the traceback."
        )
        sys.exit(UNEXPECTED)
    finally:
        _flush_streams()


def leave(number: int, _: object) -> None:
    """Exit on a signal. Running tasks are paused and can be resumed."""
    sys.exit(128 + number)


def _flush_streams() -> None:
    """Flush the output. A closed terminal must not change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _exit_with_traceback() -> NoReturn:
    """Print the traceback of the current exception, and exit as Python would."""
    say_traceback()
    sys.exit(1)
