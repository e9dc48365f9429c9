"""`overview(desk, uuid)`: one task at a glance; `follow(…)`: its messages as they come. Neither needs a lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec

from orihon.ops.access import Desk
from orihon.ops.ls import seconds_so_far
from orihon.records import Message, Record, Summary, TaskRow
from orihon.task.lifecycle import ENDED
from orihon.task.reader import Reader

NEWEST = 10  # messages and summaries at a glance
POLL_SECONDS = 0.5


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """A task at a glance."""

    row: TaskRow
    repository: str
    task: str
    seconds: float | None
    message_count: int
    messages: list[Message]  # the newest
    summary_count: int
    summaries: list[Summary]  # the newest


def overview(reader: Reader) -> Overview:
    """What people want to know of a task first."""
    messages = list(reader.messages(first=-NEWEST))
    summaries = list(reader.store.read(reader.uuid, Summary, first=-NEWEST))
    return Overview(
        row=reader.row,
        repository=repository(reader.row),
        task=f"{reader.row.task_type.replace('_', ' ')} #{reader.row.task_id}",
        seconds=seconds_so_far(reader.row),
        message_count=messages[-1].seq if messages else 0,
        messages=messages,
        summary_count=summaries[-1].id if summaries else 0,
        summaries=summaries,
    )


def repository(row: TaskRow) -> str:
    """`github/acme/shop`; where only a number is known, that."""
    parts = (row.task_source, row.owner, row.repo, "" if row.project_id is None else str(row.project_id))
    return "/".join(filter(None, parts))


def follow(desk: Desk, uuid: str, first: int = 1, *, sleep: Callable[[float], None] = time.sleep) -> Iterator[Message]:
    """The messages from this number on as they come, until the task has ended and all were given."""
    while True:
        ended = desk.row(uuid).status in ENDED  # asked first, so that nothing that came before the end is missed
        for message in desk.store.read(uuid, Message, first=first):
            yield message
            first = message.seq + 1
        if ended:
            return
        sleep(POLL_SECONDS)


def whole(reader: Reader, record: Record) -> Record:
    """A record with the text that lives in a blob, if it has one."""
    if not isinstance(record, Message) or record.blob is None or not isinstance(record.content, str):
        return record
    text = reader.store.blob(reader.uuid, record.blob.sha256).decode("utf-8", "replace")
    return msgspec.structs.replace(record, content=text)
