"""`keep(desk, uuid)`: a task that is never cleaned, however old it gets and however full the disk."""

from __future__ import annotations

from orihon.errors import LeaseHeld
from orihon.ops.access import Desk
from orihon.records import TaskRow


def keep(desk: Desk, uuid: str, *, kept: bool = True) -> TaskRow:
    """Keep a task, or no longer; its row as it is then. A compressed one stays compressed."""
    row = desk.row(uuid)
    desk.looked("task", uuid=row.uuid, read=["row"])
    if row.kept == kept:
        return row
    try:
        with desk.store.lease(row.uuid) as lease:
            return lease.update(kept=kept)
    except LeaseHeld as error:
        raise LeaseHeld(
            f"{error.message} Nothing was changed.",
            owner=error.owner,
            hint="Try again when it has ended; while somebody writes it, it is not cleaned.",
        ) from error
