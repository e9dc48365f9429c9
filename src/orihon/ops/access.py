"""Authorization for commands: users see their own tasks, administrators see all, and the audit records each access.

    with open_authorized_store(settings, command="show") as authorized:
        for row in authorized.rows(Query(status=("failed",))): ...
        authorized.reader("550e8400", "messages").messages()

Commands read through an `AuthorizedStore`, never through the store itself. A task that the caller may not see does not
exist for the caller: it is not found, not counted and not ambiguous. The audit records refused attempts too.
`orihon.access` decides who the caller is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec

from orihon.access import ANONYMOUS, Principal, Trail, confine_user, principal
from orihon.errors import AccessDenied, NotFound, UsageError
from orihon.records import TaskRow
from orihon.settings.schema import Settings
from orihon.stores import open_store, require_store, store_options
from orihon.stores.audit import Audit, open_audit, open_trail
from orihon.stores.base import GroupBy, Query, Store, Totals
from orihon.stores.lookup import find_row, visible_rows

if TYPE_CHECKING:
    from orihon.engine import Engine
    from orihon.task.reader import Reader


class AccessGate:
    """Identifies the caller of one command, before the store is opened."""

    def __init__(self, settings: Settings, url: str | Path | None = None, *, command: str) -> None:
        self.settings, self.url, self.command = settings, str(url or settings.store_url), command
        try:
            self.principal = principal(settings)
        except AccessDenied as error:
            self._deny(ANONYMOUS, "token", error, reason=error.message)

    def require_admin(self, action: str) -> None:
        """Raise AccessDenied unless the caller is an administrator."""
        if not self.principal.admin:
            self._deny(self.principal, action, _admins_only(action))

    def record_access(self, action: str, read: Sequence[str], **details: Any) -> None:
        """Tell the audit which parts a command reads that opens the store by other means."""
        with open_trail(self.url, store_options(self.settings), self.principal, self.command) as trail:
            trail.record(action, read, **details)

    def owner_for(self, requested: str | None) -> str | None:
        """Return the owner of a new task: the requested user if the caller may act for them, else the caller."""
        try:
            return confine_user(self.principal, requested)
        except AccessDenied as error:
            self._deny(self.principal, "start", error, of=requested)

    def open_engine(self, hooks: Sequence[Any] = ()) -> Engine:
        """Return an engine that shows the caller's tasks only."""
        from orihon.engine import Engine  # noqa: PLC0415 - lists and counts need not load it

        store = open_store(self.url, store_options(self.settings))
        trail = Trail(open_audit(store), self.principal, self.command)
        return Engine(store, self.settings, hooks, user=self.principal.scope, trail=trail)

    def _deny(self, caller: Principal, action: str, error: AccessDenied, **details: Any) -> NoReturn:
        with open_trail(self.url, store_options(self.settings), caller, self.command) as trail:
            trail.record_denied(action, **details)
        raise error


def _admins_only(action: str) -> AccessDenied:
    return AccessDenied(f"Only an administrator may {action}.", hint="`access.admins` in the settings names them.")


class AuthorizedStore:
    """A store as one caller may see it."""

    def __init__(self, store: Store, principal: Principal, *, command: str, audit: Audit | None = None) -> None:
        self.store, self.principal, self.audit = store, principal, audit
        self.trail = Trail(audit, principal, command)

    def allows(self, owner: str | None) -> bool:
        """Return whether the caller may see the tasks of this user."""
        return self.principal.admin or owner == self.store.sanitiser.user(self.principal.user)

    def rows(self, query: Query | None = None) -> Iterator[TaskRow]:
        """Return the rows that the caller may see, newest first."""
        return visible_rows(self.store, query or Query(), self.principal.scope)

    def count(self, query: Query) -> int:
        """Return the number of tasks that the caller may see."""
        return self.store.count(msgspec.structs.replace(query, user=self.principal.scope or query.user))[0]

    def totals(self, query: Query, by: GroupBy) -> dict[str, Totals]:
        """Return the sums over the rows that the caller may see."""
        if self.principal.admin:
            return self.store.totals(query, by)
        if query.user not in {None, self.principal.user}:
            return {}
        return self.store.totals(msgspec.structs.replace(query, user=self.principal.user), by)

    def row(self, uuid: str) -> TaskRow:
        """Return one row, by its id or a prefix that matches no other task the caller may see."""
        try:
            return find_row(self.store, uuid, user=self.principal.scope)
        except (NotFound, UsageError):
            self.record_refusal(uuid)
            raise

    def reader(self, uuid: str, *parts: str) -> Reader:
        """Return a reader of one task. The audit records which parts are read."""
        from orihon.task.reader import Reader  # noqa: PLC0415 - lists and counts need not load it

        row = self.row(uuid)
        self.record_access("task", list(parts) or ["row"], uuid=row.uuid)
        return Reader(self.store, row)

    def record_access(self, action: str, read: Sequence[str], **details: Any) -> None:
        """Tell the audit which parts the command reads."""
        self.trail.record(action, read, **details)

    def record_refusal(self, uuid: str) -> None:
        """Write a refusal to the audit: a user asked for a task that does not exist or is another user's."""
        if not self.principal.admin:  # an unknown id and another user's look the same and take the same time
            self.trail.record_denied("task", uuid=str(uuid))

    def require_admin(self, action: str) -> None:
        """Raise AccessDenied unless the caller is an administrator."""
        if not self.principal.admin:
            self.trail.record_denied(action)
            raise _admins_only(action)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_authorized_store(
    settings: Settings, url: str | Path | None = None, *, command: str, create: bool = False
) -> AuthorizedStore:
    """Open the store at `url`, by default that of the settings. Without `create` it must exist."""
    gate = AccessGate(settings, url, command=command)
    if not create:
        require_store(gate.url)
    store = open_store(gate.url, store_options(settings))
    return AuthorizedStore(store, gate.principal, command=command, audit=open_audit(store))
