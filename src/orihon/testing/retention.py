"""The part of the contract that care of a store needs: stubs, archives, and nothing removed that changed meanwhile."""

from __future__ import annotations

import pytest

from orihon.errors import Conflict, NotFound, UsageError
from orihon.records import Message, Metadata
from orihon.stores.base import LISTS, Lease, Store
from orihon.testing.samples import a_message, one_of_each


class RetentionContract:
    """What `StoreContract` asks of `delete` and `archive`."""

    def test_delete(self, store: Store, lease: Lease) -> None:
        """A deleted task is gone whole."""
        lease.append(a_message())
        lease.close()
        store.delete(lease.uuid)
        assert list(store.find()) == []
        with pytest.raises(NotFound):
            list(store.read(lease.uuid, Message))

    def test_a_stub_keeps_what_a_later_task_inherits(self, store: Store, lease: Lease) -> None:
        """Metadata and row stay; lists and blobs are gone, and the task can be written again."""
        sha256 = lease.put(b"blob").sha256
        for record in one_of_each():
            lease.append(record)
        lease.update(status="completed", final_summary="done", handoff="{}")
        lease.close()
        store.delete(lease.uuid, stub=True)
        row = store.row(lease.uuid)
        assert (row.status, row.archived, row.final_summary, row.handoff) == ("completed", "stub", "done", "{}")
        assert list(store.read(lease.uuid, Metadata)) == [lease.metadata]
        for record in one_of_each():
            assert list(store.read(lease.uuid, type(record))) == []
        with pytest.raises(NotFound):
            store.blob(lease.uuid, sha256)
        with store.lease(lease.uuid) as again:
            assert again.append(a_message("again")) == 1
            again.update(archived="")
        store.delete(lease.uuid)
        assert list(store.find()) == []

    def test_what_changed_since_it_was_looked_at_is_not_removed(self, store: Store, lease: Lease) -> None:
        """Whoever keeps or resumes a task gets ahead of whoever wants to remove it."""
        lease.update(status="completed")
        lease.close()
        seen = store.row(lease.uuid)
        with store.lease(lease.uuid) as again:
            again.update(kept=True)
        for stub in (False, True):
            with pytest.raises(Conflict, match="since"):
                store.delete(lease.uuid, fence=seen.fence, stub=stub)
        assert store.row(lease.uuid).archived == ""
        store.delete(lease.uuid, fence=store.row(lease.uuid).fence)
        assert list(store.find()) == []

    def test_an_archive_reads_like_the_task(self, store: Store, lease: Lease) -> None:
        """A store that archives keeps every record and blob; another one says that it does not."""
        sha256 = lease.put(b"text " * 1000).sha256
        for record in one_of_each():
            lease.append(record)
        lease.update(status="completed")
        lease.close()
        before = {kind: list(store.read(lease.uuid, kind)) for kind in LISTS}
        fence = store.row(lease.uuid).fence
        if not store.archives:
            with pytest.raises(UsageError, match="compress"):
                store.archive(lease.uuid, fence=fence)
            return
        with pytest.raises(Conflict):
            store.archive(lease.uuid, fence=fence - 1)
        store.archive(lease.uuid, fence=fence)
        assert store.row(lease.uuid).archived == "gzip"
        assert {kind: list(store.read(lease.uuid, kind)) for kind in LISTS} == before
        assert store.blob(lease.uuid, sha256) == b"text " * 1000
        with store.lease(lease.uuid) as again:
            again.update(kept=True)
            assert store.row(lease.uuid).archived == "gzip"
            assert again.append(a_message("more")) == 2
        assert store.row(lease.uuid).archived == ""
