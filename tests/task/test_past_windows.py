"""Any window that was sent can be made again, byte for byte, whatever was done to the task since."""

import json
import tempfile
from contextlib import suppress

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import orihon
from orihon.errors import BudgetTooSmall, NotFound, UsageError
from orihon.settings.schema import Settings
from support.faults import DEEP
from support.replies import KEY, saying
from support.task_player import APIS, STEPS, Player, kinds, opened

SWITCH = st.tuples(st.just("switch"), st.sampled_from(("gpt-5", "claude-opus-4-5")), st.sampled_from((2500, 6000)))
plays = st.lists(st.one_of(*[STEPS] * 8, SWITCH, st.just(("crash",))), min_size=10, max_size=40)


class Recorder(Player):
    """A player who writes down each window that was sent, and the reply that answered it."""

    sent, answered = None, ()

    def window(self):
        self.sent = None
        with suppress(BudgetTooSmall):
            self.sent = rendered(self.task.window())

    def reply(self, calls, text):
        super().reply(calls, text)
        if self.sent is not None:
            self.answered = (*self.answered, (self.task.log.last, self.sent))
            self.sent = None

    def crash(self):
        super().crash()
        self.sent = None


def rendered(window):
    # only the window that makes a batch of folds says why, and what it changed
    report = msgspec.structs.replace(window.report, reasons=(), changed_at=None)
    return {api: json.dumps(getattr(window, api)(), ensure_ascii=False) for api in APIS}, report


@settings(max_examples=400 if DEEP else 50)
@given(kind=kinds, play=plays, counts=st.sampled_from((0.0, 1.4)), policy=st.sampled_from(("fold", "fold", "plain")))
def test_every_window_can_be_made_again(kind, play, counts, policy):
    """Tangents, rewinds, restores, folds, summaries, other models and crashes change nothing of what was sent."""
    with tempfile.TemporaryDirectory() as place, opened(kind, place) as engine:
        player = Recorder(engine, counts=counts, window=policy)
        for step in play:
            player.do(step)
        player.task.close()
        reader = engine.read(player.task.uuid)
        for seq, sent in player.answered:
            assert rendered(reader.window(before=seq)) == sent
        event(f"{min(len(player.answered), 9)} calls")


def test_a_reply_keeps_what_its_window_was_made_of(engine):
    """Messages and events that came while the model was thinking do not count for its window."""
    with engine.start(KEY, inherit=False) as task:
        task.add("system", "You fix bugs.")
        task.add("user", "The total is wrong.")
        sent = task.window()
        task.add("user", "And be quick.")  # a comment that came meanwhile
        task.rewind(1)
        seq = task.add_reply(saying("I look."))
        reader = engine.read(task.uuid)
        window = reader.message(seq).window
        assert (window.after, window.tokens, window.sources) == (2, sent.tokens, sent.report.by_source)
        assert reader.window(before=seq).openai() == sent.openai()
        assert reader.window(call=1).openai() == sent.openai()


def test_a_task_without_recorded_windows_counts_what_came_before_the_reply(engine):
    """A task of an earlier version, or one that was imported, shows the window as it was just before the reply."""
    with engine.start(KEY, inherit=False) as task:
        task.add("user", "One.")
        task.add("assistant", "Two.")
        task.add("user", "Three.")
        task.add("assistant", "Four.")
        reader = engine.read(task.uuid)
        assert [message["content"] for message in reader.window(call=2).openai()] == ["One.", "Two.", "Three."]
        assert [message["content"] for message in reader.window(before=3).openai()] == ["One.", "Two."]


def test_a_call_that_there_is_not():
    """The error says so, and how calls are counted."""
    with orihon.open("memory:", settings=Settings()) as engine, engine.start(KEY) as task:
        task.add("user", "One.")
        reader = engine.read(task.uuid)
        for call in (0, 1, -1):
            with pytest.raises(NotFound, match="call"):
                reader.window(call=call)
        with pytest.raises(UsageError, match="before"):
            reader.window(call=1, before=2)
        with pytest.raises(NotFound, match="m7"):
            reader.window(before=7)
