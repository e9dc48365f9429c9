"""The part of the contract that Ctrl-C asks for: whenever it comes, the next call finds the store in order."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from functools import partial

import pytest

from orihon.records import Message
from orihon.stores.base import Lease, Store
from orihon.testing.interrupts import interrupted
from orihon.testing.samples import a_message, a_task


class InterruptionContract:
    """What `StoreContract` asks of calls that are cut short."""

    @pytest.mark.filterwarnings("ignore:.*was deleted while still open")  # a connection that was let fall is not harmed
    @pytest.mark.parametrize("verb", ["append", "sync", "update"])
    def test_interrupted_at_any_step_it_goes_on(self, store: Store, verb: str) -> None:
        """Ctrl-C in the middle of a call: said again it has happened once, and the lease can be given back."""
        verbs: dict[str, Callable[[Lease], object]] = {
            "append": lambda lease: lease.append(a_message("once", key="k")),
            "sync": lambda lease: lease.sync(),
            "update": lambda lease: lease.update(activity="processing"),
        }
        for step in itertools.count(1):
            task = a_task()
            lease = store.lease(task.uuid, create=task)
            trouble = interrupted(partial(verbs[verb], lease), step)
            verbs[verb](lease)
            lease.append(a_message("next"))
            lease.close()
            shown = [message.content for message in store.read(task.uuid, Message)]
            assert shown == ["once", "next"][verb != "append" :], f"interrupted at step {step}"
            row = store.row(task.uuid)
            assert (row.lease_owner, row.activity == "processing") == (None, verb == "update")
            if trouble is None:
                break
        assert step > 1
        gc.collect()  # what was left behind is forgotten, and that harms nobody
        store.lease(task.uuid).append(a_message("last"))
