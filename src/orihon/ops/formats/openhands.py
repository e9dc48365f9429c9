"""OpenHands: `output.jsonl` with one run on each line and its events in `history`, or a JSON list of events.

An action of the agent becomes a call, with its thought as the text before it. An observation is the result of its
cause. Actions and observations that only control the program (recall, change of state) are kept and not shown to a
model. Older files have pairs of action and observation, and no ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from orihon.ops.formats.session_file import (
    Parsed,
    RecordPath,
    SessionFile,
    SessionReader,
    first_text,
    get_dict,
    make_call,
    make_message,
    parse_time,
)
from orihon.records import Message

_CONTROL = frozenset(("recall", "change_agent_state", "agent_state_changed", "null", "condensation", ""))
_NOT_ARGUMENTS = frozenset(("thought", "action", "action_risk", "is_confirmed", "confirmation_state", "security_risk"))


class OpenhandsReader(SessionReader):
    """Reads the events of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.unanswered: dict[str, str] = {}  # the ids of calls by those of their events

    @classmethod
    def matches(cls, file: SessionFile) -> bool:
        if isinstance(file.document, list):
            return bool(file.document) and _is_event(file.document[0])
        runs = [file.document] if file.is_document else file.opening
        return bool(runs) and all(_is_run(run) for run in runs[:2])

    @classmethod
    def sessions(cls, file: SessionFile) -> Iterator[Iterator[Parsed]]:
        if isinstance(file.document, list):
            yield cls().read(file)
        elif file.is_document and _is_run(file.document):
            yield cls().read_run([], file.document)
        elif not file.is_document:
            for number, run in file.lines():
                if _is_run(run):
                    yield cls().read_run([number], run)

    def read(self, file: SessionFile) -> Iterator[Parsed]:
        """Yield the events of a list."""
        return self.read_events(([index], item) for index, item in enumerate(file.document))

    def read_run(self, path: RecordPath, run: dict[str, Any]) -> Iterator[Parsed]:
        """Yield the run without its events, then each event."""
        yield Parsed([(path, run | {"history": []})])
        events: list[tuple[RecordPath, Any]] = []
        for index, item in enumerate(run["history"]):
            if isinstance(item, list):
                events += [([*path, "history", index, part], event) for part, event in enumerate(item)]
            else:
                events.append(([*path, "history", index], item))
        yield from self.read_events(events)

    def read_events(self, events: Iterable[tuple[RecordPath, Any]]) -> Iterator[Parsed]:
        """Yield each event with its message."""
        for index, (path, event) in enumerate(events):
            message = None
            if isinstance(event, dict) and isinstance(event.get("action"), str):
                message = self._parse_action(event, str(event.get("id", index)))
            elif isinstance(event, dict) and isinstance(event.get("observation"), str):
                message = self._parse_observation(event)
            yield Parsed([(path, event)], [] if message is None else [message])

    def _parse_action(self, event: dict[str, Any], event_id: str) -> Message | None:
        action, args = event["action"], event["args"] if isinstance(event.get("args"), dict) else event
        timestamp, thought = parse_time(event.get("timestamp")), first_text(args, "thought")
        if action in _CONTROL:
            return None
        if action in {"system", "message"}:
            role = "system" if action == "system" else "assistant" if event.get("source") == "agent" else "user"
            return make_message(role, first_text(args, "content"), timestamp=timestamp)  # type: ignore[arg-type]
        if action == "finish":
            text = first_text(args, "final_thought") or thought or first_text(event, "message") or "finished"
            return make_message("assistant", text, timestamp=timestamp)
        metadata = get_dict(event, "tool_call_metadata")
        call_id = first_text(metadata, "tool_call_id") or f"call_{event_id}"
        arguments = {name: value for name, value in args.items() if name not in _NOT_ARGUMENTS and value is not None}
        (call,) = self.add_calls([make_call(call_id, metadata.get("function_name") or action, arguments)])
        self.unanswered[event_id] = call.id
        return make_message("assistant", thought, tool_calls=[call], timestamp=timestamp)

    def _parse_observation(self, event: dict[str, Any]) -> Message | None:
        cause: str | None = str(event.get("cause"))
        if cause not in self.unanswered:
            cause = next(reversed(self.unanswered), None) if "cause" not in event else None
        content, time = first_text(event, "content"), event.get("timestamp")
        if cause is not None:
            return self.make_result(self.unanswered.pop(cause), content, is_error=_has_failed(event), time=time)
        is_text = content and event["observation"] not in _CONTROL
        return make_message("user", content, timestamp=parse_time(time)) if is_text else None


def _has_failed(event: dict[str, Any]) -> bool:
    code = event.get("exit_code", get_dict(get_dict(event, "extras"), "metadata").get("exit_code"))
    return event["observation"] == "error" or (isinstance(code, int) and code not in {0, -1})


def _is_run(run: Any) -> bool:
    events = run.get("history") if isinstance(run, dict) else None
    if not isinstance(events, list) or not events:
        return False
    return _is_event(events[0][0] if isinstance(events[0], list) and events[0] else events[0])


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and ("action" in value or "observation" in value) and "role" not in value
