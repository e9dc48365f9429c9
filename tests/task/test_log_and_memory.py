"""What a task says while it runs, and how little of itself it keeps in memory."""

import logging

from orihon.task.log import RECENT_BYTES
from support.replies import KEY, TOOLS, calling, turn

LONG = "I changed the total in basket.py. " * 60


def test_a_compression_is_logged(engine, caplog):
    """When it begins, and what it saved, each line with the id of the task."""
    caplog.set_level(logging.INFO, "orihon")
    with engine.start(KEY, tools=TOOLS) as task:
        task.add("user", "Fix the basket.")
        for _ in range(8):
            turn(task, calling(("read_file", {})), [LONG])
        made = task.compact()
    outcome = made.outcome
    said = [record.getMessage() for record in caplog.records if "ompression " in record.getMessage()]
    assert said == [
        f"[uuid:{task.uuid[:8]}] Context compression triggered",
        f"[uuid:{task.uuid[:8]}] Compression completed: {outcome.original_tokens} -> {outcome.tokens} tokens",
    ]


def test_no_value_begins_a_line_of_the_log(engine, caplog):
    """The name of a tool, an error: what would steer a terminal or end the line is shown as its code."""
    caplog.set_level(logging.DEBUG, "orihon")
    name = "x\nERROR forged\x1b[31m\u202e"
    with engine.start(KEY) as task:
        task.add("user", "Go.")
        task.add("assistant", "", tool_calls=[{"id": "1", "name": name, "arguments": "{}"}])
        for call in task.pending_calls():
            with task.tool(call):
                raise RuntimeError(name)
    log = logging.getLogger("orihon")
    log.warning("It is called %s.", name)
    try:
        raise RuntimeError(name)  # noqa: TRY301
    except RuntimeError:
        log.exception("It failed.")
    assert "It is called x\\nERROR forged\\x1b[31m\\u202e." in caplog.text
    assert any("forged" in record.getMessage() for record in caplog.records)
    assert "\x1b" not in caplog.text
    assert "\u202e" not in caplog.text
    assert not any("\n" in record.getMessage() for record in caplog.records)


def test_the_newest_messages_in_memory_are_bounded(engine):
    """In number and in bytes, while they are written and after a resume; what is older is read when it is asked for."""
    task = engine.start(KEY, tools=TOOLS, context_length=4_000_000, tokens="bytes4")
    task.add("user", "Read these.")
    for number in range(30):
        task.add("user", f"short {number}")
    assert len(task.log._recent) == 20
    for number in range(12):
        task.add("user", f"{number} " + "x" * 200_000)
    task.pause()
    with engine.resume(task.uuid) as again:
        for one in (task, again):
            kept = one.log._recent
            assert 0 < sum(len(message.text) for message in kept.values()) <= one.log._recent_bytes <= RECENT_BYTES
        shown = [message["content"] for message in again.window().openai()]
        assert "short 0" in str(shown)
        assert max(map(len, shown)) >= 200_000
