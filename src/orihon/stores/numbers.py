"""The last number of a list, where nobody has counted."""

from __future__ import annotations

from orihon.records import Record
from orihon.stores.base import LISTS, Store


def newest(store: Store, uuid: str, kind: type[Record]) -> int:
    """The last number of a list; a broken line at the end does not hide it. 0 when there is none."""
    _, field = LISTS[kind]
    for first in (-1, -64, 1):
        found = max((getattr(record, field) for record in store.read(uuid, kind, first=first)), default=0)
        if found:
            return int(found)
    return 0
