"""Properties that the stores of this project have in addition to the public contract.

A test class inherits from `StoreProperties` and from `StoreContract`, which opens the store.
"""

import gc
import itertools
import tempfile
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orihon import codec
from orihon.records import Message
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task, one_of_each
from support.interrupts import interrupted

RECORDS = st.one_of(
    st.builds(a_message, st.text(max_size=50).map(codec.clean_text), key=st.none() | st.sampled_from("abc")),
    st.sampled_from(one_of_each()[1:]),
)
VERBS = {
    "append": lambda lease: lease.append(a_message("once", key="k")),
    "sync": lambda lease: lease.sync(),
    "update": lambda lease: lease.update(activity="processing"),
}


class StoreProperties:
    """Any sequence of calls gives what a model in plain lists gives, and Ctrl-C at any step breaks nothing."""

    survives = True  # whether the store can be closed and opened again
    examples = 25

    def test_any_sequence_of_calls(self):
        """A store and a model in plain lists agree after every call."""

        class Machine(StoreMachine):
            reopens = self.survives

            def open_store(machine):  # noqa: N805 - `self` is the test
                return self.open(machine.path, Options(durability="os"))  # readers do not see what is synced

        checks = settings(
            max_examples=self.examples, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        )
        run_state_machine_as_test(Machine, settings=checks)

    @pytest.mark.filterwarnings("ignore:.*was deleted while still open")  # an abandoned connection does no harm
    @pytest.mark.parametrize("verb", VERBS)
    def test_interrupted_at_any_step_it_goes_on(self, tmp_path, verb):
        """A call that Ctrl-C interrupted can be repeated, takes effect once, and the lease can be closed."""
        store = self.open(tmp_path, Options(durability="turn" if verb == "sync" else "os"))  # the others do not sync
        for step in itertools.count(1):
            task = a_task()
            lease = store.lease(task.uuid, create=task)
            trouble = interrupted(partial(VERBS[verb], lease), step)
            VERBS[verb](lease)
            lease.append(a_message("next"))
            lease.close()
            contents = [message.content for message in store.read(task.uuid, Message)]
            assert contents == ["once", "next"][verb != "append" :], f"interrupted at step {step}"
            row = store.row(task.uuid)
            assert (row.lease_owner, row.activity == "processing") == (None, verb == "update")
            if trouble is None:
                break
        assert step > 1
        gc.collect()  # collecting the interrupted frames does no harm
        store.lease(task.uuid).append(a_message("last"))
        store.close()


class StoreMachine(RuleBasedStateMachine):
    """One task in a store, and the same task in a dictionary of lists."""

    reopens = True

    def open_store(self):
        raise NotImplementedError

    @initialize()
    def start(self):
        """Create a task in a new store."""
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.store = self.open_store()
        self.task = a_task()
        self.lease = self.store.lease(self.task.uuid, create=self.task)
        self.lists = {type(record): [] for record in one_of_each()}
        self.keys = {}
        self.tokens = 0

    @precondition(lambda self: self.lease)
    @rule(record=RECORDS)
    def append(self, record):
        """A record gets the next number; a known key gets its old number."""
        key = getattr(record, "key", None)
        records = self.lists[type(record)]
        expected = self.keys.get(key or "", len(records) + 1)
        assert self.lease.append(record) == expected
        if expected > len(records):
            records.append(record)
            if key:
                self.keys[key] = expected

    @precondition(lambda self: self.lease)
    @rule(status=st.sampled_from(["running", "paused", "completed", "failed"]), more=st.integers(0, 9))
    def update(self, status, more):
        """The row holds the new status and the sum of the tokens."""
        self.tokens += more
        row = self.lease.update(status=status, add={"total_tokens": more})
        assert (row.status, row.total_tokens) == (status, self.tokens)

    @precondition(lambda self: self.lease)
    @rule()
    def sync(self):
        """Syncing changes nothing for a reader."""
        self.lease.sync()

    @rule()
    def hand_over(self):
        """Close the lease, or take it."""
        if self.lease is None:
            self.lease = self.store.lease(self.task.uuid)
        else:
            self.lease.close()
            self.lease = None

    @precondition(lambda self: self.reopens)
    @rule()
    def reopen(self):
        """Close the store and open it again, as another process would."""
        if self.lease is not None:
            self.lease.close()
        self.store.close()
        self.store = self.open_store()
        self.lease = self.store.lease(self.task.uuid)

    @invariant()
    def agree(self):
        """Readers see what the model holds."""
        if not hasattr(self, "store"):
            return
        for kind, records in self.lists.items():
            expected = [strip_stamps(record) for record in records]
            assert [strip_stamps(record) for record in self.store.read(self.task.uuid, kind)] == expected
            newest = [strip_stamps(record) for record in self.store.read(self.task.uuid, kind, first=-2)]
            assert newest == expected[-2:]
        assert self.store.row(self.task.uuid).total_tokens == self.tokens

    def teardown(self):
        """Close the store and remove its directory."""
        if hasattr(self, "store"):
            if self.lease is not None:
                self.lease.close()
            self.store.close()
            self.folder.cleanup()


def strip_stamps(record):
    """Return the fields of a record without those that the store assigns."""
    fields = msgspec.structs.asdict(record)
    return {name: value for name, value in fields.items() if name not in {"seq", "id", "timestamp", "tokens"}}
