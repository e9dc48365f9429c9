"""`orihon audit`: every look is there, and only administrators see it."""

import json

import pytest

import orihon
from support.cli_store import IDS, KINDS, fill, said, url_of


@pytest.fixture(params=KINDS)
def url(request, url_at, tmp_path):
    url = url_at(request.param, tmp_path)
    fill(url)
    return url


def test_each_look_is_there(url):
    """Who, when, through what, at what; filtered, the newest last, and masked."""
    said("ls", "--user", "someone@example.com", url=url, user="alice")
    said("show", IDS["done"], url=url, user="alice")
    said("stats", "--status", "failed", "--summary", url=url, user="bob")
    said("similar", IDS["done"], url=url, user="alice")
    found = [json.loads(line) for line in said("audit", "--json", url=url).splitlines()]
    assert [(look["user"], look["through"], look["at"]) for look in found] == [
        ("alice", "ls", "tasks"), ("alice", "show", "task"), ("bob", "stats", "statistics"),
        ("alice", "similar", "task"),
    ]  # fmt: skip
    assert found[0]["query"] == {"user": "[EMAIL]", "limit": 20}
    assert found[2]["query"] == {"status": ["failed"]}
    assert len(said("audit", "--task", "550e8400", "--user", "alice", url=url).splitlines()) == 2
    assert len(said("audit", "--limit", "1", url=url).splitlines()) == 1
    assert said("audit", "--to", "2001-01-01", url=url) == ""
    assert "Only an administrator" in said("audit", url=url, user="alice", code=2)


def test_a_broken_line_hides_nothing(tmp_path):
    """What cannot be read is left out, and control characters are shown."""
    url = url_of("jsonl", tmp_path)
    fill(url)
    path = tmp_path / "contexts" / "audit.jsonl"
    path.write_bytes(b'torn {"\n{"timestamp":"2024-01-15T10:30:00.000000Z","user":"eve\\u001b[2J","through":"ls"}\n')
    assert said("audit", url=url) == "2024-01-15 10:30:00  eve\\x1b[2J  ls:\n"


def test_lists_of_another_users_tasks_are_refused(url):
    """They are empty, and the audit says that they were asked for in vain."""
    for command in (["ls"], ["stats"], ["search", "basket"]):
        said(*command, "--user", "alice", url=url, user="bob")
        said(*command, "--user", "bob", url=url, user="bob")
        said(*command, "--user", "alice", url=url)
    with orihon.open(url, user="bob") as engine:
        assert list(engine.tasks(user="alice")) == []
        list(engine.tasks(user="bob"))
    found = [json.loads(line) for line in said("audit", "--json", url=url).splitlines()]
    asked = [(look["through"], look["user"], look.get("query", {}).get("user") or look.get("of")) for look in found]
    assert {one[0] for one in asked} == {"ls", "stats", "search", "library"}
    for (_, user, of), look in zip(asked, found, strict=True):
        assert look.get("denied", False) is (user == "bob" and of == "alice")


def test_json_is_the_line_as_it_is_stored(tmp_path):
    """With what is false, and nothing under another name."""
    url = url_of("jsonl", tmp_path)
    fill(url)
    said("show", "nothing", url=url, user="bob", code=3)
    said("search", "basket", "--user", "alice", url=url, user="bob")
    stored = (tmp_path / "contexts" / "audit.jsonl").read_text().splitlines()
    assert said("audit", "--json", url=url).splitlines() == stored
    assert json.loads(stored[-1])["of"] == "alice"
    assert json.loads(stored[-1])["admin"] is False
