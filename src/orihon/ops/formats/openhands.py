"""OpenHands' runs: an `output.jsonl` with a run on each line and its events in `history`, or a JSON list of events.

An action of the agent is a call, with its thought as the words before it; an observation answers the action that
caused it. Actions and observations that only steer the program (recall, change of state, nothing) are kept and not
shown to a model. Older files have pairs of action and observation, and no ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orihon.ops.formats.origin import At, Said
from orihon.ops.formats.saying import call_of, saying, text_in, time_of
from orihon.ops.formats.source import SessionFile
from orihon.records import Call, Message

_SILENT = frozenset(("recall", "change_agent_state", "agent_state_changed", "null", "condensation", ""))
_ASIDE = frozenset(("thought", "action", "action_risk", "is_confirmed", "confirmation_state", "security_risk"))


def fits(file: SessionFile) -> bool:
    """Whether there are events in it."""
    value = file.document if file.is_document else None
    if isinstance(value, list):
        return bool(value) and _is_event(value[0])
    runs = [value] if value is not None else file.opening
    return bool(runs) and all(_events(run) is not None for run in runs[:2])


def sessions(file: SessionFile) -> Iterator[Iterator[Said]]:
    """Each run of the file."""
    if file.is_document and isinstance(file.document, list):
        yield _Reader().said([([place], item) for place, item in enumerate(file.document)])
        return
    for number, run in [(None, file.document)] if file.is_document else file.lines():
        if _events(run) is not None:
            yield _run([] if number is None else [number], run)


def _run(at: At, run: dict[str, Any]) -> Iterator[Said]:
    yield Said([(at, run | {"history": []})])
    events: list[tuple[At, Any]] = []
    for place, item in enumerate(run["history"]):
        if isinstance(item, list):
            events += [([*at, "history", place, part], event) for part, event in enumerate(item)]
        else:
            events.append(([*at, "history", place], item))
    yield from _Reader().said(events)


class _Reader:
    def __init__(self) -> None:
        self.open: dict[str, Call] = {}  # the calls of the last reply that nobody answered, by the event's id

    def said(self, events: list[tuple[At, Any]]) -> Iterator[Said]:
        for place, (at, event) in enumerate(events):
            message = None
            if isinstance(event, dict) and isinstance(event.get("action"), str):
                message = self._action(event, place)
            elif isinstance(event, dict) and isinstance(event.get("observation"), str):
                message = self._observation(event)
            yield Said([(at, event)], [] if message is None else [message])

    def _action(self, event: dict[str, Any], place: int) -> Message | None:
        action = event["action"]
        given = event["args"] if isinstance(event.get("args"), dict) else event
        timestamp, thought = time_of(event.get("timestamp")), text_in(given, "thought")
        if action in _SILENT:
            return None
        if action == "system":
            return saying("system", text_in(given, "content"), timestamp=timestamp)
        if action == "message":
            role = "assistant" if event.get("source") == "agent" else "user"
            return saying(role, text_in(given, "content"), timestamp=timestamp)  # type: ignore[arg-type]
        if action == "finish":
            words = text_in(given, "final_thought") or thought or text_in(event, "message") or "finished"
            return saying("assistant", words, timestamp=timestamp)
        meta = event["tool_call_metadata"] if isinstance(event.get("tool_call_metadata"), dict) else {}
        arguments = {name: value for name, value in given.items() if name not in _ASIDE and value is not None}
        call_id = text_in(meta, "tool_call_id") or f"call_{event.get('id', place)}"
        call = call_of(call_id, meta.get("function_name") or action, arguments)
        self.open[str(event.get("id", place))] = call
        return saying("assistant", thought, tool_calls=[call], timestamp=timestamp)

    def _observation(self, event: dict[str, Any]) -> Message | None:
        cause = str(event.get("cause"))
        found = cause if cause in self.open else next(reversed(self.open), None) if "cause" not in event else None
        content, timestamp = text_in(event, "content"), time_of(event.get("timestamp"))
        if event["observation"] in _SILENT and found is None:
            return None
        if found is None:
            return saying("user", content, timestamp=timestamp) if content else None
        call = self.open.pop(found)
        fields = {"tool_call_id": call.id, "tool_name": call.name, "timestamp": timestamp}
        return saying("tool", content, is_error=_failed(event), **fields)


def _failed(event: dict[str, Any]) -> bool:
    extras = event.get("extras")
    metadata = extras.get("metadata") if isinstance(extras, dict) else None
    code = event.get("exit_code", metadata.get("exit_code") if isinstance(metadata, dict) else None)
    return event["observation"] == "error" or (isinstance(code, int) and code not in {0, -1})


def _events(run: Any) -> list[Any] | None:
    events = run.get("history") if isinstance(run, dict) else None
    if not isinstance(events, list) or not events:
        return None
    first = events[0][0] if isinstance(events[0], list) and events[0] else events[0]
    return events if _is_event(first) else None


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and ("action" in value or "observation" in value) and "role" not in value
