"""Alice cannot learn anything of Bob's tasks through any command.

Every command of `orihon` has a line here with the arguments by which it might tell; a command without one fails.
"""

import os
import re

import pytest

import orihon
from orihon.chat import registry
from orihon.cli import COMMANDS
from orihon.errors import NotFound, UsageError
from orihon.settings.schema import Settings
from support.cli_store import IDS, KINDS, SECRET, fill, said

BOB = IDS["bob"]
KEY = "github/acme/shop/issue/28"
REFUSED, NOT_FOUND = UsageError.exit_code, NotFound.exit_code
ELSEWHERE = None  # the command shows no task, or nothing that the store has

# the arguments, and the exit code; `{url}` is the store
TRIED = {
    "audit": [(["--store", "{url}"], REFUSED), (["--task", BOB, "--store", "{url}"], REFUSED)],
    "backup": [
        (["{place}/hers", "--json", "--store", "{url}"], 0),
        (["{place}/hers", BOB, "--store", "{url}"], NOT_FOUND),
    ],
    "chat": [
        (["--list", "--store", "{url}"], 0),
        (["--search", SECRET[4:], "--store", "{url}"], 0),
        (["--resume", "figures", "--store", "{url}"], NOT_FOUND),
        (["--delete", "figures", "--store", "{url}"], NOT_FOUND),
        (["--user", "bob", "--list", "--store", "{url}"], REFUSED),
    ],
    "clean": [
        (["--dry-run", "--older-than", "0", "--store", "{url}"], 0),
        (["--dry-run", "--emergency", "--json", "--store", "{url}"], 0),
    ],
    "compact": [([BOB, "--store", "{url}"], NOT_FOUND)],
    "config": ELSEWHERE,
    "copy": [(["{url}", "{place}/copy"], REFUSED), (["{url}", "{place}/copy", "--task", BOB], REFUSED)],
    "demo": ELSEWHERE,
    "doctor": [(["--store", "{url}"], REFUSED), (["--json", "--store", "{url}"], REFUSED)],
    "enqueue": [(["x", "--user", "bob", "--store", "{url}"], REFUSED)],
    "export": [([BOB, "-o", "-", "--store", "{url}"], NOT_FOUND), ([BOB[:8], "--store", "{url}"], NOT_FOUND)],
    "import": ELSEWHERE,
    "init": ELSEWHERE,
    "inherit": [([KEY, "--store", "{url}"], 0), ([KEY, "--user", "bob", "--json", "--store", "{url}"], 0)],
    "keep": [([BOB, "--store", "{url}"], NOT_FOUND)],
    "ls": [
        (["--store", "{url}"], 0),
        (["--json", "--limit", "1000", "--store", "{url}"], 0),
        (["--user", "bob", "--store", "{url}"], 0),
        (["--key", KEY, "--json", "--store", "{url}"], 0),
        (["--sort", "tokens", "--status", "completed", "--store", "{url}"], 0),
    ],
    "migrate": [(["{url}", "--role", "alice", "--user", "bob"], REFUSED)],
    "monitor": [(["--once", "--store", "{url}"], REFUSED)],
    "pause": [([BOB, "--store", "{url}"], NOT_FOUND), (["--all", "--store", "{url}"], REFUSED)],
    "restore": [
        (["{place}/all", "--json", "--store", "{place}/restored"], 0),
        (["{place}/all", BOB, "--store", "{place}/restored"], NOT_FOUND),
    ],
    "resume": [([BOB, "--store", "{url}"], NOT_FOUND)],
    "run": [(["--resume", BOB, "--store", "{url}"], NOT_FOUND), (["x", "--user", "bob", "--store", "{url}"], REFUSED)],
    "search": [
        ([SECRET[4:], "--store", "{url}"], 0),
        (["figures", "--user", "bob", "--json", "--store", "{url}"], 0),
    ],
    "show": [
        ([BOB, "--store", "{url}"], NOT_FOUND),
        ([BOB[:8], "--messages", "--window", "--json", "--store", "{url}"], NOT_FOUND),
        (["550e84", "--messages", "--full", "--store", "{url}"], 0),  # fits one of hers, and one of his
    ],
    "similar": [([IDS["done"], "--json", "--store", "{url}"], 0), ([BOB, "--store", "{url}"], NOT_FOUND)],
    "stats": [
        (["--summary", "--store", "{url}"], 0),
        (["--json", "--store", "{url}"], 0),
        (["--user", "bob", "--store", "{url}"], 0),
        (["--key", KEY, "--store", "{url}"], 0),
    ],
    "stop": [([BOB, "--store", "{url}"], NOT_FOUND)],
    "unkeep": [([BOB, "--store", "{url}"], NOT_FOUND)],
    "unpause": [([BOB, "--store", "{url}"], NOT_FOUND), (["--all", "--store", "{url}"], REFUSED)],
    "view": [([BOB, "--no-browser", "--store", "{url}"], NOT_FOUND)],
    "worker": [(["--once", "--store", "{url}"], REFUSED)],
}


def test_every_command_is_tried():
    """A new command says here how it was tried, or that it shows no task."""
    assert set(TRIED) == set(COMMANDS)


CASES = [(name, *case) for name, cases in TRIED.items() for case in cases or ()]


@pytest.fixture(params=KINDS)
def url(request, url_at, tmp_path, monkeypatch):
    url = url_at(request.param, tmp_path)
    fill(url)
    with orihon.open(url, settings=Settings()) as engine:
        conversation = registry.start(engine, tmp_path, name="figures", user="bob")
        conversation.task.add("user", SECRET)
        conversation.task.pause()
    monkeypatch.chdir(tmp_path)
    said("backup", "all", url=url)  # of an administrator, with the tasks of both
    return url


@pytest.mark.slow
def test_alice_learns_nothing_of_bob(url, tmp_path):
    """Neither his words, nor his name, nor his ids, nor his key, nor how many tasks he has."""
    for name, arguments, code in CASES:
        given = [part.format(url=url, place=tmp_path) for part in arguments]
        shown = said(name, *given, user="alice", code=code)
        asked = {part for part in arguments if part in {BOB, BOB[:8], KEY, "bob", SECRET[4:]}}
        for telling in {SECRET, BOB, BOB[:8], KEY, "issue/28", "bob"} - _said_by_herself(asked):
            assert telling not in _without_paths(shown, tmp_path), (name, arguments, shown)
        assert not re.search(r"\b5 tasks|Total contexts: 5", shown), "how many there are in all"
    assert not os.path.lexists(tmp_path / "copy")


def _said_by_herself(asked):
    """What she gave may be repeated to her; all that begins alike is hers, too."""
    return {telling for telling in (SECRET, BOB, BOB[:8], KEY, "issue/28", "bob") for one in asked if telling in one}


def _without_paths(shown, tmp_path):
    return shown.replace(str(tmp_path), "")


def test_what_is_not_hers_is_as_if_it_were_not_there(url):
    """The same sentence for a task of his and for one that nobody has."""
    for name in ("show", "similar", "stop", "pause", "resume"):
        his = said(name, BOB, "--store", url, user="alice", code=NOT_FOUND)
        nobodys = said(name, BOB.replace("8411", "9999"), "--store", url, user="alice", code=NOT_FOUND)
        assert his.replace("8411", "9999") == nobodys


def test_an_administrator_sees_all(url, tmp_path):
    """Somebody whom the settings name sees the tasks of both."""
    (tmp_path / "config.yaml").write_text("access:\n  admins: [carol]\n")
    assert "bob" in said("ls", "--store", url, user="carol")
    assert SECRET in said("show", BOB, "--messages", "--store", url, user="carol")
    assert "carol (admin)  show: task 550e8411" in said("audit", "--store", url, user="carol")
