"""When a summary is due, and what it would cover."""

import msgspec

from orihon.context.compress import covered_ranges, important, should_compress, to_cover
from orihon.context.view import View
from orihon.records import Call, Message

LIMITS = {"context_length": 1000, "limit": 900}


def log(calls):
    """A system prompt, a request, and so many calls with their results."""
    made = [Message(seq=1, role="system", content="s", timestamp="", tokens=1)]
    made.append(Message(seq=2, role="user", content="u", timestamp="", tokens=1))
    for number in range(calls):
        call = Call(id=f"c{number}", name="f")
        made.append(Message(seq=len(made) + 1, role="assistant", content="", tool_calls=[call], timestamp="", tokens=1))
        made.append(Message(seq=len(made) + 1, role="tool", content="r", tool_call_id=call.id, timestamp="", tokens=1))
    return made


def test_the_trigger():
    """More than 0.7 of the context length and ten messages; over the hard limit always."""
    assert not should_compress(700, 50, **LIMITS)
    assert should_compress(701, 10, **LIMITS)
    assert not should_compress(701, 9, **LIMITS)
    assert should_compress(901, 1, **LIMITS)


def test_the_newest_five_stay_and_no_unit_is_torn():
    """The cut leaves at least five messages, and falls between a result and the next call."""
    covered = to_cover(log(6))
    assert [message.seq for message in covered] == [2, 3, 4, 5, 6, 7, 8]
    assert to_cover(log(1)) == []
    assert [message.seq for message in to_cover(log(6), keep_recent=0)] == list(range(2, 15))


def test_a_call_that_waits_stays():
    """Its result would come without it."""
    waiting = log(6)[:-1]
    assert [message.seq for message in to_cover(waiting, keep_recent=0)] == list(range(2, 13))


def test_what_is_important_stays_beside_the_summary():
    """Units of importance 0.8 and more are kept, the newest first, inside a cap."""
    made = log(6)
    made[3] = msgspec.structs.replace(made[3], is_error=True)
    made[7] = msgspec.structs.replace(made[7], is_error=True)
    assert important(made[1:], max_tokens=100) == (3, 7)
    assert important(made[1:], max_tokens=3) == (7,)
    assert important(made[1:], max_tokens=1) == ()


def test_what_it_stands_for():
    """The ranges reach from the beginning to the last covered message, and nothing when nothing is covered."""
    assert covered_ranges(View(), to_cover(log(6))) == ((1, 8),)
    assert covered_ranges(View(), []) == ()
