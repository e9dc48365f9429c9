"""Retry with backoff: how often, how long, and for which errors."""

from email.utils import formatdate

import pytest

from orihon.retry import Backoff, parse_retry_after


class Clock:
    """A clock that only a pause moves."""

    def __init__(self):
        self.now, self.pauses = 0.0, []

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


def fail(times, error=OSError):
    """Return a call that fails this many times before it returns."""
    left = iter([error("busy")] * times)

    def attempt():
        if found := next(left, None):
            raise found
        return "done"

    return attempt


def backoff(clock, **limits):
    return Backoff(sleep=clock.sleep, clock=lambda: clock.now, rng=lambda: 0.0, **limits)


def always(_error):
    return True


def test_pauses_double_up_to_the_limit():
    clock = Clock()
    assert backoff(clock, longest_seconds=5).call(fail(5), should_retry=always) == "done"
    assert clock.pauses == [1, 2, 4, 5, 5]


def test_jitter_shortens_a_pause():
    assert Backoff(rng=lambda: 1.0).pause_seconds(3) == 2
    assert Backoff(rng=lambda: 1.0, jitter=0.25).pause_seconds(3) == 3


def test_tries_are_limited():
    clock = Clock()
    with pytest.raises(OSError, match="busy"):
        backoff(clock, tries=3).call(fail(3), should_retry=always)
    assert len(clock.pauses) == 2


def test_time_is_limited():
    clock = Clock()
    with pytest.raises(OSError, match="busy"):
        backoff(clock, max_seconds=4).call(fail(3), should_retry=always)
    assert clock.pauses == [1, 2]


def test_other_errors_are_raised_at_once():
    clock = Clock()
    with pytest.raises(ValueError, match="busy"):
        backoff(clock).call(fail(1, ValueError), should_retry=lambda error: isinstance(error, OSError))
    assert clock.pauses == []


def test_a_server_says_how_long_to_wait():
    clock, seen = Clock(), []
    backoff(clock, longest_seconds=9).call(
        fail(2), should_retry=always, retry_after=lambda _: 20, on_retry=lambda _, pause: seen.append(pause)
    )
    assert clock.pauses == seen == [9, 9]
    assert Backoff(rng=lambda: 1.0).pause_seconds(1, retry_after=20) == 25


def test_interrupts_are_not_retried():
    with pytest.raises(KeyboardInterrupt):
        Backoff().call(fail(1, KeyboardInterrupt), should_retry=always)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": formatdate(1_000_030, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(0, usegmt=True)}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_retry_after_headers(headers, seconds):
    assert parse_retry_after(headers, 1_000_000.0) == seconds
