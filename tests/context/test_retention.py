"""Retention: the share of the names that later replies used again and that a summary holds."""

import json

import orihon
from orihon import codec
from orihon.context.retention import find_reused_names, measure_retention
from orihon.records import Message, Summary
from support.replies import KEY


def say(seq, role, text):
    return Message(seq=seq, role=role, content=text, timestamp="t", tokens=9)


TALK = [
    say(1, "user", "Fix src/shop/basket.py and read docs/old_notes.md."),
    say(2, "tool", "compute_total(items) is in src/shop/basket.py, beside apply_discount and format_price"),
    say(3, "assistant", "I edit src/shop/basket.py: compute_total must guard. New: guard_empty."),
    say(4, "tool", "guard_empty is there"),
    say(5, "assistant", "apply_discount is wrong as well."),
]


def test_what_a_later_reply_used_again_counts():
    """Neither a name that only stood in a result, nor one that a result repeated."""
    assert find_reused_names(TALK) == {"src/shop/basket.py", "compute_total", "apply_discount"}


def test_the_share_that_a_summary_holds():
    assert measure_retention("src/shop/basket.py: compute_total and apply_discount", TALK) == 1.0
    assert measure_retention("compute_total is fixed; docs/old_notes.md is read", TALK) == 0.3333
    assert measure_retention("OK", TALK) == 0.0
    assert measure_retention("OK", TALK[:2]) is None


def test_it_is_stored_with_each_summary(tmp_path):
    """Of a model's summary and of an extractive one; the row adds them up."""
    with orihon.open(tmp_path) as engine:
        task = engine.start(KEY)
        for number in range(12):
            task.add("user", f"Look at src/shop/part_{number}.py. " + "It fails. " * 40)
            task.add("assistant", f"In src/shop/part_{number}.py a sum is None. " + "Because of that. " * 40)
        assert task.compact()
        task.complete()
        stored = list(engine.read(task.uuid).summaries())
        assert [summary.kind for summary in stored] == ["rolling", "final"]
        assert all(0 < summary.retention <= 1 for summary in stored)
        row = engine.read(task.uuid).row
        assert row.retention_count == 2
        assert row.retention_sum == sum(round(summary.retention * 10_000) for summary in stored)


def test_a_line_of_before_is_read():
    """It has no such field."""
    line = {"id": 1, "start_seq": 1, "end_seq": 9, "summary": "s", "original_tokens": 90, "summary_tokens": 9,
            "ratio": 0.1, "timestamp": "2024-01-15T10:30:00.000000Z"}  # fmt: skip
    assert codec.decode_line(json.dumps(line).encode(), Summary).retention is None
