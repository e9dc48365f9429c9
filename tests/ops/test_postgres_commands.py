"""Every command that works on a store works on one in PostgreSQL, one after the other, as a person would type them."""

import json

import pytest

from orihon.cli import COMMANDS
from support.cli_store import IDS, fill, said

DONE, PAUSED = IDS["done"], IDS["paused"]
# these run an agent, or have no store; the others are below
ELSEWHERE = {"config", "demo", "run", "worker", "chat", "resume", "init", "view"}


# what is typed, and a word of the answer; `{url}` is the store, `{place}` a directory
TYPED = [
    ("migrate {url}", "has version"),
    ("ls --store {url}", "550e8400"),
    ("show 550e8400 --messages --store {url}", "合計"),
    ("stats --summary --store {url}", "4"),
    ("search 合計 --store {url}", "550e8400"),
    ("similar 550e8400 --store {url}", ""),
    ("inherit github/acme/shop/issue/27 --user alice --store {url}", "合計"),
    ("keep 550e8400 --store {url}", "is kept"),
    ("unkeep 550e8400 --store {url}", ""),
    ("compact {paused} --store {url}", ""),
    ("monitor --once --store {url}", "of 3 tasks that ended"),
    ("export 550e8400 --output {place}/one.orihon --store {url}", ""),
    ("import {place}/one.orihon --store {other}", ""),
    ("backup {place}/backups --store {url}", ""),
    ("restore {place}/backups --store {third}", ""),
    ("copy {url} {place}/copy", ""),
    ("copy {place}/copy {fourth}", ""),
    ("clean --dry-run --store {url}", "Nothing was changed"),
    ("doctor --store {url}", "Examined"),
    ("enqueue 'Mend it' --store {url}", ""),
    ("pause {paused} --store {url}", ""),
    ("unpause {paused} --store {url}", ""),
    ("stop {paused} --store {url}", ""),
    ("clean --store {url}", "There are now"),
    ("audit --store {url}", "show: task"),
]


def test_none_is_left_out():
    assert {line.split()[0] for line, _ in TYPED} | ELSEWHERE == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_each_command(postgres, tmp_path, monkeypatch):
    """What is asked is answered, what goes out comes in again, and nothing is lost on the way."""
    names = {name: postgres(tmp_path / name) for name in ("url", "other", "third", "fourth")}
    names |= {"place": str(tmp_path), "paused": PAUSED}
    fill(names["url"])
    monkeypatch.chdir(tmp_path)
    for line, word in TYPED:
        given = [part.strip("'").format(**names) for part in line.replace("'Mend it'", "Mend").split()]
        assert word in said(*given), line
    listed = {
        name: {task["uuid"] for task in json.loads(said("ls", "--json", url=names[name]))["tasks"]}
        for name in ("other", "third", "fourth")
    }
    assert listed == {
        "other": {DONE}, "third": {DONE, IDS["failed"], IDS["bob"]}, "fourth": set(IDS.values())
    }  # fmt: skip
    assert said("show", DONE, "--messages", "--json", url=names["third"]) == said(
        "show", DONE, "--messages", "--json", url=names["url"]
    )
    assert "no conversation" in said("chat", "--list", url=names["url"])
