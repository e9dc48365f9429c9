"""What a process hands down: a program keeps to it, and the tests do not depend on it."""

import os
import resource
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
        sys.stdin.readline()
        task.add("user", "Go on.")
        click.echo("went on")
        time.sleep(60)

module = types.ModuleType("orihon.cli.hold")
module.hold = hold
sys.modules["orihon.cli.hold"] = module
cli.COMMANDS["hold"] = "hold a task"
cli.main(["hold", sys.argv[1]])
"""

ODD = dict(
    pair.split("=")
    for pair in (
        *("LANG=ja_JP.UTF-8", "LC_ALL=C", "NO_COLOR=1", "FORCE_COLOR=1", "COLUMNS=40", "LINES=5", "TZ=Asia/Tokyo"),
        *("ORIHON_STORE=/nowhere", "ORIHON_USER=eve", "GIT_DIR=/nowhere", "XDG_STATE_HOME=/nowhere", "PGHOST=/nowhere"),
        *("PYTHONIOENCODING=ascii", "SOME_PASSWORD=Take your time."),
    )
)
SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGQUIT}
IGNORING = """
import os, signal, sys
for number in sys.argv[1].split():
    signal.signal(int(number), signal.SIG_IGN)
os.execv(sys.argv[2], sys.argv[2:])
"""
ODDLY = """
import os, resource, signal, sys
signals = [int(number) for number in sys.argv[1].split()]
for number in signals:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
os.umask(0o777)
os.close(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
os.execv(sys.argv[2], sys.argv[2:])
"""


def started_by(program, numbers, *command):
    """A command that is started by a program with these signals."""
    return [sys.executable, "-c", program, " ".join(str(int(number)) for number in numbers), sys.executable, *command]


def held(url, ignored):
    """A process that holds a task, and was started with a signal ignored."""
    command = started_by(IGNORING, [ignored], "-c", HOLD, url)
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("ignored", "heard", "code"), [(signal.SIGINT, signal.SIGTERM, 143), (signal.SIGTERM, signal.SIGINT, 130)]
)
def test_what_was_ignored_stays_ignored(tmp_path, ignored, heard, code):
    """A job in the background does not end with the Ctrl-C that is meant for another; the other signal is heard."""
    url = str(tmp_path / "contexts")
    with held(url, ignored) as process:
        uuid = process.stdout.readline().strip()
        process.send_signal(ignored)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "went on\n"
        assert process.poll() is None
        process.send_signal(heard)
        assert process.wait(30) == code
    with orihon.open(url, settings=Settings()) as engine:
        assert engine.row(uuid).status == "paused"
        assert [message.content for message in engine.read(uuid).messages()] == ["Take your time.", "Go on."]


CHOSEN = ["tests/e2e/test_signals.py", "tests/e2e/test_inherited.py::test_a_session_is_reset"]


@pytest.mark.slow
def test_the_tests_do_not_depend_on_it(root, tmp_path):
    """A session that was started with all of it passes the tests of signals, and finds nothing of it."""
    options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}"]
    proxies = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    ended = subprocess.run(
        started_by(ODDLY, SIGNALS, *options, *CHOSEN),
        cwd=root,
        env=os.environ | ODD | proxies | {"HOME": "/nowhere", "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_session_is_reset():
    """Signals, mask, umask, environment, standard input and the number of open files are the usual ones."""
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    assert {number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN} == set()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == set()
    assert os.umask(0o022) == 0o022
    assert ODD.keys() & os.environ.keys() == set()
    assert os.access(os.environ["HOME"], os.W_OK)
    assert os.environ["TERM"] != "dumb"
    assert "127.0.0.1" in os.environ["NO_PROXY"]
    os.fstat(0)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64
