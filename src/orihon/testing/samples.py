"""Sample tasks and records for tests of a store."""

from __future__ import annotations

import uuid as uuids
from typing import Any

from orihon import codec
from orihon.records import Event, Fold, Message, Metadata, PlanEntry, Record, Summary, ToolCall
from orihon.stores.base import FORMAT
from orihon.task_key import TaskKey

TOKEN = "ghp_" + "a1B2c3D4" * 4 + "e5F6"


def a_message(content: Any = "hello", role: Any = "user", **fields: Any) -> Message:
    """Return a message that has no number, timestamp or token count yet."""
    return Message(**{"seq": 0, "role": role, "content": content, "timestamp": "", "tokens": 0} | fields)


def one_of_each() -> list[Record]:
    """Return one record of every kind."""
    return [
        a_message(),
        Summary(
            id=0,
            start_seq=1,
            end_seq=1,
            summary="s",
            original_tokens=9,
            summary_tokens=3,
            ratio=0.3,
            retention=0.75,
            timestamp="",
        ),
        ToolCall(seq=0, tool="read", args={"path": "a.py"}, result="x", status="success", duration_ms=1, timestamp=""),
        Event(id=0, after=1, type="pin", data={"seq": 1}, timestamp=""),
        Fold(id=0, seq=1, text="[…]", arguments={"c1": "{}"}, tokens=3, timestamp=""),
        PlanEntry(id=0, type="plan", task_uuid="u", data={"goal": "g"}, timestamp=""),
    ]


def a_task(number: int = 1, *, user: str | None = "alice", **config: Any) -> Metadata:
    """Return the metadata of a new task."""
    return Metadata(
        uuid=str(uuids.uuid4()),
        task_key=TaskKey.github("acme", "shop", issue=number),
        created_at=codec.now(),
        config={"model": "gpt-4o", "context_length": 128_000} | config,
        user=user,
        format=FORMAT,
    )
