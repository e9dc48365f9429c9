"""What is new in a store goes into the index: only new tasks and new records, in steps that can end at any time.

The tasks that may have something new wait in the index itself (see `news`); one after the other is read from where the
last look ended. It reads what anybody may read, holds no lease, and stands in nobody's way. Memory does not depend on
the size of the store.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress

from orihon.errors import Corrupt, NotFound, StoreUnavailable
from orihon.ops.blobs import load_blobs
from orihon.ops.progress import OnProgress, ProgressCounter
from orihon.ops.search.index import Index, Text, add, who_of
from orihon.ops.search.news import look
from orihon.ops.search.place import index_path, with_index
from orihon.records import Message, Summary
from orihon.stores.base import Store
from orihon.stores.files import Refused

MAX_CHARS = 1_000_000  # of one text; what stands behind them is not found
BATCH_CHARS = 1_000_000  # in one transaction
BATCH_TASKS = 200

_WAITING = "SELECT id, uuid, user, task_key, messages, summaries FROM tasks WHERE waits ORDER BY created_at LIMIT ?"
_READ = "UPDATE tasks SET messages = ?, summaries = ?, waits = 0 WHERE id = ?"

Waiting = tuple[int, str, str | None, str, int, int]


def index_some(store: Store, seconds: float) -> bool:
    """For whoever has time: fill the index of a store for so long at most; whether all is in it."""
    if index_path(store) is None:
        return True
    return with_index(store, lambda index: fill(store, index, seconds=seconds))


def purge(store: Store) -> None:
    """Take out what is gone from the store, and write the index anew, so that nothing of it is left in the file."""
    path = index_path(store)
    if path is not None and path.exists():
        with_index(store, lambda index: _purge(store, index))


def _purge(store: Store, index: Index) -> None:
    with index.alone() as alone:
        if alone:
            look(store, index)
            index.merge()


def fill(store: Store, index: Index, *, seconds: float | None = None, on_progress: OnProgress = None) -> bool:
    """Bring the index up to date, for so long at most; whether it is. Somebody else who does it is left to it."""
    until = None if seconds is None else time.monotonic() + seconds
    progress = ProgressCounter(on_progress)
    with index.alone() as alone:
        if not alone:
            return False
        look(store, index)
        while waiting := index.database.all(_WAITING, BATCH_TASKS):
            while waiting:
                _read_some(store, index, waiting, progress)
                if until is not None and time.monotonic() > until:
                    return not index.database.all(_WAITING, 1)
        return True


def _read_some(store: Store, index: Index, waiting: list[Waiting], progress: ProgressCounter) -> None:
    """Read tasks from the front of the list, as many as make a transaction of a good size."""
    gone: list[str] = []

    def read(connection: sqlite3.Connection) -> None:
        chars = 0
        while waiting and chars < BATCH_CHARS:
            task, uuid, user, key, messages, summaries = waiting.pop(0)
            who = who_of(user, key)
            try:
                for said in _texts(store, uuid, messages, summaries):
                    add(connection, task, who, said)
                    messages = said.number if said.kind != "summary" else messages
                    summaries = said.number if said.kind == "summary" else summaries
                    chars += len(said.text)
                    progress.add(records=1, size_bytes=len(said.text))
            except (NotFound, Corrupt, Refused, StoreUnavailable) as error:
                if isinstance(error, NotFound):
                    gone.append(uuid)  # it was deleted meanwhile
            connection.execute(_READ, (messages, summaries, task))
            progress.add(tasks=1)

    index.database.transact(read, size_bytes=4 * BATCH_CHARS)
    for uuid in gone:
        index.forget(uuid)


def _texts(store: Store, uuid: str, messages: int, summaries: int) -> Iterator[Text]:
    """What is new in a task, as people read it: words, and what was called with what."""
    for summary in store.read(uuid, Summary, first=summaries + 1):
        yield Text("summary", summary.id, summary.summary[:MAX_CHARS])
    for message in store.read(uuid, Message, first=messages + 1):
        yield Text(message.role, message.seq, text_of(store, uuid, message)[:MAX_CHARS])


def text_of(store: Store, uuid: str, message: Message) -> str:
    """The words of a message and of its calls, also those that live in blobs."""
    with suppress(NotFound, Corrupt, StoreUnavailable):  # a lost blob: the line has its beginning
        message = load_blobs(store, uuid, message)
    return "\n".join([message.text, *(f"{call.name} {call.arguments}" for call in message.tool_calls)]).strip()
