"""`orihon ls`: which tasks are listed, in which order, and how."""

import json

import pytest

import orihon
from orihon.errors import NotFound
from orihon.settings.schema import Settings
from orihon.task.lifecycle import INTERRUPTED
from support.cli_store import IDS, KINDS, fill, said


@pytest.fixture(params=KINDS)
def url(request, url_at, tmp_path):
    url = url_at(request.param, tmp_path)
    fill(url)
    return url


def listed(url, *arguments, **options):
    return [task["uuid"] for task in json.loads(said("ls", *arguments, "--json", url=url, **options))["tasks"]]


def test_filters_and_order(url):
    """By user, status, key and day; the newest first, or the most of something."""
    assert listed(url) == [IDS["bob"], IDS["paused"], IDS["failed"], IDS["done"]]
    assert listed(url, "--user", "bob") == [IDS["bob"]]
    assert listed(url, "--status", "failed", "--status", "paused") == [IDS["paused"], IDS["failed"]]
    assert listed(url, "--key", "github/Acme/shop/issue/27") == [IDS["done"]]
    assert listed(url, "--to", "2001-01-01") == []
    assert len(listed(url, "--from", "2001-01-01")) == 4
    assert listed(url, "--sort", "tokens", "--limit", "1") == [IDS["done"]]
    assert listed(url, "--sort", "messages", "--limit", "1") == [IDS["done"]]
    assert listed(url, "--kept") == []


def test_what_can_be_retried(url):
    """Of failed tasks those whose worker died too often: `orihon resume` goes on with them, and only with them."""
    with orihon.open(url, settings=Settings()) as engine:
        task = engine.start("local/issue/dead", user="alice")
        task.fail("The worker died 3 times.", reason=INTERRUPTED)
        paused = engine.start("local/issue/paused", user="alice")
        paused.pause(INTERRUPTED)
    assert set(listed(url, "--status", "failed")) == {task.uuid, IDS["failed"]}
    assert listed(url, "--status", "failed", "--retryable") == listed(url, "--retryable") == [task.uuid]
    assert listed(url, "--retryable", user="bob") == []
    said("ls", "--retryable", "--status", "completed", url=url, code=2)
    with orihon.open(url, settings=Settings()) as engine:
        engine.resume(task.uuid).complete()
    assert listed(url, "--retryable") == []


def test_pages(url):
    """A page, whether there are more, and how to see them."""
    first = json.loads(said("ls", "--limit", "3", "--json", url=url))
    assert (len(first["tasks"]), first["offset"], first["has_more"]) == (3, 0, True)
    second = json.loads(said("ls", "--limit", "3", "--page", "2", "--json", url=url))
    assert (len(second["tasks"]), second["offset"], second["has_more"]) == (1, 3, False)


def test_the_table(url):
    """One line for each task, with short ids, and nothing that a terminal would obey."""
    head, *lines = said("ls", url=url).splitlines()
    assert head.split() == ["TASK", "STATUS", "KEY", "USER", "WHEN", "DURATION", "CALLS", "TOKENS"]
    assert [line.split()[:3] for line in lines] == [
        ["550e8411", "completed", "github/acme/shop/issue/28"],
        ["0f8fad5b", "paused", "local/issue/notes"],
        ["7c9e6679", "failed", "gitlab/group/web/merge_request/5"],
        ["550e8400", "completed", "github/acme/shop/issue/27"],
    ]


def test_what_makes_no_sense(url, tmp_path):
    """A wrong date, key, page or store is a sentence."""
    said("ls", "--from", "yesterday", url=url, code=2)
    said("ls", "--key", "nonsense", url=url, code=2)
    said("ls", "--page", "0", url=url, code=2)
    assert said("ls", url=str(tmp_path / "none"), code=NotFound.exit_code)
    assert not (tmp_path / "none").exists()


def test_a_user_sees_his_own(url):
    """Somebody else's tasks are not there, whatever is asked for."""
    assert listed(url, user="bob") == [IDS["bob"]]
    assert listed(url, "--user", "alice", user="bob") == []
    assert listed(url, "--key", "github/acme/shop/issue/27", user="bob") == []
