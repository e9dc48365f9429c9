"""Which earlier run a new task takes over from, and why not from the others.

It is the newest run of the same key, or of a key that was linked to it, that was completed or stopped inside
`context_expiry_days` and left a summary that can be read. A run that cannot be read is skipped with a warning, and
the next older one is tried. Nothing that is wrong with the past keeps a task from starting.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec import Struct

from orihon import codec
from orihon.errors import Corrupt, NotFound, OrihonError, StoreUnavailable
from orihon.inheritance.sanitise import Names, names_of
from orihon.records import Status, Summary, TaskRow
from orihon.settings.schema import ContextInheritance
from orihon.stores.base import Query, Store
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

ENDED: tuple[Status, ...] = ("completed", "stopped")
TRIES = 3
PAUSE_SECONDS = 0.2
MAX_RUNS = 1000  # the newest runs of a key that are looked at
DAY_SECONDS = 86_400

_BY_STATUS = {
    "failed": "It failed, and a failed run is not inherited.",
    "paused": "It is paused; it can be resumed.",
    "running": "It is still running.",
    "pending": "It has not begun.",
}


class Skipped(Struct, frozen=True):
    """A run that is not inherited, and why."""

    uuid: str
    status: str
    completed_at: str | None
    reason: str


class Previous(Struct, frozen=True, kw_only=True):
    """The run that is inherited."""

    row: TaskRow
    summary: str
    ended: str  # when it ended, in the one form of the format
    names: Names = Names()  # of people and machines, which nobody is told

    @property
    def uuid(self) -> str:
        """Its id."""
        return self.row.uuid

    @property
    def short(self) -> str:
        """The beginning of its id, which is enough for people."""
        return self.row.uuid[:8]


class Search(Struct, frozen=True):
    """What was found; `older` are runs that could be inherited if there were no newer one."""

    previous: Previous | None = None
    skipped: tuple[Skipped, ...] = ()
    older: tuple[TaskRow, ...] = ()
    problem: str = ""  # why nothing could be searched


def search(
    store: Store,
    key: TaskKey | str,
    *,
    settings: ContextInheritance,
    user: str | None = None,
    now: str = "",
    exclude: str = "",
) -> Search:
    """Find the run that a new task with this key inherits; `exclude` is the new task itself."""
    if not settings.enabled:
        log.debug("Nothing is inherited for %s: context_inheritance.enabled is off.", key)
        return Search()
    rows = _patiently(lambda: _rows(store, str(key)))
    if isinstance(rows, str):
        log.error("Nothing is inherited for %s. %s", key, rows)
        return Search(problem=rows)
    user = None if user is None else store.sanitiser.user(user)  # as the rows name them
    look = _Look(store, str(key), settings, user, moment(now) or datetime.now(UTC))
    for row in rows:
        if row.uuid != exclude:
            look.at(row)
    return look.result()


def moment(text: str | None) -> datetime | None:
    """A time in any ISO form; without a zone it is UTC. None when it cannot be read."""
    try:
        found = datetime.fromisoformat((text or "").strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def foreign(row: TaskRow, key: str, user: str | None, settings: ContextInheritance) -> str:
    """Return why a run is not for a task of this user on this key; empty when it is."""
    if row.user != user and row.task_source == "local":
        return "It is another user's local task."
    if row.user != user and not settings.across_users:
        return "It is another user's, and context_inheritance.across_users is off."
    if row.task_key != key and _place(row.task_key) != _place(key):
        return "It is linked, but works on another repository."
    return ""


def may_inherit(task: TaskRow, earlier: TaskRow, settings: ContextInheritance) -> bool:
    """Whether a task may read this earlier run; what a task's own records name may come from anywhere."""
    if earlier.user == task.user:
        return True
    is_linked = task.task_key in {earlier.task_key, earlier.linked_key}
    return is_linked and not foreign(earlier, task.task_key, task.user, settings)


class _Look:
    """One search: rows go in, a result comes out."""

    def __init__(self, store: Store, key: str, settings: ContextInheritance, user: str | None, now: datetime) -> None:
        self.store, self.key, self.settings, self.user, self.now = store, key, settings, user, now
        self.candidates: list[tuple[datetime, TaskRow]] = []
        self.skipped: list[Skipped] = []

    def at(self, row: TaskRow) -> None:
        """Sort a row in: it can be inherited, or it says why not."""
        # what has no readable end is taken for as old as its beginning
        ended = moment(row.completed_at) or moment(row.created_at)
        if reason := self._refusal(row, ended):
            self._skip(row, reason)
        elif ended is not None:
            self.candidates.append((ended, row))

    def result(self) -> Search:
        """The newest that can be read."""
        self.candidates.sort(key=lambda one: (one[0], one[1].created_at, one[1].uuid), reverse=True)
        log.debug("%d runs of %s can be inherited, %d cannot.", len(self.candidates), self.key, len(self.skipped))
        for place, (ended, row) in enumerate(self.candidates):
            summary = self._summary(row)
            if summary is None:
                continue
            older = tuple(one for _, one in self.candidates[place + 1 :])
            for one in older:
                self._skip(one, "A newer run is used.")
            log.info("[uuid:%s] %s has an earlier run to go on from, %s.", row.uuid[:8], self.key, _day(ended))
            names = names_of(self.store, row)
            previous = Previous(row=row, summary=summary, ended=_form(ended), names=names)
            return Search(previous, self._listed(), older)
        log.debug("No earlier run of %s can be inherited.", self.key)
        return Search(None, self._listed())

    def _refusal(self, row: TaskRow, ended: datetime | None) -> str:
        """Why this run cannot be inherited, whatever its files hold; empty when it can."""
        if row.status not in ENDED:
            return _BY_STATUS[row.status]
        return foreign(row, self.key, self.user, self.settings) or self._expired(ended)

    def _expired(self, ended: datetime | None) -> str:
        if ended is None:
            return "It does not say when it ended."
        age_seconds = (self.now - ended).total_seconds()
        limit_days = self.settings.context_expiry_days
        if age_seconds > limit_days * DAY_SECONDS:
            return f"It ended {int(age_seconds // DAY_SECONDS):,} days ago; {limit_days:,} days are allowed."
        return ""

    def _summary(self, row: TaskRow) -> str | None:
        """The final summary; a run that has none, or none that can be read, is skipped with a warning."""
        if row.final_summary and row.final_summary.strip():
            return row.final_summary
        try:
            summary, broken = _last_final(self.store, row.uuid)
        except NotFound:
            reason = "Its directory is missing."
        except (OrihonError, OSError, ValueError) as error:
            reason = f"It cannot be read: {error}"
        else:
            if summary is not None:
                return summary
            reason = "Its summaries are damaged." if broken else "It has no final summary."
        log.warning("[uuid:%s] An earlier run of %s is skipped. %s", row.uuid[:8], self.key, reason)
        self._skip(row, reason)
        return None

    def _skip(self, row: TaskRow, reason: str) -> None:
        log.debug("[uuid:%s] Not inherited. %s", row.uuid[:8], reason)
        self.skipped.append(Skipped(row.uuid, row.status, row.completed_at, reason))

    def _listed(self) -> tuple[Skipped, ...]:
        return tuple(sorted(self.skipped, key=lambda one: (one.completed_at or "~", one.uuid), reverse=True))


def _patiently(query: Callable[[], list[TaskRow]]) -> list[TaskRow] | str:
    """The rows; a store that is away is asked three times. A sentence when there are none to be had."""
    for attempt in range(1, TRIES + 1):
        try:
            return query()
        except StoreUnavailable as error:
            log.debug("The search for earlier runs failed, try %d of %d: %s", attempt, TRIES, error)
            if not error.retryable or attempt == TRIES:
                return f"The store could not be asked for earlier runs: {error}"
            time.sleep(PAUSE_SECONDS * attempt)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the past, the task starts
            return f"The search for earlier runs failed: {error}"
    raise AssertionError  # the last try returns


def _rows(store: Store, key: str) -> list[TaskRow]:
    """The newest runs of the key and of those linked to it, each once."""
    queries = (Query(key=key, limit=MAX_RUNS), Query(linked=key, limit=MAX_RUNS))
    log.debug("Searching for runs with task_key or linked_key %s.", key)
    found = {row.uuid: row for query in queries for row in store.find(query)}
    log.debug("%d runs were found for %s.", len(found), key)
    return list(found.values())


def _last_final(store: Store, uuid: str) -> tuple[str | None, bool]:
    """The text of the last final summary, and whether a line could not be read."""
    text, broken = None, False
    for _, line in store.lines(uuid, "summaries", 1, None):
        try:
            summary = codec.decode_line(line, Summary)
        except Corrupt:
            broken = True
        else:
            if summary.kind == "final" and summary.summary.strip():
                text = summary.summary
    return text, broken


def _place(key: str) -> tuple[str, ...]:
    """Source and repository of a key; the key itself when it cannot be read, so that it equals no other."""
    try:
        one = TaskKey.parse(key)
    except OrihonError:
        return (key,)
    return one.task_source, one.owner.lower(), one.repo.lower(), str(one.project_id)


def _form(time: datetime) -> str:
    return time.isoformat(timespec="microseconds")[:-6] + "Z"


def _day(time: datetime) -> str:
    return time.date().isoformat()
