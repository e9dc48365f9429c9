"""The snapshot stays small and says how far a task is."""

import msgspec

from orihon.context.snapshot import MAX_ACTIONS, Snapshot, acted, from_data, merge_snapshot, observed, render_snapshot


def test_partial_updates_merge():
    """The example of the specification: goal, then actions and phase, then an observation."""
    snapshot = merge_snapshot(
        Snapshot(), goal="Safari を開いて Google を検索", completed_actions=[], current_phase="planning"
    )
    snapshot = merge_snapshot(snapshot, completed_actions=["osa", "click", "type"], current_phase="executing")
    snapshot = merge_snapshot(
        snapshot, current_phase="completed", key_observations=["Safari を開き、Google を表示しました"]
    )
    assert snapshot == Snapshot(
        goal="Safari を開いて Google を検索",
        completed_actions=("osa", "click", "type"),
        current_phase="completed",
        key_observations=("Safari を開き、Google を表示しました",),
    )


def test_actions_are_capped_and_counted():
    """The newest eight are named, the others counted, however many there were."""
    snapshot = Snapshot()
    for number in range(1000):
        snapshot = acted(snapshot, f"step {number}")
    assert len(snapshot.completed_actions) == MAX_ACTIONS == 8
    assert snapshot.completed_actions[-1] == "step 999"
    assert snapshot.earlier_actions == 992
    assert "and 992 earlier" in render_snapshot(snapshot)


def test_a_list_that_is_given_replaces_the_list():
    """An update is not an addition."""
    snapshot = merge_snapshot(acted(Snapshot(), "old"), completed_actions=["new"])
    assert (snapshot.completed_actions, snapshot.earlier_actions) == (("new",), 0)


def test_what_is_shown():
    """One line per field, in the language of the task; nothing when there is nothing."""
    snapshot = merge_snapshot(
        Snapshot(), goal="Fix the total", completed_actions=["read", "edit"], current_phase="testing"
    )
    assert render_snapshot(snapshot) == (
        "State of the task:\n- Goal: Fix the total\n- Current phase: testing\n- Completed actions: read; edit"
    )
    assert render_snapshot(observed(Snapshot(), "空です"), "ja") == "タスクの状況:\n- 重要な観察事項: 空です"
    assert render_snapshot(Snapshot()) == ""


def test_it_survives_the_view():
    """Through JSON and back; data that does not fit is an empty snapshot."""
    snapshot = merge_snapshot(Snapshot(), goal="g\n with\nlines", completed_actions=["x" * 2000])
    assert from_data(msgspec.json.decode(msgspec.json.encode(snapshot))) == snapshot
    assert "\n" not in snapshot.goal
    assert len(snapshot.completed_actions[0]) == 500
    assert from_data({"goal": 7, "other": 1}) == Snapshot()
