"""The contract of `stores/base.py` as tests that any store can be held to.

A store's own test file is a few lines:

    class TestMine(StoreContract):
        def open(self, place: Path, options: Options) -> Store:
            return MyStore(place / "mine.db", options)

A store that outlives its process subclasses `DurableStoreContract`, which opens the same place again and looks.
"""

from __future__ import annotations

import base64
import threading
import uuid as uuids
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from orihon.errors import Conflict, LeaseHeld, LeaseLost, NotFound, UsageError
from orihon.records import Call, Message, Metadata, Part, ToolCall
from orihon.stores.base import LISTS, Lease, Options, Problem, Query, Store, Totals
from orihon.stores.blobs import MAX_INLINE_BYTES
from orihon.testing.interruption import InterruptionContract
from orihon.testing.machine import play
from orihon.testing.retention import RetentionContract
from orihon.testing.samples import TOKEN, a_message, a_task, one_of_each


class StoreContract(RetentionContract, InterruptionContract):
    """Subclass it, say how to open your store, and run pytest."""

    survives: ClassVar[bool] = False
    examples: ClassVar[int] = 25

    def open(self, place: Path, options: Options) -> Store:
        """Open the store that lives at this place."""
        raise NotImplementedError

    @pytest.fixture
    def problems(self) -> list[Problem]:
        """What the store reported."""
        return []

    @pytest.fixture
    def store(self, tmp_path: Path, problems: list[Problem]) -> Iterator[Store]:
        """An empty store."""
        with self.open(tmp_path, Options(report=problems.append)) as store:
            yield store

    @pytest.fixture
    def lease(self, store: Store) -> Lease:
        """The lease of a fresh task."""
        task = a_task()
        return store.lease(task.uuid, create=task)

    # records

    def test_records_of_every_kind_come_back(self, store: Store, lease: Lease) -> None:
        """What was appended is read back, numbered from 1 and dated."""
        for record in one_of_each():
            assert lease.append(record) == 1
            assert lease.append(record) == 2
            assert lease.last(type(record)) == 2
            read = list(store.read(lease.uuid, type(record)))
            assert [getattr(item, LISTS[type(record)][1]) for item in read] == [1, 2]
            assert all(item.timestamp for item in read)  # type: ignore[attr-defined]

    def test_a_message_is_kept_whole(self, store: Store, lease: Lease) -> None:
        """Every field, unknown ones included, is what it was; tokens are counted."""
        given = a_message("日本語\u2028\r\n😀", key="k", tool_name="t", model="m", unknown={"x": [1.5, None]})
        lease.append(given)
        (read,) = store.read(lease.uuid, Message)
        assert read == msgspec.structs.replace(given, seq=1, timestamp=read.timestamp, tokens=read.tokens)
        assert read.tokens > 0

    def test_what_is_given_is_not_stamped_over(self, store: Store, lease: Lease) -> None:
        """A copy keeps its number, its time and its tokens; numbers may leave a gap but never go back."""
        assert lease.append(a_message(seq=5, timestamp="2024-01-15T10:30:00.000000Z", tokens=7)) == 5
        assert lease.append(a_message()) == 6
        with pytest.raises(UsageError, match="newest one is 6"):
            lease.append(a_message(seq=6))
        first, second = store.read(lease.uuid, Message)
        assert (first.seq, first.timestamp, first.tokens, second.seq) == (5, "2024-01-15T10:30:00.000000Z", 7, 6)

    def test_ranges(self, store: Store, lease: Lease) -> None:
        """Reading starts and ends where it is told to; a negative start counts from the end."""
        for number in range(10):
            lease.append(a_message(f"m{number + 1}"))

        def numbers(**place: int) -> list[int]:
            return [message.seq for message in store.read(lease.uuid, Message, **place)]

        assert numbers() == list(range(1, 11))
        assert numbers(first=4, last=6) == [4, 5, 6]
        assert numbers(first=-3) == [8, 9, 10]
        assert numbers(first=-99) == list(range(1, 11))
        assert numbers(first=11) == []
        assert numbers(first=5, last=4) == []

    def test_a_key_stores_once(self, store: Store, lease: Lease) -> None:
        """A repeated append with the same key gives the first number and stores nothing."""
        assert lease.append(a_message("once", key="k1")) == 1
        assert lease.append(a_message("again", key="k1")) == 1
        lease.sync()
        assert lease.append(a_message("and again", key="k1")) == 1
        assert lease.append(a_message("other", key="k2")) == 2
        assert [message.content for message in store.read(lease.uuid, Message)] == ["once", "other"]

    def test_secrets_do_not_get_in(self, store: Store, lease: Lease) -> None:
        """The sanitiser stands before the store; a key that had to be masked is still the key of one message."""
        with store.lease((task := a_task(note=TOKEN)).uuid, create=task) as other:
            assert TOKEN not in str(next(store.read(other.uuid, Metadata)))
        said = a_message(f"use {TOKEN}", key=TOKEN, model=TOKEN, tool_name=TOKEN)
        assert lease.append(said) == lease.append(said) == 1
        lease.append(ToolCall(seq=0, tool="t", args={"t": TOKEN}, status="success", duration_ms=1, timestamp=""))
        (message,) = store.read(lease.uuid, Message)
        (tool,) = store.read(lease.uuid, ToolCall)
        assert message.content == "use [GITHUB_TOKEN]"
        assert message.masked
        assert TOKEN not in f"{message} {tool}"

    def test_rows_are_masked_and_checked(self, store: Store, lease: Lease) -> None:
        """A reason is text from outside; a status, a column or a number that means nothing is refused."""
        assert lease.update(error_message=f"bad {TOKEN}", reason="a\ud83d\0").error_message == "bad [GITHUB_TOKEN]"
        for wrong in ({"status": "weird"}, {"uuid": "../x"}, {"colour": 1}, {"total_tokens": 2**70}):
            with pytest.raises(UsageError):
                lease.update(**wrong)
        with pytest.raises(UsageError):
            lease.update(add={"total_tokens": 2**70})
        assert store.row(lease.uuid).status == "running"

    def test_what_could_not_be_read_is_not_acknowledged(self, store: Store, lease: Lease) -> None:
        """A record that no reader would take is refused, and so is what is not a record of a list."""
        for wrong in (a_message(role="wizard"), a_message(tokens=-5), a_message(seq=2**60), lease.metadata, "text"):
            with pytest.raises(UsageError):
                lease.append(wrong)  # type: ignore[arg-type]
        assert lease.append(a_message(tool_calls=[Call(id="\ud83d", name="f")])) == 1
        assert len(list(store.read(lease.uuid, Message))) == 1

    def test_a_task_is_made_under_its_own_name(self, store: Store) -> None:
        """An id that differs from the metadata's, or a counter that does not exist, makes nothing."""
        task = a_task()
        for wrong in (
            msgspec.structs.replace(task, uuid="other"),
            msgspec.structs.replace(task, config={"tokens": "x"}),
        ):
            with pytest.raises(UsageError):
                store.lease(task.uuid, create=wrong)
        assert list(store.find()) == []

    def test_odd_text_is_the_same_everywhere(self, store: Store, lease: Lease) -> None:
        """Surrogates and NUL are decided before any store sees them."""
        lease.append(a_message("a\ud83d\0b"))
        (message,) = store.read(lease.uuid, Message)
        assert (message.content, message.cleaned) == ("a\ufffd␀b", True)

    # blobs

    def test_blobs_come_back(self, store: Store, lease: Lease) -> None:
        """Bytes are kept by their name, once."""
        blob = lease.put(b"\x00\xff" * 1000)
        assert lease.put(b"\x00\xff" * 1000) == blob
        assert store.blob(lease.uuid, blob.sha256) == b"\x00\xff" * 1000
        with pytest.raises(NotFound):
            store.blob(lease.uuid, "0" * 64)

    def test_large_texts_and_pictures_live_in_blobs(self, store: Store, lease: Lease) -> None:
        """The line keeps a beginning and the name of the whole."""
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
        """A task that was made is running, and its row says what it works on."""
        row = store.row(lease.uuid)
        assert (row.status, row.task_key, row.user, row.model) == (
            "running",
            "github/acme/shop/issue/1",
            "alice",
            "gpt-4o",
        )
        assert row.key == lease.metadata.task_key
        assert next(store.read(lease.uuid, Metadata)) == lease.metadata

    def test_counters_are_added_to(self, store: Store, lease: Lease) -> None:
        """Statistics are increments."""
        lease.update(add={"llm_call_count": 1, "total_tokens": 100}, activity="processing")
        row = lease.update(add={"total_tokens": 23, "tool_call_count": 1})
        assert (row.llm_call_count, row.total_tokens, row.tool_call_count, row.activity) == (1, 123, 1, "processing")
        assert store.row(lease.uuid) == row

    @pytest.mark.parametrize("status", ["paused", "completed", "stopped", "failed", "pending"])
    def test_every_status_can_be_read_in(self, store: Store, lease: Lease, status: Any) -> None:
        """A task that was moved is still all there."""
        lease.append(a_message("before"))
        lease.update(status=status, reason="because")
        lease.append(a_message("after"))
        lease.close()
        row = store.row(lease.uuid)
        assert (row.status, row.reason) == (status, "because")
        assert [message.content for message in store.read(lease.uuid, Message)] == ["before", "after"]

    def test_what_a_task_hands_on_is_in_its_row(self, store: Store, lease: Lease) -> None:
        """Summary and outline are there when the task has ended, masked, and a change of one leaves the other."""
        lease.update(handoff=f'{{"plan": {{"goal": "日本語 {TOKEN}"}}}}', final_summary="done", status="completed")
        lease.update(final_summary="done, really")
        lease.close()
        row = store.row(lease.uuid)
        assert (row.handoff, row.final_summary) == ('{"plan": {"goal": "日本語 [GITHUB_TOKEN]"}}', "done, really")

    def test_queries(self, store: Store) -> None:
        """Rows are found by every condition, the newest first, in pages."""
        tasks = [a_task(number, user=user) for number, user in ((1, "alice"), (1, "bob"), (2, "alice"))]
        for task in tasks:
            store.lease(task.uuid, create=task).close()
        with store.lease(tasks[0].uuid) as lease:
            linked = "github/acme/shop/pull_request/7"
            lease.update(status="completed", completed_at="2024-01-15T00:00:00.000000Z", linked_key=linked)

        def found(**conditions: Any) -> list[int]:
            rows = store.find(Query(**conditions))
            return [next(place for place, task in enumerate(tasks) if task.uuid == row.uuid) for row in rows]

        assert found() == [2, 1, 0]
        assert found(user="alice") == [2, 0]
        assert found(status=("completed",)) == [0]
        assert found(status=("completed", "running"), limit=2) == [2, 1]
        assert found(limit=2, offset=2) == [0]
        assert found(key="github/acme/shop/issue/1") == [1, 0]
        assert found(linked="github/acme/shop/pull_request/7") == [0]
        assert found(linked="github/acme/shop/issue/1") == []
        assert found(linked="github/acme/shop/pull_request/7", key="github/acme/shop/issue/2") == []
        assert found(uuid=tasks[1].uuid[:13]) == [1]
        assert found(created_from=tasks[1].created_at) == [2, 1]
        assert found(created_to=tasks[1].created_at) == [1, 0]
        assert found(completed_from="2024-01-01") == [0]
        assert found(completed_from="2024-02-01") == []
        assert found(user="x' OR '1'='1") == []

    def test_orders(self, store: Store) -> None:
        """The longest, the most expensive first; those of one rank, or without one, the newest first."""
        tasks = [a_task(number + 1) for number in range(4)]
        for place, (task, tokens) in enumerate(zip(tasks, (5, 9, 5, 0), strict=True)):
            with store.lease(task.uuid, create=task) as lease:
                ended = {"completed_at": f"2024-01-15T00:0{4 - place}:00.000000Z"} if place < 3 else {}
                lease.update(add={"total_tokens": tokens}, started_at="2024-01-15T00:00:00.000000Z", **ended)

        def found(**conditions: Any) -> list[int]:
            return [[task.uuid for task in tasks].index(row.uuid) for row in store.find(Query(**conditions))]

        assert found(order="tokens") == [1, 2, 0, 3]
        assert found(order="tokens", limit=2, offset=1) == [2, 0]
        assert found(order="duration") == [0, 1, 2, 3]
        assert found(order="calls", kept=False) == [3, 2, 1, 0]
        assert found(kept=True) == []

    def test_what_is_appended_is_counted(self, store: Store, lease: Lease) -> None:
        """Messages, bytes and summaries are in the row after its next change, and in the totals of all rows."""
        for record in one_of_each():
            lease.append(record)
        lease.append(a_message("x" * (MAX_INLINE_BYTES + 1)))
        row = lease.update(activity="processing", started_at="2024-01-15T00:00:00.000000Z")
        assert lease.update(activity="", completed_at="2024-01-15T00:01:30.000000Z").size_bytes == row.size_bytes
        assert (row.message_count, row.summary_count, row.summarised_tokens, row.summary_tokens) == (2, 1, 9, 3)
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
        """A second writer is told who has the task; a free lease can be taken, with a higher fence."""
        with pytest.raises(LeaseHeld, match="process"):
            store.lease(lease.uuid)
        with pytest.raises(LeaseHeld):
            store.delete(lease.uuid)
        lease.close()
        with store.lease(lease.uuid) as second:
            assert second.fence > lease.fence
            assert second.last(Message) == 0

    def test_a_closed_lease_writes_nothing(self, store: Store, lease: Lease) -> None:
        """Whoever gave the task back cannot write it any more, nor harm the next one by closing twice."""
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

    def test_threads_share_a_lease(self, store: Store, lease: Lease) -> None:
        """Appends from several threads give every number once."""
        threads = [
            threading.Thread(target=lambda: [lease.append(a_message("x" * 99)) for _ in range(25)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [message.seq for message in store.read(lease.uuid, Message)] == list(range(1, 101))

    # what is not there

    def test_nothing_is_made_by_looking(self, store: Store) -> None:
        """A task that does not exist cannot be read, leased or deleted, and one that exists cannot be made again."""
        nobody = str(uuids.uuid4())
        for look in (
            lambda: list(store.read(nobody, Message)),
            lambda: store.lease(nobody),
            lambda: store.delete(nobody),
            lambda: store.row(nobody),
            lambda: store.blob(nobody, "0" * 64),
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
        """An id from outside is checked before it is used for anything."""
        with pytest.raises((NotFound, UsageError)):
            list(store.read(uuid, Message))
        with pytest.raises(UsageError):
            store.lease(uuid, create=msgspec.structs.replace(a_task(), uuid=uuid))
        assert list(store.find()) == []

    def test_any_sequence_of_calls(self) -> None:
        """Whatever is called in whatever order, the store says what a plain model says."""
        play(lambda place: self.open(place, Options()), reopens=self.survives, examples=self.examples)


class DurableStoreContract(StoreContract):
    """For stores that outlive the process."""

    survives = True

    def test_everything_survives_a_reopen(self, tmp_path: Path) -> None:
        """Another process finds lists, numbers, keys, rows, blobs and fences as they were left."""
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
            again = store.row(task.uuid)
            assert (again.status, again.total_tokens, again.created_at) == ("paused", 5, row.created_at)
            with store.lease(task.uuid) as lease:
                assert lease.fence > fence
                assert lease.append(a_message("keyed", key="k")) == 2
                assert lease.append(a_message("new")) == 3
