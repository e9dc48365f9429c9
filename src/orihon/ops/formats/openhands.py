"""OpenHands: `output.jsonl` with one run on each line and its events in `history`, or a JSON list of events.

An action of the agent becomes a call, with its thought as the text before it. An observation is the result of its
cause. Actions and observations that only control the program (recall, change of state) are kept and not shown to a
model. Older files have pairs of action and observation, and no ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orihon.ops.formats._common import Parsed, RecordPath, first_text, make_call, make_message, parse_time
from orihon.ops.formats.session_file import SessionFile
from orihon.records import Call, Message

_CONTROL = frozenset(("recall", "change_agent_state", "agent_state_changed", "null", "condensation", ""))
_NOT_ARGUMENTS = frozenset(("thought", "action", "action_risk", "is_confirmed", "confirmation_state", "security_risk"))


def matches(file: SessionFile) -> bool:
    """Return whether the file holds events or runs."""
    value = file.document if file.is_document else None
    if isinstance(value, list):
        return bool(value) and _is_event(value[0])
    runs = [value] if value is not None else file.opening
    return bool(runs) and all(_is_run(run) for run in runs[:2])


def parse(file: SessionFile) -> Iterator[Iterator[Parsed]]:
    """Yield each run of the file."""
    if file.is_document and isinstance(file.document, list):
        yield _Parser().parse([([index], item) for index, item in enumerate(file.document)])
        return
    for number, run in [(None, file.document)] if file.is_document else file.lines():
        if _is_run(run):
            yield _parse_run([] if number is None else [number], run)


def _parse_run(path: RecordPath, run: dict[str, Any]) -> Iterator[Parsed]:
    yield Parsed([(path, run | {"history": []})])
    events: list[tuple[RecordPath, Any]] = []
    for index, item in enumerate(run["history"]):
        if isinstance(item, list):
            events += [([*path, "history", index, part], event) for part, event in enumerate(item)]
        else:
            events.append(([*path, "history", index], item))
    yield from _Parser().parse(events)


class _Parser:
    def __init__(self) -> None:
        self.unanswered: dict[str, Call] = {}  # by the id of the event

    def parse(self, events: list[tuple[RecordPath, Any]]) -> Iterator[Parsed]:
        for index, (path, event) in enumerate(events):
            message = None
            if isinstance(event, dict) and isinstance(event.get("action"), str):
                message = self._parse_action(event, index)
            elif isinstance(event, dict) and isinstance(event.get("observation"), str):
                message = self._parse_observation(event)
            yield Parsed([(path, event)], [] if message is None else [message])

    def _parse_action(self, event: dict[str, Any], index: int) -> Message | None:
        action = event["action"]
        args = event["args"] if isinstance(event.get("args"), dict) else event
        timestamp, thought = parse_time(event.get("timestamp")), first_text(args, "thought")
        if action in _CONTROL:
            return None
        if action in {"system", "message"}:
            role = "system" if action == "system" else "assistant" if event.get("source") == "agent" else "user"
            return make_message(role, first_text(args, "content"), timestamp=timestamp)  # type: ignore[arg-type]
        if action == "finish":
            text = first_text(args, "final_thought") or thought or first_text(event, "message") or "finished"
            return make_message("assistant", text, timestamp=timestamp)
        metadata = event["tool_call_metadata"] if isinstance(event.get("tool_call_metadata"), dict) else {}
        event_id = str(event.get("id", index))
        call_id = first_text(metadata, "tool_call_id") or f"call_{event_id}"
        arguments = {name: value for name, value in args.items() if name not in _NOT_ARGUMENTS and value is not None}
        call = self.unanswered[event_id] = make_call(call_id, metadata.get("function_name") or action, arguments)
        return make_message("assistant", thought, tool_calls=[call], timestamp=timestamp)

    def _parse_observation(self, event: dict[str, Any]) -> Message | None:
        cause: str | None = str(event.get("cause"))
        if cause not in self.unanswered:
            cause = next(reversed(self.unanswered), None) if "cause" not in event else None
        content, timestamp = first_text(event, "content"), parse_time(event.get("timestamp"))
        if cause is None:
            is_text = content and event["observation"] not in _CONTROL
            return make_message("user", content, timestamp=timestamp) if is_text else None
        call = self.unanswered.pop(cause)
        fields = {"tool_call_id": call.id, "tool_name": call.name, "timestamp": timestamp}
        return make_message("tool", content, is_error=_has_failed(event), **fields)


def _has_failed(event: dict[str, Any]) -> bool:
    extras = event.get("extras")
    metadata = extras.get("metadata") if isinstance(extras, dict) else None
    code = event.get("exit_code", metadata.get("exit_code") if isinstance(metadata, dict) else None)
    return event["observation"] == "error" or (isinstance(code, int) and code not in {0, -1})


def _is_run(run: Any) -> bool:
    events = run.get("history") if isinstance(run, dict) else None
    if not isinstance(events, list) or not events:
        return False
    return _is_event(events[0][0] if isinstance(events[0], list) and events[0] else events[0])


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and ("action" in value or "observation" in value) and "role" not in value
