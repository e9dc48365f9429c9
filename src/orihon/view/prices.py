"""What calls cost, by the price table of the extra `prices`, which asks no network. An unknown model has no price."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.util import find_spec

import msgspec

from orihon.records import Usage

TIER_TOKENS = 1_000  # requests of one thousand have one price per token
TIMEOUT_SECONDS = 60

Key = tuple[str, str, int]  # a model, a day, thousands of input tokens
Rates = tuple[float, float, float, float]  # the dollars of a token: plain, read from the cache, written to it, output

log = logging.getLogger("orihon")
_installed = find_spec("genai_prices") is not None
_known: dict[Key, Rates | None] = {}
_lock = threading.Lock()


def price(model: str, usage: Usage, timestamp: str) -> float | None:
    """Return the dollars of a call at the prices of its day; None if the model is not in the table."""
    key = make_key(model, usage.input_tokens, timestamp)
    load_rates([key])
    plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    return multiply(key, (plain, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens))


def price_of_lost_cache(model: str, tokens: int, timestamp: str) -> float | None:
    """Return what it costs more to send tokens again than to read them from the provider's cache."""
    sent = price(model, Usage(input_tokens=tokens), timestamp)
    cached = price(model, Usage(input_tokens=tokens, cache_read_tokens=tokens), timestamp)
    return None if sent is None or cached is None else max(0.0, sent - cached)


def make_key(model: str, input_tokens: int, timestamp: str) -> Key:
    """Return what the price of a token depends on. A time that is none means today."""
    try:
        moment = datetime.fromisoformat(timestamp).astimezone(UTC)
    except ValueError:
        moment = datetime.now(UTC)
    return model, moment.strftime("%Y-%m-%dT00:00:00+00:00"), input_tokens // TIER_TOKENS


def multiply(key: Key, counts: tuple[int, int, int, int]) -> float | None:
    """Return the dollars of so many tokens of each kind, with rates that were loaded before."""
    rates = _known.get(key)
    return None if rates is None else sum(max(0, count) * rate for count, rate in zip(counts, rates, strict=True))


def load_rates(keys: Iterable[Key]) -> None:
    """Look up the rates that are not known yet, in one process."""
    with _lock:
        missing = [key for key in dict.fromkeys(keys) if key not in _known]
        if missing:
            _known.update(zip(missing, _ask(missing), strict=True))


def _ask(keys: list[Key]) -> list[Rates | None]:
    if not _installed:
        return [None] * len(keys)
    command = [sys.executable, "-m", "orihon.view.rates"]
    try:
        done = subprocess.run(  # noqa: S603 - it is our own module
            command, input=msgspec.json.encode(keys), capture_output=True, check=True, timeout=TIMEOUT_SECONDS
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("The prices could not be looked up: %s", error)
        return [None] * len(keys)
    return msgspec.json.decode(done.stdout, type=list[Rates | None])
