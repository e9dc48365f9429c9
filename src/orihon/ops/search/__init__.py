"""Full-text search: the tasks whose messages, summaries or calls contain the words of a query, best first.

All words must occur in one message. A match is scored by how often the words occur, by the length of the text, and by
its kind: summaries count more than messages, and messages more than tool output. Unlike BM25, the score depends on
nothing outside the text, so that the tasks of other users do not influence it. Among equal scores the newest comes
first. If there are many matches, the newest `MAX_MATCHES` are scored.
"""

from __future__ import annotations

import math
import re
from itertools import islice
from typing import Any

from msgspec import Struct

from orihon.ops.access import AuthorizedStore
from orihon.ops.progress import OnProgress
from orihon.ops.search.index import (
    KINDS,
    Index,
    fill_index,
    index_path,
    make_tag,
    purge,
    remove_index,
    unpack_text,
    update_index,
    with_index,
)
from orihon.ops.search.tokenize import Term, build_fts_query, compile_pattern, parse_terms
from orihon.records import Status, TaskRow
from orihon.stores.lookup import row_if_there
from orihon.terminal import escape_page_text

__all__ = ["SearchMatch", "SearchQuery", "SearchResult", "purge", "search", "update_index"]

SEARCHED = ("messages", "summaries", "tools")  # for the audit
MAX_MATCHES = 500  # that are scored
SCORED_CHARS = 4_000_000  # of all of them together
SHOWN_MATCHES = 3  # of one task
SNIPPET_CHARS = 160
MAX_COUNT = 20  # occurrences of a word that count in one match

_WEIGHTS = {"summary": 2.0, "user": 1.3, "assistant": 1.2, "tool": 1.0, "system": 0.8}
_FIND = (
    "SELECT tasks.uuid, docs.kind, docs.number, docs.text FROM words "
    "JOIN docs ON docs.id = words.rowid JOIN tasks ON tasks.id = docs.task WHERE words MATCH ?{more} "
    "ORDER BY words.rowid DESC LIMIT ?"
)


class SearchQuery(Struct, frozen=True, kw_only=True):
    """The words to search for, and filters."""

    text: str
    user: str | None = None
    status: tuple[Status, ...] = ()
    key: str | None = None
    created_from: str | None = None
    created_to: str | None = None
    limit: int = 10
    uuid: str | None = None  # only this task
    places: int = SHOWN_MATCHES  # of one task that are returned


class SearchMatch(Struct, frozen=True):
    """A message or a summary that contains the words, by its number."""

    kind: str
    number: int
    snippet: str
    score: float


class SearchResult(Struct, frozen=True):
    """A task with matches."""

    uuid: str
    task_key: str
    user: str | None
    status: str
    created_at: str
    score: float
    count: int  # of all matches
    places: list[SearchMatch]  # the best


def search(
    authorized: AuthorizedStore, query: SearchQuery, *, rebuild: bool = False, on_progress: OnProgress = None
) -> list[SearchResult]:
    """Update the index, then return the tasks that the caller may see and that contain all words."""
    store = authorized.store
    terms = parse_terms(query.text)
    path = index_path(store)
    if rebuild and path is not None:
        remove_index(path)
    of = {"of": query.user} if query.user else {}
    authorized.trail.record_query("search", SEARCHED, query.user, text=query.text, **of)

    def find(index: Index) -> dict[str, list[SearchMatch]]:
        fill_index(store, index, on_progress=on_progress)
        return _find_matches(authorized, index, query, terms)

    matches = with_index(store, find)
    ranked = sorted(matches.items(), key=lambda item: -max(match.score for match in item[1]))
    results: list[SearchResult] = []
    for uuid, found in ranked:
        if len(results) >= query.limit:
            break
        row = row_if_there(store, uuid, user=authorized.principal.scope)
        if row is not None:  # else it was deleted meanwhile
            results.append(_make_result(row, found, query.places))
    return results


def _find_matches(
    authorized: AuthorizedStore, index: Index, query: SearchQuery, terms: list[Term]
) -> dict[str, list[SearchMatch]]:
    principal = authorized.principal
    if not principal.admin and query.user not in {None, principal.user}:
        return {}
    user = query.user if principal.admin else principal.user
    tags = [] if user is None else [make_tag("u", authorized.store.sanitiser.user(user))]
    tags += [] if query.key is None else [make_tag("k", query.key)]
    more, values = _build_filters(query)
    patterns = [compile_pattern(term) for term in terms]
    matches: dict[str, list[SearchMatch]] = {}
    scored = 0
    fts_query = build_fts_query(terms, tags)
    for uuid, kind, number, packed in index.database.all(_FIND.format(more=more), fts_query, *values, MAX_MATCHES):
        text = unpack_text(packed) if scored < SCORED_CHARS else ""
        scored += len(text)
        matches.setdefault(uuid, []).append(_score(KINDS[kind], number, text, patterns))
    return matches


def _build_filters(query: SearchQuery) -> tuple[str, list[Any]]:
    filters: dict[str, tuple[Any, ...]] = {
        f"tasks.status IN ({', '.join('?' * len(query.status))})": query.status,
        "tasks.uuid = ?": (query.uuid,) if query.uuid is not None else (),
        "tasks.created_at >= ?": (query.created_from,) if query.created_from is not None else (),
        "tasks.created_at <= ?": (query.created_to,) if query.created_to is not None else (),
    }
    conditions = "".join(f" AND {condition}" for condition, values in filters.items() if values)
    return conditions, [value for values in filters.values() for value in values]


def _score(kind: str, number: int, text: str, patterns: list[re.Pattern[str]]) -> SearchMatch:
    positions = [[match.start() for match in islice(pattern.finditer(text), MAX_COUNT)] for pattern in patterns]
    frequency = sum(len(found) / (len(found) + 1) for found in positions) / len(positions)
    score = _WEIGHTS[kind] * (0.1 + frequency) / (1 + math.log10(1 + len(text) / 1000))
    first = min((found[0] for found in positions if found), default=0)
    return SearchMatch(kind, number, _cut_snippet(text, first), round(score, 4))


def _cut_snippet(text: str, position: int) -> str:
    """Return the words around a position, on one line and without control characters."""
    start = max(0, position - SNIPPET_CHARS // 3)
    piece = text[start : start + SNIPPET_CHARS]
    if start and " " in piece[:20]:
        piece = piece[piece.index(" ") + 1 :]
    before, after = "…" if start else "", "…" if start + SNIPPET_CHARS < len(text) else ""
    return before + " ".join(escape_page_text(piece).split()) + after


def _make_result(row: TaskRow, matches: list[SearchMatch], places: int) -> SearchResult:
    best = sorted(matches, key=lambda match: -match.score)
    return SearchResult(
        row.uuid,
        row.task_key,
        row.user,
        row.status,
        row.created_at,
        best[0].score,
        len(matches),
        best[:places],
    )
