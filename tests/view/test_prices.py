"""What calls cost, compared with the price table itself."""

from datetime import UTC, datetime

import genai_prices
import pytest

from orihon.records import Usage
from orihon.view.prices import price, price_of_lost_cache

DAY = "2026-01-15T10:00:00.000Z"


@pytest.mark.parametrize("model", ["gpt-4o", "claude-sonnet-4-20250514", "gemini-2.5-pro"])
@pytest.mark.parametrize("tokens", [(1000, 0, 0), (50_000, 40_000, 0), (300_000, 0, 0), (900, 500, 300)])
def test_a_call_costs_what_the_table_says(model, tokens):
    """Plain, cached and written input, and output; also where a long request is dearer."""
    total, read, written = tokens
    usage = Usage(input_tokens=total, output_tokens=120, cache_read_tokens=read, cache_write_tokens=written)
    asked = genai_prices.Usage(
        input_tokens=total, output_tokens=120, cache_read_tokens=read, cache_write_tokens=written
    )
    expected = genai_prices.calc_price(
        asked, model_ref=model, genai_request_timestamp=datetime(2026, 1, 15, tzinfo=UTC)
    )
    assert price(model, usage, DAY) == pytest.approx(float(expected.total_price), rel=1e-6)


@pytest.mark.parametrize("model", ["my-own-model", "", "../../etc/passwd"])
def test_an_unknown_model_is_unpriced(model):
    """None is not 0."""
    assert price(model, Usage(input_tokens=5), DAY) is None
    assert price_of_lost_cache(model, 5, DAY) is None


def test_a_lost_cache_costs_the_difference():
    """Sending tokens anew, less reading them from the cache."""
    anew = price("gpt-4o", Usage(input_tokens=8000), DAY)
    cached = price("gpt-4o", Usage(input_tokens=8000, cache_read_tokens=8000), DAY)
    assert price_of_lost_cache("gpt-4o", 8000, DAY) == pytest.approx(anew - cached)
    assert anew > cached > 0
