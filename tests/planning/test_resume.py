"""A planned run that is paused or killed anywhere ends with the same plan and counters, and repeats nothing."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import orihon
from orihon.agent.handler import Work
from orihon.errors import StoreError
from orihon.planning.history import read_run
from orihon.planning.schema import Plan, Reflection, ReplanDecision, Revision, Verification
from orihon.stores import base
from support.planned_runs import KEY, STORY, Workspace, entries, outcome, progress, story_handler

DEEP = bool(os.environ.get("ORIHON_DEEP"))
WORK = Work(key=KEY, request="Mend the shop.", uuid="story")
PLANNED = Path(__file__).parents[1] / "support" / "planned_runs.py"


class StoredStory:
    """A store and a workspace. Every call opens a new engine, as another process would."""

    def __init__(self, place):
        self.url, self.world = str(place / "contexts"), Workspace(place / "world")

    def play(self, *, pause_at=None, appends=None):
        """Begin or continue the story. Pause it at a check, or kill it at an append."""
        with orihon.open(self.url, settings=STORY) as engine:
            handler = story_handler(engine, self.world, pause_at)
            begun = any(row.uuid == "story" for row in engine.tasks())
            if appends is not None:
                handler.checks = (_killed_at(appends),)
            try:
                return handler.resume("story") if begun else handler.handle(WORK)
            except StoreError:
                return engine.row("story")

    def outcome(self):
        with orihon.open(self.url, settings=STORY) as engine:
            return outcome(engine, self.world, "story")


def _killed_at(appends):
    """Return a check that closes the lease at an append, as if the process had been killed."""
    count = itertools.count(1)
    lives = set()

    def check(task):
        if id(task) in lives:
            return
        lives.add(id(task))
        append = task.writer.lease.append

        def dying(record):
            if next(count) == appends:
                task.writer.lease.close()
            return append(record)

        task.writer.lease.append = dying

    return check


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    story = StoredStory(tmp_path_factory.mktemp("uninterrupted"))
    assert story.play().status == "completed"
    return story.outcome()


def test_the_story_has_everything(uninterrupted):
    """The story has every kind of entry, every phase and a question to the user."""
    kinds = [type(value) for value in uninterrupted["entries"]]
    assert {Plan, Revision, Reflection, Verification, ReplanDecision} == set(kinds)
    assert uninterrupted["asked"] == ["Which?"]
    ended = uninterrupted["progress"]
    assert (ended.phase, ended.round, ended.revisions) == ("done", 2, 1)
    assert ended.replans == {"retry": 1, "partial_replan": 1, "total": 2}
    assert len(set(uninterrupted["ran"])) == len(uninterrupted["ran"]) == 9


@pytest.mark.slow
def test_paused_at_every_check(uninterrupted, tmp_path):
    """The run is paused at each check in turn, and another engine continues it."""
    for pause_at in itertools.count(1):
        story = StoredStory(tmp_path / str(pause_at))
        if story.play(pause_at=pause_at).status == "completed":
            break
        assert story.play().status == "completed", pause_at
        assert story.outcome() == uninterrupted, pause_at
    assert pause_at > 40


def test_paused_all_the_time(uninterrupted, tmp_path):
    """The run is paused again after every turn."""
    story = StoredStory(tmp_path)
    rounds = next(count for count in itertools.count(1) if story.play(pause_at=3).status == "completed")
    assert rounds > 15
    assert story.outcome() == uninterrupted


@pytest.mark.parametrize("pause_at", [2, 9, 23, 37])
def test_resumed_in_another_process(uninterrupted, tmp_path, pause_at):
    """Another process needs nothing but the store."""
    story = StoredStory(tmp_path)
    assert story.play(pause_at=pause_at).status == "paused"
    command = [sys.executable, str(PLANNED), story.url, str(story.world.root), "story"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.strip() == "completed"
    assert story.outcome() == uninterrupted


def test_a_long_piece_of_work_is_not_begun_again(uninterrupted, tmp_path, monkeypatch):
    """A prompt is not repeated even if the store no longer knows its key."""
    monkeypatch.setattr(base, "REMEMBERED_KEYS", 1)
    story = StoredStory(tmp_path)
    while story.play(pause_at=3).status != "completed":
        pass
    assert story.outcome() == uninterrupted


@pytest.mark.slow
def test_killed_at_every_append(uninterrupted, tmp_path):
    """The process dies between any two writes, and nothing is done or recorded twice."""
    for appends in itertools.count(1, 1 if DEEP else 9):
        story = StoredStory(tmp_path / str(appends))
        if story.play(appends=appends).status == "completed":
            break
        assert story.play().status == "completed", appends
        ended = story.outcome()
        assert ended.pop("asked") in (uninterrupted["asked"], []), appends
        compare = {name: value for name, value in uninterrupted.items() if name != "asked"}
        if ended != compare:
            _differs_only_by_the_lost_answer(ended, compare, appends)
    assert appends > 100


def _differs_only_by_the_lost_answer(ended, expected, appends):
    """Whether two outcomes differ only by an answer of the user that was lost. The question is not repeated."""
    assert [one.answer for one in ended["progress"].questions] == [None], appends
    for name in ("entries", "ran", "keys", "status"):
        assert ended[name] == expected[name], (appends, name)
    assert ended["progress"].replans == expected["progress"].replans


@pytest.mark.parametrize("pause_at", [9, 23, 37])
def test_a_run_that_another_process_stops_is_inherited_with_its_plan(tmp_path, pause_at):
    """The digest is stored while the run goes on, so that any process can end it."""
    story = StoredStory(tmp_path)
    assert story.play(pause_at=pause_at).status == "paused"
    with orihon.open(story.url, settings=STORY) as engine:
        plan = read_run(engine.store, engine.row("story")).plan
        engine.resume("story").stop("no longer needed")
        block = engine.inheritance(KEY).text
    assert "- Goal: Mend the shop" in block
    assert [part.status for part in plan.subtasks].count("completed") == block.count("- [completed]") > 0


def test_counters_survive_a_pause(tmp_path):
    """All counters have the same values after a pause."""
    story = StoredStory(tmp_path)
    assert story.play(pause_at=30).status == "paused"
    with orihon.open(story.url, settings=STORY) as engine:
        before, kept = progress(engine, "story"), entries(engine, "story")
    assert (before.actions, before.replans["retry"], before.revisions) == (before.actions, 1, 1)
    assert before.actions >= 3
    assert story.play(pause_at=1).status == "paused"
    with orihon.open(story.url, settings=STORY) as engine:
        assert progress(engine, "story") == before
        assert entries(engine, "story") == kept
