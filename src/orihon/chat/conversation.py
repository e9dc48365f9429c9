"""A conversation: a task with a user at the keyboard. It has no history of its own; everything is in the task's log.

    with registry.start(engine, Path("."), name="shop") as conversation:
        conversation.say("Why does test_total fail?")
        conversation.task.add_reply(model.reply(conversation.task.window()))

A conversation is paused between sessions. A message that was typed and not sent yet is stored, so a crash does not lose
it. This module is the only one of the package that uses the task's log, view and events directly.

The history is read as pairs of a user turn and a reply. A user turn is a prompt, the results of the previous reply's
tool calls, or both.
"""

from __future__ import annotations

import hashlib
import uuid as uuids
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, Self, cast

import msgspec

from orihon.codec import now
from orihon.coerce import decode_json
from orihon.context.events import sound
from orihon.context.frame import Report
from orihon.context.ranges import Ranges, contains, upto
from orihon.context.view import State, Tangent, Undo
from orihon.errors import Corrupt, NotFound, TangentError, UsageError
from orihon.records import Blob, Event, Message, Summary, Usage
from orihon.stores.base import Store
from orihon.task.summaries import TANGENT_KEY
from orihon.task.task import Task
from orihon.task.timeline import Keep
from orihon.terminal import Language

MAX_ENTRIES = 10_000
ABOUT = "conversation"  # the first note: name, directory and options
LOADED = "document"  # in the raw form of a message that was loaded from a document
NEXT, TURN, STEPS, HAS_HIDDEN = "next_message", "turn", "steps", "oldest_left"
ERROR = "error"  # the event type of errors in the transcript
STOPPED = "[cancelled by the user]"
CANCELLED = "Tool use was cancelled by the user"
EMPTY_PROMPT = "Empty prompt"
USAGE_FIELDS = tuple(name for name in Usage.__struct_fields__ if name != "unknown")

Notify = Callable[[str], None]


class UserTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The user side of an entry: prompts and tool results."""

    prompts: tuple[Message, ...] = ()
    results: tuple[Message, ...] = ()

    @property
    def prompt(self) -> str:
        """The text of all prompts."""
        return "\n\n".join(message.text for message in self.prompts)

    @property
    def is_cancelled(self) -> bool:
        """Whether the user cancelled a tool call."""
        return any(message.is_error and message.text == CANCELLED for message in self.results)


def loaded_fields(message: Message) -> dict[str, Any]:
    """Return what a document said of a message that was loaded from it, and that a message has no field for."""
    value = message.raw.value if message.raw is not None else None
    fields = value.get(LOADED) if isinstance(value, dict) else None
    return fields if isinstance(fields, dict) else {}


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A user turn and the reply to it."""

    user: UserTurn
    assistant: Message

    @property
    def request_metadata(self) -> dict[str, Any] | None:
        """The model and the usage of the reply's request; of a loaded reply, what its document said."""
        if "request_metadata" in (loaded := loaded_fields(self.assistant)):
            return dict(loaded["request_metadata"])
        usage = self.assistant.usage
        if usage is None:
            return None
        counts = {name: getattr(usage, name) for name in USAGE_FIELDS}
        return {"message_id": f"m{self.assistant.seq}", "model_id": self.assistant.model, **counts}


def pair_messages(messages: Iterable[Message]) -> Iterator[HistoryEntry | UserTurn]:
    """Group messages into entries. A user turn without a reply comes last."""
    prompts: list[Message] = []
    results: list[Message] = []
    for message in messages:
        if message.role == "user":
            prompts.append(message)
        elif message.role == "tool":
            results.append(message)
        elif message.role == "assistant":
            yield HistoryEntry(user=UserTurn(prompts=tuple(prompts), results=tuple(results)), assistant=message)
            prompts, results = [], []
    if prompts or results:
        yield UserTurn(prompts=tuple(prompts), results=tuple(results))


def format_message(message: Message) -> str:
    """Return the transcript entry of a message; empty for system messages and tool results."""
    if message.role == "user":
        return "\n".join(f"> {line}" for line in message.text.splitlines() or [""])
    if message.role != "assistant":
        return ""
    names = ", ".join(call.name for call in message.tool_calls)
    return "\n".join(part for part in (message.text, f"[Tool uses: {names}]" if names else "") if part)


class Conversation:
    """One conversation in one directory. Leaving a `with` block pauses it."""

    def __init__(self, task: Task, *, name: str, workspace: Path, notify: Notify | None = None) -> None:
        self.task, self.name, self.workspace = task, name, workspace
        self.notify: Notify = notify or (lambda _: None)
        self._counted: tuple[Ranges, int, int] = ((), 0, 0)  # ranges, last message, and the entries in them

    @property
    def conversation_id(self) -> str:
        return self.task.uuid

    # messages of the user

    @property
    def turn(self) -> int:
        """The number of messages that the user has sent."""
        return int(self.notes.get(TURN, 0))

    @property
    def next_message(self) -> str | None:
        """The message that was typed and not sent yet."""
        waiting = self.notes.get(NEXT)
        return str(waiting["text"]) if waiting else None

    def set_next(self, text: str) -> None:
        """Store the message to send next. There is one at a time, and it is never empty."""
        if self.next_message is not None:
            raise UsageError("Another message is waiting to be sent.", hint="Send it, or drop it first.")
        self.set_notes(**{NEXT: {"text": text if text.strip() else EMPTY_PROMPT, "id": uuids.uuid4().hex}})

    def drop_next(self) -> None:
        """Delete the message that was not sent yet."""
        if self.next_message is not None:
            self.set_notes(**{NEXT: None})

    def send(self) -> int:
        """Send the waiting message and return its number. Unanswered tool calls are cancelled."""
        waiting = self.notes.get(NEXT)
        if not waiting:
            raise UsageError("There is no message to send.", hint="Type a message first.")
        self._cancel_calls()
        # the key makes the append idempotent if the process dies before the next line
        seq = self.task.add("user", str(waiting["text"]), key=f"orihon:next:{waiting['id']}")
        self.set_notes(**{NEXT: None, TURN: self.turn + 1, STEPS: 0})
        self._hide_oldest()
        return seq

    def say(self, text: str) -> int:
        """Send a message now."""
        self.set_next(text)
        return self.send()

    def cancel(self, received: str = "") -> None:
        """Cancel the current reply. The part that was received stays, and the history stays valid."""
        self._cancel_calls()
        newest = self.find_newest()
        if newest is None or newest.role == "assistant":
            return
        if received.strip() or newest.role == "user":
            self.task.add("assistant", "\n\n".join(part for part in (received.strip(), STOPPED) if part))

    def _cancel_calls(self) -> None:
        for call in self.task.pending_calls():
            self.task.answer(call, CANCELLED, is_error=True)

    def clear(self) -> int:
        """Hide everything but the system prompt and the pins, and drop the waiting message."""
        self.drop_next()
        return self.task.reset()

    # tangents

    @property
    def tangents(self) -> tuple[Tangent, ...]:
        """The open tangents, the outermost first."""
        return self.task.log.view.tangents

    @property
    def is_in_tangent(self) -> bool:
        return bool(self.tangents)

    @property
    def tangent_seconds(self) -> int | None:
        """How long the innermost tangent has been open."""
        if not self.tangents:
            return None
        opened = datetime.fromisoformat(self.tangents[-1].timestamp or now())
        return max(0, int((datetime.now(UTC) - opened).total_seconds()))

    def enter_tangent(self, *, after: int | None = None, commit: str = "", began: str = "") -> None:
        """Open a tangent. With `after`, the messages since that one become part of it.

        `commit` names the checkpoint of the files as they are now; `began` is the time at which a loaded one began.
        """
        data = {"commit": commit, "began": began}
        self.task.begin_tangent(after=after, **{name: value for name, value in data.items() if value})

    def leave_tangent(self, keep: Keep = "none") -> None:
        """Return to the main conversation; keep nothing of the tangent, its last exchange, or a summary."""
        if not self.is_in_tangent:
            raise TangentError("No tangent is open.")
        self._cancel_calls()
        self.task.end_tangent(keep)

    # what the conversation stores

    @property
    def store(self) -> Store:
        return self.task.writer.lease.store

    @property
    def notes(self) -> dict[str, Any]:
        """The notes of the task. Tangents and checkpoints restore them."""
        return self.task.log.view.state.notes

    def set_notes(self, **notes: Any) -> None:
        """Change notes; None deletes one."""
        self.add_event("note", **notes)

    def add_event(self, type: str, **data: Any) -> int:
        """Append an event and return its number."""
        return self.task.writer.event(type, **data)

    def add_error(self, message: str) -> None:
        """Keep an error message in the transcript."""
        self.add_event(ERROR, text=message)

    def read_events(self, number: int | None = None) -> Iterator[Event]:
        """Read all valid events, or the one with this number."""
        return sound(self.store.read(self.task.uuid, Event, first=number or 1, last=number))

    def save_value(self, note: str, value: Any) -> None:
        """Store a JSON value as a blob, named by a note, unless it is stored already."""
        data = msgspec.json.encode(value)
        blob = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
        with self.task.writer.lock:
            if self.notes.get(note) != blob:
                self.task.writer.lease.put(data)
                self.set_notes(**{note: blob})

    def load_value(self, note: str) -> Any:
        """Return the value that `save_value` stored; None if there is none or it is lost."""
        try:
            return decode_json(self.task.log.load(msgspec.convert(self.notes.get(note), Blob)))
        except (ValueError, NotFound, Corrupt) as error:
            self.task.writer.logger.debug("There is no stored %s: %s", note, error)
            return None

    def add_summary(self, text: str, last: int, about: Mapping[str, Any] | None = None) -> None:
        """Replace the visible messages up to `last` by a summary in the window. `about` is its metadata, if known."""
        ranges, known = [*upto(self.visible, last)], about or {}
        tokens = known.get("original_tokens")
        if not isinstance(tokens, int) or tokens < 0:
            tokens = sum(message.tokens for message in self.messages() if message.seq <= last)
        size, model = self.task.log.counter.text(text), known.get("model_id")
        summary = Summary(
            id=0, start_seq=ranges[0][0], end_seq=last, summary=text, original_tokens=tokens, summary_tokens=size,
            ratio=size / max(1, tokens), ranges=[(first, end) for first, end in ranges],
            timestamp=str(known.get("timestamp") or now()), model=model if isinstance(model, str) else None,
        )  # fmt: skip
        self.add_event("summary", id=self.task.writer.append(summary), ranges=ranges, kept=())

    # reading

    @property
    def state(self) -> State:
        return self.task.log.view.state

    @property
    def visible(self) -> Ranges:
        """The numbers of the visible messages."""
        return upto(self.state.ranges, self.last)

    @property
    def last(self) -> int:
        return self.task.log.last

    def find_newest(self, role: str = "") -> Message | None:
        """Return the newest visible message, perhaps of one role."""
        messages = self.task.log.backwards(self.visible)
        return next((message for message in messages if role in {"", message.role}), None)

    def find_question(self) -> Message | None:
        """Return the newest visible message that the user wrote; what stands for a tangent is none."""
        messages = self.task.log.backwards(self.visible)
        asked = (message for message in messages if message.role == "user")
        return next((message for message in asked if not (message.key or "").startswith(TANGENT_KEY)), None)

    @property
    def undoable(self) -> tuple[Undo, ...]:
        """The steps that `undo` can take back, the newest last."""
        return self.task.log.view.undoable

    @property
    def language(self) -> Language:
        return cast("Language", self.task.log.language)

    @property
    def mcp_enabled(self) -> bool:
        """Whether the tools of MCP servers are offered."""
        return bool(self.notes.get(ABOUT, {}).get("mcp_enabled", True))

    def messages(self, ranges: Ranges | None = None, *, first: int = 1) -> Iterator[Message]:
        """Read messages in order: the visible ones, or those in these ranges."""
        for start, end in self.visible if ranges is None else ranges:
            if end >= first:
                yield from self.task.log.read(max(start, first), end)

    def entries(self, ranges: Ranges | None = None, *, with_blobs: bool = False) -> Iterator[HistoryEntry | UserTurn]:
        """Read messages as pairs; `with_blobs` loads everything that is stored in blobs."""
        messages = self.messages(ranges)
        return pair_messages(map(self.task.log.load_all, messages) if with_blobs else messages)

    def pairs(self, ranges: Ranges | None = None, *, with_blobs: bool = False) -> Iterator[HistoryEntry]:
        """Read the entries that have a reply."""
        return (entry for entry in self.entries(ranges, with_blobs=with_blobs) if isinstance(entry, HistoryEntry))

    @property
    def transcript(self) -> list[str]:
        """The visible conversation as users read it. It is never sent to the model."""
        return [text for _, text in self.read_transcript()]

    def read_transcript(self, limit: int = MAX_ENTRIES, ranges: Ranges | None = None) -> list[tuple[int, str]]:
        """Return the newest entries with the numbers of their messages; an error has that of the message before it."""
        ranges = self.visible if ranges is None else ranges
        texts = (((message.seq, 0), format_message(message)) for message in self.task.log.backwards(ranges))
        errors = (
            ((event.after, event.id), str(event.data.get("text", "")))
            for event in self.read_events()
            if event.type == ERROR and (not event.after or contains(ranges, event.after))
        )
        newest_errors = sorted(errors, reverse=True)[:MAX_ENTRIES]
        entries = merge((entry for entry in texts if entry[1]), newest_errors, key=lambda entry: entry[0], reverse=True)
        return [(seq, text) for (seq, _), text in islice(entries, limit)][::-1]

    def find_summary(self, state: State) -> Summary | None:
        """Return the summary that is in effect in a state."""
        if state.summary is None:
            return None
        return next(self.store.read(self.task.uuid, Summary, first=state.summary.id, last=state.summary.id), None)

    def preview_window(self) -> tuple[Report, int, float]:
        """Return the next window's report, the tokens of the tools, and the provider's tokens for one of ours."""
        log = self.task.log
        return log.compose().report, log.schema_tokens, log.scale

    def read_usage(self, first: int) -> Iterator[tuple[int, Usage]]:
        """Read the numbers and the usage of all replies from a message on, the hidden ones included."""
        for message in self.store.read(self.task.uuid, Message, first=first):
            if message.role == "assistant" and message.usage is not None:
                yield message.seq, message.usage

    # the limit of visible entries

    def _hide_oldest(self) -> None:
        """Hide the oldest entries if there are too many. The log keeps them."""
        if sum(last - first + 1 for first, last in self.visible) <= MAX_ENTRIES:
            return
        count = self._count_entries()
        hidden = count + 1 - MAX_ENTRIES  # the message that was sent becomes one more
        if hidden <= 0:
            return
        last_hidden = next(islice(self.pairs(), hidden - 1, None)).assistant.seq
        is_first_time = not self.notes.get(HAS_HIDDEN)
        self.add_event("leave", upto=last_hidden)
        self._counted = (self.visible, self.last, count - hidden)
        if is_first_time:
            self.set_notes(**{HAS_HIDDEN: True})
            self.notify(f"More than {MAX_ENTRIES:,} entries: from now on the oldest is hidden. The log keeps it.")

    def _count_entries(self) -> int:
        """Count the visible entries; only messages that are new since the last count are read."""
        ranges, last, count = self._counted
        if upto(self.visible, last) != ranges:
            last, count = 0, 0
        count += sum(message.role == "assistant" for message in self.messages(first=last + 1))
        self._counted = (self.visible, self.last, count)
        return count

    def close(self) -> None:
        """Pause the conversation."""
        self.task.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
