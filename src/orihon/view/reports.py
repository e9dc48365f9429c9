"""Pages that gather: the search, the tree of a task and of the runs of its key, its plan, and the store as a whole."""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec
from starlette.requests import Request

from orihon.context.matter import INHERITED
from orihon.errors import StoreError
from orihon.ops.search import SearchQuery, search
from orihon.ops.stats import compute_statistics
from orihon.planning.history import read_run
from orihon.planning.schema import Reflection, ReplanDecision, Revision, Verification
from orihon.records import Event, Message, TaskRow
from orihon.stores.base import Query
from orihon.task.reader import Reader
from orihon.view.page import Page, Viewer
from orihon.view.pages import read_task, task_data

MAX_RESULTS = 30
MAX_PLACES = 200  # in one task
MAX_RUNS = 20  # of one key
OPENING = 16  # messages among which an inherited block is looked for
MAX_EVENTS = 2000
COUNTED_TASKS = 20_000  # rows that are summed up by model
DAYS = 60
STRUCTURE = frozenset(
    ("rewind", "clear", "tangent", "end", "checkpoint", "restore", "undo", "summary", "folds", "leave")
)


def show_search(viewer: Viewer, request: Request) -> Page:
    """Search all tasks for words."""
    text = request.query_params.get("q", "").strip()
    results = search(viewer.authorized, SearchQuery(text=text, limit=MAX_RESULTS)) if text else []
    data = {"q": text, "results": msgspec.to_builtins(results)}
    return Page("search.html", data, {"task": None})


def show_task_search(viewer: Viewer, request: Request) -> Page:
    """Search one task for words; the places come in the order of the log."""
    reader = read_task(viewer, request, "messages", "summaries", "tools")
    text = request.query_params.get("q", "").strip()
    query = SearchQuery(text=text, limit=1, uuid=reader.uuid, places=MAX_PLACES)
    results = search(viewer.authorized, query) if text else []
    for result in results:
        result.places.sort(key=lambda place: (place.number, place.kind))
    data = task_data(viewer, request, reader) | {"q": text, "results": msgspec.to_builtins(results)}
    return Page("search.html", data, {"tab": "search"})


class Node(msgspec.Struct, frozen=True):
    """A change of the view, and how many tangents it is inside."""

    depth: int
    event: int
    type: str
    after: int
    timestamp: str
    label: str = ""
    target: int = 0  # the message or the event that it goes back to


class Run(msgspec.Struct, frozen=True):
    """A run of a key, and the run that it inherited from."""

    uuid: str
    status: str
    created_at: str
    user: str | None
    inherited_from: str
    is_this: bool


def show_tree(viewer: Viewer, request: Request) -> Page:
    """Show the tangents, rewinds, checkpoints and restores of a task, and the runs of its key."""
    reader = read_task(viewer, request, "events", "messages")
    nodes = list(_nodes(reader))
    rows = islice(viewer.authorized.rows(Query(key=reader.row.task_key, limit=MAX_RUNS)), MAX_RUNS)
    runs = [_run(viewer, row, reader.uuid) for row in rows]
    opening = islice(reader.messages(), OPENING)
    inherited = next((message for message in opening if (message.key or "").startswith(INHERITED)), None)
    data = task_data(viewer, request, reader) | {
        "nodes": msgspec.to_builtins(nodes),
        "runs": msgspec.to_builtins(runs),
        "inherited": inherited.text if isinstance(inherited, Message) else None,
    }
    return Page("tree.html", data, {"tab": "tree"})


def _nodes(reader: Reader) -> list[Node]:
    depth, nodes = 0, []
    for event in reader.events():
        if event.type not in STRUCTURE:
            continue
        if event.type == "end":
            depth = max(0, depth - 1)
        nodes.append(_node(event, depth))
        if event.type == "tangent":
            depth += 1
    return nodes[-MAX_EVENTS:]


def _node(event: Event, depth: int) -> Node:
    data = event.data
    target = next((data[name] for name in ("to", "checkpoint", "event", "id") if isinstance(data.get(name), int)), 0)
    label = data.get("label") or data.get("keep") or ""
    return Node(depth, event.id, event.type, event.after, event.timestamp, str(label)[:200], target)


def _run(viewer: Viewer, row: TaskRow, uuid: str) -> Run:
    try:
        inherited_from = Reader(viewer.authorized.store, row).config.inherited_from
    except StoreError:  # its records were deleted; the row is left
        inherited_from = ""
    return Run(row.uuid, row.status, row.created_at, row.user, inherited_from, row.uuid == uuid)


def show_plan(viewer: Viewer, request: Request) -> Page:
    """Show the plan of a task: goal, subtasks, actions with their state, and how it was revised and verified."""
    reader = read_task(viewer, request, "plan")
    run = read_run(reader.store, reader.row)
    history = [
        {"kind": kind.__name__.lower(), "data": msgspec.to_builtins(value)}
        for kind in (Revision, ReplanDecision, Reflection, Verification)
        for value in run.newest(kind)
    ]
    data = task_data(viewer, request, reader) | {
        "plan": msgspec.to_builtins(run.plan) if run.entries else None,
        "history": history,
    }
    return Page("plan.html", data, {"tab": "plan", "run": run})


def show_store(viewer: Viewer, request: Request) -> Page:  # noqa: ARG001
    """Show the store: tasks a day, failures, tokens by user and model, summaries, and how full windows are."""
    statistics = compute_statistics(viewer.authorized, Query())
    models: dict[str, dict[str, int]] = {}
    fills = [0] * 10
    for row in viewer.authorized.rows(Query(limit=COUNTED_TASKS)):
        model = models.setdefault(row.model or "", {"tasks": 0, "tokens": 0, "calls": 0})
        model["tasks"] += 1
        model["tokens"] += row.total_tokens
        model["calls"] += row.llm_call_count
        if row.context_length and row.current_context_tokens:
            fills[min(9, 10 * row.current_context_tokens // row.context_length)] += 1
    busiest = dict(sorted(models.items(), key=lambda item: -item[1]["tokens"])[:MAX_RESULTS])
    data: dict[str, Any] = {
        "statistics": msgspec.to_builtins(statistics),
        "models": busiest,
        "window_fill": fills,
        "counted_tasks": COUNTED_TASKS,
    }
    days = list(statistics.days.items())[-DAYS:]
    return Page("store.html", data, {"stats": statistics, "days": days})
