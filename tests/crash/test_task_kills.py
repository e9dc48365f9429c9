"""A task that is killed anywhere goes on as if nothing had happened, but for the calls that nobody knows the end of.

After a kill and a resume everything is as in the run that was left alone, except

- a call that had no answer yet is answered with `INTERRUPTED`, in the log, in the tools' list and in the snapshot; a
  window that is smaller by that is folded and summarised at another time;
- the answer that was stored last may lack its line in the tools' list and in the snapshot, if the kill fell between;
- a batch of folds or a summary that was stored and did not count yet is there, and is made again;
- the row counts one resume more, and may lack what the step in flight would have counted; that of a task that had
  ended may still name the process that was killed, which holds nothing;
- an inherited block stands before its request, so it may be there alone; so may what is told of a tangent, which is
  closed after it;
- the tangents that an end closes may be closed when the end was not begun yet.
"""

import json
import re
import shutil
import signal
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

import orihon
from orihon.context.ledger import find_prose
from orihon.context.matter import INHERITED
from orihon.context.repair import INTERRUPTED
from orihon.ops.doctor import examine
from orihon.records import Event, Message, Summary, TaskRow, ToolCall
from orihon.settings.schema import Settings
from support.faults import DEEP, Fault, Faults, fast_place, in_child, sampled
from support.replies import KEY
from support.scenario import STORES, url_of
from support.task_script import EARLIER, KINDS, UUID, Kill, earlier, killed, look, play, position, steps

MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")
COUNTED = {"llm_call_count": 1, "total_tokens": 70, "tool_call_count": 1, "compression_count": 1}  # by one step


class Account(NamedTuple):
    """All that is left of a task."""

    messages: list[Message]
    tools: list[ToolCall]
    events: list[Event]
    summaries: list[Summary]
    row: TaskRow | None
    inherited: str  # by the next one

    @property
    def unanswered(self):
        answered = {message.tool_call_id for message in self.messages}
        asked = [call.id for message in self.messages for call in message.tool_calls]
        return {one for one in asked if one not in answered}

    @property
    def half_recorded(self):
        """Whether the newest answer has no line in the tools' list, and whether it is not in the snapshot."""
        newest = self.messages[-1] if self.messages else None
        if newest is None or newest.role != "tool":
            return False, False
        noticed = any(event.after == newest.seq and event.data.keys() & {"acted", "observed"} for event in self.events)
        return newest.tool_call_id not in {call.call_id for call in self.tools}, not noticed

    @property
    def counting(self):
        """The summaries that an event, the message of a tangent, or the end made count."""
        named = {event.data["id"] for event in self.events if event.type == "summary"}
        named |= {*{str(one.ranges): one.id for one in self.summaries if one.kind == "tangent"}.values()}  # the newest
        return [one for one in self.summaries if one.id in named or one.kind == "final"]


def account(url):
    """What the store says, without the times, and where the task is in its script."""
    with orihon.open(url, settings=Settings()) as engine:
        stored = look(engine)
        handoff = engine.inheritance(KEY)
        inherited = MOMENT.sub("…", handoff.text) if handoff else ""
        if stored is None:
            return Account([], [], [], [], None, inherited), stored
        reader = engine.read(UUID)
        lists = [
            [msgspec.structs.replace(record, timestamp="") for record in records]
            for records in (reader.messages(), reader.tools(), reader.events(), reader.summaries())
        ]
        return Account(*lists, reader.row, inherited), stored


class Heard:
    """What a child said."""

    def __init__(self, said):
        lines = [json.loads(line) for line in said]
        first = [line for line in lines if "resumed" in line]
        self.began = first[0] if first else None
        self.windows = {line["after"]: line["window"] for line in lines if "after" in line}
        self.acknowledged = {line["key"]: line["seq"] for line in lines if "key" in line}
        self.answers = {line["call"] for line in lines if "call" in line}
        self.calls = next((line["calls"] for line in lines if "calls" in line), [])
        self.commits = next((line["commits"] for line in lines if "commits" in line), [])


class World:
    """A store with an earlier run, and how the script goes when nothing disturbs it."""

    def __init__(self, kind, place):
        self.kind, self.place = kind, place
        (place / "new").mkdir()
        earlier(url_of(kind, place / "new"))
        url = self.copy("undisturbed")
        ended = in_child(killed(play(url)))
        assert (ended.signal, ended.code) == (0, 0)
        self.heard = Heard(ended.said)
        self.account, _ = account(url)
        names = [step.name for step in steps()]
        assert list(self.heard.windows) == names
        self.positions = [self.heard.began["window"], *self.heard.windows.values()]

    def copy(self, name):
        shutil.copytree(self.place / "new", self.place / name)
        return url_of(self.kind, self.place / name)

    def check(self, work, again=None):
        """Kill `work`, perhaps also whoever goes on first, go on, and compare."""
        shutil.rmtree(self.place / "killed", ignore_errors=True)
        url = self.copy("killed")
        first = work(url)
        assert first.signal == signal.SIGKILL
        left, stored = account(url)
        comparison = Comparison(self, left, stored)
        if again is not None:
            assert again(url).signal == signal.SIGKILL
            comparison.resumes = 2
            comparison.look(account(url)[0])
        last = in_child(play(url))
        assert (last.signal, last.code) == (0, 0)
        comparison.before, comparison.after, comparison.end = Heard(first.said), Heard(last.said), account(url)[0]
        comparison.check()
        assert_tidy(self.kind, url)
        return comparison


class Comparison:
    """One run that was killed against the one that was not: what was left, what was said, what became of it."""

    before: Heard
    after: Heard
    end: Account
    resumes = 1

    def __init__(self, world, left, stored):
        self.world, self.wanted, self.stored = world, world.account, stored
        self.interrupted = left.unanswered if left.row is not None and left.row.status == "running" else set()
        self.look(left)

    def look(self, left):
        """At what a kill has left."""
        self.left = left
        self.unlisted, self.unnoticed = left.half_recorded
        self.newest = left.messages[-1].tool_call_id if left.messages else None
        self.same = not self.interrupted and not self.unnoticed  # nothing that the model sees has changed

    def check(self):
        self.nothing_is_lost()
        self.windows()
        self.messages()
        self.tools()
        self.events()
        self.summaries()
        self.row()
        assert self.end.inherited
        assert self.end.inherited == self.wanted.inherited or not self.same  # what is inherited tells of it too

    def nothing_is_lost(self):
        for said in (self.before, self.after):
            for key, seq in said.acknowledged.items():
                assert self.end.messages[seq - 1].key == key
        for kept in ("messages", "tools", "events", "summaries"):
            there = getattr(self.left, kept)
            assert getattr(self.end, kept)[: len(there)] == there
        assert not self.before.answers & self.interrupted

    def windows(self):
        """Before the kill all are as ever; after the resume the first one is; and if nothing was changed, all are."""
        for name, window in self.before.windows.items():
            assert window == self.world.heard.windows[name]
        if self.same:
            for name, window in self.after.windows.items():
                assert window == self.world.heard.windows[name]
        if self.stored is None or self.after.began is None:
            return
        place = position(self.stored)
        wanted = self.world.positions[place]
        window = self.after.began["window"]
        if INHERITED in self.stored.keys and "request" not in self.stored.keys:
            first, *_, block = json.loads(window["openai"])
            assert [first] == json.loads(wanted["openai"])
            assert block["content"] == self.wanted.messages[1].content
        elif self.stored.told_aside:
            *before, aside = json.loads(window["openai"])
            assert before == json.loads(wanted["openai"])
            assert "[[aside]]" in aside["content"]
        elif self.same or self.after.began["made"] == self.stored.made:
            assert window == wanted
        else:  # it had to be folded or summarised, for it tells of the interruption
            assert INTERRUPTED in window["openai"] or place > len(self.before.windows)

    def messages(self):
        for found, wanted in zip(self.end.messages, self.wanted.messages, strict=True):
            expected = wanted
            if wanted.tool_call_id in self.interrupted:
                changes = {"content": INTERRUPTED, "is_error": True, "blob": None, "tokens": found.tokens}
                expected = msgspec.structs.replace(wanted, **changes)
            window = (
                expected.window
            )  # after an interruption it tells of that, and only the first one says why it was folded
            if self.same and found.window is not None:
                window = msgspec.structs.replace(found.window, reasons=expected.window.reasons)
            assert msgspec.structs.replace(found, window=window) == expected

    def tools(self):
        missing = {self.newest} if self.unlisted else set()
        wanted = [call for call in self.wanted.tools if call.call_id not in missing]
        for place, (found, expected) in enumerate(zip(self.end.tools, wanted, strict=True), start=1):
            changes = {"seq": place, "duration_ms": found.duration_ms}
            if expected.call_id in self.interrupted:
                changes |= {"args": {}, "status": "error", "result": None, "error": INTERRUPTED, "message_seq": None}
            assert found == msgspec.structs.replace(expected, **changes)

    def events(self):
        """The same in the same places; those that make room come when there is none."""

        def outline(events):
            loose = {"folds", "summary"} if not self.same else set()
            return [(event.type, event.after) for event in events if event.type not in loose]

        wanted = outline(self.wanted.events)
        if self.unnoticed:
            wanted.remove(("snapshot", self.left.messages[-1].seq))
        assert outline(self.end.events) == wanted

    def summaries(self):
        """One final one; the others are the same, but for those that had no effect yet."""
        assert [one.kind for one in self.end.summaries].count("final") == 1
        assert len(self.end.summaries) - len(self.end.counting) <= 1
        if self.same:
            found, wanted = ([(one.kind, one.summary, one.ranges) for one in run.counting] for run in self.runs)
            assert found == wanted
        else:  # what they are made of tells of the interruption
            found, wanted = ([one.kind for one in run.counting if one.kind != "rolling"] for run in self.runs)
            assert found == wanted
            assert all(find_prose(one.summary) for one in self.end.counting)

    @property
    def runs(self):
        return self.end, self.wanted

    def row(self):
        found, wanted = self.end.row, self.wanted.row
        for name in ("status", "activity", "reason", "error_message"):
            assert getattr(found, name) == getattr(wanted, name), name
        assert find_prose(found.final_summary)
        assert found.final_summary == wanted.final_summary or not self.same
        outlines = [json.loads(row.handoff) for row in (found, wanted)]
        if self.interrupted or self.unlisted:  # it counts how often each tool succeeded
            assert all(outline.pop("tools") for outline in outlines)
        if not self.same:  # it tells of the interruption
            assert all(outline.pop("ledger") for outline in outlines)
        assert outlines[0] == outlines[1]
        for name, step in COUNTED.items():
            if name != "compression_count" or self.same:
                assert getattr(wanted, name) - getattr(found, name) in {0, step}, name
        assert 0 <= found.resume_count - wanted.resume_count <= self.resumes
        ended = self.left.row is not None and self.left.row.status == "completed"
        assert ended or found.lease_owner is None


def assert_tidy(kind, url):
    """One directory for each task, in its place, and nothing for the doctor to do."""
    assert [finding for finding in examine(url) if finding.level == "problem"] == []
    if kind == "jsonl":
        places = sorted(str(path.relative_to(url)) for path in Path(url).glob("*/*") if path.is_dir())
        assert places == [f"completed/{EARLIER}", f"completed/{UUID}"]


@pytest.fixture(scope="module", params=STORES)
def world(request):
    with fast_place() as place:
        yield World(request.param, place)


def spread(points, count):
    """Points evenly over the run, and one at least of each kind of step."""
    chosen = {place for place, _ in sampled(list(enumerate(points)), count)}
    for kind in {kind for _, kind in points} - {points[place][1] for place in chosen}:
        chosen.add(next(place for place, (_, one) in enumerate(points) if one == kind))
    return sorted(chosen)


@pytest.mark.slow
def test_the_script_does_everything(world):
    """It inherits, folds more than once, also while a call waits, summarises by itself, uses a blob, and ends once."""
    account = world.account
    assert account.messages[1].key == INHERITED
    kinds = [event.type for event in account.events]
    folded = [event.after for event in account.events if event.type == "folds"]
    assert len(folded) > 1
    assert account.messages[folded[0]].tool_call_id is not None  # an answer comes after it
    assert kinds.count("summary") > 1
    assert any(message.blob for message in account.messages)
    assert {kind for _, kind in world.heard.calls} >= KINDS
    assert [one.kind for one in account.summaries].count("final") == 1
    assert account.row.status == "completed"
    assert all(first != second for first, second in pairwise(sorted(world.heard.acknowledged.values())))
    assert UUID[:8] in account.inherited


@pytest.mark.slow
def test_killed_before_any_write(world):
    """Before each write, sync or change of the row."""
    calls = world.heard.calls
    places = spread(calls, 15)
    assert len(places) >= 20
    for place in places:
        try:
            world.check(lambda url, at=place + 1: in_child(killed(play(url), Kill(at, "before"))))
        except BaseException as error:
            error.add_note(f"{world.kind}: killed before call {place + 1}, {calls[place]}")
            raise


@pytest.mark.slow
def test_killed_again_while_it_resumes(world):
    """Between the answers to the calls that were lost: each of them is answered once."""
    kinds = [kind for _, kind in world.heard.calls]
    asked = max(place for place, kind in enumerate(kinds[: kinds.index("rewind")]) if kind == "reply")
    for at in sampled(list(range(1, 11)), 3):  # the lease, the row, and four writes for each of two answers
        try:
            comparison = world.check(
                lambda url: in_child(killed(play(url), Kill(asked + 2, "before"))),
                lambda url, at=at: in_child(killed(play(url), Kill(at, "before"))),
            )
            assert comparison.interrupted == {"call_4_0", "call_4_1"}
        except BaseException as error:
            error.add_note(f"{world.kind}: killed before call {asked + 2}, and before call {at} of the resume")
            raise


@pytest.mark.slow
def test_killed_inside_a_commit(world):
    """When SQLite has written and not committed: the row of plain files, and everything of the other store."""
    commits = world.heard.commits
    for place in sampled(list(range(len(commits))), 4):
        try:
            world.check(lambda url, at=place + 1: in_child(killed(play(url), Kill(at, "inside"))))
        except BaseException as error:
            error.add_note(f"{world.kind}: killed inside commit {place + 1}, {commits[place]}")
            raise


@pytest.mark.slow
def test_killed_inside_a_write():
    """Half of a line is in a file, or half of a new state beside it."""
    with fast_place() as place:
        world = World("jsonl", place)
        url = world.copy("counted")
        with Faults() as faults:
            play(url)(lambda _: None)
        points = [at for at, name in enumerate(faults.calls, start=1) if name in {"write", "pwrite"} or DEEP]
        for at in sampled(points, 5):
            try:
                world.check(lambda url, at=at: in_child(play(url), Fault(at=at, how="kill half")))
            except BaseException as error:
                error.add_note(f"killed half-way through call {at} ({faults.calls[at - 1]})")
                raise
