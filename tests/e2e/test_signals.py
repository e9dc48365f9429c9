"""A command that is asked to stop leaves its task as it is: it can go on."""

import signal
import subprocess
import sys

import pytest

import orihon
from orihon.settings.schema import Settings

HOLD = """
import sys, time, types
import click, orihon
from orihon import cli

@click.command()
@click.argument("url")
def hold(url):
    with orihon.open(url, settings=orihon.Settings()).start("local/issue/hold") as task:
        task.add("user", "Take your time.")
        click.echo(task.uuid)
        time.sleep(60)

module = types.ModuleType("orihon.cli.hold")
module.hold = hold
sys.modules["orihon.cli.hold"] = module
cli.COMMANDS["hold"] = "hold a task"
cli.main(["hold", sys.argv[1]])
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_polite_kill_pauses(tmp_path, number, code):
    """SIGTERM and Ctrl-C pause the task, and the exit code says which it was."""
    url = str(tmp_path / "contexts")
    with subprocess.Popen([sys.executable, "-c", HOLD, url], stdout=subprocess.PIPE, text=True) as process:
        uuid = process.stdout.readline().strip()
        process.send_signal(number)
        assert process.wait(30) == code
    with orihon.open(url, settings=Settings()) as engine:
        assert engine.row(uuid).status == "paused"
        with engine.resume(uuid) as task:
            assert task.wants_reply()
