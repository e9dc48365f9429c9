"""A store of many tasks, made in a minute: `python -m bench.many DIRECTORY|sqlite:///FILE [--tasks 100000]`.

The tasks are a pure function of their number and of the day: 20 users, two months, some that run, wait or are paused,
4 % failed, each with rows and files as a real one has them. They are written unmasked and without a sync, which
is why it is fast; `orihon doctor` finds nothing wrong with the result.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import time
import uuid as uuids
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec

from bench.messages import passage, text
from orihon import codec
from orihon.records import Event, Message, Metadata, Record, Status, Summary, TaskRow, ToolCall
from orihon.stores import open_store
from orihon.stores.base import FORMAT, LISTS
from orihon.stores.jsonl.layout import DIRECTORIES, encode_handoff, encode_metadata, encode_state
from orihon.stores.jsonl.message_index import MessageIndex, make_entry
from orihon.stores.sql import rows
from orihon.stores.sql.store import TABLES
from orihon.task_key import TaskKey

TASKS = 100_000
MESSAGES = 8
CHARS = 400  # of a message, at most
DAYS = 60
USERS = [f"user{number}" for number in range(1, 21)]
REPOS = ["shop", "web", "api", "docs", "infra"]
ACTIVE: list[Status] = ["running", "pending", "paused"]
BATCH = 1000


class Made(msgspec.Struct):
    """One task: what it was started with, its row, and its records."""

    metadata: Metadata
    row: TaskRow
    records: list[Record]


def fill(url: str, tasks: int = TASKS, *, messages: int = MESSAGES, now: datetime | None = None) -> None:
    """Put so many tasks into a new store."""
    write = _into_sqlite if url.startswith("sqlite:") else _into_files
    write(url, (made(number, tasks, messages, now or datetime.now(UTC)) for number in range(tasks)))


def made(number: int, tasks: int, messages: int, now: datetime) -> Made:
    """A task; the higher its number, the newer it is, and the newest few have not ended."""
    chance = random.Random(number)  # noqa: S311 - repeatable, not secret
    uuid = str(uuids.UUID(int=chance.getrandbits(128), version=4))
    created = now - timedelta(days=DAYS) * (1 - number / tasks)
    key = TaskKey.github("acme", chance.choice(REPOS), issue=int(chance.triangular(1, 4000, 300)))
    user = USERS[min(int(chance.expovariate(0.35)), len(USERS) - 1)]  # a few do most of the work
    about = Metadata(
        uuid=uuid,
        task_key=key,
        created_at=_shown(created),
        process_id=chance.randrange(1000, 60_000),
        hostname=f"worker-{chance.randrange(8)}",
        config={"model": "gpt-4o", "llm_provider": "openai", "context_length": 128_000},
        user=user,
        format=FORMAT,
    )
    status = _status(number, tasks, chance)
    records = list(_records(number, messages, created))
    return Made(about, _row(about, status, created, records, chance), records)


def _status(number: int, tasks: int, chance: random.Random) -> Status:
    if number >= tasks - max(3, min(120, tasks // 100)):
        return ACTIVE[number % 3]
    drawn = chance.random()
    return "failed" if drawn < 0.04 else "stopped" if drawn < 0.06 else "completed"


def _row(about: Metadata, status: Status, created: datetime, records: list[Record], chance: random.Random) -> TaskRow:
    ended = status not in ACTIVE
    calls = int(chance.lognormvariate(3.4, 0.7)) if status != "pending" else 0
    finished = created + timedelta(seconds=chance.lognormvariate(6.3, 0.8))
    fields = {
        "started_at": _shown(created) if status != "pending" else None,
        "completed_at": _shown(finished) if ended else None,
        "updated_at": _shown(finished if ended else created),
        "llm_call_count": calls,
        "tool_call_count": int(calls * chance.uniform(0.2, 1.5)),
        "total_tokens": int(calls * chance.uniform(400, 1600)),
        "compression_count": calls // 25,
        "error_message": "ConnectionError: the provider went away" if status == "failed" else None,
        "final_summary": passage(calls, 600) if ended else None,
        "handoff": msgspec.json.encode({"plan": passage(-calls, 700)}).decode() if ended else None,
        "activity": "",
        "message_count": len([one for one in records if isinstance(one, Message)]),
        "size_bytes": sum(len(codec.encode_line(one)) for one in records),
        "summary_count": 1 + calls // 25,
        "summary_failures": int(chance.random() < 0.02),
        "summarised_tokens": 12_000 * (calls // 25) + 800,
        "summary_tokens": 800 * (calls // 25) + 75,
    }
    return msgspec.structs.replace(TaskRow.new(about, status, fence=1), **fields)


def _records(number: int, messages: int, created: datetime) -> Iterator[Record]:
    for seq in range(1, messages + 1):
        role, content = text(number * messages + seq)
        role, at = ("user" if seq == 1 else "assistant" if seq % 2 else "tool"), _shown(created + seq * _STEP)
        about = {"tool_name": "read_file", "tool_call_id": f"c{seq}"} if role == "tool" else {}
        shown = content[:CHARS]
        yield Message(seq=seq, role=role, content=shown, timestamp=at, tokens=len(shown) // 4, **about)  # type: ignore[arg-type]
        if role == "tool":
            yield ToolCall(
                seq=seq // 2,
                tool="read_file",
                args={"path": f"src/part_{number % 500}.py"},
                result=shown[:80],
                status="error" if number % 37 == 0 else "success",
                duration_ms=number % 900,
                timestamp=at,
                call_id=f"c{seq}",
                message_seq=seq,
            )
    yield Event(id=1, after=messages, type="note", data={"phase": "execution"}, timestamp=at)
    yield Summary(
        id=1,
        start_seq=1,
        end_seq=messages,
        summary=passage(number, 300),
        original_tokens=100 * messages,
        summary_tokens=75,
        ratio=round(0.75 / messages, 4),
        kind="final",
        timestamp=at,
    )


_STEP = timedelta(seconds=7)


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def _into_files(url: str, tasks: Iterator[Made]) -> None:
    with open_store(url) as store:
        database: rows.Database = store.database  # type: ignore[attr-defined]
        for batch in _batches(tasks):
            database.transact(partial(_insert_rows, batch))
            for task in batch:
                _directory(Path(url) / DIRECTORIES[task.row.status] / task.row.uuid, task)


def _directory(place: Path, task: Made) -> None:
    place.mkdir(mode=0o700)
    lines: dict[str, bytes] = {}
    for record in task.records:
        name, _ = LISTS[type(record)]
        lines[name] = lines.get(name, b"") + codec.encode_line(record)
    files = {f"{name}.jsonl": data for name, data in lines.items()}
    files |= {"metadata.json": encode_metadata(task.metadata), "state.json": encode_state(task.row)}
    if task.row.handoff is not None:
        files["handoff.json"] = encode_handoff(task.row)
    for name, data in files.items():
        _write(place / name, data)
    file = os.open(place / "messages.idx", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _index(MessageIndex(file), lines["messages"], [one for one in task.records if isinstance(one, Message)])
    finally:
        os.close(file)


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(file, data)
    os.close(file)


def _index(index: MessageIndex, log: bytes, messages: list[Message]) -> None:
    index.reset()
    offset = tokens = 0
    for message, line in zip(messages, log.splitlines(), strict=True):
        tokens += message.tokens
        index.add(make_entry(line, offset, message.seq, tokens))
        offset += len(line) + 1
    index.flush()


def _into_sqlite(url: str, tasks: Iterator[Made]) -> None:
    with open_store(url) as store:
        database: rows.Database = store.writer  # type: ignore[attr-defined]
        for batch in _batches(tasks):
            database.transact(partial(_insert_all, batch), size_bytes=BATCH * 8192)


def _insert_rows(batch: list[Made], connection: sqlite3.Connection) -> None:
    for task in batch:
        rows.insert(connection, task.row)


def _insert_all(batch: list[Made], connection: sqlite3.Connection) -> None:
    _insert_rows(batch, connection)
    for task in batch:
        for record in (task.metadata, *task.records):
            _insert(connection, task.row.uuid, record)


def _insert(connection: object, uuid: str, record: Record) -> None:
    name, field = LISTS[type(record)]
    table, number = TABLES[name]
    columns = {"uuid": uuid, number: getattr(record, field) if field else 1}
    if isinstance(record, Message):
        columns |= {"role": record.role, "tokens": record.tokens, "timestamp": record.timestamp}
    columns["line"] = codec.encode(record).decode()
    marks = ", ".join("?" * len(columns))
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - names of ours
    connection.execute(statement, list(columns.values()))  # type: ignore[attr-defined]


def _batches(tasks: Iterator[Made]) -> Iterator[list[Made]]:
    batch = []
    for task in tasks:
        batch.append(task)
        if len(batch) == BATCH:
            yield batch
            batch = []
    yield batch


def main() -> None:
    """Make the store that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m bench.many", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    arguments = parser.parse_args()
    began = time.monotonic()
    fill(arguments.url, arguments.tasks, messages=arguments.messages)
    print(f"{arguments.tasks:,} tasks in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
