"""A summary by hand: what it saves, what it leaves alone, and whom it refuses."""

import json
import subprocess
import sys

import pytest

from orihon.engine import Engine
from orihon.errors import Conflict, LeaseHeld, NotFound
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.compact import compact
from orihon.records import Message
from orihon.settings.schema import ContextStorage, Llm, Provider, Settings
from orihon.stores import open_store
from orihon.task_key import TaskKey
from orihon.testing import serve

KEY = TaskKey.parse("github/acme/shop/issue/27")


@pytest.fixture(params=["jsonl", "sqlite", "postgres", "memory"])
def authorized(request, url_at, tmp_path):
    with open_store(url_at(request.param, tmp_path)) as store:
        yield AuthorizedStore(store, Principal("root", admin=True), command="compact")


def a_talk(store, turns=20, user="alice"):
    """A paused task with something to summarise."""
    task = Engine(store, Settings()).start(KEY, user=user)
    task.add("system", "You are careful.")
    for turn in range(turns):
        task.add("user", f"Question {turn}: why does basket_{turn}.py fail? " + "It fails. " * 60)
        task.add("assistant", f"Answer {turn}: total_{turn} is None. " + "Because of that. " * 60)
    task.pause()
    return task.uuid


def test_the_window_gets_smaller(authorized):
    """The log stays, the status stays, and the next sitting sees the summary."""
    uuid = a_talk(authorized.store)
    said = [message.text for message in authorized.store.read(uuid, Message)]
    made = compact(authorized, Settings(), uuid[:8], focus="basket_3.py")
    assert made.messages > 10
    assert made.summary_tokens < made.original_tokens
    assert made.window_tokens_after < made.window_tokens_before / 2
    row = authorized.store.row(uuid)
    assert (row.status, row.activity, row.compression_count) == ("paused", "", 1)
    assert [message.text for message in authorized.store.read(uuid, Message)] == said
    with Engine(authorized.store, Settings()).resume(uuid) as task:
        assert made.summary.splitlines()[1][:40] in str(task.window().openai())
    again = a_talk(authorized.store, turns=1)
    nothing = compact(authorized, Settings(), again)
    assert (nothing.messages, nothing.window_tokens_after) == (0, nothing.window_tokens_before)


def test_who_is_refused(authorized):
    """A task that runs, one that has ended, and one of somebody else."""
    engine = Engine(authorized.store, Settings())
    with engine.start(KEY) as running, pytest.raises(LeaseHeld, match="only while it has no writer"):
        compact(authorized, Settings(), running.uuid)
    with pytest.raises(Conflict, match="completed"):
        compact(authorized, Settings(), running.uuid)
    with pytest.raises(NotFound):
        compact(
            AuthorizedStore(authorized.store, Principal("bob"), command="compact"), Settings(), a_talk(authorized.store)
        )


def test_the_model_of_the_settings(authorized, tmp_path):
    """It writes the summary, and is told the focus; where it fails, the extractive one stands in and says so."""
    names = " ".join(f"basket_{turn}.py total_{turn}" for turn in range(20))
    script = tmp_path / "script.json"
    script.write_text(json.dumps([f"The talk was about baskets: {names}."]))
    settings = Settings(context_storage=ContextStorage(summariser=f"scripted:{script}"))
    made = compact(authorized, settings, a_talk(authorized.store), focus="totals")
    assert made.summary.startswith("The talk was about baskets")
    assert (made.summariser, made.problems) == (f"scripted:{script}", ())
    script.write_text(json.dumps(["", " ", "\n"]))
    silent = compact(authorized, settings, a_talk(authorized.store))
    assert silent.problems == ("the summary is empty",) * 3
    assert silent.summary_tokens > 0
    script.write_text(json.dumps([{"status": 500, "error": "down"}] * 3))
    failed = compact(authorized, settings, a_talk(authorized.store))
    assert failed.problems
    assert failed.summary


def test_the_model_of_the_task(authorized):
    """Without a configured summariser it is asked, and the result says what was kept and what was saved."""
    names = " ".join(f"basket_{turn}.py total_{turn}" for turn in range(20))
    with serve([f"The talk was about baskets: {names}."]) as server:
        settings = Settings(llm=Llm(openai=Provider(model="gpt-4o", base_url=server.url)))
        made = compact(authorized, settings, a_talk(authorized.store))
    assert made.summary.startswith("The talk was about baskets")
    assert (made.summariser, made.problems, made.kept) == ("openai:gpt-4o", (), 5)
    assert made.saved_tokens == made.window_tokens_before - made.window_tokens_after > 0


def test_the_command(tmp_path):
    """In a real process."""
    with open_store(tmp_path / "contexts") as store:
        uuid = a_talk(store)

    def orihon(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "orihon", "compact", *arguments, "--store", "contexts"],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    told = orihon(uuid[:8])
    assert told.returncode == 0
    assert "The model's summary was not used: There is no key for openai:gpt-4o." in told.stderr
    assert "by extractive; the newest 5 stay as they are" in told.stdout
    assert "are saved." in told.stdout
    assert json.loads(orihon(uuid, "--json").stdout)["uuid"] == uuid
    assert orihon("nobody").returncode == 3
