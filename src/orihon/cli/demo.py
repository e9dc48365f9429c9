"""`orihon demo`: a writer is killed with kill -9, and nothing that was acknowledged is missing. Offline, in seconds."""

from __future__ import annotations

import inspect
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import uuid as uuids
from pathlib import Path
from typing import NoReturn

import click

import orihon.codec
from orihon.errors import RunError
from orihon.keys import TaskKey
from orihon.records import Message, Metadata
from orihon.stores import open_store
from orihon.stores.base import FORMAT

ACKNOWLEDGED = 400
PRETENDED_TOKEN = "ghp_" + "0rihonDemo" * 3 + "123456"  # shaped like a secret, opens nothing


@click.command()
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Where to leave what was written.")
@click.option("--write", "writer", hidden=True, nargs=2)
def demo(keep: Path | None, writer: tuple[str, str] | None) -> None:
    """Show what Orihon does, offline: a history on disk that survives kill -9, masked and counted.

    \b
    orihon demo                    in a temporary directory
    orihon demo --keep ./demo      leave the files there to look at
    """
    if writer is not None:
        _write_for_ever(*writer)
    if keep is not None:
        click.echo(_look(keep / "contexts", _show(keep / "contexts")))
        return
    with tempfile.TemporaryDirectory(prefix="orihon-demo-") as folder:
        _show(Path(folder) / "contexts")
    click.echo("`orihon demo --keep DIRECTORY` leaves the files there to look at.")


def _show(place: Path) -> str:
    """Play it and print what happened; the id of the task."""
    click.echo(f"A writer appends messages to {place}, and is killed with kill -9 after {ACKNOWLEDGED} of them.\n")
    uuid = str(uuids.uuid4())
    acknowledged = _write_and_kill(place, uuid)
    began = time.perf_counter()
    with open_store(place) as store:
        messages = list(store.read(uuid, Message))
        with store.lease(uuid) as lease:
            next_number = lease.append(_message("user", "Go on where you were."))
    seconds = time.perf_counter() - began
    _require(len(messages) >= acknowledged, f"{acknowledged - len(messages)} acknowledged messages are missing")
    _require([message.seq for message in messages] == list(range(1, len(messages) + 1)), "numbers are not in order")
    _require(next_number == len(messages) + 1, "the next number is wrong")
    log = (place / "running" / uuid / "messages.jsonl").read_text(encoding="utf-8")
    _require(PRETENDED_TOKEN not in log and "[GITHUB_TOKEN]" in log, "a secret reached the disk")
    tokens = sum(message.tokens for message in messages)
    _say("acknowledged before the kill", acknowledged)
    _say("messages after it", len(messages), "all of them, in order, none twice")
    _say("opened, read and carried on in", f"{seconds * 1000:,.0f} ms")
    _say("bytes on disk", f"{len(log.encode()):,}", f"{tokens:,} tokens by estimate")
    _say("secrets in the log", 0, "the writer had put a token into message 3; it is [GITHUB_TOKEN] now")
    _say("memory of this process", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")
    click.echo("\nNothing here is faked; a message that went missing would have failed this command.")
    return uuid


def _write_and_kill(place: Path, uuid: str) -> int:
    """Start a writer, kill it after some acknowledgements, and give the last number that it acknowledged."""
    command = [sys.executable, "-m", "orihon", "demo", "--write", str(place), uuid]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:  # noqa: S603 - our own command
        numbers = (int(line) for line in writer.stdout or () if line.endswith("\n"))
        last = next((number for number in numbers if number >= ACKNOWLEDGED), 0)
        writer.send_signal(signal.SIGKILL)
        return max(numbers, default=last)  # what it had said before it died counts as well


def _write_for_ever(place: str, uuid: str) -> NoReturn:
    """The writer: one line on standard output for each message that is stored."""
    key = TaskKey.github("acme", "shop", issue=27)
    metadata = Metadata(uuid=uuid, task_key=key, created_at=orihon.codec.now(), user="alice", format=FORMAT)
    source = inspect.getsource(inspect)
    with open_store(place) as store, store.lease(uuid, create=metadata) as lease:
        lease.append(_message("system", "You fix bugs in a shop."))
        lease.append(
            _message("user", "The total of an empty basket is wrong. 空の買い物かごの合計が正しくありません。")
        )
        lease.append(_message("user", f"You may use my token {PRETENDED_TOKEN}."))
        for turn in range(1_000_000):
            start = turn * 997 % (len(source) - 4000)
            lease.append(_message("tool", source[start : start + 4000], tool_name="read_file"))
            os.write(sys.stdout.fileno(), f"{lease.last(Message)}\n".encode())
    raise AssertionError  # it is killed long before


def _message(role: str, content: str, **fields: str) -> Message:
    return Message(seq=0, role=role, content=content, timestamp="", tokens=0, **fields)  # type: ignore[arg-type]


def _require(holds: bool, otherwise: str) -> None:  # noqa: FBT001
    if not holds:
        raise RunError(f"The demo failed: {otherwise}.", hint="This is a bug; please report it.")


def _say(what: str, value: object, remark: str = "") -> None:
    click.echo(f"  {what:32} {value!s:>12}   {remark}".rstrip())


def _look(place: Path, uuid: str) -> str:
    task = place / "running" / uuid
    query = "SELECT uuid, task_key, status FROM tasks"
    return (
        "The files can be looked at:\n"
        f"  tail -1 {task}/messages.jsonl | jq\n"
        f'  grep \'"role":"user"\' {task}/messages.jsonl\n'
        f"  sqlite3 {place}/tasks.db '{query}'"
    )
