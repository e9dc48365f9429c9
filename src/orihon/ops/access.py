"""Who reads what: a user sees that user's tasks, an administrator sees all, and every look is written to the audit.

    with opened_desk(settings, through="show") as desk:
        for row in desk.rows(Query(status=("failed",))): ...
        desk.reader("550e8400", "messages").messages()

All commands read through a `Desk`, never through the store itself, so that one place decides. A task that the caller
may not see does not exist for that caller: it is not found, not counted, not ambiguous. Who the caller is, `access`
decides. Refused attempts are written to the audit as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec

from orihon.access import NOBODY, Principal, Trail, confined, principal
from orihon.errors import AccessDenied, NotFound
from orihon.records import TaskRow
from orihon.settings.schema import Settings
from orihon.stores import open_store, options_of
from orihon.stores.audit import Audit, audit_of, write_denial
from orihon.stores.base import Query, Store
from orihon.stores.lookup import find_row, visible_rows
from orihon.stores.presence import require
from orihon.stores.totals import By, Totals

if TYPE_CHECKING:
    from orihon.engine import Engine
    from orihon.task.reader import Reader


class Gate:
    """The way to a store for one command: who is asking, and a line in the audit for whatever is refused."""

    def __init__(self, settings: Settings, url: str | Path | None = None, *, through: str) -> None:
        self.settings, self.url, self.through = settings, str(url or settings.store_url), through
        try:
            self.who = principal(settings)
        except AccessDenied as error:
            self._deny(NOBODY, "token", error, reason=error.message)

    def require_admin(self, what: str) -> None:
        """Refuse what only an administrator may do."""
        if not self.who.admin:
            self._deny(self.who, what, not_for_users(what))

    def user_of(self, requested: str | None) -> str | None:
        """Return the owner of a new task: the requested user if the caller may act for them, else the caller."""
        try:
            return confined(self.who, requested)
        except AccessDenied as error:
            self._deny(self.who, "start", error, of=requested)

    def engine(self) -> Engine:
        """Return the engine over the store, as the caller sees it."""
        from orihon.engine import Engine  # noqa: PLC0415 - lists and counts need not load it

        store = open_store(self.url, options_of(self.settings))
        return Engine(store, self.settings, user=self.who.scope, trail=Trail(audit_of(store), self.who, self.through))

    def _deny(self, who: Principal, at: str, error: AccessDenied, **what: Any) -> NoReturn:
        write_denial(self.url, options_of(self.settings), who, self.through, at, **what)
        raise error


def require_admin(settings: Settings, what: str, url: str | None = None, *, through: str) -> None:
    """Refuse what only an administrator may do."""
    Gate(settings, url, through=through).require_admin(what)


def not_for_users(what: str) -> AccessDenied:
    """Return the refusal of what only an administrator may do."""
    return AccessDenied(f"Only an administrator may {what}.", hint="`access.admins` in the settings names them.")


class Desk:
    """A store as one caller sees it."""

    def __init__(self, store: Store, who: Principal, *, through: str, audit: Audit | None = None) -> None:
        self.store, self.who, self.audit = store, who, audit
        self.trail = Trail(audit, who, through)

    def allows(self, owner: str | None) -> bool:
        """Whether the caller may see the tasks of this user."""
        return self.who.admin or owner == self.store.sanitiser.user(self.who.user)

    def rows(self, query: Query | None = None) -> Iterator[TaskRow]:
        """The rows that the caller may see, the newest first."""
        return visible_rows(self.store, query or Query(), self.who.scope)

    def totals(self, query: Query, by: By) -> dict[str, Totals]:
        """The sums of the rows that the caller may see."""
        if self.who.admin:
            return self.store.totals(query, by)
        if query.user not in {None, self.who.user}:
            return {}
        return self.store.totals(msgspec.structs.replace(query, user=self.who.user), by)

    def row(self, uuid: str) -> TaskRow:
        """Return one row, by its id or by a beginning of it that fits no other task that the caller may see."""
        try:
            return find_row(self.store, uuid, user=self.who.scope)
        except NotFound:
            if not self.who.admin:  # a wrong id and another user's are the same, here and in the time it takes
                self.trail.denied("task", uuid=uuid)
            raise

    def reader(self, uuid: str, *read: str) -> Reader:
        """Return a task to look at; the audit says which parts of it are read."""
        from orihon.task.reader import Reader  # noqa: PLC0415 - lists and counts need not load it

        row = self.row(uuid)
        self.looked("task", uuid=row.uuid, read=list(read) or ["row"])
        return Reader(self.store, row)

    def looked(self, at: str, **what: Any) -> None:
        """Write down what was looked at."""
        self.trail.looked(at, **what)

    def require_admin(self, what: str) -> None:
        """Refuse what only an administrator may do."""
        if not self.who.admin:
            self.trail.denied(what)
            raise not_for_users(what)

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opened_desk(settings: Settings, url: str | Path | None = None, *, through: str, make: bool = False) -> Desk:
    """The store of the settings, or another one, as the caller sees it; with `make`, also a new one."""
    gate = Gate(settings, url, through=through)
    if not make:
        require(gate.url)
    store = open_store(gate.url, options_of(settings))
    return Desk(store, gate.who, through=through, audit=audit_of(store))
