"""What calls cost, by the price table of the extra `prices`, which asks no network. An unknown model has no price."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec

from orihon.records import Usage

TIER_TOKENS = 1_000  # requests of one thousand are of one tier: some models cost more for long requests

INSTALLED = find_spec("genai_prices") is not None


def price(model: str, usage: Usage, timestamp: str) -> float | None:
    """Return the dollars of a call at the prices of its day; None if the model is not in the table."""
    if not INSTALLED or not model:
        return None
    day = _parse_day(timestamp)
    rates = _load_rates(model, day, usage.input_tokens // TIER_TOKENS)
    if rates is None:
        return None
    plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    counts = (plain, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens)
    return sum(max(0, count) * rate for count, rate in zip(counts, rates, strict=True))


def price_of_lost_cache(model: str, tokens: int, timestamp: str) -> float | None:
    """Return what it costs more to send tokens anew than to read them from the provider's cache."""
    anew = price(model, Usage(input_tokens=tokens), timestamp)
    cached = price(model, Usage(input_tokens=tokens, cache_read_tokens=tokens), timestamp)
    return None if anew is None or cached is None else max(0.0, anew - cached)


@cache
def _load_rates(model: str, day: str, thousands: int) -> tuple[float, float, float, float] | None:
    """Return the dollars of one token: plain input, read from the cache, written to it, output."""
    import genai_prices  # noqa: PLC0415 - 12 MB that only priced tasks need

    size = max(1, thousands) * TIER_TOKENS
    moment = datetime.fromisoformat(day)

    def ask(**counts: int) -> float:
        usage = genai_prices.Usage(**counts)
        return float(genai_prices.calc_price(usage, model_ref=model, genai_request_timestamp=moment).total_price)

    try:
        plain = ask(input_tokens=size) / size
        read = ask(input_tokens=size, cache_read_tokens=size) / size
        written = ask(input_tokens=size, cache_write_tokens=size) / size
        output = (ask(input_tokens=size, output_tokens=size) - ask(input_tokens=size)) / size
    except LookupError:
        return None
    return plain, read, written, output


def _parse_day(timestamp: str) -> str:
    """Return the day of a stored time, from its first moment on, in UTC; today if it is none."""
    try:
        moment = datetime.fromisoformat(timestamp).astimezone(UTC)
    except ValueError:
        moment = datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT00:00:00+00:00")
