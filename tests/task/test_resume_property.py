"""Whatever was done to a task: a process that dies and another that resumes it see the same, byte for byte."""

import tempfile

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

import orihon
from orihon.context.repair import INTERRUPTED
from orihon.settings.schema import Settings
from support.faults import DEEP
from support.task_player import ARGUMENTS, Player, kinds, opened, plays, shown, summariser

CHECKS = settings(max_examples=300 if DEEP else 40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def count_summaries(engine, player):
    return sum(event.type == "summary" for event in engine.read(player.task.uuid).events())


@CHECKS
@given(kind=kinds, play=plays, counts=st.sampled_from((0.0, 1.4)))
def test_a_crash_changes_nothing_of_the_window(kind, play, counts):
    """The same window in every format, for the next process and for a reader; no message is lost, nothing is added."""
    with tempfile.TemporaryDirectory() as place, opened(kind, place) as engine:
        player = Player(engine, counts=counts)
        for step in play:
            player.do(step)
        before, log = player.shown(), player.log()
        made = count_summaries(engine, player)
        player.task.writer.lease.close()
        assert shown(engine.read(player.task.uuid)) == before
        player.task = engine.resume(player.task.uuid, summariser=summariser)
        added = player.log()[len(log) :]
        assert player.log()[: len(log)] == log
        assert {message.text for message in added} <= {INTERRUPTED}
        now = player.shown()
        # the answers to calls that were lost may make a summary due, and nothing else may
        assert now == before or (added and count_summaries(engine, player) > made)
        assert shown(engine.read(player.task.uuid)) == now
        event(f"{'folded' if player.task.log.view.state.folds else 'whole'}, {bool(added)}")
        player.task.close()


@pytest.mark.slow
@CHECKS
@given(
    first=plays,
    then=plays,
    window=st.sampled_from(("fold", "fold", "importance", "plain")),
    snapshot=st.sampled_from(("prefix", "tail")),
)
@example(
    first=[("user", "Go on."), ("reply", [("read_file", ARGUMENTS[2])], ""), ("checkpoint",), ("user", "Go on.")],
    then=[("restore", 0.0), ("tool", "ok")],
    window="fold",
    snapshot="prefix",
)
def test_a_crash_changes_nothing_of_what_follows(first, then, window, snapshot):
    """A task that was resumed while no call was waiting goes the same way as one that was not, whatever is done to it.

    Only what the provider counts has to be found out anew, so it counts nothing here. And a secret in the arguments of
    a call that never was answered is forgotten with the process: a restore that lets the call wait again finds a mask.
    """
    with orihon.open("memory:", settings=Settings()) as engine:
        one, other = (Player(engine, window=window, snapshot=snapshot) for _ in range(2))
        for step in [*first, *[("tool", "ok")] * 3]:
            one.do(step)
            other.do(step)
        assert one.shown() == other.shown()
        one.crash()
        other.task._calls._written.clear()
        assert one.shown() == other.shown()
        for step in then:
            one.do(step)
            other.do(step)
            assert one.shown() == other.shown()
        one.task.close()
        other.task.close()
