"""A planned run that is paused or killed anywhere ends as it would have: same plan, same counters, nothing twice."""

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
from support.planned_runs import KEY, STORY, World, entries, outcome, progress, story_handler

DEEP = bool(os.environ.get("ORIHON_DEEP"))
WORK = Work(key=KEY, request="Mend the shop.", uuid="story")
PLANNED = Path(__file__).parents[1] / "support" / "planned_runs.py"


class Sitting:
    """A store and a world; every engine is a new one, as in another process."""

    def __init__(self, place):
        self.url, self.world = str(place / "contexts"), World(place / "world")

    def play(self, *, looks=None, appends=None):
        """Begin the story or go on with it; it may be paused at a look, or killed at an append."""
        with orihon.open(self.url, settings=STORY) as engine:
            handler = story_handler(engine, self.world, looks)
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
    """From that append on the process is as good as dead: nothing it writes arrives."""
    count = itertools.count(1)
    lives = set()

    def check(task):
        if id(task) in lives:
            return
        lives.add(id(task))
        append = task.lease.append

        def dying(record):
            if next(count) == appends:
                task.lease.close()
            return append(record)

        task.lease.append = dying

    return check


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    sitting = Sitting(tmp_path_factory.mktemp("undisturbed"))
    assert sitting.play().status == "completed"
    return sitting.outcome()


def test_the_story_has_everything(undisturbed):
    """Every kind of entry occurs, every phase, and what was asked of a person."""
    kinds = [type(value) for value in undisturbed["entries"]]
    assert {Plan, Revision, Reflection, Verification, ReplanDecision} == set(kinds)
    assert undisturbed["asked"] == ["Which?"]
    ended = undisturbed["progress"]
    assert (ended.phase, ended.round, ended.revisions) == ("done", 2, 1)
    assert ended.replans == {"retry": 1, "partial_replan": 1, "total": 2}
    assert len(set(undisturbed["ran"])) == len(undisturbed["ran"]) == 9


@pytest.mark.slow
def test_paused_at_every_look(undisturbed, tmp_path):
    """A pause before any phase, action, turn, reflection, decision or round; then another engine goes on."""
    for looks in itertools.count(1):
        sitting = Sitting(tmp_path / str(looks))
        if sitting.play(looks=looks).status == "completed":
            break
        assert sitting.play().status == "completed", looks
        assert sitting.outcome() == undisturbed, looks
    assert looks > 40


def test_paused_all_the_time(undisturbed, tmp_path):
    """Every sitting gets one turn further and is paused again."""
    sitting = Sitting(tmp_path)
    sittings = next(count for count in itertools.count(1) if sitting.play(looks=3).status == "completed")
    assert sittings > 15
    assert sitting.outcome() == undisturbed


@pytest.mark.parametrize("looks", [2, 9, 23, 37])
def test_resumed_in_another_process(undisturbed, tmp_path, looks):
    """What another process needs is all in the store."""
    sitting = Sitting(tmp_path)
    assert sitting.play(looks=looks).status == "paused"
    command = [sys.executable, str(PLANNED), sitting.url, str(sitting.world.root), "story"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.strip() == "completed"
    assert sitting.outcome() == undisturbed


def test_a_long_piece_of_work_is_not_begun_again(undisturbed, tmp_path, monkeypatch):
    """Also when a store has long forgotten the key of what was said."""
    monkeypatch.setattr(base, "REMEMBERED_KEYS", 1)
    sitting = Sitting(tmp_path)
    while sitting.play(looks=3).status != "completed":
        pass
    assert sitting.outcome() == undisturbed


@pytest.mark.slow
def test_killed_at_every_append(undisturbed, tmp_path):
    """A process that dies between any two writes: what it was doing is done once, and recorded once."""
    for appends in itertools.count(1, 1 if DEEP else 9):
        sitting = Sitting(tmp_path / str(appends))
        if sitting.play(appends=appends).status == "completed":
            break
        assert sitting.play().status == "completed", appends
        ended = sitting.outcome()
        assert ended.pop("asked") in (undisturbed["asked"], []), appends
        compare = {name: value for name, value in undisturbed.items() if name != "asked"}
        if ended != compare:
            _differs_only_by_the_lost_answer(ended, compare, appends)
    assert appends > 100


def _differs_only_by_the_lost_answer(ended, expected, appends):
    """A person is asked once at most; who dies while asking goes on with the assumption."""
    assert [one.answer for one in ended["progress"].questions] == [None], appends
    for name in ("entries", "ran", "keys", "status"):
        assert ended[name] == expected[name], (appends, name)
    assert ended["progress"].replans == expected["progress"].replans


@pytest.mark.parametrize("looks", [9, 23, 37])
def test_a_run_that_another_process_stops_is_inherited_with_its_plan(tmp_path, looks):
    """The digest is stored while the run goes on, so that any process can end it."""
    sitting = Sitting(tmp_path)
    assert sitting.play(looks=looks).status == "paused"
    with orihon.open(sitting.url, settings=STORY) as engine:
        plan = read_run(engine.store, engine.row("story")).plan
        engine.resume("story").stop("no longer needed")
        block = engine.inheritance(KEY).text
    assert "- Goal: Mend the shop" in block
    assert [part.status for part in plan.subtasks].count("completed") == block.count("- [completed]") > 0


def test_counters_survive_a_pause(tmp_path):
    """In the middle: what was counted before the pause is there after it."""
    sitting = Sitting(tmp_path)
    assert sitting.play(looks=30).status == "paused"
    with orihon.open(sitting.url, settings=STORY) as engine:
        before, kept = progress(engine, "story"), entries(engine, "story")
    assert (before.actions, before.replans["retry"], before.revisions) == (before.actions, 1, 1)
    assert before.actions >= 3
    assert sitting.play(looks=1).status == "paused"
    with orihon.open(sitting.url, settings=STORY) as engine:
        assert progress(engine, "story") == before
        assert entries(engine, "story") == kept
