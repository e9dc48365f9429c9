"""What was said, as pairs: what the person said or the tools gave, and what the assistant answered.

The pairs are read from the log and kept nowhere else. An entry's user side is a prompt, the results of the calls of
the entry before, or both; its assistant side is a text, with the calls that it asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from orihon.records import Call, Message

CANCELLED = "Tool use was cancelled by the user"
EMPTY_PROMPT = "Empty prompt"


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """The user's side: what was typed, and what the tools gave."""

    prompts: tuple[Message, ...] = ()
    results: tuple[Message, ...] = ()

    @property
    def prompt(self) -> str:
        """The words of the person."""
        return "\n\n".join(message.text for message in self.prompts)

    @property
    def is_cancelled(self) -> bool:
        """Whether the person did not want what the assistant asked for."""
        return any(message.is_error and message.text == CANCELLED for message in self.results)


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One pair."""

    user: Said
    assistant: Message

    @property
    def first(self) -> int:
        """The number of its first message."""
        return min(message.seq for message in (*self.user.prompts, *self.user.results, self.assistant))

    @property
    def request_metadata(self) -> dict[str, Any] | None:
        """What is known of the request that was answered."""
        usage = self.assistant.usage
        if usage is None:
            return None
        counts = {name: value for name, value in msgspec.structs.asdict(usage).items() if name != "unknown"}
        return {"message_id": f"m{self.assistant.seq}", "model_id": self.assistant.model, **counts}


def entries_of(messages: Iterable[Message]) -> Iterator[HistoryEntry | Said]:
    """The pairs in order; at the end, without an answer, what still waits for one."""
    prompts: list[Message] = []
    results: list[Message] = []
    for message in messages:
        if message.role == "user":
            prompts.append(message)
        elif message.role == "tool":
            results.append(message)
        elif message.role == "assistant":
            yield HistoryEntry(user=Said(prompts=tuple(prompts), results=tuple(results)), assistant=message)
            prompts, results = [], []
    if prompts or results:
        yield Said(prompts=tuple(prompts), results=tuple(results))


def tool_uses(calls: Iterable[Call]) -> str:
    """The calls of a reply, for people."""
    names = ", ".join(call.name for call in calls)
    return f"[Tool uses: {names}]" if names else ""
