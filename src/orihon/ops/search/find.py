"""`search(authorized, query)`: tasks whose messages, summaries or calls hold the words, the best first.

All words must occur in one message. A place counts by how often the words stand in it, by how short it is, and by what
it is: a summary more than what was said, and that more than what a tool printed. Nothing else goes in, above all no
figure about all documents, as BM25 has it: what others have does not move what one sees. Among equals the newest comes
first. Where very much is found, the newest `MOST` places are weighed.
"""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct

from orihon.ops.access import AuthorizedStore
from orihon.ops.progress import OnProgress
from orihon.ops.search.fill import fill
from orihon.ops.search.index import KINDS, Index, digest, remove, unpacked
from orihon.ops.search.place import index_path, with_index
from orihon.ops.search.words import Term, match_of, pattern_of, terms_of
from orihon.records import Status, TaskRow
from orihon.stores.lookup import row_if_there
from orihon.terminal import escape_page_text

MOST = 500  # places that are weighed
WEIGHED_CHARS = 4_000_000  # of all of them together
PLACES = 3  # that are shown of one task
SNIPPET_CHARS = 160
COUNTED = 20  # times that a word counts in one place

_WEIGHTS = {"summary": 2.0, "user": 1.3, "assistant": 1.2, "tool": 1.0, "system": 0.8}
_FOUND = (
    "SELECT words.rowid, tasks.uuid, docs.kind, docs.number, docs.text FROM words "
    "JOIN docs ON docs.id = words.rowid JOIN tasks ON tasks.id = docs.task WHERE words MATCH ?{more} "
    "ORDER BY words.rowid DESC LIMIT ?"
)


class Wanted(Struct, frozen=True, kw_only=True):
    """What is looked for, and where."""

    text: str
    user: str | None = None
    status: tuple[Status, ...] = ()
    key: str | None = None
    created_from: str | None = None
    created_to: str | None = None
    limit: int = 10


class Place(Struct, frozen=True):
    """A message (by its number) or a summary, and the words around what was found."""

    kind: str
    number: int
    snippet: str
    score: float


class Found(Struct, frozen=True):
    """A task in which something was found; the best places first."""

    uuid: str
    task_key: str
    user: str | None
    status: str
    created_at: str
    score: float
    count: int  # places in this task
    places: list[Place]


def search(
    authorized: AuthorizedStore, wanted: Wanted, *, rebuild: bool = False, on_progress: OnProgress = None
) -> list[Found]:
    """The tasks that the person may see and that hold all the words; the index is filled first."""
    terms = terms_of(wanted.text)
    path = index_path(authorized.store)
    if rebuild and path is not None:
        remove(path)
    authorized.trail.asked("search", wanted.user, text=wanted.text, **({"of": wanted.user} if wanted.user else {}))

    def filled(index: Index) -> dict[str, list[Place]]:
        fill(authorized.store, index, on_progress=on_progress)
        return _places(authorized, index, wanted, terms)

    places = with_index(authorized.store, filled)
    ranked = sorted(places.items(), key=lambda item: -max(place.score for place in item[1]))
    found: list[Found] = []
    for uuid, those in ranked:
        if len(found) >= wanted.limit:
            break
        row = row_if_there(authorized.store, uuid, user=authorized.principal.scope)
        if row is not None:  # it may be gone since
            found.append(_found(row, those))
    return found


def _places(authorized: AuthorizedStore, index: Index, wanted: Wanted, terms: list[Term]) -> dict[str, list[Place]]:
    user = wanted.user if authorized.principal.admin else authorized.principal.user
    if not authorized.principal.admin and wanted.user not in {None, authorized.principal.user}:
        return {}
    having = {"u": digest(authorized.store.sanitiser.user(user))} if user is not None else {}
    having |= {"k": digest(wanted.key)} if wanted.key is not None else {}
    more, values = _conditions(wanted)
    rows = index.database.all(_FOUND.format(more=more), match_of(terms, **having), *values, MOST)
    patterns = [pattern_of(term) for term in terms]
    found: dict[str, list[Place]] = {}
    weighed = 0
    for _, uuid, kind, number, packed in rows:
        text = unpacked(packed) if weighed < WEIGHED_CHARS else ""
        weighed += len(text)
        place = _place(KINDS[kind], number, text, patterns)
        found.setdefault(uuid, []).append(place)
    return found


def _conditions(wanted: Wanted) -> tuple[str, list[Any]]:
    conditions = {
        f"tasks.status IN ({', '.join('?' * len(wanted.status))})": wanted.status or None,
        "tasks.created_at >= ?": wanted.created_from,
        "tasks.created_at <= ?": wanted.created_to,
    }
    given = {condition: value for condition, value in conditions.items() if value is not None}
    values = [item for value in given.values() for item in (value if isinstance(value, tuple) else (value,))]
    return "".join(f" AND {condition}" for condition in given), values


def _place(kind: str, number: int, text: str, patterns: list[Any]) -> Place:
    counts = [sum(1 for _, _ in zip(range(COUNTED), pattern.finditer(text), strict=False)) for pattern in patterns]
    first = min((found.start() for pattern in patterns if (found := pattern.search(text))), default=0)
    often = sum(count / (count + 1) for count in counts) / len(counts)
    score = _WEIGHTS[kind] * (0.1 + often) / (1 + math.log10(1 + len(text) / 1000))
    return Place(kind, number, snippet(text, first), round(score, 4))


def snippet(text: str, at: int) -> str:
    """Some words around a place, on one line and harmless."""
    begin = max(0, at - SNIPPET_CHARS // 3)
    piece = text[begin : begin + SNIPPET_CHARS]
    if begin and " " in piece[:20]:
        piece = piece[piece.index(" ") + 1 :]
    before, after = "…" if begin else "", "…" if begin + SNIPPET_CHARS < len(text) else ""
    return before + " ".join(escape_page_text(piece).split()) + after


def _found(row: TaskRow, places: list[Place]) -> Found:
    best = sorted(places, key=lambda place: -place.score)
    return Found(
        row.uuid, row.task_key, row.user, row.status, row.created_at, best[0].score, len(places), best[:PLACES]
    )
