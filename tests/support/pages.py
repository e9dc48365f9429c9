"""The pages for users, their blocks of code, and the commands in them."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import click

from orihon.cli import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SEPARATORS = {"|", "||", "&&", ";", "&", ">", ">>", "<"}


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    language: str
    text: str


def page_name(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page, *languages):
    """The blocks of a page, or those in these languages."""
    found = [Block(page, *match) for match in FENCE.findall(page.read_text("utf-8"))]
    return [block for block in found if not languages or block.language in languages]


def without_blocks(page):
    """The prose of a page."""
    return FENCE.sub("", page.read_text("utf-8"))


def commands(text):
    """The commands of a shell script, each as its words; redirections are left out."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words, skip = [], False
        for word in [*lexer, ";"]:
            if word in SEPARATORS:
                if words:
                    yield words
                words, skip = [], word in {">", ">>", "<"}
            elif skip:
                skip = False
            else:
                words.append(word)


def check_orihon(arguments):
    """Raise click.UsageError unless the command takes these arguments. Nothing is run."""
    with cli.make_context("orihon", list(arguments)) as context:
        words = [*context._protected_args, *context.args]
        if not words:
            return
        name, command, rest = cli.resolve_command(context, words)
        assert name in COMMANDS
        try:
            command.make_context(name, rest, parent=context).close()
        except click.BadParameter as error:
            if "does not exist" not in error.message:  # the files of an example are not here
                raise
        except click.exceptions.Exit as end:
            assert end.exit_code == 0
