"""Repeat a failed call with exponential backoff.

Stores use it for a busy SQLite file or a restarting PostgreSQL server, clients for overloaded HTTP servers. The caller
decides which errors are worth a retry.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and pauses of a retry loop. Tests replace `sleep`, `clock` and `rng`."""

    tries: int | None = None  # total number of calls, including the first; None means that only `max_seconds` counts
    max_seconds: float | None = None  # no pause ends later than this after the start of the first call
    first_seconds: float = 1.0
    longest_seconds: float = 120.0
    factor: float = 2.0
    jitter: float = 0.5  # each pause is shortened by up to this share, so that clients do not retry at the same moment
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    rng: Callable[[], float] = random.random

    def pause_seconds(self, failures: int, retry_after: float | None = None) -> float:
        """Return the pause after this many failures. A server's Retry-After is extended by up to a quarter."""
        if retry_after is not None:
            return min(retry_after * (1 + self.rng() / 4), self.longest_seconds)
        grown = self.first_seconds * self.factor ** min(failures - 1, 30)
        return min(grown, self.longest_seconds) * (1 - self.rng() * self.jitter)

    def call(
        self,
        attempt: Callable[[], T],
        *,
        should_retry: Callable[[Exception], bool],
        retry_after: Callable[[Exception], float | None] = lambda _: None,
        on_retry: Callable[[Exception, float], None] = lambda *_: None,
    ) -> T:
        """Return the result of `attempt`; raise its error if it is not worth a retry or a limit is reached.

        `retry_after` returns the pause in seconds that an error requests. `on_retry` is called before each pause.
        """
        started, failures = self.clock(), 0
        while True:
            try:
                return attempt()
            except Exception as error:
                failures += 1
                if failures == self.tries or not should_retry(error):
                    raise
                pause = self.pause_seconds(failures, retry_after(error))
                if self.max_seconds is not None and self.clock() + pause > started + self.max_seconds:
                    raise
                on_retry(error, pause)
            self.sleep(pause)


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the pause in seconds that a server requests, or None if its headers contain none.

    `retry-after-ms` takes precedence over `retry-after`, which is a number of seconds or an HTTP date. `now` is a Unix
    time.
    """
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - stores import this module and never need it

    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - now)
    except (ValueError, OverflowError, OSError):
        return None
