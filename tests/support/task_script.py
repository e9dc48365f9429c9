"""One task from start to end in steps that can be taken up again after a kill, by what is stored and nothing else.

    play(url, say)                       in a child: all steps that are not done yet, in order, to the end
    killed(play, Kill(at=7, how=…))      the same until the seventh write

What it says, one JSON value a line: `{"resumed": …}` with the window right after a resume, `{"after": step}` with the
window after each step, `{"key": …, "seq": …}` for each message that was acknowledged, `{"kind": …}` when a step begins.
"""

import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, NamedTuple

import orihon
from orihon.errors import Conflict, NotFound
from orihon.records import Event
from orihon.settings.schema import Settings
from orihon.stores.jsonl.store import JsonlLease, JsonlStore
from orihon.stores.sql import database
from orihon.stores.sql.sqlite import SqliteLease, SqliteStore
from orihon.task.summaries import TANGENT_KEY
from support.replies import KEY, TOOLS, saying

EARLIER, UUID = "00000000-earlier", "11111111-scripted"
APIS = ("openai", "anthropic")
MARK = re.compile(r"\[\[.*?\]\]")


def summariser(prompt):
    """Says which marks of requests and replies it saw; an interrupted tool changes nothing of them."""
    return f"So far: {' '.join(sorted(set(MARK.findall(prompt))))}"


def lines(number, count):
    """A long result, without a word that is used elsewhere."""
    return "\n".join(f"{number}{line:05} ok {line * 7919 % 1000:03} lorem ipsum dolor" for line in range(count))


# each reply asks for these tools, each with what it will say; an exception is raised
REPLIES = {
    0: [("read_file", lines(0, 4)), ("read_file", lines(1, 60))],
    1: [("run_tests", FileNotFoundError("there is nothing to test"))],
    2: [("recall", None), ("read_file", lines(2, 90)), ("read_file", lines(3, 90))],
    3: [],
    4: [("read_file", lines(4, 190)), ("read_file", lines(5, 190))],
    5: [("read_file", lines(6, 40)), ("run_tests", lines(7, 3))],
    6: [("read_file", lines(8, 9000))],  # too long for a line: it lives in a blob
    7: [("read_file", lines(9, 100))],
    8: [],
}


def call_id(number, place):
    return f"call_{number}_{place}"


class Stored(NamedTuple):
    """What a store has of the task: all that a process that begins knows."""

    keys: dict[str, int]
    answered: set[str]
    events: list[Event]
    status: str

    def count(self, kind):
        return sum(event.type == kind for event in self.events)

    @property
    def made(self):
        """The number of batches of folds and of summaries that count."""
        return self.count("folds") + self.count("summary")

    @property
    def told_aside(self):
        """Whether a tangent is open and what is told of it is stored already."""
        opened = [event.after for event in self.events if event.type == "tangent"]
        if len(opened) == self.count("end"):
            return False
        return any(key.startswith(TANGENT_KEY) and seq > opened[-1] for key, seq in self.keys.items())

    def pinned(self, seq):
        return any(event.type == "pin" and event.data["seq"] == seq for event in self.events)


def look(engine):
    """What is stored; None when the task was never made."""
    try:
        reader = engine.read(UUID)
    except NotFound:
        return None
    messages = list(reader.messages())
    keys = {message.key: message.seq for message in messages if message.key}
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    return Stored(keys, answered, list(reader.events()), reader.row.status)


class Step(NamedTuple):
    """One verb; `done` looks in the store, and a step without it is done when a later one is."""

    name: str
    kind: str
    do: Callable[["Play"], Any]
    done: Callable[[Stored], bool] = lambda _: False
    seen: Callable[[Stored], bool] = lambda _: False  # not all of it is done, but the window shows it


def _add(role, key, text, **more):
    def do(play):
        play.say(key=key, seq=play.task.add(role, text, key=key, **more))

    def done(stored):  # what was stored without its pin is said again, and gets the pin
        return seen(stored) and ("pinned" not in more or stored.pinned(stored.keys[key]))

    def seen(stored):
        return key in stored.keys

    return Step(key, "inherit" if key == "request" else "add", do, done, seen)


def _reply(number):
    key = f"reply-{number}"
    calls = [
        {
            "id": call_id(number, place),
            "type": "function",
            "function": {"name": name, "arguments": _asked(name, number)},
        }
        for place, (name, _) in enumerate(REPLIES[number])
    ]
    reply = saying(f"Thinking of [[{key}]].", usage=(50, 20), tool_calls=calls)

    def do(play):
        play.say(key=key, seq=play.task.add_reply(reply, key=key))

    return Step(key, "reply", do, lambda stored: key in stored.keys)


def _asked(name, number):
    return json.dumps({"query": "lorem"} if name == "recall" else {"path": f"part{number}"})


def _tool(number, place):
    name, result = REPLIES[number][place]
    one = call_id(number, place)

    def do(play):
        waiting = {call.id: call for call in play.task.pending_calls()}  # this answers `recall`
        if name == "recall":
            return
        with play.task.tool(waiting[one]) as run:
            if isinstance(result, Exception):
                raise result
            run.result = result
        play.say(call=one)

    return Step(f"tool {number}.{place}", "tool", do, lambda stored: one in stored.answered)


def _round(number):
    return [_reply(number), *(_tool(number, place) for place in range(len(REPLIES[number])))]


def _event(name, kind, type, do, nth=1):
    return Step(name, kind, do, lambda stored: stored.count(type) >= nth)


def _paused(play):
    play.task.pause("for a while")
    play.task = play.engine.resume(UUID, summariser=summariser)


def _compressed(play):
    assert play.task.compact(keep_recent=3) is not None


def _mend(play):
    play.task.snapshot(current_phase="mending", goal="a basket")


def _mending(stored):
    return any(event.data.get("current_phase") == "mending" for event in stored.events)


def _pinned(stored):
    return "reply-1" in stored.keys and stored.pinned(stored.keys["reply-1"])


def steps():
    """The script."""
    return [
        _add("system", "system", "You fix bugs."),
        _add("user", "request", "[[request]] Fix the basket."),
        *_round(0),
        _add("user", "pinned", "[[pinned]] Never touch the till.", pinned=True),
        *_round(1),
        *_round(2),
        Step("snapshot", "snapshot", _mend, _mending),
        Step("pin", "pin", lambda play: play.task.pin(play.seq("reply-1")), _pinned),
        _event("compress", "compress", "summary", _compressed),
        _event("tangent", "tangent", "tangent", lambda play: play.task.begin_tangent()),
        _add("user", "aside", "[[aside]] Why is the sky blue?"),
        *_round(3),
        _event("end of the tangent", "tangent", "end", lambda play: play.task.end_tangent("summary")),
        *_round(4),
        _event("rewind", "rewind", "rewind", lambda play: play.task.rewind(play.seq("reply-4") - 1)),
        _event("undo", "undo", "undo", lambda play: play.task.undo()),
        _event("checkpoint", "checkpoint", "checkpoint", lambda play: play.task.checkpoint("here")),
        _add("user", "astray", "[[astray]] Do something else."),
        _event("restore", "restore", "restore", lambda play: play.task.restore(play.event("checkpoint"))),
        _add("user", "more", "[[more]] And the total."),
        _reply(5),
        _tool(5, 0),
        Step("pause", "pause", _paused),
        _tool(5, 1),
        *_round(6),
        *_round(7),
        _event("last tangent", "tangent", "tangent", lambda play: play.task.begin_tangent(), 2),
        _add("user", "lunch", "[[lunch]] What is for lunch?"),
        *_round(8),
    ]  # fmt: skip


KINDS = {"start", "window", "complete"} | {step.kind for step in steps()}


class Play:
    """One process that works on the task."""

    def __init__(self, url, say):
        self._say = say
        self.engine = orihon.open(url, settings=Settings())
        self.task = None

    def say(self, **what):
        self._say(json.dumps(what))

    def seq(self, key):
        return look(self.engine).keys[key]

    def event(self, type):
        return next(event.id for event in look(self.engine).events if event.type == type)

    def run(self):
        """Start, or go on, or find it ended; then all that is left."""
        if not self.begin():
            return
        for step in steps()[self.done() :]:
            self.say(kind=step.kind)
            step.do(self)
            self.say(after=step.name, window=self.window())
        self.say(kind="complete")
        self.task.complete()  # with a tangent open, which ends with it
        self.say(kind="")

    def begin(self):
        """Whether there is something left to do."""
        self.say(kind="start")
        stored = look(self.engine)
        if stored is None:
            self.task = self.engine.start(
                KEY, uuid=UUID, tools=TOOLS, context_length=4000, reserved_output=500, tokens="bytes4",
                summariser=summariser, language="en",
            )  # fmt: skip
        elif stored.status == "completed":
            return False
        else:
            try:
                self.task = self.engine.resume(UUID, summariser=summariser)
            except Conflict:  # it had begun to end
                assert look(self.engine).status == "completed"
                return False
        self.say(resumed=stored is not None, window=self.window(), made=look(self.engine).made)
        return True

    def done(self):
        """How many steps are behind us."""
        return behind(look(self.engine))

    def window(self):
        self.say(kind="window")
        window = self.task.window()
        assert window.tokens <= window.report.limit
        return {api: json.dumps(getattr(window, api)()) for api in APIS}


def behind(stored):
    """How many steps of the script are done."""
    return max((place for place, step in enumerate(steps(), start=1) if step.done(stored)), default=0)


def position(stored):
    """After how many steps the window looked as it does now."""
    script = steps()
    if stored.count("end") > 1:  # the last tangent was closed: it looks as when it was opened
        return next(place for place, step in enumerate(script, start=1) if step.name == "last tangent")
    return max(
        (place for place, step in enumerate(script, start=1) if step.done(stored) or step.seen(stored)), default=0
    )


def play(url):
    """The work of a child."""

    def work(say):
        one = Play(url, say)
        one.run()
        one.engine.close()

    return work


def earlier(url):
    """A completed run on the same thing, to inherit from."""
    with (
        orihon.open(url, settings=Settings()) as engine,
        engine.start(KEY, uuid=EARLIER, inherit=False, language="en") as task,
    ):
        task.add("user", "Look at the basket.")
        task.add_reply(saying("The basket forgets what is put in last."))


# where it is killed


class Kill(NamedTuple):
    """Before the n-th call of a verb that writes; or inside one, before the n-th commit of SQLite."""

    at: int
    how: str  # before, inside


VERBS = ("write", "put", "change", "sync", "close")


class Kills:
    """Counts the moments at which something changes in the store, and kills at one of them."""

    def __init__(self, kill=None):
        self.kill = kill
        self.calls, self.commits = [], []
        self.kind = ""

    def verb(self, name, real):
        def call(*args, **named):
            self.calls.append((name, self.kind))
            self._strike("before", len(self.calls))
            return real(*args, **named)

        return call

    def statement(self, text):
        if text.startswith("COMMIT"):
            self.commits.append(("commit", self.kind))
            self._strike("inside", len(self.commits))

    def _strike(self, how, number):
        if self.kill == (number, how):
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def counting(kill=None):
    """While this is entered, moments are counted."""
    kills = Kills(kill)
    real = {(cls, name): getattr(cls, name) for cls in (JsonlLease, SqliteLease) for name in VERBS}
    real |= {(cls, "lease"): cls.lease for cls in (JsonlStore, SqliteStore)}
    connect = database._connect

    def connected(path):
        connection = connect(path)
        connection.set_trace_callback(kills.statement)
        return connection

    try:
        database._connect = connected
        for (cls, name), method in real.items():
            setattr(cls, name, kills.verb(name, method))
        yield kills
    finally:
        database._connect = connect
        for (cls, name), method in real.items():
            setattr(cls, name, method)


def killed(work, kill=None):
    """The same work with a kill in wait, which knows the kind of the step that it interrupts."""

    def until(say):
        with counting(kill) as kills:

            def heard(line):
                kills.kind = json.loads(line).get("kind", kills.kind)
                say(line)

            work(heard)
            for name in ("calls", "commits"):
                say(json.dumps({name: getattr(kills, name)}))

    return until
