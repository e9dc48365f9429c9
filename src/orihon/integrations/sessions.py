"""What the adapters share: sessions that each call takes and gives back, and the window over a framework's list."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orihon
from orihon.aio import finish_in_thread
from orihon.context.recall import RECALL, UNFOLD
from orihon.engine import Engine
from orihon.records import Message
from orihon.task.task import Task
from orihon.task.tool_calls import make_lookups

T = TypeVar("T")
Store = Engine | str | Path  # an engine, or what `orihon.open` takes
Schema = dict[str, Any]
LOOKUPS = (UNFOLD, RECALL)


class Sessions:
    """The sessions of one store. `options` are those of `engine.session`.

    Each call takes a session and gives it back, so that other processes can use it in between.
    """

    def __init__(self, store: Store, **options: Any) -> None:
        self._store, self._options = store, {"inherit": False} | options
        self._opened: Engine | None = None
        self._guard = threading.Lock()
        self.is_closed = False

    def call(self, id: str, function: Callable[[Task], T], /, **options: Any) -> T:
        """Call a function with the task of an id."""
        with self._engine().session(id, **self._options | options) as task:
            return function(task)

    async def call_in_thread(self, id: str, function: Callable[[Task], T], /, **options: Any) -> T:
        """Call a function with the task of an id in a thread. A cancellation is raised when it has returned."""
        return await finish_in_thread(partial(self.call, id, function, **options))

    def lookups(self, id_of: Callable[[], str]) -> list[Callable[..., str]]:
        """Return `unfold` and `recall` for the tools of an agent; `id_of` says which session they read."""

        def answer(name: str, arguments: dict[str, Any]) -> str:
            return self.call(id_of(), lambda task: _answer(task, name, arguments))

        return make_lookups(answer)

    def close(self) -> None:
        """Refuse further calls, and close the store if it was opened here."""
        self.is_closed = True
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _engine(self) -> Engine:
        if isinstance(self._store, Engine):
            return self._store
        with self._guard:
            if self._opened is None:
                self._opened = orihon.open(self._store)
            return self._opened


def _answer(task: Task, name: str, arguments: dict[str, Any]) -> str:
    (function,) = (one for one in task.lookups() if one.__name__ == name)
    return function(**arguments)


def fold(
    task: Task, items: Sequence[Any], own: Sequence[T], *, api: str, render: Callable[[list[Message]], list[T]]
) -> list[T]:
    """Return the window over a list: the framework's own objects for what is whole, else what `render` makes.

    `items` is the list in a provider's form, and `own` the framework's objects for the same items.
    """
    followed = task.follow(items, api=api)
    shown: list[T] = []
    for piece in followed.pieces(task.window()):
        shown += own[piece] if isinstance(piece, slice) else render(piece)
    return shown


def counted_tools(schemas: Sequence[Schema]) -> list[Schema]:
    """Return the tools of an agent as the option `tools` of its session, which makes room for them in the window.

    If the agent has `unfold`, marks name handles. If not, the two are declared as the agent's own tools, and marks name
    none.
    """
    names = {schema["function"]["name"] for schema in schemas}
    ours = {schema["function"]["name"] for schema in LOOKUPS}
    if "unfold" in names:
        return [schema for schema in schemas if schema["function"]["name"] not in ours]
    return [*schemas, *(schema for schema in LOOKUPS if schema["function"]["name"] not in names)]
