"""The spans of a task, made of its records: one of the run, one for each model call, one for each tool run.

The names are those of OpenTelemetry's conventions for generative AI, which are still in development; they stand here,
because they move between packages. What the conventions do not know begins with `orihon.`. The spans of a task are the
same in every export: the trace is the task, and the number of a span follows from what it is about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from orihon.records import Event, Message, Sent, TaskRow, ToolCall
from orihon.task.config import TaskConfig
from orihon.task.reader import Reader, is_reply
from orihon.terminal import encode_json_line
from orihon.view.prices import price

SCOPE = "orihon"
FOLD_EVENTS = {"folds": "orihon.fold", "summary": "orihon.summary"}
MILLISECOND, SECOND = 1_000_000, 1_000_000_000  # in nanoseconds
KINDS = {"internal": 1, "client": 3}  # of OTLP
ERROR = 2  # the status of OTLP

Value = str | int | float | bool | list[str]


class Moment(msgspec.Struct, frozen=True):
    """Something that happened inside a span."""

    name: str
    at: int  # nanoseconds since 1970
    attributes: dict[str, Value]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One operation, from its start to its end, in nanoseconds since 1970."""

    name: str
    about: str  # what it is about, unique within the task
    kind: Literal["internal", "client"] = "internal"
    start: int
    end: int
    attributes: dict[str, Value]
    moments: tuple[Moment, ...] = ()
    error: str = ""


def trace_id(uuid: str) -> str:
    """Return the id of the trace of a task."""
    try:
        return UUID(uuid).hex
    except ValueError:
        return hashlib.sha256(uuid.encode()).hexdigest()[:32]


def span_id(uuid: str, about: str) -> str:
    """Return the id of a span."""
    return hashlib.sha256(f"{uuid} {about}".encode()).hexdigest()[:16]


def to_nanoseconds(timestamp: str | None) -> int:
    """Return a stored time in nanoseconds since 1970; 0 if it cannot be read."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return 0
    return int(moment.timestamp() * 1_000_000) * 1_000


def make_run_span(row: TaskRow, *, start: int, end: int) -> Span:
    """Return the span of a run."""
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": SCOPE,
        "gen_ai.conversation.id": row.uuid,
        "orihon.task.key": row.task_key,
        "orihon.task.status": row.status,
    }
    if row.llm_provider:
        attributes["gen_ai.provider.name"] = row.llm_provider
    error = (row.error_message or row.reason or "failed") if row.status == "failed" else ""
    return Span(name=f"invoke_agent {SCOPE}", about="run", start=start, end=max(start, end), attributes=attributes,
                error=error)  # fmt: skip


def make_call_span(
    config: TaskConfig, uuid: str, reply: Message, *, start: int, end: int, events: Iterable[Event]
) -> Span:
    """Return the span of a model call, which its reply ends. `events` are those that the window counted newly."""
    provider, model = config.llm_provider or "", config.model or reply.model or ""
    attributes: dict[str, Value] = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": uuid}
    named = {
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.response.model": reply.model,
    }
    attributes |= {name: value for name, value in named.items() if value}
    if reply.usage is not None:
        usage = reply.usage
        attributes |= {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        }
        dollars = price(reply.model or model, usage, reply.timestamp)
        if dollars is not None:
            attributes["orihon.cost.usd"] = dollars
    sent = reply.window
    if sent is not None:
        attributes |= {"orihon.window.tokens": sent.tokens, "orihon.window.limit": sent.limit}
    moments = tuple(_make_moment(event, sent, start, end) for event in events if event.type in FOLD_EVENTS)
    return Span(name=f"chat {model}".strip(), about=f"call {reply.seq}", kind="client", start=start,
                end=max(start, end), attributes=attributes, moments=moments)  # fmt: skip


def _make_moment(event: Event, sent: Sent | None, start: int, end: int) -> Moment:
    at = min(max(to_nanoseconds(event.timestamp), start), max(start, end))
    attributes: dict[str, Value] = {"orihon.event": event.id}
    if event.type == "folds" and sent is not None:
        attributes |= {"orihon.window.tokens": sent.tokens, "orihon.window.limit": sent.limit}
        if sent.reasons:
            attributes["orihon.fold.reason"] = list(sent.reasons)
    return Moment(FOLD_EVENTS[event.type], at, attributes)


def make_tool_span(uuid: str, name: str, call_id: str | None, *, start: int, end: int, error: str = "") -> Span:
    """Return the span of a tool run."""
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": uuid,
        "gen_ai.tool.name": name,
        "gen_ai.tool.type": "function",
    }
    if call_id:
        attributes["gen_ai.tool.call.id"] = call_id
    return Span(name=f"execute_tool {name}", about=f"tool {call_id or ''} {start}", start=start, end=max(start, end),
                attributes=attributes, error=error)  # fmt: skip


def iter_spans(reader: Reader) -> Iterator[Span]:
    """Yield the spans of a task, as it is stored, with what the model said and what the tools returned."""
    row, config = reader.row, reader.config
    start = to_nanoseconds(row.started_at or row.created_at)
    yield make_run_span(row, start=start, end=to_nanoseconds(row.completed_at or row.updated_at))
    events = list(reader.events())
    before, counted = start, 0
    for message in reader.messages():
        at = to_nanoseconds(message.timestamp)
        if is_reply(message):
            newest = message.window.event if message.window is not None else counted
            new = [event for event in events if counted < event.id <= newest]
            span = make_call_span(config, reader.uuid, message, start=before, end=at, events=new)
            span.attributes["gen_ai.output.messages"] = _describe_reply(message)
            yield span
            counted = newest
        before = at
    for run in reader.tools():
        yield _make_stored_tool_span(reader.uuid, run)


def _make_stored_tool_span(uuid: str, run: ToolCall) -> Span:
    end = to_nanoseconds(run.timestamp)
    start = end - run.duration_ms * MILLISECOND
    error = (run.error or "error") if run.status == "error" else ""
    span = make_tool_span(uuid, run.tool, run.call_id, start=start, end=end, error=error)
    span.attributes["gen_ai.tool.call.arguments"] = encode_json_line(run.args)
    span.attributes["gen_ai.tool.call.result"] = encode_json_line(run.result)
    return span


def _describe_reply(message: Message) -> str:
    parts: list[dict[str, Any]] = [{"type": "text", "content": message.text}] if message.text else []
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    return encode_json_line([{"role": "assistant", "parts": parts}])


# the JSON of OTLP


def render_otlp(reader: Reader) -> Iterator[str]:
    """Yield the spans of a task as one line of OTLP in JSON, which a collector reads from a file or over HTTP."""
    spans = [_render_span(reader.uuid, span) for span in iter_spans(reader)]
    resource = {"attributes": [_render_attribute("service.name", SCOPE)]}
    scope_spans = [{"scope": {"name": SCOPE}, "spans": spans}]
    yield f"{encode_json_line({'resourceSpans': [{'resource': resource, 'scopeSpans': scope_spans}]})}\n"


def _render_span(uuid: str, span: Span) -> dict[str, Any]:
    rendered: dict[str, Any] = {
        "traceId": trace_id(uuid),
        "spanId": span_id(uuid, span.about),
        "name": span.name,
        "kind": KINDS[span.kind],
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": [_render_attribute(*item) for item in span.attributes.items()],
        "events": [
            {
                "name": moment.name,
                "timeUnixNano": str(moment.at),
                "attributes": [_render_attribute(*item) for item in moment.attributes.items()],
            }
            for moment in span.moments
        ],
    }
    if span.about != "run":
        rendered["parentSpanId"] = span_id(uuid, "run")
    if span.error:
        rendered["status"] = {"code": ERROR, "message": span.error}
    return rendered


def _render_attribute(name: str, value: Value) -> dict[str, Any]:
    return {"key": name, "value": _render_value(value)}


def _render_value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_render_value(item) for item in value]}}
    return {"stringValue": value}
