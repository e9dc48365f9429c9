"""What changes while a page is open: new messages, new tasks, and the small figures of the list.

A stream is server-sent events. Its ids are message numbers, so a browser that lost the connection says where it was
(`Last-Event-ID`) and misses nothing. Reading happens in threads.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from orihon.errors import OrihonError
from orihon.records import Message, TaskRow
from orihon.stores.base import Query
from orihon.task.reader import Reader
from orihon.view import charts
from orihon.view.page import Viewer, Words, choose_language
from orihon.view.pages import PAGE_TASKS, entries_of

POLL_SECONDS = 0.5
QUIET_POLLS = 30  # after so many without news, a comment keeps the connection open
MAX_BATCH = 100  # messages of one look
FILL_MESSAGES = 160  # of the end of a task, for its sparkline
PRICED_MESSAGES = 5_000  # a longer task is priced when it is opened
REMEMBERED_ROWS = 500


def follow_task(viewer: Viewer) -> Callable[[Request], Any]:
    """Return the endpoint that streams the messages of a task from `after` on."""

    async def endpoint(request: Request) -> Response:
        asked = request.headers.get("last-event-id") or request.query_params.get("after", "0")
        after = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 16 else 0  # noqa: PLR2004
        try:
            uuid = request.path_params["uuid"]
            reader = await run_in_threadpool(viewer.authorized.reader, uuid, "messages", "live")
        except OrihonError as error:
            return JSONResponse({"error": error.message}, 404)
        return _stream(viewer, request, _Tail(viewer, reader, request, after).look)

    return endpoint


def follow_tasks(viewer: Viewer) -> Callable[[Request], Any]:
    """Return the endpoint that says when the newest tasks have changed."""

    async def endpoint(request: Request) -> Response:
        await run_in_threadpool(viewer.authorized.record_access, "tasks", ["rows", "live"])
        known: list[Any] = []

        def look() -> list[str]:
            rows = viewer.authorized.rows(Query(limit=PAGE_TASKS))
            seen = [(row.uuid, row.status, row.message_count, row.total_tokens) for row in rows]
            changed, known[:] = bool(known) and seen != known, seen
            return ["event: change\ndata: {}\n\n"] if changed else []

        await run_in_threadpool(look)  # what a browser hears of is later than its connection
        return _stream(viewer, request, look)

    return endpoint


class _Tail:
    """The place in a task up to which a browser has been told."""

    def __init__(self, viewer: Viewer, reader: Reader, request: Request, after: int) -> None:
        self._viewer, self._reader, self._request, self._after = viewer, reader, request, after
        self._status = ""

    def look(self) -> list[str]:
        """Return the events for what was appended since the last look."""
        first = self._after + 1
        messages = list(self._reader.messages(first=first, last=first + MAX_BATCH - 1))
        events = []
        if messages:
            calls = self._viewer.calls.read(self._reader)
            entries = entries_of(messages, [], calls)
            for entry in entries:
                html = self._viewer.article(entry, choose_language(self._request), self._reader.uuid)
                assert isinstance(entry.record, Message)  # noqa: S101 - no summaries were given
                events.append(_event("message", {"seq": entry.record.seq, "html": html}, entry.record.seq))
            self._after = messages[-1].seq
        status = self._viewer.authorized.row(self._reader.uuid).status
        if status != self._status:
            self._status = status
            words = Words(choose_language(self._request))
            events.append(_event("status", {"status": status, "text": words(f"status_{status}")}))
        return events


def _event(name: str, data: dict[str, Any], number: int = 0) -> str:
    head = f"id: {number}\n" if number else ""
    return f"{head}event: {name}\ndata: {msgspec.json.encode(data).decode()}\n\n"


def _stream(viewer: Viewer, request: Request, look: Callable[[], list[str]]) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        yield "retry: 1000\n\n"
        quiet = 0
        while not viewer.is_closing() and not await request.is_disconnected():
            try:
                found = await run_in_threadpool(look)
            except OrihonError:  # the task was deleted
                return
            for event in found:
                yield event
            quiet = 0 if found else quiet + 1
            if quiet and quiet % QUIET_POLLS == 0:
                yield ": still here\n\n"
            await asyncio.sleep(POLL_SECONDS)

    return StreamingResponse(events(), media_type="text/event-stream")


# the small figures of the list


class Figures(msgspec.Struct, frozen=True):
    """How full the windows of a task were, as the path of a line, and what its calls cost."""

    sparkline: str
    fill: float | None  # of the newest window
    dollars: float | None
    unpriced: int
    is_long: bool  # too long to be priced for the list


class RowFigures:
    """The figures of the rows that were shown last."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str | None, int], Figures] = OrderedDict()

    def of(self, viewer: Viewer, row: TaskRow) -> Figures:
        """Return the figures of a row, from memory if the task has not changed."""
        key = (row.uuid, row.updated_at, row.message_count)
        if key not in self._known:
            self._known[key] = _measure(viewer, row)
            while len(self._known) > REMEMBERED_ROWS:
                self._known.popitem(last=False)
        return self._known[key]


def _measure(viewer: Viewer, row: TaskRow) -> Figures:
    reader = Reader(viewer.authorized.store, row)
    newest = reader.messages(first=-FILL_MESSAGES)
    fills = [sent.tokens / sent.limit for message in newest if (sent := message.window) is not None and sent.limit]
    is_long = row.message_count > PRICED_MESSAGES
    cost = None if is_long else viewer.fresh_calls(reader).cost(row.model or "")
    dollars = cost.dollars if cost else None
    return Figures(
        charts.sparkline(fills),
        fills[-1] if fills else None,
        None if dollars is None or math.isnan(dollars) else dollars,
        cost.unpriced if cost else 0,
        is_long,
    )


def figures_of(viewer: Viewer) -> Callable[[Request], Response]:
    """Return the endpoint for the figures of the tasks whose ids are given."""
    figures = RowFigures()

    def endpoint(request: Request) -> Response:
        uuids = request.query_params.get("ids", "").split(",")[:PAGE_TASKS]
        found: dict[str, Figures] = {}
        for uuid in filter(None, uuids):
            try:
                row = viewer.authorized.row(uuid)
                found[row.uuid] = figures.of(viewer, row)
            except OrihonError:  # it was deleted, or it is another user's
                continue
        viewer.authorized.record_access("tasks", ["usage"], uuids=list(found))
        return Response(msgspec.json.encode(found), media_type="application/json")

    return endpoint
