"""The contract of `stores/base.py` as a test suite that every store must pass.

The test file of a store is a few lines:

    class TestMyStore(StoreContract):
        def open(self, path: Path, options: Options) -> Store:
            return MyStore(path / "mine.db", options)

The test of a store that outlives its process subclasses `DurableStoreContract`, which also reopens the store.
"""

from __future__ import annotations

import base64
import uuid as uuids
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orihon.errors import Conflict, LeaseHeld, LeaseLost, NotFound, UsageError
from orihon.ingest import MAX_INLINE_BYTES
from orihon.records import Call, Message, Metadata, Part, ToolCall
from orihon.stores.base import LISTS, Lease, Options, Problem, Query, Store, Totals
from orihon.testing.samples import TOKEN, a_message, a_task, one_of_each


class StoreContract:
    """Tests for every store. Subclass it, implement `open`, and run pytest."""

    def open(self, path: Path, options: Options) -> Store:
        """Open the store in this directory."""
        raise NotImplementedError

    @pytest.fixture
    def problems(self) -> list[Problem]:
        """The problems that the store reported."""
        return []

    @pytest.fixture
    def store(self, tmp_path: Path, problems: list[Problem]) -> Iterator[Store]:
        """An empty store."""
        with self.open(tmp_path, Options(report=problems.append)) as store:
            yield store

    @pytest.fixture
    def lease(self, store: Store) -> Lease:
        """The lease of a new task."""
        task = a_task()
        return store.lease(task.uuid, create=task)

    # records

    def test_records_of_every_kind_come_back(self, store: Store, lease: Lease) -> None:
        """Appended records are read back with numbers from 1 and timestamps."""
        for record in one_of_each():
            assert lease.append(record) == 1
            assert lease.append(record) == 2
            assert lease.last(type(record)) == 2
            read = list(store.read(lease.uuid, type(record)))
            assert [getattr(item, LISTS[type(record)][1]) for item in read] == [1, 2]
            assert all(item.timestamp for item in read)  # type: ignore[attr-defined]

    def test_a_message_is_kept_whole(self, store: Store, lease: Lease) -> None:
        """Every field comes back unchanged, including unknown ones; tokens are counted."""
        message = a_message("日本語\u2028\r\n😀", key="k", tool_name="t", model="m", unknown={"x": [1.5, None]})
        lease.append(message)
        (read,) = store.read(lease.uuid, Message)
        assert read == msgspec.structs.replace(message, seq=1, timestamp=read.timestamp, tokens=read.tokens)
        assert read.tokens > 0

    def test_set_fields_are_not_overwritten(self, store: Store, lease: Lease) -> None:
        """A copy keeps its number, timestamp and tokens; numbers may have gaps but never decrease."""
        assert lease.append(a_message(seq=5, timestamp="2024-01-15T10:30:00.000000Z", tokens=7)) == 5
        assert lease.append(a_message()) == 6
        with pytest.raises(UsageError, match="newest one is 6"):
            lease.append(a_message(seq=6))
        first, second = store.read(lease.uuid, Message)
        assert (first.seq, first.timestamp, first.tokens, second.seq) == (5, "2024-01-15T10:30:00.000000Z", 7, 6)

    def test_ranges(self, store: Store, lease: Lease) -> None:
        """`first` and `last` limit the range; a negative `first` counts from the end."""
        for number in range(10):
            lease.append(a_message(f"m{number + 1}"))

        def numbers(**limits: int) -> list[int]:
            return [message.seq for message in store.read(lease.uuid, Message, **limits)]

        assert numbers() == list(range(1, 11))
        assert numbers(first=4, last=6) == [4, 5, 6]
        assert numbers(first=-3) == [8, 9, 10]
        assert numbers(first=-99) == list(range(1, 11))
        assert numbers(first=11) == []
        assert numbers(first=5, last=4) == []

    def test_a_key_stores_once(self, store: Store, lease: Lease) -> None:
        """A repeated append with the same key returns the first number and stores nothing."""
        assert lease.append(a_message("once", key="k1")) == 1
        assert lease.append(a_message("again", key="k1")) == 1
        lease.sync()
        assert lease.append(a_message("and again", key="k1")) == 1
        assert lease.append(a_message("other", key="k2")) == 2
        assert [message.content for message in store.read(lease.uuid, Message)] == ["once", "other"]

    def test_secrets_are_not_stored(self, store: Store, lease: Lease) -> None:
        """Secrets are masked before they are stored; a masked key still identifies one message."""
        with store.lease((task := a_task(note=TOKEN)).uuid, create=task) as other:
            assert TOKEN not in str(next(store.read(other.uuid, Metadata)))
        message = a_message(f"use {TOKEN}", key=TOKEN, model=TOKEN, tool_name=TOKEN)
        assert lease.append(message) == lease.append(message) == 1
        lease.append(ToolCall(seq=0, tool="t", args={"t": TOKEN}, status="success", duration_ms=1, timestamp=""))
        (stored,) = store.read(lease.uuid, Message)
        (tool,) = store.read(lease.uuid, ToolCall)
        assert (stored.content, stored.masked) == ("use [GITHUB_TOKEN]", True)
        assert TOKEN not in f"{stored} {tool}"

    def test_rows_are_masked_and_checked(self, store: Store, lease: Lease) -> None:
        """Texts are masked; an unknown status or column and a number out of range are refused."""
        assert lease.update(error_message=f"bad {TOKEN}", reason="a\ud83d\0").error_message == "bad [GITHUB_TOKEN]"
        for wrong in ({"status": "weird"}, {"uuid": "../x"}, {"colour": 1}, {"total_tokens": 2**70}):
            with pytest.raises(UsageError):
                lease.update(**wrong)
        with pytest.raises(UsageError):
            lease.update(add={"total_tokens": 2**70})
        assert store.row(lease.uuid).status == "running"
        assert lease.read_row() == store.row(lease.uuid)

    def test_invalid_records_are_refused(self, store: Store, lease: Lease) -> None:
        """A record that a reader would reject is refused, and so is a value that is not a record of a list."""
        for wrong in (a_message(role="wizard"), a_message(tokens=-5), a_message(seq=2**60), lease.metadata, "text"):
            with pytest.raises(UsageError):
                lease.append(wrong)  # type: ignore[arg-type]
        assert lease.append(a_message(tool_calls=[Call(id="\ud83d", name="f")])) == 1
        assert len(list(store.read(lease.uuid, Message))) == 1

    def test_invalid_metadata_creates_no_task(self, store: Store) -> None:
        """An id that differs from that of the metadata, or an unknown token counter, creates nothing."""
        task = a_task()
        for wrong in (
            msgspec.structs.replace(task, uuid="other"),
            msgspec.structs.replace(task, config={"tokens": "x"}),
        ):
            with pytest.raises(UsageError):
                store.lease(task.uuid, create=wrong)
        assert list(store.find()) == []

    def test_invalid_characters_are_replaced(self, store: Store, lease: Lease) -> None:
        """Lone surrogates and NUL are replaced before the text is stored."""
        lease.append(a_message("a\ud83d\0b"))
        (message,) = store.read(lease.uuid, Message)
        assert (message.content, message.cleaned) == ("a\ufffd␀b", True)

    # blobs

    def test_blobs_come_back(self, store: Store, lease: Lease) -> None:
        """Bytes are stored once, under their hash."""
        blob = lease.put(b"\x00\xff" * 1000)
        assert lease.put(b"\x00\xff" * 1000) == blob
        assert store.blob(lease.uuid, blob.sha256) == b"\x00\xff" * 1000
        with pytest.raises(NotFound):
            store.blob(lease.uuid, "0" * 64)

    def test_large_texts_and_pictures_are_stored_as_blobs(self, store: Store, lease: Lease) -> None:
        """The record keeps the beginning of the text and the hash of the blob."""
        text, picture = "0123456789" * (MAX_INLINE_BYTES // 5), b"\x89PNG" * 100
        data = base64.b64encode(picture).decode()
        lease.append(a_message(text))
        lease.append(a_message([Part(type="image", media_type="image/png", data=data), Part(type="text", text=text)]))
        long, parts = store.read(lease.uuid, Message)
        assert long.blob
        assert text.startswith(long.text)
        assert store.blob(lease.uuid, long.blob.sha256).decode() == text
        assert long.tokens > MAX_INLINE_BYTES // 16
        assert isinstance(parts.content, list)
        image, words = parts.content
        assert image.blob
        assert image.data is None
        assert store.blob(lease.uuid, image.blob.sha256) == picture
        assert words.blob == long.blob

    # rows

    def test_the_row_of_a_new_task(self, store: Store, lease: Lease) -> None:
        """A new task is running, and its row holds its key, user and model."""
        row = store.row(lease.uuid)
        assert (row.status, row.task_key) == ("running", "github/acme/shop/issue/1")
        assert (row.user, row.model) == ("alice", "gpt-4o")
        assert row.key == lease.metadata.task_key
        assert next(store.read(lease.uuid, Metadata)) == lease.metadata

    def test_counters_are_added_to(self, store: Store, lease: Lease) -> None:
        """Counters are changed by increments."""
        lease.update(add={"llm_call_count": 1, "total_tokens": 100}, activity="processing")
        row = lease.update(add={"total_tokens": 23, "tool_call_count": 1})
        assert (row.llm_call_count, row.total_tokens, row.tool_call_count, row.activity) == (1, 123, 1, "processing")
        assert store.row(lease.uuid) == row

    @pytest.mark.parametrize("status", ["paused", "completed", "stopped", "failed", "pending"])
    def test_a_task_is_readable_in_every_status(self, store: Store, lease: Lease, status: Any) -> None:
        """A change of status loses no record."""
        lease.append(a_message("before"))
        lease.update(status=status, reason="because")
        lease.append(a_message("after"))
        lease.close()
        row = store.row(lease.uuid)
        assert (row.status, row.reason) == (status, "because")
        assert [message.content for message in store.read(lease.uuid, Message)] == ["before", "after"]

    def test_the_row_holds_summary_and_outline(self, store: Store, lease: Lease) -> None:
        """Summary and outline outlast the end of the task, masked; a change to one leaves the other."""
        lease.update(handoff=f'{{"plan": {{"goal": "日本語 {TOKEN}"}}}}', final_summary="done", status="completed")
        lease.update(final_summary="done, really")
        lease.close()
        row = store.row(lease.uuid)
        assert (row.handoff, row.final_summary) == ('{"plan": {"goal": "日本語 [GITHUB_TOKEN]"}}', "done, really")

    def test_queries(self, store: Store) -> None:
        """Every condition selects rows, newest first, in pages."""
        tasks = [a_task(number, user=user) for number, user in ((1, "alice"), (1, "bob"), (2, "alice"))]
        for task in tasks:
            store.lease(task.uuid, create=task).close()
        with store.lease(tasks[0].uuid) as lease:
            linked = "github/acme/shop/pull_request/7"
            lease.update(status="completed", completed_at="2024-01-15T00:00:00.000000Z", linked_key=linked)

        def find(**conditions: Any) -> list[int]:
            return [[task.uuid for task in tasks].index(row.uuid) for row in store.find(Query(**conditions))]

        assert find() == [2, 1, 0]
        assert find(user="alice") == [2, 0]
        assert find(status=("completed",)) == [0]
        assert find(status=("completed", "running"), limit=2) == [2, 1]
        assert find(limit=2, offset=2) == [0]
        assert find(key="github/acme/shop/issue/1") == [1, 0]
        assert find(linked="github/acme/shop/pull_request/7") == [0]
        assert find(linked="github/acme/shop/issue/1") == []
        assert find(linked="github/acme/shop/pull_request/7", key="github/acme/shop/issue/2") == []
        assert find(uuid=tasks[1].uuid[:13]) == [1]
        assert find(created_from=tasks[1].created_at) == [2, 1]
        assert find(created_to=tasks[1].created_at) == [1, 0]
        assert find(completed_from="2024-01-01") == [0]
        assert find(completed_from="2024-02-01") == []
        assert find(user="x' OR '1'='1") == []

    def test_orders(self, store: Store) -> None:
        """The largest value comes first; among equal values, the newest task."""
        tasks = [a_task(number + 1) for number in range(4)]
        for index, (task, tokens) in enumerate(zip(tasks, (5, 9, 5, 0), strict=True)):
            with store.lease(task.uuid, create=task) as lease:
                ended = {"completed_at": f"2024-01-15T00:0{4 - index}:00.000000Z"} if index < 3 else {}
                lease.update(add={"total_tokens": tokens}, started_at="2024-01-15T00:00:00.000000Z", **ended)

        def find(**conditions: Any) -> list[int]:
            return [[task.uuid for task in tasks].index(row.uuid) for row in store.find(Query(**conditions))]

        assert find(order="tokens") == [1, 2, 0, 3]
        assert find(order="tokens", limit=2, offset=1) == [2, 0]
        assert find(order="duration") == [0, 1, 2, 3]
        assert find(order="calls", kept=False) == [3, 2, 1, 0]
        assert find(kept=True) == []

    def test_appended_records_are_counted(self, store: Store, lease: Lease) -> None:
        """The next change of the row includes the counts of messages, bytes and summaries, and so do the totals."""
        for record in one_of_each():
            lease.append(record)
        lease.append(a_message("x" * (MAX_INLINE_BYTES + 1)))
        row = lease.update(activity="processing", started_at="2024-01-15T00:00:00.000000Z")
        assert lease.update(activity="", completed_at="2024-01-15T00:01:30.000000Z").size_bytes == row.size_bytes
        assert (row.message_count, row.summary_count, row.summarised_tokens, row.summary_tokens) == (2, 1, 9, 3)
        assert (row.retention_count, row.retention_sum) == (1, 7500)
        assert MAX_INLINE_BYTES < row.size_bytes < MAX_INLINE_BYTES + 5000
        other = a_task(2, user="bob")
        store.lease(other.uuid, create=other).close()
        totals = store.totals(Query(), "user")
        assert {user: sums.tasks for user, sums in totals.items()} == {"alice": 1, "bob": 1}
        alice = totals["alice"]
        assert (alice.messages, alice.size_bytes, alice.packed_bytes) == (2, row.size_bytes, row.size_bytes)
        assert (alice.timed, round(alice.seconds, 3), alice.summaries) == (1, 90, 1)
        assert store.totals(Query(user="bob"), "status") == {"running": Totals(tasks=1)}
        assert sum(sums.tasks for sums in store.totals(Query(), "day").values()) == 2

    # leases

    def test_one_writer(self, store: Store, lease: Lease) -> None:
        """A second writer gets LeaseHeld; a closed lease can be taken again, with a higher fence."""
        with pytest.raises(LeaseHeld, match="process"):
            store.lease(lease.uuid)
        with pytest.raises(LeaseHeld):
            store.delete(lease.uuid)
        lease.close()
        with store.lease(lease.uuid) as second:
            assert second.fence > lease.fence
            assert second.last(Message) == 0

    def test_a_closed_lease_writes_nothing(self, store: Store, lease: Lease) -> None:
        """A closed lease refuses to write, and closing it twice does not affect the next lease."""
        lease.append(a_message())
        lease.close()
        for write in (
            lambda: lease.append(a_message("late")),
            lambda: lease.put(b"late"),
            lambda: lease.update(activity="processing"),
            lease.sync,
        ):
            with pytest.raises(LeaseLost):
                write()
        with store.lease(lease.uuid) as second:
            lease.close()
            second.append(a_message("next"))
        assert [message.content for message in store.read(lease.uuid, Message)] == ["hello", "next"]

    def test_a_suspended_lease_is_free(self, store: Store, lease: Lease) -> None:
        """Any process can take a suspended lease; its holder can take it again only if no other process did."""
        lease.append(a_message("one"))
        for text in ("two", "three"):
            lease.suspend()
            with pytest.raises(LeaseLost):
                lease.append(a_message("too late"))
            if not lease.retake():  # a store need not be able to
                lease.close()
                lease = store.lease(lease.uuid)
            lease.append(a_message(text))
        assert lease.fence == store.row(lease.uuid).fence
        lease.suspend()
        with store.lease(lease.uuid) as other:
            other.append(a_message("four"))
        assert not lease.retake()
        with pytest.raises(LeaseLost):
            lease.append(a_message("too late"))
        lease.close()
        assert [message.content for message in store.read(lease.uuid, Message)] == ["one", "two", "three", "four"]

    def test_threads_share_a_lease(self, store: Store, lease: Lease) -> None:
        """Appends from several threads use every number once."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: [lease.append(a_message("x" * 99)) for _ in range(25)], range(4)))
        assert [message.seq for message in store.read(lease.uuid, Message)] == list(range(1, 101))

    # missing tasks

    def test_missing_tasks_are_not_created(self, store: Store) -> None:
        """A missing task cannot be read, leased or deleted; an existing task cannot be created again."""
        missing = str(uuids.uuid4())
        for look in (
            lambda: list(store.read(missing, Message)),
            lambda: store.lease(missing),
            lambda: store.delete(missing),
            lambda: store.row(missing),
            lambda: store.blob(missing, "0" * 64),
        ):
            with pytest.raises(NotFound):
                look()
        task = a_task()
        store.lease(task.uuid, create=task).close()
        with pytest.raises(Conflict):
            store.lease(task.uuid, create=task)
        assert len(list(store.find())) == 1

    @pytest.mark.parametrize("uuid", ["", "..", "../x", "a/b", "x\0y", "x" * 300, "%", "*", ".hidden", "\uff55uid"])
    def test_hostile_ids_touch_nothing(self, store: Store, uuid: str) -> None:
        """An id is validated before it is used."""
        with pytest.raises((NotFound, UsageError)):
            list(store.read(uuid, Message))
        with pytest.raises(UsageError):
            store.lease(uuid, create=msgspec.structs.replace(a_task(), uuid=uuid))
        assert list(store.find()) == []

    # deletion and archives

    def test_delete(self, store: Store, lease: Lease) -> None:
        """Deleting a task removes its row and its records."""
        lease.append(a_message())
        lease.close()
        store.delete(lease.uuid)
        assert list(store.find()) == []
        with pytest.raises(NotFound):
            list(store.read(lease.uuid, Message))

    def test_a_stub_keeps_metadata_and_row(self, store: Store, lease: Lease) -> None:
        """A stub keeps what a later task inherits, loses lists and blobs, and can be written again."""
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

    def test_a_changed_task_is_not_removed(self, store: Store, lease: Lease) -> None:
        """A task that was kept or resumed after its row was read is not deleted."""
        lease.update(status="completed")
        lease.close()
        row = store.row(lease.uuid)
        with store.lease(lease.uuid) as again:
            again.update(kept=True)
        for stub in (False, True):
            with pytest.raises(Conflict, match="since"):
                store.delete(lease.uuid, fence=row.fence, stub=stub)
        assert store.row(lease.uuid).archived == ""
        store.delete(lease.uuid, fence=store.row(lease.uuid).fence)
        assert list(store.find()) == []

    def test_an_archive_reads_like_the_task(self, store: Store, lease: Lease) -> None:
        """An archive keeps every record and blob; a store without archives refuses."""
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


class DurableStoreContract(StoreContract):
    """Tests for a store that outlives its process."""

    def test_everything_survives_a_reopen(self, tmp_path: Path) -> None:
        """Lists, numbers, keys, rows, blobs and fences are unchanged after a reopen."""
        task = a_task()
        with self.open(tmp_path, Options()) as store, store.lease(task.uuid, create=task) as lease:
            for record in one_of_each():
                lease.append(record)
            lease.append(a_message("keyed", key="k"))
            blob = lease.put(b"blob")
            row = lease.update(status="paused", add={"total_tokens": 5})
            fence = lease.fence
        with self.open(tmp_path, Options()) as store:
            assert [len(list(store.read(task.uuid, type(record)))) for record in one_of_each()] == [2, 1, 1, 1, 1, 1]
            assert store.blob(task.uuid, blob.sha256) == b"blob"
            reopened = store.row(task.uuid)
            assert (reopened.status, reopened.total_tokens, reopened.created_at) == ("paused", 5, row.created_at)
            with store.lease(task.uuid) as lease:
                assert lease.fence > fence
                assert lease.append(a_message("keyed", key="k")) == 2
                assert lease.append(a_message("new")) == 3
