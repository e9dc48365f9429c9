"""The page of the commands is made from them; every command has examples and `--json`; shells can complete."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from orihon.cli import COMMANDS, cli
from support.cli_store import IDS, fill, url_of

LIVE = {"view", "chat", "demo", "worker"}  # what they do is what they print


def command(name):
    return cli.get_command(click.Context(cli), name)


def test_the_page_is_up_to_date(root):
    """`docs/cli.md` is what `docs/generate.py` makes."""
    page = runpy.run_path(str(root / "docs/generate.py"))["cli_page"]()
    assert page == (root / "docs/cli.md").read_text(encoding="utf-8"), "run `make docs`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_how_it_is_used(name):
    """Two examples at least, and each names options that the command has."""
    found = command(name)
    examples = [
        line.strip() for line in (found.help or "").partition("\b\n")[2].splitlines() if f"orihon {name}" in line
    ]
    assert len(examples) >= 2, examples
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for example in examples:
        given = re.findall(r"(?<= )--[a-z-]+", example.partition(f"orihon {name}")[2].partition("|")[0])
        assert set(given) <= known, example


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - LIVE))
def test_every_command_speaks_to_programs(name):
    """`--json` is there, and its help says what it prints."""
    option = next(parameter for parameter in command(name).params if "--json" in parameter.opts)
    assert len(option.help) > 10


def completed(words, cwd, **environ):
    return subprocess.run(
        [sys.executable, "-m", "orihon"], cwd=cwd, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "_ORIHON_COMPLETE": "bash_complete", "COMP_WORDS": words,
             "COMP_CWORD": str(len(words.split(" ")) - 1), **environ},
    ).stdout.split()  # fmt: skip


def test_a_shell_completes_commands_options_and_ids(tmp_path):
    """Names, options, values, and the ids of the tasks that somebody may see."""
    fill(url_of("jsonl", tmp_path))
    store = {"ORIHON_STORE": str(tmp_path / "contexts")}
    assert completed("orihon st", tmp_path) == ["plain,stats", "plain,stop"]
    assert "plain,--summary" in completed("orihon stats --s", tmp_path)
    assert "plain,failed" in completed("orihon ls --status f", tmp_path)
    assert set(completed("orihon show 550e", tmp_path, **store)) == {f"plain,{IDS['done']}", f"plain,{IDS['bob']}"}
    assert completed("orihon show 550e", tmp_path, **store, ORIHON_USER="bob") == [f"plain,{IDS['bob']}"]
    assert completed("orihon show 55", tmp_path, ORIHON_STORE=str(tmp_path / "none")) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here to try it with")
def test_the_line_in_the_docs_switches_it_on(tmp_path, root):
    """What docs/cli.md tells people to put into ~/.bashrc works in a real bash."""
    line = re.search(
        r'^(eval "\$\(_ORIHON_COMPLETE=bash_source orihon\)")', (root / "docs/cli.md").read_text(), re.MULTILINE
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shown = subprocess.run(
        ["bash", "-c", f"{line[1]}; complete -p orihon"], cwd=tmp_path, capture_output=True, text=True, check=True,
        timeout=60, env={**os.environ, "PATH": path},
    )  # fmt: skip
    assert "_orihon_completion orihon" in shown.stdout
