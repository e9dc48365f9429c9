"""Events that no reader can use: refused when they are said, left out of exports and backups, named by the doctor."""

import json
import sqlite3
from contextlib import closing

import pytest

import orihon
from orihon.access import Principal
from orihon.cli import main
from orihon.context.events import problem
from orihon.errors import Corrupt, UsageError
from orihon.ops.access import AuthorizedStore
from orihon.ops.backup import backup
from orihon.ops.doctor import examine
from orihon.ops.task_file import open_task_file, write_task_file
from orihon.records import Event
from orihon.settings.schema import Settings
from support.hostile_files import packed, portable

TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hJ5"

REFUSED = {
    "a commit that is none": lambda task: task.checkpoint("x", commit="HEAD~1"),
    "a commit with a line end": lambda task: task.checkpoint("x", commit="0" * 40 + "\n"),
    "a commit of a tangent": lambda task: task.begin_tangent(commit="main"),
    "a commit that is a secret": lambda task: task.checkpoint("x", commit=TOKEN),
    "a number as text": lambda task: task.writer.event("pin", seq="1"),
    "a scale of 0": lambda task: task.writer.event("note", scale=0),
    "a scale that is no number": lambda task: task.writer.event("note", scale=float("nan")),
    "a scale as text": lambda task: task.writer.event("note", scale="x"),
    "a scale too small": lambda task: task.writer.event("note", scale=1e-310),
    "no ranges": lambda task: task.writer.event("summary", id=1, ranges=[]),
    "a range backwards": lambda task: task.writer.event("summary", id=1, ranges=[[5, 1]]),
    "a hidden range backwards": lambda task: task.writer.event("folds", first=1, last=0, hidden=[[5, 1]]),
    "a range backwards in a state": lambda task: task.writer.event("restore", after=1, state={"ranges": [[5, 1]]}),
    "a summary backwards in a state": lambda task: task.writer.event(
        "restore", after=1, state={"summaries": [{"id": 1, "ranges": [[5, 1]]}]}
    ),
}


@pytest.mark.parametrize("said", REFUSED.values(), ids=REFUSED)
def test_what_an_import_refuses_is_refused_when_it_is_said(said):
    """The sentence comes with a way out, no secret in it, and the task goes on as it was."""
    with orihon.open("memory:", settings=Settings()) as engine:
        task = engine.start("local/issue/k")
        task.add("user", "hello")
        with pytest.raises(UsageError, match="cannot be stored") as refused:
            said(task)
        assert TOKEN not in str(refused.value)
        assert list(engine.store.read(task.uuid, Event)) == []
        assert task.window().tokens > 0
        task.pin(1)
        task.complete()


@pytest.mark.parametrize("commit", ["", "a" * 40, "b" * 64])
def test_commits_of_both_kinds_are_kept(commit):
    """Git names commits by SHA-1 or by SHA-256."""
    with orihon.open("memory:", settings=Settings()) as engine:
        task = engine.start("local/issue/k")
        task.restore(task.checkpoint("x", commit=commit))
        task.begin_tangent(commit=commit)
        assert not any(map(problem, engine.store.read(task.uuid, Event)))
        task.close()


def test_the_scale_stays_believable_however_little_was_sent():
    """A provider that refuses a request of a few tokens does not make the task unusable."""
    with orihon.open("memory:", settings=Settings()) as engine:
        task = engine.start("local/issue/k", context_length=900_000_000)
        task.add("user", "hello")
        task.window()
        task.shrink_budget()
        assert not any(map(problem, engine.store.read(task.uuid, Event)))
        task.close()


BROKEN = {
    "a commit that is none": ("checkpoint", '{"commit":"HEAD~1"}'),
    "a scale of 0": ("note", '{"scale":0}'),
    "not JSON": ("note", "{{{"),
}


def fill(url, kind):
    """A task whose second event has data that can be replaced."""
    with orihon.open(url, settings=Settings()) as engine:
        task = engine.start("local/issue/k")
        task.add("user", "hello")
        task.checkpoint("before")
        task.writer.event(kind, foo=1)
        task.pin(1)
        task.complete()
        return engine.row(task.uuid)


@pytest.fixture(params=["files", "database"])
def broken(request, tmp_path):
    """A store in which the data of one event is broken, and the row of its task."""

    def make(kind, data):
        url = str(tmp_path / "contexts") if request.param == "files" else f"sqlite:///{tmp_path}/contexts.db"
        row = fill(url, kind)
        if request.param == "files":
            events = tmp_path / "contexts" / "completed" / row.uuid / "events.jsonl"
            events.write_text(events.read_text().replace('{"foo":1}', data))
        else:
            with closing(sqlite3.connect(tmp_path / "contexts.db")) as database, database:
                database.execute("UPDATE events SET line = replace(line, ?, ?)", ('{"foo":1}', data))
        return url, row

    return make


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_a_broken_event_is_left_out_with_a_note(broken, tmp_path, change):
    """The file is proved by taking it in; the other events are there, and the doctor names the broken one."""
    url, row = broken(*change)
    with orihon.open(url, settings=Settings()) as engine, orihon.open("memory:", settings=Settings()) as other:
        figures = write_task_file(engine.store, engine.row(row.uuid), tmp_path / "task.orihon")
        assert len(figures.notes) == 1
        assert figures.notes[0].startswith("It is left out: ")
        with open_task_file(tmp_path / "task.orihon") as file:
            file.copy_to(other.store)
        kept = [event.type for event in other.store.read(row.uuid, Event)]
        assert kept[0] == "checkpoint"
        assert "pin" in kept
        authorized = AuthorizedStore(engine.store, Principal(user="me", admin=True), command="backup")
        done = backup(authorized, tmp_path / "backup")
        assert (done.failures, done.tasks, len(done.notes)) == ([], 1, 1)
        again = backup(authorized, tmp_path / "backup")
        assert (again.failures, again.unchanged) == ([], 1)
    found = [one for one in examine(url) if one.level == "problem"]
    assert len(found) == 1
    assert "event" in found[0].sentence + found[0].where


def test_the_command_says_what_it_left_out(broken, tmp_path, capsys):
    """On standard error beside the sentence, and under `notes` in JSON."""
    url, row = broken(*BROKEN["a commit that is none"])
    for more in ([], ["--json", "--force"]):
        with pytest.raises(SystemExit) as ended:
            main(["export", row.uuid, "--store", url, "-o", str(tmp_path / "x.orihon"), *more])
        assert not ended.value.code
        said = capsys.readouterr()
        assert "commit" in said.err + said.out
    assert "commit" in json.loads(said.out)["notes"][0]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("note", {"scale": 1e-310}),
        ("note", {"scale": 2000}),
        ("summary", {"id": 1, "ranges": [[5, 1]]}),
        ("folds", {"first": 1, "last": 0, "hidden": [[9, 2]]}),
        ("checkpoint", {"commit": "HEAD~1"}),
    ],
)
def test_an_import_refuses_them(tmp_path, kind, data):
    """A file from elsewhere is refused as a whole, and nothing is left behind."""
    lines = portable(tmp_path / "made")
    at = next(place for place, line in enumerate(lines) if "events" in line)
    lines[at]["events"] |= {"type": kind, "data": data}
    (tmp_path / "x.orihon").write_bytes(packed(lines))
    with pytest.raises(Corrupt, match="event"):
        open_task_file(tmp_path / "x.orihon")
