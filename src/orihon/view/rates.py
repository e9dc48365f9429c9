"""Ask the price table of the extra `prices`, in a process of its own: the table would take 12 MB of the server.

`python -m orihon.view.rates` reads a list of [model, day, thousands of input tokens] as JSON, and writes the dollars of
one token for each: plain input, read from the cache, written to it, output; null for an unknown model.
"""

from __future__ import annotations

import sys
from datetime import datetime

import genai_prices
import msgspec

Key = tuple[str, str, int]
Rates = tuple[float, float, float, float]


def look_up(model: str, day: str, thousands: int) -> Rates | None:
    """Return the rates of a model on a day for a request of that size: some models cost more for long requests."""
    size = max(1, thousands) * 1_000
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


if __name__ == "__main__":
    keys = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Key])
    sys.stdout.buffer.write(msgspec.json.encode([look_up(*key) for key in keys]))
