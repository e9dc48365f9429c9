"""Who reads what: a user sees only his own tasks, an administrator sees all, and every look is written down.

    with opened_desk(settings, through="show") as desk:
        for row in desk.rows(Query(status=("failed",))): ...
        desk.reader("550e8400").messages()

All commands read through a `Desk`, never through the store itself, so that there is one place that decides. What
somebody may not see does not exist for him: it is not found, not counted, not ambiguous. On one machine the owner of
the files is the administrator and the operating system guards them; a service that reads for others says for whom.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator, Mapping
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from orihon.errors import NotFound, UsageError
from orihon.ops.audit import Audit, audit_of
from orihon.ops.doctor import require
from orihon.records import TaskRow
from orihon.settings import Settings
from orihon.stores import open_store, options_of
from orihon.stores.base import Query, Store
from orihon.stores.totals import By, Totals

if TYPE_CHECKING:
    from orihon.task.reader import Reader

USER = "ORIHON_USER"
TOKEN = "ORIHON_TOKEN"  # noqa: S105 - the name of the variable


class Principal(msgspec.Struct, frozen=True):
    """Somebody who reads."""

    user: str
    admin: bool = False


def principal(settings: Settings, environ: Mapping[str, str] | None = None) -> Principal:
    """Whom the environment names by user or token; else the person at this machine, who owns the files."""
    environ = os.environ if environ is None else environ
    token, user = environ.get(TOKEN), environ.get(USER)
    if token:
        found = next(
            (
                name
                for name, known in settings.access.tokens.items()
                if compare_digest(known.reveal().encode(), token.encode())
            ),
            None,
        )
        if found is None:
            raise UsageError(f"{TOKEN} is not one of the tokens in `access.tokens`.", hint="Ask an administrator.")
        user = found
    if user:
        return Principal(user, admin=user in settings.access.admins)
    return Principal(_login(), admin=True)


def user_of(settings: Settings, given: str | None) -> str | None:
    """Whose a new task is: whose somebody says, if he may, else his own; the owner of the files need not say."""
    who = principal(settings)
    if not who.admin and given not in {None, who.user}:
        raise UsageError(f"{who.user!a} cannot start tasks of {given!a}.", hint="Leave out --user.")
    return given if who.admin else who.user


def seen_by(settings: Settings) -> str | None:
    """Whose tasks the person sees who runs this; None means everybody's."""
    who = principal(settings)
    return None if who.admin else who.user


def require_admin(settings: Settings, what: str) -> None:
    """Refuse what only an administrator may do."""
    if not principal(settings).admin:
        raise _not_for_users(what)


def _not_for_users(what: str) -> UsageError:
    return UsageError(f"Only an administrator may {what}.", hint="`access.admins` in the settings names them.")


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return str(os.getuid())


class Desk:
    """A store as one person sees it."""

    def __init__(self, store: Store, who: Principal, *, through: str, audit: Audit | None = None) -> None:
        self.store, self.who, self.through, self.audit = store, who, through, audit

    def allows(self, row: TaskRow) -> bool:
        """Whether he may know of this task."""
        return self.who.admin or row.user == self.who.user

    def rows(self, query: Query | None = None) -> Iterator[TaskRow]:
        """The rows he may see, the newest first."""
        query = query or Query()
        if self.who.admin:
            return self.store.find(query)
        if query.user not in {None, self.who.user}:
            return iter(())
        return self.store.find(msgspec.structs.replace(query, user=self.who.user))

    def totals(self, query: Query, by: By) -> dict[str, Totals]:
        """What the rows that he may see add up to."""
        if self.who.admin:
            return self.store.totals(query, by)
        if query.user not in {None, self.who.user}:
            return {}
        return self.store.totals(msgspec.structs.replace(query, user=self.who.user), by)

    def row(self, uuid: str) -> TaskRow:
        """One row, by its id or by a beginning of it that fits no other that he may see."""
        if not uuid:
            raise UsageError("A task id cannot be empty.", hint="Give the id of a task, or its beginning.")
        found = list(self.rows(Query(uuid=uuid, limit=2)))
        whole = [row for row in found if row.uuid == uuid]
        if not found:
            raise NotFound(kind="task", id=uuid)
        if len(found) > 1 and not whole:
            raise UsageError(f"Several tasks begin with {uuid!a}.", hint="Give more of the id.")
        return (whole or found)[0]

    def reader(self, uuid: str) -> Reader:
        """A task to look at; that it was looked at is written down."""
        from orihon.task.reader import Reader  # noqa: PLC0415 - who only lists or counts need not load it

        row = self.row(uuid)
        self.looked("task", uuid=row.uuid)
        return Reader(self.store, row)

    def looked(self, at: str, **what: Any) -> None:
        """Write down what was looked at."""
        if self.audit is not None:
            self.audit.add(user=self.who.user, admin=self.who.admin, through=self.through, at=at, **what)

    def require_admin(self, what: str) -> None:
        """Refuse what only an administrator may do."""
        if not self.who.admin:
            raise _not_for_users(what)

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def asked(query: Query) -> dict[str, Any]:
    """What a query asks for, for the audit."""
    plain = Query()
    return {name: value for name in query.__struct_fields__ if (value := getattr(query, name)) != getattr(plain, name)}


def opened_desk(settings: Settings, url: str | Path | None = None, *, through: str, make: bool = False) -> Desk:
    """The store of the settings, or another one, as the person sees it who runs this; with `make`, also a new one."""
    url = str(url or settings.store_url)
    if not make:
        require(url)
    who = principal(settings)
    store = open_store(url, options_of(settings))
    return Desk(store, who, through=through, audit=audit_of(store))
