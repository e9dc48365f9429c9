"""How long to bear with a provider: how often it is tried, how long is waited in between, when it is enough.

The wait doubles from try to try, up to a limit, less up to half of it by chance, so that many who failed together do
not come back together. A provider that says how long to wait is given that time and up to a quarter more, within the
limit.
"""

from __future__ import annotations

import email.utils
import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from orihon.errors import ModelError
from orihon.settings.schema import Llm

log = logging.getLogger("orihon")

T = TypeVar("T")


class Failure(Exception):
    """One try that failed: the error to raise, what the provider said, and how long it asks to wait."""

    def __init__(self, error: ModelError, *, words: str = "", told_seconds: float | None = None) -> None:
        super().__init__(error.message)
        self.error, self.words, self.told_seconds = error, words, told_seconds


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """The limits, and where time and chance come from."""

    tries: int = 6
    stall_seconds: float = 300.0
    total_seconds: float = 1800.0
    first_wait_seconds: float = 1.0
    longest_wait_seconds: float = 120.0
    sleep: Callable[[float], None] = time.sleep
    luck: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def of(cls, llm: Llm) -> Patience:
        """What the settings say."""
        return cls(tries=llm.tries, stall_seconds=llm.stall_seconds, total_seconds=llm.total_seconds)

    def wait_seconds(self, failed: int, told: float | None = None) -> float:
        """How long to wait after so many tries."""
        if told is not None:
            return min(told * (1 + self.luck() / 4), self.longest_wait_seconds)
        doubled = self.first_wait_seconds * 2.0 ** min(failed - 1, 30)
        return min(doubled, self.longest_wait_seconds) * (1 - self.luck() / 2)

    def insist(self, attempt: Callable[[float], T]) -> T:
        """What the attempt gives, once it does; it is told when its time is up. Else the error of the last try."""
        until = self.clock() + self.total_seconds
        failed = 0
        while True:
            try:
                return attempt(until)
            except Failure as failure:
                failed, last = failed + 1, failure
            wait = self.wait_seconds(failed, last.told_seconds)
            if not last.error.retryable or failed >= self.tries or self.clock() + wait > until:
                raise _final(last.error, failed)
            log.warning("%s Trying again in %.1f s (try %d of %d)", last.error, wait, failed + 1, self.tries)
            self.sleep(wait)


def told_seconds(headers: Mapping[str, str], now: float) -> float | None:
    """What `Retry-After` says, in seconds from now; None when it says nothing that can be understood."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        moment = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        return max(0.0, moment.timestamp() - now)
    except (ValueError, OverflowError, OSError):
        return None


def _final(error: ModelError, failed: int) -> ModelError:
    if failed == 1:
        return error
    sentence = f"{error.message} It was tried {failed} times."
    return type(error)(sentence, hint=error.hint, retryable=error.retryable)
