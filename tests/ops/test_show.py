"""`orihon show`: one task as the seeds show it, its lists, what the model would see, and live."""

import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest

import orihon
from orihon.settings.schema import Settings
from support.cli_store import IDS, KINDS, fill, pack, said, url_of

DONE = IDS["done"]


@pytest.fixture(params=[*KINDS, "packed"])
def url(request, url_at, tmp_path):
    url = url_at("jsonl" if request.param == "packed" else request.param, tmp_path)
    fill(url)
    if request.param == "packed":
        pack(tmp_path)
    return url


def test_the_view_of_the_seeds(url):
    """The layout line by line; ten messages, the text in one line, in the terminal's width."""
    shown = said("show", DONE, url=url, LC_ALL="ja_JP.UTF-8")
    wanted = r"""Task UUID: 550e8400-e29b-41d4-a716-446655440000
Status: completed
Repository: github/acme/shop
Task: issue #27
Started: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d
Completed: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d
Duration: \d+秒

Statistics:
  LLM calls: 6
  Tool calls: 5
  Total tokens: 6\d\d
  Compressions: 0

Messages: 13 \(showing last 10\)
  \[4\] tool: read_file -> the text of part_1.py
  \[5\] assistant: Step 2 -> read_file\(\{"path": "part_2.py"\}\)
(?s:.*)
  \[13\] assistant: Fixed: 合計を直しました。

Summaries: 1
  \[1\] seq 2-13 \(final\): .*
"""
    assert re.fullmatch(wanted, shown), shown
    assert max(map(len, shown.splitlines())) <= 100


def test_short_ids(url):
    """A beginning is enough, as long as it fits no other."""
    assert said("show", "7c", url=url).startswith(f"Task UUID: {IDS['failed']}\nStatus: failed\n")
    assert "Several tasks begin with '550e84'" in said("show", "550e84", url=url, code=2)
    assert "Task UUID: 550e8411" in said("show", "550e84", url=url, user="bob")
    assert "There is no task" in said("show", "ffff", url=url, code=3)


def test_nothing_reaches_the_terminal_raw(url):
    """Control characters of messages and errors are shown, not done."""
    for arguments in (["--messages", "--full"], ["--messages"], ["--window", "--full"], ["--events"]):
        shown = said("show", DONE, *arguments, url=url)
        assert not set(shown) & {"\x1b", "\x9b", "\x07"}
    assert r"wrong.\x1b[2J\x9b31m Look" in said("show", DONE, "--messages", url=url)
    failed = said("show", IDS["failed"], url=url)
    assert r"Error: RuntimeError: the provider\x1b]0;owned\x07 went away" in failed
    assert "Repository: gitlab/group/web\nTask: merge request #5\n" in failed


def test_lists(url):
    """Messages in part or whole, tools, summaries, events; as lines, or as records for programs."""
    shown = said("show", DONE, "--messages", "--first", "3", "--last", "4", url=url).splitlines()
    assert [line.split(":")[0] for line in shown] == ["Messages", "  [3] assistant", "  [4] tool"]
    assert len(said("show", DONE, "--messages", "--first", "-2", url=url).splitlines()) == 3
    records = [json.loads(line) for line in said("show", DONE, "--messages", "--json", url=url).splitlines()]
    assert [record["seq"] for record in records] == list(range(1, 14))
    tools = said("show", DONE, "--tools", "--summaries", "--events", "--plan", url=url)
    assert re.search(
        r'^  \[1\] read_file\(\{"path":"part_1.py"\}\) [\d,]+ ms -> the text of part_1.py$', tools, re.MULTILINE
    )
    assert [line for line in tools.splitlines() if not line.startswith(" ")] == [
        "Summaries:", "Tools:", "Events:", "Plan:",
    ]  # fmt: skip


def test_whole_texts(url, tmp_path):
    """With --full nothing is left out, also of what lives in a blob."""
    del tmp_path
    long = "".join(f"line {number}\n" for number in range(60_000))
    with orihon.open(url, settings=Settings()) as engine:
        with engine.start("local/issue/long", user="alice") as task:
            task.add("user", long)
        uuid = task.uuid
    cut = said("show", uuid, "--messages", url=url).splitlines()
    assert len(cut) == 2
    assert cut[1].endswith("…")
    assert "line 59999" in said("show", uuid, "--messages", "--full", url=url)


def test_the_window(url):
    """What the model would see now, and its tokens by source; for programs in the format of a request."""
    shown = said("show", DONE, "--window", url=url)
    assert re.match(r"Window: \d+ of [\d,]+ tokens \(13 whole, 0 folded, 0 left out\)\n  \w+", shown)
    assert "  [1] system: You fix bugs." in shown
    found = json.loads(said("show", DONE, "--window", "--json", url=url))
    assert sum(found["by_source"].values()) == found["tokens"]
    assert [message["role"] for message in found["messages"]][:3] == ["system", "user", "assistant"]


def test_for_programs(url):
    """One object: the row, and what is shown beside it."""
    found = json.loads(said("show", DONE, "--json", url=url))
    assert (found["row"]["uuid"], found["row"]["status"], found["repository"], found["task"]) == (
        DONE, "completed", "github/acme/shop", "issue #27",
    )  # fmt: skip
    assert (found["message_count"], len(found["messages"]), found["summary_count"]) == (13, 10, 1)


def a_follower(url, uuid):
    return subprocess.Popen(
        [sys.executable, "-m", "orihon", "show", uuid, "--follow", "--store", url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_follow(kind, url_at, tmp_path):
    """New messages are shown while a task runs, by somebody without a lease, until it has ended."""
    url = url_at(kind, tmp_path)
    with orihon.open(url, settings=Settings()) as engine:
        task = engine.start("local/issue/live", user="alice")
        task.add("user", "first")
        follower = a_follower(url, task.uuid)
        guard = threading.Timer(60, follower.kill)
        guard.start()
        try:
            for line in follower.stdout:
                if "[1] user: first" in line:
                    task.add("user", "second")
                elif "[2] user: second" in line:
                    task.add("assistant", "third")
                    task.complete()
                    break
            rest = follower.stdout.read()
            assert follower.wait(30) == 0
        finally:
            guard.cancel()
            follower.kill()
            follower.stdout.close()
            follower.stderr.close()
    assert rest.splitlines() == ["  [3] assistant: third", "Status: completed"]


def test_ctrl_c_ends_following(tmp_path):
    """Whoever has seen enough leaves without an error, and the task goes on."""
    url = url_of("jsonl", tmp_path)
    with orihon.open(url, settings=Settings()) as engine:
        task = engine.start("local/issue/live", user="alice")
        task.add("user", "first")
        follower = a_follower(url, task.uuid)
        guard = threading.Timer(60, follower.kill)
        guard.start()
        for line in follower.stdout:
            if line.startswith("Summaries:"):
                break
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=30)
        guard.cancel()
        assert (follower.returncode, err) == (0, ""), out
        task.add("user", "still here")
        task.complete()
