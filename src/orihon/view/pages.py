"""The pages: each takes a request, reads through the caller's access, and returns its data and its template."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from itertools import groupby
from typing import Any, get_args

import msgspec
from starlette.requests import Request

from orihon import codec
from orihon.context.wire.pieces import IMAGES
from orihon.errors import NotFound, UsageError
from orihon.ops import listing
from orihon.ops.blobs import load_blobs
from orihon.records import Call, Message, Record, Status, Summary
from orihon.stores.base import Query
from orihon.task.reader import Reader
from orihon.view import charts, windows
from orihon.view.calls import CallFacts, TaskCalls
from orihon.view.page import Page, Viewer
from orihon.view.prices import price_of_lost_cache

PAGE_TASKS = 50
PAGE_MESSAGES = 200
MAX_CHARS = 200_000  # of a long text on one page
MAX_POINTS = 300  # of a timeline
SEARCHED_TASKS = 20_000  # rows that a filter looks at


def nothing(viewer: Viewer, request: Request) -> Page:  # noqa: ARG001
    """Say that there is no such page."""
    raise NotFound(kind="page", id=f"{request.url.path!a:.80}")


def list_tasks(viewer: Viewer, request: Request) -> Page:
    """Show the tasks, newest first, filtered by status and by a part of their key, user, model or id."""
    status, text = request.query_params.get("status", ""), request.query_params.get("q", "").strip()
    offset = _number(request, "offset", 0)
    if status and status not in get_args(Status):
        raise UsageError(f"There is no status {status!a:.40}.", hint=f"There are {', '.join(get_args(Status))}.")
    query = Query(status=(status,) if status else (), limit=PAGE_TASKS, offset=offset)  # type: ignore[arg-type]
    page = listing.list_tasks(viewer.authorized, query) if not text else _filter_tasks(viewer, query, text)
    data = {
        "tasks": msgspec.to_builtins(page.tasks),
        "offset": offset,
        "has_more": page.has_more,
        "status": status,
        "q": text,
    }
    more = {"statuses": get_args(Status), "page_size": PAGE_TASKS, "searched": SEARCHED_TASKS}
    return Page("tasks.html", data, more)


def _filter_tasks(viewer: Viewer, query: Query, text: str) -> listing.TaskPage:
    """Return the tasks that have a text in their key, user, model, id or error."""
    words = text.casefold().split()
    authorized = viewer.authorized
    authorized.record_access("tasks", ["rows"], text=text)
    found = []
    for row in authorized.rows(msgspec.structs.replace(query, limit=SEARCHED_TASKS, offset=0)):
        about = " ".join(filter(None, (row.task_key, row.user, row.model, row.uuid, row.error_message))).casefold()
        if all(word in about for word in words):
            found.append(row)
            if len(found) > query.offset + PAGE_TASKS:
                break
    rows = found[query.offset : query.offset + PAGE_TASKS]
    tasks = [listing.make_listing(authorized.store, row) for row in rows]
    return listing.TaskPage(tasks, query.offset, len(found) > query.offset + PAGE_TASKS)


def show_task(viewer: Viewer, request: Request) -> Page:
    """Show a part of the conversation: 200 messages, with the place where `at` is."""
    reader = read_task(viewer, request, "messages", "summaries")
    calls = viewer.calls.read(reader)
    last = calls.last_message
    at = min(max(1, _number(request, "at", 1)), max(1, last))
    first = (at - 1) // PAGE_MESSAGES * PAGE_MESSAGES + 1
    messages = list(reader.messages(first=first, last=first + PAGE_MESSAGES - 1))
    summaries = [summary for summary in reader.summaries() if first <= summary.end_seq < first + PAGE_MESSAGES]
    data = task_data(viewer, request, reader) | {
        "first": first,
        "last": first + len(messages) - 1,
        "messages": [_record(message) for message in messages],
        "summaries": [_record(summary) for summary in summaries],
        "errors": list(calls.errors),
    }
    states = _states(reader, calls)
    return Page("task.html", data, {"entries": entries_of(messages, summaries, calls, states), "tab": "conversation"})


def _states(reader: Reader, calls: TaskCalls) -> dict[int, str]:
    """Return how the next window shows the messages that are in it."""
    last, event, states = calls.states
    if (last, event) != (calls.last_message, calls.view.last_event):
        window, _ = windows.look_at(reader, calls, None)
        shown = (item for item in window.items if item.message is not None)
        states = {item.message.seq: item.state for item in shown if item.message is not None and item.message.seq}
        calls.states = (calls.last_message, calls.view.last_event, states)
    return states


def show_cost(viewer: Viewer, request: Request) -> Page:
    """Show what the calls of a task cost, and one of them."""
    reader = read_task(viewer, request, "usage")
    calls = viewer.calls.read(reader)
    model = reader.row.model or ""
    number = _number(request, "call", 0)
    costs = calls.costs(model)
    data = msgspec.to_builtins(calls.cost(model)) | {
        "call": _dollars(costs[number - 1]) if 1 <= number <= len(costs) else None
    }
    return Page("cost.html", data)


def show_message(viewer: Viewer, request: Request) -> Page:
    """Show one message in full, a long text piece by piece."""
    reader = read_task(viewer, request, "messages")
    message = reader.message(request.path_params["seq"])
    full = load_blobs(reader.store, reader.uuid, message) if message.blob is not None else message
    start = _number(request, "from", 0)
    text = full.text
    data = task_data(viewer, request, reader) | {
        "message": _record(message),
        "text": text[start : start + MAX_CHARS],
        "start": start,
        "characters": len(text),
    }
    more = {"tab": "conversation", "record": message, "next": start + MAX_CHARS if start + MAX_CHARS < len(text) else 0}
    return Page("message.html", data, more)


def load_picture(viewer: Viewer, request: Request) -> tuple[bytes, str]:
    """Return a picture of a message, of one of the types that every browser draws."""
    reader = read_task(viewer, request, "messages")
    message, number = reader.message(request.path_params["seq"]), request.path_params["part"]
    parts = message.content if isinstance(message.content, list) else []
    part = parts[number - 1] if 1 <= number <= len(parts) else None
    if part is None or part.media_type not in IMAGES:
        raise NotFound(kind="picture", id=str(number))
    if part.blob is not None:
        return reader.store.blob(reader.uuid, part.blob.sha256), part.media_type
    try:
        return base64.b64decode(part.data or "", validate=False), part.media_type
    except ValueError:
        return b"", part.media_type


def show_call(viewer: Viewer, request: Request) -> Page:
    """Show the window of a call."""
    reader = read_task(viewer, request, "messages", "window")
    calls = viewer.calls.read(reader)
    number = request.path_params["call"]
    facts = _call(calls, number)
    window, sent = windows.look_at(reader, calls, facts)
    costs = calls.costs(reader.row.model or "") if request.state.form != "html" or calls.is_priced else None
    change = None
    if number > 1 and request.state.form != "html":  # a page asks for it when it is there
        change = windows.compare(windows.look_at(reader, calls, calls[number - 1]), (window, sent))
    data = task_data(viewer, request, reader) | {
        "call": number,
        "is_next": facts is None,
        "facts": msgspec.to_builtins(facts) if facts else None,
        "call_cost": _dollars(costs[number - 1]) if facts and costs else None,
        "is_priced": costs is not None,
        "first_byte": change.first_byte if change else None,
        "window": _encode(window),
    }
    return Page("call.html", data, {"seen": window, "facts": facts, "tab": "windows"})


def show_change(viewer: Viewer, request: Request) -> Page:
    """Show where the request of a call differs from the one before."""
    reader = read_task(viewer, request, "messages", "window")
    calls = viewer.calls.read(reader)
    number = max(2, request.path_params["call"])
    facts = [_call(calls, one) for one in (number - 1, number)]
    change = windows.compare(*(windows.look_at(reader, calls, one) for one in facts))
    return Page("change.html", {"first_byte": change.first_byte, "lost_tokens": change.lost_tokens})


def show_difference(viewer: Viewer, request: Request) -> Page:
    """Show what changed from one window to another."""
    reader = read_task(viewer, request, "messages", "window")
    calls = viewer.calls.read(reader)
    before, after = request.path_params["before"], request.path_params["after"]
    facts = [_call(calls, number) for number in (before, after)]
    change = windows.compare(*(windows.look_at(reader, calls, one) for one in facts))
    timestamp = facts[0].timestamp if facts[0] else ""
    model = (facts[0].model if facts[0] else "") or reader.row.model or ""
    lost = price_of_lost_cache(model, change.lost_tokens, timestamp) if change.first_byte is not None else 0.0
    data = task_data(viewer, request, reader) | {
        "before": before,
        "after": after,
        "lost_dollars": lost,
        "difference": _encode(change),
    }
    return Page("difference.html", data, {"seen": change, "runs": _runs(change.changes), "tab": "windows"})


def _runs(changes: list[windows.Change]) -> list[list[windows.Change]]:
    """Return the changes with neighbours that are the same in one run."""
    return [list(run) for _, run in groupby(changes, key=lambda change: change.change == "same" or id(change))]


def show_timeline(viewer: Viewer, request: Request) -> Page:
    """Show the tokens by source over the calls, with the limit, the folds and the cached share."""
    reader = read_task(viewer, request, "messages")
    calls = viewer.calls.read(reader)
    points = calls.buckets(MAX_POINTS)
    costs = calls.costs(reader.row.model or "") if request.state.form != "html" else None
    data = task_data(viewer, request, reader) | {
        "points": [msgspec.to_builtins(point) for point in points],
        "folded": calls.folded,
        "costs": [_dollars(costs[point.number - 1]) for point in points] if costs is not None else None,
    }
    return Page("timeline.html", data, {"chart": charts.timeline(points, calls.folded), "tab": "timeline"})


def _call(calls: TaskCalls, number: int) -> CallFacts | None:
    """Return a call; the one after the last is the next call, of which nothing is known yet."""
    if not 1 <= number <= len(calls) + 1:
        raise NotFound(kind="call", id=str(number), hint=f"The task has {len(calls)} calls.")
    return calls[number] if number <= len(calls) else None


def _dollars(cost: float) -> float | None:
    return None if math.isnan(cost) else cost


def read_task(viewer: Viewer, request: Request, *parts: str) -> Reader:
    """Return the task of an address. The audit records which parts are read."""
    return viewer.authorized.reader(request.path_params["uuid"], *parts)


def task_data(viewer: Viewer, request: Request, reader: Reader) -> dict[str, Any]:
    """Return what every page of a task shows above."""
    task = listing.make_listing(viewer.authorized.store, reader.row)
    calls = viewer.calls.read(reader)
    # a page does not wait for prices; it asks for them when it is there
    may_wait = request.state.form != "html"
    cost = calls.cost(reader.row.model or "") if may_wait or calls.is_priced else None
    return {
        "task": msgspec.to_builtins(task)
        | {"model": reader.row.model, "tokens_now": reader.row.current_context_tokens},
        "calls": len(calls),
        "cost": msgspec.to_builtins(cost) if cost else None,
        "message_count": calls.last_message,
        "error_count": len(calls.errors),
    }


class Entry(msgspec.Struct, frozen=True):
    """A message or a summary of the conversation, with what a template needs to know of its neighbours."""

    record: Message | Summary
    visibility: str
    call: Call | None = None  # of a result: what was called
    number: int = 0  # of a reply: its call


def entries_of(
    messages: list[Message], summaries: list[Summary], calls: TaskCalls, states: Mapping[int, str] | None = None
) -> list[Entry]:
    """Return messages, and each summary after the last message that it covers.

    `states` says how the next window shows the messages that are in it; without it they are shown whole.
    """
    called: dict[str, Call] = {}
    entries: list[Entry] = []
    waiting = sorted(summaries, key=lambda summary: (summary.end_seq, summary.id))
    for message in messages:
        while waiting and waiting[0].end_seq < message.seq:
            entries.append(Entry(waiting.pop(0), "shown"))
        called |= {call.id: call for call in message.tool_calls}
        number = calls.number_of(message.seq)
        call = called.get(message.tool_call_id or "")
        visibility = "shown"
        if states is not None and states.get(message.seq) != "whole":
            visibility = states.get(message.seq) or calls.visibility(message.seq)
        entries.append(Entry(message, visibility, call, number))
    return [*entries, *(Entry(summary, "shown") for summary in waiting)]


def _record(record: Record) -> msgspec.Raw:
    return msgspec.Raw(codec.encode(record))


def _encode(value: Any) -> Any:
    """Return structs as JSON; records of the store keep their form."""
    return msgspec.Raw(msgspec.json.encode(value, enc_hook=None))


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else default  # noqa: PLR2004
