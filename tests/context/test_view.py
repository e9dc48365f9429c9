"""What is visible follows from the events, whatever they are."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orihon.context.ranges import ALL, OPEN, after, contains, joined, upto, without
from orihon.context.view import MAX_NEWS, State, View, record, saved, step, view
from orihon.records import Event

pairs = st.tuples(st.integers(1, 60), st.integers(1, 60))
LIST = {"files": [{"path": "a", "sha256": "0" * 64, "size_bytes": 1, "tokens": 9}]}


def events(*given_events):
    """Events with their numbers; each is (after, type, data)."""
    return [
        Event(id=number, after=place, type=kind, data=data, timestamp="t")
        for number, (place, kind, data) in enumerate(given_events, 1)
    ]


def ranges(*given_events):
    return view(events(*given_events)).state.ranges


@given(st.lists(pairs), st.integers(0, 70))
def test_ranges_are_sets_of_numbers(given_pairs, number):
    """Joining, cutting and containing say what sets of numbers say."""
    numbers = {n for first, last in given_pairs for n in range(first, last + 1)}
    whole = joined(given_pairs)
    assert {n for n in range(1, 80) if contains(whole, n)} == numbers
    assert {n for n in range(1, 80) if contains(upto(whole, number), n)} == {n for n in numbers if n <= number}
    assert {n for n in range(1, 80) if contains(after(whole, number), n)} == {n for n in numbers if n > number}
    assert list(whole) == sorted(whole)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(whole))


@given(st.lists(pairs), st.lists(pairs))
def test_without_is_the_difference(one, other):
    """What is taken away is gone, and nothing else."""
    left = without(joined(one), joined(other))
    for number in range(1, 70):
        assert contains(left, number) == (contains(joined(one), number) and not contains(joined(other), number))


def test_nothing_happened():
    """Without events everything is visible."""
    assert view([]).state.ranges == ALL


def test_rewind():
    """`rewind to 80` at 120: 1 to 80, then 121 on."""
    assert ranges((120, "rewind", {"to": 80})) == ((1, 80), (121, OPEN))


def test_rewind_twice():
    """A second rewind cuts what the first had left."""
    assert ranges((120, "rewind", {"to": 80}), (130, "rewind", {"to": 60})) == ((1, 60), (131, OPEN))


def test_undo_of_a_rewind():
    """What was cut is back, and what came since is still there."""
    assert ranges((120, "rewind", {"to": 80}), (130, "undo", {"event": 1})) == ALL


def test_tangent_without_a_trace():
    """`end keep=none` at 140 of a tangent at 120: 1 to 120, then 141 on."""
    assert ranges((120, "tangent", {}), (140, "end", {"keep": "none"})) == ((1, 120), (141, OPEN))


def test_tangent_with_its_tail():
    """The last exchange of the tangent stays in its place."""
    given_events = ((120, "tangent", {}), (140, "end", {"keep": "tail", "tail": [137, 140]}))
    assert ranges(*given_events) == ((1, 120), (137, OPEN))


def test_tangent_with_a_summary():
    """The message that sums it up stands in its place."""
    given_events = ((120, "tangent", {}), (140, "end", {"keep": "summary", "tail": [140, 140]}))
    assert ranges(*given_events) == ((1, 120), (140, OPEN))


def test_what_was_rewound_in_a_tangent_is_not_in_its_tail():
    """Only what is visible can stay."""
    given_events = (
        (120, "tangent", {}),
        (140, "rewind", {"to": 130}),
        (145, "end", {"keep": "tail", "tail": [125, 145]}),
    )
    assert ranges(*given_events) == ((1, 120), (125, 130), (141, OPEN))


def test_tangents_nest():
    """Leaving the inner one leads to the outer one."""
    inside = view(events((10, "tangent", {}), (20, "tangent", {}), (30, "end", {"keep": "none"})))
    assert (len(inside.tangents), inside.state.ranges) == (1, ((1, 20), (31, OPEN)))
    outside = step(inside, Event(id=4, after=40, type="end", data={"keep": "none"}, timestamp="t"))
    assert (outside.tangents, outside.state.ranges) == ((), ((1, 10), (41, OPEN)))


def test_what_happens_in_a_tangent_ends_with_it():
    """Folds, summaries, pins, snapshot and sticky files made inside are gone outside."""
    before = events((5, "pin", {"seq": 2}), (5, "snapshot", {"goal": "g"}), (9, "folds", {"first": 1, "last": 4}))
    inside = [
        *((20, "tangent", {}), (25, "pin", {"seq": 22}), (26, "folds", {"first": 5, "last": 9})),
        *((27, "summary", {"id": 1, "ranges": [[1, 20]]}), (28, "snapshot", {"goal": "other"})),
        *((28, "sticky", LIST), (29, "rewind", {"to": 21}), (30, "end", {"keep": "none"})),
    ]
    made = [Event(id=n, after=p, type=t, data=d, timestamp="t") for n, (p, t, d) in enumerate(inside, 4)]
    left, never = view(before + made), view(before)
    assert msgspec.structs.replace(left.state, ranges=ALL) == never.state
    assert left.undos == never.undos


def test_clear():
    """Nothing before is visible, the pins stay, and it can be taken back."""
    state = view(events((5, "pin", {"seq": 2}), (50, "clear", {}))).state
    assert (state.ranges, state.pins) == (((51, OPEN),), (2,))
    assert ranges((50, "clear", {}), (55, "undo", {"event": 1})) == ALL


def sticky(*given_events):
    """The list of sticky files now, the one at the head, and those that are told."""
    state = view(events(*given_events)).state
    return state.sticky, state.standing, state.news


def test_a_list_of_sticky_files_is_told_until_the_next_fold():
    """What stands at the head moves only when the head changes anyway."""
    told = [(5, "sticky", LIST | {"at_once": True}), (9, "sticky", LIST), (12, "sticky", LIST)]
    assert sticky(*told[:1]) == (1, 1, ())
    assert sticky(*told) == (3, 1, ((2, 9), (3, 12)))
    assert sticky(*told, (20, "folds", {"first": 1, "last": 2})) == (3, 3, ())
    assert sticky(*told, (20, "summary", {"id": 1, "ranges": [[1, 10]]})) == (3, 3, ())
    assert sticky(*told, (20, "clear", {})) == (3, 3, ())
    assert sticky(*told, (20, "rewind", {"to": 2})) == (3, 1, ((2, 9), (3, 12)))


def test_a_tangent_and_a_checkpoint_remember_what_is_told_of_sticky_files():
    """The list and its place, whatever was folded meanwhile."""
    before = [(5, "sticky", LIST | {"at_once": True}), (9, "sticky", LIST)]
    inside = [(10, "tangent", {}), (12, "sticky", LIST), (14, "folds", {"first": 1, "last": 1})]
    assert sticky(*before, *inside) == (4, 4, ())
    assert sticky(*before, *inside, (15, "end", {"keep": "none"})) == (2, 1, ((2, 9),))
    kept = saved(view(events(*before)))
    assert sticky(*before, (12, "sticky", LIST), (14, "restore", {**kept, "after": 9})) == (2, 1, ((2, 9),))


@pytest.mark.parametrize("step", [("rewind", {"to": 2}), ("clear", {}), ("summary", {"id": 1, "ranges": [[1, 8]]})])
def test_undo_leaves_the_sticky_files_alone(step):
    """A list that came after the step stays, and is told against the one that stands there again."""
    before = [(5, "sticky", LIST | {"at_once": True}), (9, "sticky", LIST), (10, *step)]
    assert sticky(*before, (11, "undo", {"event": 3})) == (2, 1, ((2, 9),))
    after = [*before, (12, "sticky", LIST), (13, "folds", {"first": 1, "last": 1}), (14, "undo", {"event": 3})]
    assert sticky(*after) == (4, 1, ((2, 9), (4, 14)))


def test_undo_of_a_restore_brings_the_sticky_files_back():
    """A restore changes the list, and so does taking it back."""
    before = [(5, "sticky", LIST | {"at_once": True}), (9, "sticky", LIST)]
    restored = [*before, (10, "restore", {**saved(View()), "after": 3})]
    assert sticky(*restored) == (0, 0, ())
    assert sticky(*restored, (11, "undo", {"event": 3})) == (2, 1, ((2, 9),))


def test_what_is_told_of_sticky_files_does_not_grow_without_end():
    """After many lists without a fold the newest one goes to the head."""
    assert sticky(*[(5, "sticky", LIST)] * MAX_NEWS)[:2] == (MAX_NEWS, 0)
    assert sticky(*[(5, "sticky", LIST)] * (MAX_NEWS + 1)) == (MAX_NEWS + 1, MAX_NEWS + 1, ())


def test_a_summary_counts_while_its_ranges_are_what_is_visible():
    """A rewind into it ends it, an undo of the rewind brings it back, and an older one counts meanwhile if it fits."""
    made = [(20, "summary", {"id": 1, "ranges": [[1, 10]]}), (40, "summary", {"id": 2, "ranges": [[1, 30]]})]
    assert view(events(*made)).state.summary.id == 2
    rewound = [*made, (50, "rewind", {"to": 20})]
    assert view(events(*rewound)).state.summary.id == 1
    assert view(events(*rewound, (60, "undo", {"event": 3}))).state.summary.id == 2
    assert view(events(*made, (50, "rewind", {"to": 5}))).state.summary is None


def test_undo_of_a_compression():
    """The view from before is back, and the automatic compression rests until it must."""
    undone = view(events((40, "summary", {"id": 1, "ranges": [[1, 30]]}), (41, "undo", {"event": 1})))
    assert undone.state.summary is None
    assert undone.rests
    again = step(undone, Event(id=3, after=60, type="summary", data={"id": 2, "ranges": [[1, 50]]}, timestamp="t"))
    assert not again.rests


def test_restore():
    """A checkpoint brings its state back, and the restore itself can be taken back."""
    kept = view(events((5, "pin", {"seq": 2}), (10, "tangent", {})))
    later = [(5, "pin", {"seq": 2}), (10, "tangent", {}), (30, "end", {"keep": "none"}), (40, "pin", {"seq": 35}),
             (50, "restore", {**saved(kept), "after": 20})]  # fmt: skip
    restored = view(events(*later))
    assert (restored.state.ranges, restored.state.pins, len(restored.tangents)) == (((1, 20), (51, OPEN)), (2,), 1)
    before = view(events(*later[:-1]))
    undone = view(events(*later, (50, "undo", {"event": 5})))
    assert (undone.state, undone.tangents) == (before.state, before.tangents)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 90) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
numbers = st.integers(1, 9)


def happens(kind, **data):
    return st.tuples(st.just(kind), st.fixed_dictionaries(data))


meaningful = st.one_of(
    happens("rewind", to=st.integers(0, 99)),
    happens("clear"),
    happens("tangent"),
    happens("end", keep=st.just("none")),
    happens("end", keep=st.just("tail"), tail=pairs),
    happens("end", keep=st.just("summary"), tail=pairs),
    happens("summary", id=numbers, ranges=st.lists(pairs, max_size=2)),
    happens("folds", first=numbers, last=numbers),
    happens("pin", seq=st.integers(1, 60)),
    happens("unpin", seq=st.integers(1, 60)),
    happens("snapshot", goal=st.text(max_size=3)),
    happens("undo", event=st.integers(1, 20)),
    happens("sticky", files=st.just(LIST["files"]), at_once=st.booleans()),
    st.tuples(
        st.sampled_from(["rewind", "end", "summary", "view", "restore", "undo", "sticky", "dance"]),
        st.dictionaries(st.text(max_size=5), anything, max_size=3),
    ),
)
histories = st.lists(st.tuples(st.integers(0, 6), meaningful), max_size=25).map(lambda steps: events(*_places(steps)))


def _places(steps):
    place = 0
    for more, (kind, data) in steps:
        place += more
        yield place, kind, data


@given(histories)
def test_any_sequence_of_events_names_no_message_twice(history):
    """Ranges ascend and never overlap, and what comes next is always visible."""
    current = view(history)
    assert all(first <= last for first, last in current.state.ranges)
    assert all(one[1] < other[0] for one, other in pairwise(current.state.ranges))
    assert current.shows((history[-1].after if history else 0) + 1)


@given(histories, st.integers(0, 24))
def test_reading_can_start_at_a_record(history, place):
    """A record of the whole view gives the same as all the events before it, also through JSON."""
    place = min(place, len(history))
    written = msgspec.json.decode(msgspec.json.encode(record(view(history[:place]))))
    start = Event(id=place, after=0, type="view", data=written, timestamp="t")
    assert view([start, *history[place:]]) == view(history)


@given(histories, st.integers(0, 9), st.lists(meaningful, max_size=6))
def test_a_tangent_leaves_the_state_as_it_was(history, more, inside):
    """Whatever happens inside, leaving with nothing gives back the state from before, but for what came inside."""
    start = (history[-1].after if history else 0) + more
    number = len(history)
    balanced = [(kind, data) for kind, data in inside if kind not in {"tangent", "end", "undo", "restore", "view"}]
    steps = [("tangent", {}), *balanced, ("end", {"keep": "none"})]
    made = [
        Event(id=number + place, after=start + place, type=kind, data=data, timestamp="t")
        for place, (kind, data) in enumerate(steps, 1)
    ]
    before, left = view(history), view(history + made)
    end = made[-1].after
    hidden = msgspec.structs.replace(before.state, ranges=without(before.state.ranges, ((start + 2, end),)))
    assert upto(left.state.ranges, start) == upto(before.state.ranges, start)
    assert left.tangents == before.tangents
    assert msgspec.structs.replace(left.state, ranges=()) == msgspec.structs.replace(hidden, ranges=())


@given(histories, st.integers(0, 99))
def test_undo_of_a_rewind_gives_back_the_state(history, to):
    """A rewind that is taken back at once never happened."""
    place = history[-1].after if history else 0
    number = len(history)
    rewind = Event(id=number + 1, after=place, type="rewind", data={"to": to}, timestamp="t")
    undo = Event(id=number + 2, after=place, type="undo", data={"event": number + 1}, timestamp="t")
    before, undone = view(history), view([*history, rewind, undo])
    assert undone.state == before.state
    assert undone.tangents == before.tangents


@pytest.mark.parametrize("data", [{}, {"to": "x"}, {"to": -1}, {"to": True}, {"to": None}])
def test_data_that_means_nothing_changes_nothing(data):
    """A broken event is skipped, the next one counts."""
    assert ranges((9, "rewind", data), (20, "rewind", {"to": 10})) == ((1, 10), (21, OPEN))


def test_a_default_view_is_small():
    """What is not used is not written."""
    assert record(View()) == {}
    assert msgspec.to_builtins(State(pins=(3,))) == {"pins": (3,)}


def test_a_tangent_that_began_before_it_was_called_one():
    """`tangent from 80` at 120: what came after 80 is inside, and pins, summaries and steps of that time with it."""
    shown = view(
        events(
            (10, "pin", {"seq": 9}),
            (50, "summary", {"id": 1, "ranges": [[1, 40]], "kept": []}),
            (90, "pin", {"seq": 85}),
            (100, "rewind", {"to": 95}),
            (110, "summary", {"id": 2, "ranges": [[1, 90]], "kept": []}),
            (120, "tangent", {"from": 80}),
        )
    )
    assert contains(shown.state.ranges, 120), "inside, everything is still visible"
    left = step(shown, Event(id=7, after=130, type="end", data={"keep": "none"}, timestamp="t"))
    assert left.state.ranges == ((1, 80), (131, OPEN))
    assert (left.state.pins, [one.id for one in left.state.summaries]) == ((9,), [1])
    assert [undo.type for undo in left.undos] == ["summary"], "what was done after 80 went with it"


def test_a_tangent_does_not_reach_out_of_another():
    """One that would begin before the one that is open is none."""
    assert len(view(events((50, "tangent", {}), (60, "tangent", {"from": 40}))).tangents) == 1
    assert len(view(events((50, "tangent", {}), (60, "tangent", {"from": 50}))).tangents) == 2


def test_the_oldest_leave():
    """`leave 30`: they are not visible any more, and a summary stands for the rest of what it covered."""
    shown = view(events((50, "summary", {"id": 1, "ranges": [[1, 40]], "kept": []}), (60, "leave", {"upto": 30}))).state
    assert shown.ranges == ((31, OPEN),)
    assert shown.summary.ranges == ((31, 40),)
    assert view(
        events((60, "tangent", {}), (90, "leave", {"upto": 70}), (95, "end", {"keep": "none"}))
    ).state.ranges == (
        (1, 60),
        (96, OPEN),
    ), "the main conversation is left alone"
