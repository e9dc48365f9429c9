"""Dates, durations and text for the terminal."""

import pytest

from orihon.cli._format import choose_language, format_duration, format_time
from orihon.cli._output import truncate
from orihon.terminal import collapse, escape


@pytest.mark.parametrize(
    ("seconds", "japanese", "english"),
    [(923, "15分23秒", "15m 23s"), (750, "12分30秒", "12m 30s"), (0.4, "0秒", "0s"), (59.6, "1分0秒", "1m 0s"),
     (3600, "1時間0分", "1h 0m"), (90_061, "1日1時間", "1d 1h"), (None, "-", "-"), (-5, "0秒", "0s")],
)  # fmt: skip
def test_durations(seconds, japanese, english):
    """The two largest units, in both languages."""
    assert format_duration(seconds, "ja") == japanese
    assert format_duration(seconds, "en") == english


def test_language():
    """The option comes first, then LC_ALL, LC_MESSAGES and LANG; an empty variable counts as unset."""
    assert choose_language("ja", {"LC_ALL": "en_US.UTF-8"}) == "ja"
    assert choose_language(None, {"LC_ALL": "", "LC_MESSAGES": "ja_JP.UTF-8", "LANG": "C"}) == "ja"
    assert choose_language(None, {"LC_ALL": "C", "LANG": "ja_JP.UTF-8"}) == "en"
    assert choose_language(None, {}) == "en"


def test_times():
    """An invalid time is shown unchanged."""
    assert format_time(None) == "-"
    assert format_time("soon") == "soon"
    assert len(format_time("2024-01-15T10:30:00.000000Z", seconds=False)) == len("2024-01-15 10:30")


def test_text_for_a_terminal():
    """Control characters and bidirectional marks are escaped, and lines are cut to the width."""
    assert escape("a\x1b[2Jb\u202ec\x9bd\te\nf") == "a\\x1b[2Jb\\u202ec\\x9bd\te\nf"
    assert collapse(" a\r\n\tb ") == "a\\r b"
    assert truncate("abcdef", 6) == "abcdef"
    assert truncate("abcdefg", 6) == "abcde…"
    assert truncate("合計を直す", 7) == "合計を…"
    assert truncate("合計を直す" * 1000, 10) == "合計を直 …"
    assert truncate("e" + "\u0301" * 100_000, 10).endswith("…")
