"""The search for the earlier run that a new task inherits from.

It is the newest run of the same key, or of a key that was linked to it, that was completed or stopped within
`context_expiry_days` and has a readable summary. A run that cannot be read is skipped with a warning, and the next
older one is tried. No problem with an earlier run keeps a task from starting.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from orihon import codec
from orihon.errors import Corrupt, NotFound, OrihonError, StoreUnavailable
from orihon.inheritance.names import Names, collect_names
from orihon.inheritance.outline import cut_sections
from orihon.records import Metadata, Status, Summary, TaskRow
from orihon.retry import Backoff
from orihon.settings.schema import ContextInheritance
from orihon.stores.base import Query, Store
from orihon.task_key import TaskKey

log = logging.getLogger("orihon")

ENDED: tuple[Status, ...] = ("completed", "stopped")
BACKOFF = Backoff(tries=3, first_seconds=0.2)  # three tries, as the specification says (001 §7.3)
MAX_RUNS = 1000  # the newest runs of a key

_REASONS = {
    "failed": "It failed, and a failed run is not inherited.",
    "paused": "It is paused; it can be resumed.",
    "running": "It is still running.",
    "pending": "It has not begun.",
}


class Skipped(Struct, frozen=True):
    """A run that is not inherited, and the reason."""

    uuid: str
    status: str
    completed_at: str | None
    reason: str


class Previous(Struct, frozen=True, kw_only=True):
    """The run that is inherited."""

    row: TaskRow
    summary: str
    ended: str  # in the format of our timestamps
    names: Names = Names()  # of people and machines; they must not be shown

    @property
    def uuid(self) -> str:
        """Its id."""
        return self.row.uuid

    @property
    def short(self) -> str:
        """The beginning of its id, for users."""
        return self.row.uuid[:8]


class Search(Struct, frozen=True):
    """The result of a search. `older` are further runs that could be inherited."""

    previous: Previous | None = None
    skipped: tuple[Skipped, ...] = ()
    older: tuple[TaskRow, ...] = ()
    problem: str = ""  # why the search failed


def search(
    store: Store,
    key: TaskKey | str,
    *,
    settings: ContextInheritance,
    user: str | None = None,
    now: str = "",
    exclude: str = "",
) -> Search:
    """Find the run that a new task with this key inherits. `exclude` is the id of the new task."""
    if not settings.enabled:
        log.debug("Nothing is inherited for %s: context_inheritance.enabled is off.", key)
        return Search()
    try:
        rows = _find_rows(store, str(key))
    except Exception as error:  # noqa: BLE001 - no problem with earlier runs keeps a task from starting
        problem = f"The search for earlier runs failed: {error}"
        log.error("Nothing is inherited for %s. %s", key, problem)  # noqa: TRY400 - the trace helps no user
        return Search(problem=problem)
    user = None if user is None else store.sanitiser.user(user)  # as rows name the user
    selection = _Selection(store, str(key), settings, user, parse_time(now) or datetime.now(UTC))
    for row in rows:
        if row.uuid != exclude:
            selection.add(row)
    return selection.select()


def parse_time(text: str | None) -> datetime | None:
    """Return a time from any ISO form, in UTC if it has no zone; None if it is not readable."""
    try:
        time = datetime.fromisoformat((text or "").strip())
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def may_inherit(task: TaskRow, earlier: TaskRow, settings: ContextInheritance) -> bool:
    """Return whether a task may read this earlier run. The ids in a task's records are not trusted."""
    if earlier.user == task.user:
        return True
    is_linked = task.task_key in {earlier.task_key, earlier.linked_key}
    return is_linked and not _find_objection(earlier, task.task_key, task.user, settings)


def _find_objection(row: TaskRow, key: str, user: str | None, settings: ContextInheritance) -> str:
    """Return why a run is not for a task of this user with this key; empty if it is."""
    if row.user != user and row.task_source == "local":
        return "It is another user's local task."
    if row.user != user and not settings.across_users:
        return "It is another user's, and context_inheritance.across_users is off."
    if row.task_key != key and _repository(row.task_key) != _repository(key):
        return "It is linked, but works on another repository."
    return ""


class _Selection:
    """Sorts the runs of a key into candidates and skipped runs."""

    def __init__(self, store: Store, key: str, settings: ContextInheritance, user: str | None, now: datetime) -> None:
        self.store, self.key, self.settings, self.user, self.now = store, key, settings, user, now
        self.candidates: list[tuple[datetime, TaskRow]] = []
        self.skipped: list[Skipped] = []

    def add(self, row: TaskRow) -> None:
        """Add a run. One without a readable end counts as old as its beginning."""
        ended = parse_time(row.completed_at) or parse_time(row.created_at)
        if row.status not in ENDED:
            self._skip(row, _REASONS[row.status])
        elif objection := _find_objection(row, self.key, self.user, self.settings):
            self._skip(row, objection)
        elif ended is None:
            self._skip(row, "It does not say when it ended.")
        elif (age := self.now - ended).total_seconds() > self.settings.context_expiry_days * 86_400:
            limit = self.settings.context_expiry_days
            self._skip(row, f"It ended {age // timedelta(days=1):,} days ago; {limit:,} days are allowed.")
        else:
            self.candidates.append((ended, row))

    def select(self) -> Search:
        """Return the newest run whose summary is readable."""
        self.candidates.sort(key=lambda pair: (pair[0], pair[1].created_at, pair[1].uuid), reverse=True)
        log.debug("%d runs of %s can be inherited, %d cannot.", len(self.candidates), self.key, len(self.skipped))
        for number, (ended, row) in enumerate(self.candidates):
            summary = self._read_summary(row)
            if summary is None:
                continue
            older = tuple(other for _, other in self.candidates[number + 1 :])
            for other in older:
                self._skip(other, "A newer run is used.")
            log.info("[uuid:%s] %s inherits from an earlier run of %s.", row.uuid[:8], self.key, ended.date())
            time = ended.isoformat(timespec="microseconds")[:-6] + "Z"
            previous = Previous(
                row=row, summary=cut_sections(summary), ended=time, names=collect_names(self.store, row)
            )
            return Search(previous, self._sort_skipped(), older)
        log.debug("No earlier run of %s can be inherited.", self.key)
        return Search(None, self._sort_skipped())

    def _read_summary(self, row: TaskRow) -> str | None:
        """Return the final summary. A run without a readable one is skipped with a warning."""
        if row.final_summary and row.final_summary.strip():
            return row.final_summary
        try:
            summary, is_damaged = _read_final_summary(self.store, row.uuid)
        except NotFound:
            reason = "Its directory is missing."
        except (OrihonError, OSError, ValueError) as error:
            reason = f"It cannot be read: {error}"
        else:
            if summary is not None:
                return summary
            reason = "Its summaries are damaged." if is_damaged else "It has no final summary."
        log.warning("[uuid:%s] An earlier run of %s is skipped. %s", row.uuid[:8], self.key, reason)
        self._skip(row, reason)
        return None

    def _skip(self, row: TaskRow, reason: str) -> None:
        log.debug("[uuid:%s] Not inherited. %s", row.uuid[:8], reason)
        self.skipped.append(Skipped(row.uuid, row.status, row.completed_at, reason))

    def _sort_skipped(self) -> tuple[Skipped, ...]:
        return tuple(sorted(self.skipped, key=lambda run: (run.completed_at or "~", run.uuid), reverse=True))


def _find_rows(store: Store, key: str) -> list[TaskRow]:
    """Return the newest runs of the key and of the keys linked to it, each once."""
    log.debug("Searching for runs with task_key or linked_key %s.", key)
    queries = (Query(key=key, limit=MAX_RUNS), Query(linked=key, limit=MAX_RUNS))
    rows = BACKOFF.call(
        lambda: {row.uuid: row for query in queries for row in store.find(query)},
        should_retry=lambda error: isinstance(error, StoreUnavailable) and error.retryable,
        on_retry=lambda error, _: log.debug("The search for earlier runs is repeated: %s", error),
    )
    log.debug("%d runs were found for %s.", len(rows), key)
    return list(rows.values())


def _read_final_summary(store: Store, uuid: str) -> tuple[str | None, bool]:
    """Return the text of the last final summary, and whether a line was not readable."""
    text, is_damaged = None, False
    # versions 2.0 and 3.0 of the format know no kinds: the last summary is the final one
    no_kinds = any(metadata.format == 0 for metadata in store.read(uuid, Metadata))
    for _, line in store.lines(uuid, "summaries", 1, None):
        try:
            summary = codec.decode_line(line, Summary)
        except Corrupt:
            is_damaged = True
        else:
            if summary.summary.strip() and (summary.kind == "final" or no_kinds):
                text = summary.summary
    return text, is_damaged


def _repository(key: str) -> tuple[str, ...]:
    """Return the source and the repository of a key; for an unreadable key, the key itself, which equals no other."""
    try:
        parsed = TaskKey.parse(key)
    except OrihonError:
        return (key,)
    return parsed.task_source, parsed.owner.lower(), parsed.repo.lower(), str(parsed.project_id)
