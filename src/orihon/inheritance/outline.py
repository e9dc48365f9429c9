"""The outline that a task's row keeps for later runs: sections of text, and how often each tool worked and failed.

A section is generic. It has a title, lines in the task's language, a `kind` that a setting can switch off, and a
`priority` that says how long it stays when room is short. An edge that has something to pass on, such as planning,
stores its sections in the note `sections` while the task runs. The outline is therefore complete even if another
process ends the task. This module does not know what a section is about.
"""

from __future__ import annotations

import heapq
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from orihon.coerce import decode_json
from orihon.context.ledger import Entry
from orihon.errors import OrihonError
from orihon.records import TaskRow, ToolCall
from orihon.stores.base import Store

log = logging.getLogger("orihon")

NOTE = "sections"  # the note of a running task that holds its sections
PLAN, EXECUTION, VERIFICATION, RECOMMENDATIONS = TITLES = (  # given by the specification, 001 §10.8
    "Previous Plan Summary",
    "Execution History",
    "Verification History",
    "Recommendations for Current Processing",
)
OUTLINE, HISTORY, DETAIL = 1, 2, 3  # priorities; DETAIL is left out first

_TITLE = re.compile(rf"^## (?:{'|'.join(TITLES)})$", re.MULTILINE)

MAX_SECTIONS, MAX_LINES, MAX_LINE_CHARS, MAX_KIND_CHARS = 50, 100, 500, 50
MAX_CALLS = 10_000  # the newest tool calls of a run; older calls are not counted
MAX_TOOLS, MAX_TOOL_CHARS, MAX_ERROR_CHARS = 200, 200, 200
MAX_STORED_TOOLS = 20
MAX_ENTRIES = 2_000

S = TypeVar("S", bound=Struct)


class Section(Struct, frozen=True, kw_only=True):
    """Lines under a title. A line that begins with spaces belongs to the line above it."""

    title: str
    kind: str
    priority: int = OUTLINE
    lines: tuple[str, ...] = ()


class ToolUse(Struct, frozen=True, kw_only=True):
    """How often a tool worked and failed, and its newest error."""

    tool: str
    successes: int = 0
    failures: int = 0
    last_error: str = ""


class Outline(Struct, frozen=True, kw_only=True):
    """A run as its row describes it."""

    uuid: str = ""
    status: str = ""
    completed_at: str = ""
    sections: tuple[Section, ...] = ()
    tools: tuple[ToolUse, ...] = ()


def make_outline(
    store: Store,
    row: TaskRow,
    notes: Mapping[str, Any],
    ledger: Sequence[Entry] = (),
    people: Sequence[str] = (),
) -> str:
    """Return the JSON text that `TaskRow.handoff` keeps of a task that ends. `notes` are the notes of its view.

    `people` are the users whose names no later run may read.
    """
    sections = list(_clean_sections(_convert_items(notes.get(NOTE), Section)))
    tools: list[ToolUse] = []
    try:
        tools = count_tool_uses(store, row.uuid)[:MAX_STORED_TOOLS]
    except (OrihonError, OSError, ValueError) as error:
        log.warning("[uuid:%s] The tool calls are missing from the outline: %s", row.uuid[:8], error)
    outline = {"planned": bool(sections), "sections": sections, "tools": tools}
    outline |= {"ledger": ledger} if ledger else {}
    outline |= {"people": people} if people else {}
    return msgspec.json.encode(store.sanitiser.value(msgspec.to_builtins(outline))).decode()


def render_sections(notes: Mapping[str, Any]) -> str:
    """Return the sections of a task that ends as the second half of its final summary; empty if it has none."""
    parts: dict[str, list[str]] = {}
    for section in _clean_sections(_convert_items(notes.get(NOTE), Section)):
        lines = (f"{line[: len(line) - len(line.lstrip())]}- {line.strip()}" for line in section.lines)
        parts.setdefault(section.title, []).extend(lines)
    ordered = sorted(parts, key=lambda title: TITLES.index(title) if title in TITLES else len(TITLES))
    return "\n\n".join("\n".join([f"## {title}", *parts[title]]) for title in ordered)


def cut_sections(summary: str) -> str:
    """Return a final summary without its sections, which the row keeps apart and the settings may switch off."""
    found = _TITLE.search(summary)
    return summary[: found.start()].rstrip() if found else summary


def read_outline(row: TaskRow) -> Outline | None:
    """Return the outline that a row keeps, or None if it has no readable section."""
    data = _read_json(row)
    sections = _convert_items(data["sections"], Section) if "sections" in data else _convert_old_outline(data)
    cleaned = tuple(_clean_sections(sections))
    if not cleaned:
        return None
    return Outline(
        uuid=row.uuid,
        status=row.status,
        completed_at=row.completed_at or "",
        sections=cleaned,
        tools=tuple(_convert_items(data.get("tools"), ToolUse)[:MAX_STORED_TOOLS]),
    )


def read_ledger(row: TaskRow) -> list[Entry]:
    """Return the ledger that a row keeps; none if it has no readable one."""
    items = _read_json(row).get("ledger")
    return _convert_items(items, Entry, MAX_ENTRIES)


def read_people(row: TaskRow) -> list[str]:
    """Return the users that a row names beside its own."""
    names = _read_json(row).get("people")
    return [name for name in names[:MAX_LINES] if isinstance(name, str)] if isinstance(names, list) else []


def _read_json(row: TaskRow) -> dict[str, Any]:
    try:
        data = decode_json(row.handoff or "null")
    except ValueError:
        log.warning("[uuid:%s] The outline of this run is not readable.", row.uuid[:8])
        return {}
    return data if isinstance(data, dict) else {}


def count_tool_uses(store: Store, uuid: str) -> list[ToolUse]:
    """Return the tools of a run, the most used first."""
    uses: dict[str, ToolUse] = {}
    for call in store.read(uuid, ToolCall, first=-MAX_CALLS):
        name = call.tool[:MAX_TOOL_CHARS]
        if name not in uses and len(uses) >= MAX_TOOLS:
            continue
        use = uses.get(name) or ToolUse(tool=name)
        if call.status == "success":
            uses[name] = msgspec.structs.replace(use, successes=use.successes + 1)
        else:
            error = (call.error or str(call.result or ""))[:MAX_ERROR_CHARS]
            uses[name] = msgspec.structs.replace(use, failures=use.failures + 1, last_error=error)
    return heapq.nlargest(MAX_TOOLS, uses.values(), key=lambda use: use.successes + use.failures)


def _convert_items(data: Any, kind: type[S], limit: int = MAX_SECTIONS) -> list[S]:
    """Return the items of a list that are of this kind. A row may have been edited outside Orihon."""
    items: list[S] = []
    for item in data[:limit] if isinstance(data, list) else ():
        try:
            items.append(msgspec.convert(item, kind))
        except (ValueError, RecursionError):
            continue
    return items


def _clean_sections(sections: Iterable[Section]) -> Iterator[Section]:
    """Yield the sections that say something, with no line break inside a line, so that no line poses as a title."""
    for section in sections:
        title = " ".join(section.title[:MAX_LINE_CHARS].split())
        lines = tuple(_clean_line(line) for line in section.lines[:MAX_LINES] if line.strip())
        if title and lines:
            yield Section(title=title, kind=section.kind[:MAX_KIND_CHARS], priority=section.priority, lines=lines)


def _clean_line(line: str) -> str:
    indent = "  " if line.startswith("  ") else ""
    return indent + " ".join(line[:MAX_LINE_CHARS].split())


# The form of version 0.1: the fields of a plan. Its rows are inherited until `context_expiry_days` have passed.

_OLD_ADVICE = {
    "finish": ("plan", "Finish what was left open"),
    "resolve": ("verification", "Resolve this issue"),
    "fill": ("verification", "Fill in the placeholder"),
    "remedy": ("reflection", "If this fails again"),
    "avoid": ("reflection", "Avoid what failed"),
    "reuse": ("pattern", "Reuse what worked"),
}


def _convert_old_outline(data: dict[str, Any]) -> Iterator[Section]:
    """Yield the sections that an outline of version 0.1 stands for."""
    if not data.get("planned"):
        return
    subtasks = [": ".join(_texts(item, "status", "description")) for item in _items(data, "subtasks")]
    failures = [" → ".join(_texts(item, "what", "why", "remedy")) for item in _items(data, "key_failures")]
    goal = [f"Goal: {text}" for text in _texts(data, "goal")]
    verdict = "passed" if data.get("verification_passed") is True else "not passed"
    rounds = (
        [f"Verification Rounds: {data['verification_rounds']} ({verdict})"] if data.get("verification_rounds") else []
    )
    yield Section(title=PLAN, kind="plan", lines=(*goal, *_list_under("Subtasks:", subtasks)))
    yield Section(
        title=EXECUTION, kind="reflection", priority=HISTORY, lines=tuple(_list_under("Key Failures:", failures))
    )
    found, resolved = _items(data, "issues_found"), _items(data, "issues_resolved")
    lines = (*rounds, *_list_under("Issues Found:", found), *_list_under("Issues Resolved:", resolved))
    yield Section(title=VERIFICATION, kind="verification", lines=lines)
    for item in _items(data, "recommendations"):
        kind, words = _OLD_ADVICE.get("".join(_texts(item, "kind")), ("plan", "Note"))
        about = " → ".join(_texts(item, "about", "more"))
        yield Section(title=RECOMMENDATIONS, kind=kind, lines=(f"{words}: {about}",) if about else ())


def _list_under(heading: str, items: Iterable[Any]) -> list[str]:
    lines = [f"  {item}" for item in items if isinstance(item, str) and item]
    return [heading, *lines] if lines else []


def _items(data: dict[str, Any], name: str) -> list[Any]:
    items = data.get(name)
    return items[:MAX_LINES] if isinstance(items, list) else []


def _texts(data: Any, *names: str) -> list[str]:
    values = [data.get(name) for name in names] if isinstance(data, dict) else []
    return [value for value in values if isinstance(value, str) and value]
