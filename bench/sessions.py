"""Sessions of agents below a directory, for `bench.fidelity`: one directory for each repository, one file a session.

A file has one of the formats that `orihon import` knows, such as messages of OpenAI's chat, perhaps with gzip. Secrets
are masked, as a store would mask them. What is no session is left out, and told.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from orihon.errors import OrihonError
from orihon.ops.access import AuthorizedStore, Principal
from orihon.ops.blobs import load_blobs
from orihon.ops.import_task import import_file
from orihon.records import Message
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.tokens import Counter


class Session(NamedTuple):
    """A log, and the directory that it came from."""

    repository: str
    messages: list[Message]


def read_sessions(folder: Path, counter: Counter, *, most: int) -> Iterator[Session]:
    """Yield the sessions below a directory, at most so many of each repository."""
    for directory in sorted(path for path in folder.iterdir() if path.is_dir()):
        found = 0
        for path in sorted(path for path in directory.rglob("*") if path.is_file()):
            if found == most:
                break
            try:
                logs = list(_read(path))
            except (OrihonError, ValueError) as error:
                print(f"- left out: {directory.name}/{path.name}: {str(error)[:100]}")
                continue
            for log in logs:
                found += 1
                yield Session(directory.name, [_plain(message, seq, counter) for seq, message in enumerate(log, 1)])


def _read(path: Path) -> Iterator[list[Message]]:
    with tempfile.TemporaryDirectory() as place, open_store("memory:") as store:
        if path.suffix == ".gz":
            data, path = gzip.decompress(path.read_bytes()), Path(place) / path.stem
            path.write_bytes(data)
        for task in import_file(AuthorizedStore(store, Principal("bench"), command="bench"), Settings(), path):
            yield [load_blobs(store, task.uuid, message) for message in store.read(task.uuid, Message)]


def _plain(message: Message, seq: int, counter: Counter) -> Message:
    """The message as it would be added: a text and its calls."""
    made = Message(
        seq=seq,
        role=message.role,
        content=message.text or "(empty)",
        timestamp="",
        tokens=0,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
        tool_name=message.tool_name,
    )
    return msgspec.structs.replace(made, tokens=counter.message(made))
