"""Random use of a conversation: every window follows the providers' rules, and the log loses nothing."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import orihon
from orihon.chat import document, registry
from orihon.chat.checkpoints import open_checkpoints
from orihon.errors import BudgetTooSmall, NotFound, TangentError, UsageError
from orihon.settings.schema import Settings
from support.faults import DEEP, fast_place
from support.replies import TOOLS, saying
from support.wire_rules import violations

APIS = ("openai", "anthropic", "responses", "gemini")
SHELL = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}

texts = st.sampled_from(("Go on.", "", "日本語で答えてください。", "word " * 200, "line\n" * 300, "[TOOL]: x -> y"))
shares = st.floats(0, 1)
keeps = st.sampled_from(("none", "tail", "summary"))
calls = st.lists(st.sampled_from(("read_file", "shell", "gone_tool", "recall")), max_size=3)

STEPS = st.one_of(
    *[st.tuples(st.just("turn"), texts, calls, texts)] * 4,
    st.tuples(st.just("say"), texts),
    st.tuples(st.just("answer"), calls, texts),
    st.tuples(st.just("tool"), texts),
    st.tuples(st.just("cancel"), texts),
    st.tuples(st.just("type"), texts),
    st.tuples(st.just("enter")),
    st.tuples(st.just("afterwards"), shares),
    st.tuples(st.just("leave"), keeps),
    st.tuples(st.just("rewind"), shares),
    st.tuples(st.just("compact")),
    st.tuples(st.just("clear")),
    st.tuples(st.just("undo")),
    st.tuples(st.just("stick"), texts),
    st.tuples(st.just("model"), st.sampled_from((("gpt-4o", 4000), ("claude", 6000)))),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("restore"), shares, st.booleans()),
    st.tuples(st.just("save_and_load")),
    st.tuples(st.just("kill")),
)


class RandomUser:
    """A user who does random things."""

    def __init__(self, place):
        self.work = place / "work"
        self.work.mkdir()
        (self.work / ".git").mkdir()
        (self.work / ".git" / "HEAD").write_text("ref: refs/heads/main\n")  # enough to be a repository
        self.engine = orihon.open(place / "store", settings=Settings())
        options = {"tools": [*TOOLS, SHELL], "context_length": 4000, "reserved_output": 400}
        self.talk = registry.start(self.engine, self.work, name="one", system="You help.", **options)
        self.options = options
        self.checkpoints = open_checkpoints(self.talk)
        self.files = {}  # at each checkpoint, by its event
        self.writes = self.calls = self.loads = 0

    def close(self):
        self.talk.close()
        self.engine.close()

    def do(self, step):
        name, *rest = step
        before = self.log()
        with suppress(UsageError, TangentError, NotFound):  # what is not possible now is refused without effect
            getattr(self, name)(*rest)
        after = self.log(self.talk.conversation_id if name != "save_and_load" else self.former)
        assert after[: len(before)] == before, f"{name} lost something of the log"
        self.check()

    def log(self, uuid=""):
        found = self.engine.read(uuid or self.talk.conversation_id).messages()
        return [(message.seq, message.role, message.text) for message in found]

    def check(self):
        task = self.talk.task
        with suppress(BudgetTooSmall):
            window = task.window()
            assert window.tokens <= task.log.limit
            for api in APIS:
                assert violations(api, getattr(window, api)()) == [], api
        assert self.talk.transcript is not None
        if self.talk.next_message is not None:
            assert self.talk.next_message.strip()

    # steps

    def say(self, text):
        if self.talk.next_message is not None:
            self.talk.send()
        self.talk.say(text)

    def type(self, text):
        self.talk.set_next(text)

    def answer(self, names, text):
        asked = []
        for name in names:
            self.calls += 1
            asked.append({"id": f"call_{self.calls}", "function": {"name": name, "arguments": "{}"}})
        self.talk.task.add_reply(saying(text, tool_calls=asked))

    def tool(self, text):
        for call in self.talk.task.pending_calls()[:1]:
            with self.talk.task.tool(call) as run:
                if call.name == "shell":
                    self.writes += 1
                    (self.work / f"{self.writes % 3}.txt").write_text(f"{self.writes} {text}", "utf-8")
                run.result = text

    def turn(self, prompt, names, text):
        self.say(prompt)
        self.answer(names, text)
        for _ in names:
            self.tool(text)
        if self.talk.task.wants_reply():
            self.answer([], text or "Done.")
        self.taken(self.checkpoints.end_turn(prompt))

    def cancel(self, heard):
        self.talk.cancel(heard)

    def enter(self):
        self.talk.enter_tangent(commit=self.checkpoints.save_files())

    def afterwards(self, share):
        self.talk.enter_tangent(after=int(share * self.talk.task.log.last))

    def leave(self, keep):
        inside = self.talk.tangents[-1:]
        self.talk.leave_tangent(keep)
        self.checkpoints.find_tangent_changes(inside[0].event, inside[0].after)

    def rewind(self, share):
        self.talk.task.rewind(int(share * self.talk.task.log.last))

    def compact(self):
        self.talk.task.compact()

    def clear(self):
        self.talk.clear()

    def undo(self):
        possible = self.talk.task.log.view.undoable
        if possible:
            self.checkpoints.undo(possible[-1].event)
        self.talk.task.undo()

    def stick(self, text):
        self.talk.task.sticky({"notes.md": text or "empty"})

    def model(self, chosen):
        name, length = chosen
        self.talk.task.reconfigure(model=name, context_length=length)

    def checkpoint(self):
        self.taken(self.checkpoints.take("manual"))

    def taken(self, one):
        self.files[one.event] = self.on_disk()

    def restore(self, share, hard):
        if not self.files:
            return
        event = sorted(self.files)[int(share * (len(self.files) - 1))]
        self.checkpoints.restore(f"#{event}", hard=hard)
        wanted, now = self.files[event], self.on_disk()
        assert now == wanted if hard else {name: now.get(name) for name in wanted} == wanted

    def on_disk(self):
        return {path.name: path.read_text("utf-8") for path in self.work.glob("*.txt")}

    def save_and_load(self):
        self.former, self.loads = self.talk.conversation_id, self.loads + 1
        path = self.work / "saved.json"
        document.write(self.talk, path)
        loaded = document.read(
            self.engine, path, self.work, name=f"load {self.loads}", system="You help.", **self.options
        )
        mine, theirs = (list(one.entries()) for one in (self.talk, loaded))
        answered = [[entry.assistant.text for entry in of if hasattr(entry, "assistant")] for of in (mine, theirs)]
        assert answered[0] == answered[1]
        assert len(self.talk.tangents) == len(loaded.tangents)
        path.unlink()
        self.talk.close()
        self.talk = loaded
        self.checkpoints, self.files = open_checkpoints(loaded), {}

    def kill(self):
        """The process dies, and another one resumes."""
        waiting = bool(self.talk.task.pending_calls())  # this answers the calls that the engine answers
        shown = self.shown()
        self.talk.task.writer.lease.close()
        self.talk = registry.resume(self.engine, self.talk.conversation_id)
        self.checkpoints = open_checkpoints(self.talk)
        if not waiting:
            assert self.shown() == shown

    def shown(self):
        try:
            return {api: getattr(self.talk.task.window(), api)() for api in APIS}
        except BudgetTooSmall:
            return None


@pytest.mark.slow
@settings(
    max_examples=300 if DEEP else 15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(STEPS, min_size=4, max_size=18))
def test_random_steps(steps):
    """Messages, replies, tool calls, cancels, tangents, rewinds, checkpoints, saves and kills in any order."""
    with fast_place() as place:
        user = RandomUser(place)
        try:
            for step in steps:
                user.do(step)
        finally:
            user.close()
