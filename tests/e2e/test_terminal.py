"""The command line at a terminal: tables fit, colours and progress appear there only, and ids complete."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

import orihon
from orihon.cli import COMMANDS
from orihon.settings.schema import Settings
from orihon.terminal import HOSTILE
from support.cli_store import IDS, KINDS, fill, said
from support.terminal import ESCAPES, Terminal

COLOUR = re.compile(r"\x1b\[(?:1;)?3[0-9]m")
KEY = "github/a-rather-long-name/of-a-repository/issue/2931"
DRIVER = """
import sys
from orihon.cli import _progress, main
_progress.FIRST_SECONDS = _progress.REFRESH_SECONDS = 0
main(sys.argv[1:])
"""
HOLDER = """
import sys, time
from orihon.settings.schema import Settings
import orihon
task = orihon.open(sys.argv[1], settings=Settings()).start(sys.argv[2], user="alice")
print(task.uuid, flush=True)
time.sleep(600)
"""


def shown(*command, cwd, size=(24, 80), **environ):
    """What a command writes to a terminal, raw."""
    terminal = Terminal(*command, cwd=cwd, size=size, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **environ})
    try:
        assert terminal.ended() == 0, terminal.text
    finally:
        terminal.close()
    return terminal.raw


def command(*arguments, cwd, **options):
    return shown(sys.executable, "-m", "orihon", *arguments, cwd=cwd, **options)


@pytest.fixture
def place(tmp_path):
    """A directory with a store at its usual place."""
    fill(str(tmp_path / "logs" / "contexts"))
    with orihon.open(tmp_path / "logs" / "contexts", settings=Settings()) as engine:
        engine.start(KEY, user="somebody-with-a-long-name").pause("later")
    return tmp_path


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_a_table_fits_the_terminal(place, columns):
    """No line is broken, no heading is cut, and a key that is too long keeps the number at its end."""
    lines = ESCAPES.sub("", command("ls", cwd=place, size=(24, columns))).replace("\r", "").splitlines()
    assert len(lines) == 1 + 5
    assert max(map(len, lines)) <= columns
    headings = lines[0].split()
    assert set(headings) <= {"TASK", "STATUS", "KEY", "USER", "WHEN", "DURATION", "CALLS", "TOKENS"}
    assert {"TASK", "STATUS", "KEY", "WHEN", "TOKENS"} <= set(headings)
    assert ("DURATION" in headings) == (columns >= 120)
    key = lines[1].split()[2]
    assert key == KEY if columns == 200 else ("…" in key and key.endswith("31"))


def test_a_pipe_gets_plain_and_complete_rows(place):
    """Neither colours nor cut cells, whatever the width."""
    done = subprocess.run(
        [sys.executable, "-m", "orihon", "ls"],
        cwd=place, env=os.environ | {"COLUMNS": "40"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "\x1b" not in done.stdout
    assert KEY in done.stdout
    assert "TOKENS" in done.stdout


def test_colours(place):
    """Statuses have colours at a terminal; NO_COLOR turns them off."""
    assert COLOUR.search(command("ls", cwd=place))
    assert not COLOUR.search(command("ls", cwd=place, NO_COLOR="1"))
    assert COLOUR.search(command("stats", cwd=place))
    assert not COLOUR.search(command("stats", cwd=place, NO_COLOR="1"))


def test_text_is_never_markup(place):
    """Brackets, emoji codes and links of rich are shown as they are, in tables, lines and errors."""
    markup = "[bold red]:smile:[/] [link=x]"
    with orihon.open(place / "logs" / "contexts", settings=Settings()) as engine:
        engine.start("local/issue/markup", user=markup).fail(markup)
    assert markup in ESCAPES.sub("", command("ls", cwd=place, size=(24, 200)))
    assert markup in ESCAPES.sub("", command("stats", cwd=place, size=(24, 200)))
    failed = subprocess.run(
        [sys.executable, "-m", "orihon", "show", markup], cwd=place, capture_output=True, text=True, check=False
    )
    assert markup in failed.stderr


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("copy", "logs/contexts", "sqlite:///copy.db"), r"copying .* of 5 tasks · [\d,]+ tasks/s · [\d.]+ kB"),
        (("backup", "backups"), r"backing up .* of 3 tasks · [\d,]+ tasks/s"),
        (("doctor",), r"examining .* of 5 tasks · [\d,]+ tasks/s"),
        (("search", "total"), r"indexing new records .* of 5 tasks · [\d,]+ tasks/s"),
        (("clean", "--older-than", "0"), r"cleaning .* of \d tasks · [\d,]+ tasks/s"),
        (("import", "chat.jsonl"), r"importing .* records · [\d,]+ records/s · \d+"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_progress(place, arguments, what):
    """A bar with amount and rate, which is gone when the command has ended."""
    message = json.dumps({"role": "user", "content": "hello"})
    (place / "chat.jsonl").write_text(f"{message}\n" * 50)
    raw = shown(sys.executable, "-c", DRIVER, *arguments, cwd=place)
    assert re.search(what, ESCAPES.sub("", raw)), raw
    assert raw.rstrip().rindex("\x1b[2K") > ESCAPES.sub("", raw).find("/s")
    assert not re.search(f"[{HOSTILE}]", ESCAPES.sub("", raw).replace("\r", ""))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_a_task_whose_process_died_is_interrupted(url_at, tmp_path):
    """`ls` says so at once, in every kind of store, and `--json` has both facts."""
    for kind in KINDS:
        url = url_at(kind, tmp_path)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, url, "github/acme/shop/issue/1"], stdout=subprocess.PIPE, text=True
        )
        try:
            uuid = holder.stdout.readline().strip()
            assert f"{uuid[:8]}  running " in said("ls", url=url)
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            holder.stdout.close()
        assert f"{uuid[:8]}  interrupted " in said("ls", "--status", "running", url=url)
        (task,) = json.loads(said("ls", "--json", url=url))["tasks"]
        assert (task["status"], task["interrupted"]) == ("running", True)


def test_the_command_alone_says_what_to_do(place, tmp_path_factory):
    """Without a store how to begin; with one what is in it, and the task that can be continued."""
    empty = tmp_path_factory.mktemp("empty")
    first = subprocess.run([sys.executable, "-m", "orihon"], cwd=empty, capture_output=True, text=True, check=True)
    assert "There is no store at logs/contexts yet" in first.stdout
    assert {"orihon demo", "orihon run"} <= set(re.findall(r"^  (orihon \w+)", first.stdout, re.MULTILINE))
    assert list(empty.iterdir()) == []
    later = subprocess.run([sys.executable, "-m", "orihon"], cwd=place, capture_output=True, text=True, check=True)
    assert later.stdout.startswith("logs/contexts: 2 completed, 1 failed, 2 paused.\n")
    for name in re.findall(r"^  orihon (\w+)", later.stdout, re.MULTILINE):
        assert name in COMMANDS
    assert re.search(r"orihon resume \w{8} +continue a paused task", later.stdout)


@pytest.mark.parametrize(
    "words",
    ["show", "keep", "unkeep", "pause", "unpause", "stop", "resume", "similar", "compact", "export", "backup there",
     "restore there", "run --resume", "copy a b --task", "audit --task"],
)  # fmt: skip
def test_ids_complete(place, words):
    """Tab after a beginning of an id completes it, in every command that takes one."""
    environ = os.environ | {
        "_ORIHON_COMPLETE": "bash_complete", "COMP_WORDS": f"orihon {words} 550e",
        "COMP_CWORD": str(1 + len(words.split())),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", "from orihon.cli import main; main()"],
        cwd=place, env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert [line.partition(",")[2] for line in done.stdout.split()] == [IDS["bob"], IDS["done"]], done.stderr
