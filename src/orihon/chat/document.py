"""A conversation as one JSON document: written whole or not at all, and read back as a new conversation.

The seventeen fields of a conversation's state are there, but for the two that are rebuilt when it runs (the tools'
own machinery and the settings); `model`, which older documents have instead of `model_info`, is read. What this
version does not know is kept and written again. Pictures stand in it; the log that was left behind does not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from orihon import codec
from orihon.chat import lines
from orihon.chat.book import start
from orihon.chat.conversation import NEXT, STEPS, TURN, Conversation, Tell
from orihon.chat.entries import HistoryEntry, Said, entries_of
from orihon.chat.pairs import Pair, messages_of, pair_of, said_in, user_of
from orihon.chat.transcript import ERROR, said, transcript
from orihon.coerce import decode_json
from orihon.context.ranges import upto
from orihon.context.view import State
from orihon.engine import Engine
from orihon.errors import StoreError, UsageError
from orihon.records import Message, Summary
from orihon.stores.files import open_file
from orihon.task.task import Task

FORMAT, VERSION = "orihon-conversation", 1
BESIDE = "document"  # the note with what this version does not know
MAX_BYTES = 512 * 1024 * 1024
MAX_BESIDE_BYTES = 64 * 1024
LOOK_AHEAD = 100  # strings of a transcript among which the next message is looked for

FIELDS = (
    *("conversation_id", "next_message", "history", "valid_history_range", "transcript", "tools", "context_manager"),
    *("context_message_length", "latest_summary", "model", "model_info", "file_line_tracker", "checkpoint_manager"),
    *("mcp_enabled", "tangent_state"),
)


def write(conversation: Conversation, path: Path, beside: dict[str, Any] | None = None) -> int:
    """The document in a file, readable by its owner alone; how many entries it has. `beside` are `Files.parts()`."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        handle = open_file(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(handle, "wb") as file:
            count = _write(conversation, file, beside or {})
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise StoreError(f"The conversation cannot be saved: {error}.", hint="Choose another place.") from error
    finally:
        with suppress(FileNotFoundError):
            fresh.unlink()
    return count


def _write(conversation: Conversation, file: BinaryIO, beside: dict[str, Any]) -> int:
    task, state = conversation.task, conversation.task.history.view.state
    count = covered = 0
    waiting = Said()
    file.write(b'{"format":"%s","version":%d,"history":[' % (FORMAT.encode(), VERSION))
    last_covered = state.summary.ranges[-1][1] if state.summary else 0
    for entry in conversation.entries():
        if isinstance(entry, Said):
            waiting = entry
            continue
        file.write((b",\n" if count else b"\n") + _json(pair_of(_with_blobs(task, entry))))
        count += 1
        covered += entry.assistant.seq <= last_covered
    rest = {
        "conversation_id": conversation.conversation_id,
        "name": conversation.name,
        "next_message": _next(conversation, waiting),
        "valid_history_range": (covered, count),
        "transcript": conversation.transcript,
        "latest_summary": _summary(task, state),
        "tangent_state": _tangent(conversation),
        "model_info": _model(task),
        "mcp_enabled": conversation.mcp_enabled,
        **beside,
        **conversation.notes.get(BESIDE, {}),
    }
    body = _json(
        task.sanitiser.value(msgspec.to_builtins({name: value for name, value in rest.items() if value is not None}))
    )
    file.write(b"],\n" + body[1:])
    return count


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def _with_blobs(task: Task, entry: HistoryEntry) -> HistoryEntry:
    """An entry with everything that lives in blobs."""
    user = msgspec.structs.replace(
        entry.user,
        prompts=tuple(map(task.history.everything, entry.user.prompts)),
        results=tuple(map(task.history.everything, entry.user.results)),
    )
    return msgspec.structs.replace(entry, user=user, assistant=task.history.everything(entry.assistant))


def _next(conversation: Conversation, waiting: Said) -> Pair | None:
    """What was typed and not sent, or sent and not answered."""
    if conversation.next_message is not None:
        return {"content": {"Prompt": {"prompt": conversation.next_message}}}
    return user_of(waiting) if waiting.prompts or waiting.results else None


def _model(task: Task) -> dict[str, Any]:
    config = task.config
    return {
        "model_id": config.model,
        "provider": config.llm_provider,
        "context_window_tokens": config.context_length,
        "max_output_tokens": config.reserved_output,
    }


def _summary(task: Task, state: State) -> tuple[str, dict[str, Any]] | None:
    if state.summary is None:
        return None
    stored = next(task.lease.store.read(task.uuid, Summary, first=state.summary.id, last=state.summary.id), None)
    if stored is None:
        return None
    about = {"original_tokens": stored.original_tokens, "summary_tokens": stored.summary_tokens}
    return stored.summary, about | {"model_id": stored.model, "timestamp": stored.timestamp}


def _tangent(conversation: Conversation) -> dict[str, Any] | None:
    """What the main conversation was when the side conversation began, and the one before it inside."""
    found: dict[str, Any] | None = None
    for tangent in conversation.tangents:
        history = conversation.task.history
        messages = (
            message
            for first, last in upto(tangent.state.ranges, tangent.after)
            for message in map(history.everything, history.read(first, last))
        )
        entries = [entry for entry in entries_of(messages) if isinstance(entry, HistoryEntry)]
        waiting = tangent.state.notes.get(NEXT)
        found = {
            "main_history": [pair_of(entry) for entry in entries],
            "main_next_message": {"content": {"Prompt": {"prompt": waiting["text"]}}} if waiting else None,
            "main_transcript": transcript(history, upto(tangent.state.ranges, tangent.after)),
            "main_latest_summary": _summary(conversation.task, tangent.state),
            "tangent_start_time": tangent.timestamp,
        } | ({"tangent_state": found} if found else {})
    return found


def read(
    engine: Engine, path: Path, directory: Path, *, name: str = "", tell: Tell | None = None, **options: Any
) -> Conversation:
    """A new conversation that goes on where the document ends."""
    document = parsed(path)
    info = document.get("model_info")
    model = info.get("model_id") if isinstance(info, Mapping) else document.get("model")
    options = ({"model": str(model)} if model else {}) | options
    enabled = bool(document.get("mcp_enabled", True))
    conversation = start(engine, directory, name=name, mcp_enabled=enabled, tell=tell, **options)
    try:
        _fill(conversation, document)
    except BaseException:
        conversation.task.lease.close()
        with suppress(StoreError):  # a document that cannot be read leaves nothing behind
            engine.store.delete(conversation.task.uuid)
        raise
    return conversation


def parsed(path: Path) -> dict[str, Any]:
    """What the document says, if it is one."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path.name!a} is too large for a conversation.", hint=f"At most {MAX_BYTES:,} bytes.")
        document = decode_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path.name!a} cannot be read: {error}.", hint="Give a file that `/save` wrote.") from error
    if not codec.depth_fits(document):
        raise UsageError(f"{path.name!a} is nested too deeply.", hint="Give a file that `/save` wrote.")
    if not isinstance(document, dict) or not isinstance(document.get("history"), list):
        raise UsageError(f"{path.name!a} is not a conversation.", hint="Give a file that `/save` wrote.")
    version = document.get("version", VERSION)
    if not isinstance(version, int) or version > VERSION:
        raise UsageError(f"{path.name!a} has version {version}; this one reads {VERSION}.", hint="Use a newer Orihon.")
    return document


def _fill(conversation: Conversation, document: dict[str, Any]) -> None:
    task = conversation.task
    filling = _Filling(task, document.get("transcript"))
    levels = _levels(document.get("tangent_state"))
    before: list[Any] = []
    for level in levels:
        filling.go_on(before, level["main_history"])
        before = level["main_history"]
        task.begin_tangent()
    filling.go_on(before, document["history"])
    _summarise(conversation, document)
    filling.said(_pending(document.get("next_message")))
    filling.last_errors()
    known = {*FIELDS, "format", "version", "name", "agents", "tool_manager"}
    beside = {name: value for name, value in document.items() if name not in known}
    _take_files(task, document)
    turns = sum(message.role == "user" for message in conversation.messages())
    notes = {BESIDE: beside} if beside and len(_json(beside)) <= MAX_BESIDE_BYTES else {}
    task.event("note", **{TURN: turns, STEPS: 0}, **notes)


def _take_files(task: Task, document: dict[str, Any]) -> None:
    """What was sticky, and what the model knew of files; the files themselves are not in a document."""
    manager, tracked = document.get("context_manager"), document.get("file_line_tracker")
    paths = manager.get("paths") if isinstance(manager, Mapping) else None
    if isinstance(paths, list) and paths:
        task.sticky({}, declared=[path for path in paths if isinstance(path, str)])
    if isinstance(tracked, Mapping) and tracked:
        lines.keep(task, tracked)


def _levels(tangent: Any) -> list[dict[str, Any]]:
    """The side conversations that are open, the outermost first."""
    found: list[dict[str, Any]] = []
    while isinstance(tangent, dict) and isinstance(tangent.get("main_history"), list):
        found.insert(0, tangent)
        tangent = tangent.get("tangent_state")
    return found


def _pending(user: Any) -> list[Message]:
    return list(said_in(user)) if isinstance(user, Mapping) else []


def _summarise(conversation: Conversation, document: dict[str, Any]) -> None:
    """A summary stands for the entries before the valid ones; where these are gone, for a line that says so."""
    latest = document.get("latest_summary")
    text = latest[0] if isinstance(latest, list) and latest and isinstance(latest[0], str) else ""
    if not text.strip():
        return
    task, valid = conversation.task, document.get("valid_history_range")
    start_at = valid[0] if isinstance(valid, list) and valid and isinstance(valid[0], int) else 0
    pairs = (entry for entry in conversation.entries() if isinstance(entry, HistoryEntry))
    last = max((entry.assistant.seq for entry in islice(pairs, max(0, start_at))), default=0)
    if not last:
        task.add("user", text)
        return
    ranges = [*upto(task.history.view.state.ranges, last)]
    tokens = sum(message.tokens for message in conversation.messages() if message.seq <= last)
    size = task.history.counter.text(text)
    record = Summary(
        id=0, start_seq=ranges[0][0], end_seq=last, summary=text, original_tokens=tokens, summary_tokens=size,
        ratio=size / max(1, tokens), ranges=[(first, end) for first, end in ranges], timestamp=codec.now(),
    )  # fmt: skip
    task.event("summary", id=task.append(record), ranges=ranges, kept=())


class _Filling:
    """Says again what a document says, and what went wrong in between at the same places."""

    def __init__(self, task: Task, strings: Any) -> None:
        self.task = task
        self._strings = [one for one in strings if isinstance(one, str)] if isinstance(strings, list) else []
        self._place = 0
        self._tools: dict[str, str] = {}  # the names of the last calls, by their ids

    def go_on(self, before: list[Any], pairs: list[Any]) -> None:
        """Say what comes after what was said; where the two differ, go back to the last entry that they share."""
        shared = next((place for place, (a, b) in enumerate(zip(before, pairs, strict=False)) if a != b), None)
        shared = min(len(before), len(pairs)) if shared is None else shared
        if shared < len(before):
            kept = list(islice(self._entries(), shared))
            self.task.rewind(kept[-1].assistant.seq if kept else 0)
        for pair in pairs[shared:]:
            self.said(messages_of(pair))

    def _entries(self) -> Iterator[HistoryEntry]:
        history = self.task.history
        visible = (
            m for first, last in upto(history.view.state.ranges, history.last) for m in history.read(first, last)
        )
        return (entry for entry in entries_of(visible) if isinstance(entry, HistoryEntry))

    def said(self, messages: Iterator[Message] | list[Message]) -> None:
        """Append messages."""
        for message in messages:
            self.errors_before(said(message))
            self._tools = {call.id: call.name for call in message.tool_calls} or self._tools
            self.task.add(
                message.role,
                message.content,
                tool_calls=message.tool_calls or None,
                tool_call_id=message.tool_call_id,
                tool_name=self._tools.get(message.tool_call_id or ""),
                is_error=message.is_error,
                usage=message.usage,
            )

    def errors_before(self, text: str) -> None:
        """Keep what the transcript has before the next message, and no message said."""
        ahead = self._strings[self._place : self._place + LOOK_AHEAD]
        if text in ahead:
            self._errors(ahead[: ahead.index(text)])
            self._place += 1

    def last_errors(self) -> None:
        """Keep what it has after the last one."""
        self._errors(self._strings[self._place :])

    def _errors(self, texts: list[str]) -> None:
        for text in texts:
            self.task.event(ERROR, text=text)
        self._place += len(texts)
