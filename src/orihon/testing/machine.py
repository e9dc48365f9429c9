"""One task in a store beside one in a dictionary of lists, and any sequence of calls on both."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
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
from orihon.records import Record
from orihon.stores.base import Lease, Store
from orihon.testing.samples import a_message, a_task, one_of_each

_records = st.one_of(
    st.builds(a_message, st.text(max_size=50).map(codec.clean_text), key=st.none() | st.sampled_from("abc")),
    st.sampled_from(one_of_each()[1:]),
)


def play(opened: Callable[[Path], Store], *, reopens: bool, examples: int) -> None:
    """Play any sequence of calls against a plain model, and compare everything that can be read."""

    class Machine(_Machine):
        def opened(self) -> Store:
            return opened(self.place)

    Machine.reopens = reopens
    checks = settings(
        max_examples=examples, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(Machine, settings=checks)


class _Machine(RuleBasedStateMachine):
    """One task in the store beside one in a dictionary of lists."""

    reopens = True

    def opened(self) -> Store:
        raise NotImplementedError

    @initialize()
    def start(self) -> None:
        """Make a task in a new place."""
        self.folder = tempfile.TemporaryDirectory()
        self.place = Path(self.folder.name)
        self.store = self.opened()
        self.task = a_task()
        self.held: Lease | None = self.store.lease(self.task.uuid, create=self.task)
        self.lists: dict[type[Record], list[Any]] = {type(record): [] for record in one_of_each()}
        self.keys: dict[str, int] = {}
        self.tokens = 0

    @precondition(lambda self: self.held)
    @rule(record=_records)
    def append(self, record: Any) -> None:
        """A record gets the next number, a known key the old one."""
        expected = self.keys.get(getattr(record, "key", None) or "", len(self.lists[type(record)]) + 1)
        assert self.held
        assert self.held.append(record) == expected
        if expected > len(self.lists[type(record)]):
            self.lists[type(record)].append(record)
            if key := getattr(record, "key", None):
                self.keys[key] = expected

    @precondition(lambda self: self.held)
    @rule(status=st.sampled_from(["running", "paused", "completed", "failed"]), more=st.integers(0, 9))
    def update(self, status: str, more: int) -> None:
        """The row follows."""
        assert self.held
        self.tokens += more
        row = self.held.update(status=status, add={"total_tokens": more})
        assert (row.status, row.total_tokens) == (status, self.tokens)

    @precondition(lambda self: self.held)
    @rule()
    def sync(self) -> None:
        """Nothing changes for a reader."""
        assert self.held
        self.held.sync()

    @rule()
    def hand_over(self) -> None:
        """The lease is given back, or taken."""
        if self.held is None:
            self.held = self.store.lease(self.task.uuid)
        else:
            self.held.close()
            self.held = None

    @precondition(lambda self: self.reopens)
    @rule()
    def reopen(self) -> None:
        """The store is opened anew, as by another process."""
        if self.held is not None:
            self.held.close()
        self.store.close()
        self.store = self.opened()
        self.held = self.store.lease(self.task.uuid)

    @invariant()
    def agree(self) -> None:
        """Everything that can be read is what the model has."""
        if not hasattr(self, "store"):
            return
        for kind, expected in self.lists.items():
            read = list(self.store.read(self.task.uuid, kind))
            assert [_body(item) for item in read] == [_body(item) for item in expected]
            assert [_body(item) for item in self.store.read(self.task.uuid, kind, first=-2)] == [
                _body(item) for item in expected[-2:]
            ]
        assert self.store.row(self.task.uuid).total_tokens == self.tokens

    def teardown(self) -> None:
        """Remove the place."""
        if hasattr(self, "store"):
            if self.held is not None:
                self.held.close()
            self.store.close()
            self.folder.cleanup()


def _body(record: Record) -> dict[str, Any]:
    fields = msgspec.structs.asdict(record)
    return {name: value for name, value in fields.items() if name not in {"seq", "id", "timestamp", "tokens"}}
