"""The engine for coroutines: the same names, to be awaited. Every call runs in a thread (docs/adr/0002).

    async with orihon.aio.open("logs/contexts") as engine:
        async with engine.session("user:1") as task:
            await task.add("user", "hello")
            window = await task.window()
            async for event in task.add_reply(await client.chat.completions.create(…, stream=True)):
                …

A write that has begun is finished in its thread when the coroutine that waits for it is cancelled. Leaving a block
waits until the task is paused, completed or given back, also when it is cancelled.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from orihon.context.streams import is_stream
from orihon.engine import open_engine
from orihon.task.task import Task

PAGE = 64  # values that an iterator gives in one call of a thread

T = TypeVar("T")
_in_thread = asyncio.to_thread
_CANCELLED = (asyncio.CancelledError, asyncio.CancelledError(), None)


async def finish_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread. A cancellation is raised only after the function has returned."""
    future = asyncio.ensure_future(_in_thread(function, *arguments))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            await asyncio.wait({future})
        raise


async def _values(make: Callable[..., Iterator[T]], *arguments: Any, **options: Any) -> AsyncIterator[T]:
    iterator = await _in_thread(make, *arguments, **options)
    while page := await _in_thread(list, islice(iterator, PAGE)):
        for value in page:
            yield value


class Opening(Generic[T]):
    """A block that is entered and left in a thread. It can also be awaited; the caller then closes what it opens.

    If the coroutine is cancelled while the thread still opens it, it is left at once.
    """

    def __init__(self, enter: Callable[[], T], leave: Callable[..., Any]) -> None:
        self._enter, self._leave = enter, leave
        self._lock = threading.Lock()
        self._entered: list[T] = []
        self._is_abandoned = False

    def __await__(self) -> Generator[Any, None, T]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> T:
        try:
            return await _in_thread(self._enter_or_leave)
        except asyncio.CancelledError:
            with self._lock:
                self._is_abandoned, entered = True, self._entered
            if entered:
                await finish_in_thread(self._leave, *entered, *_CANCELLED)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await finish_in_thread(self._leave, *self._entered, kind, error, trace)

    def _enter_or_leave(self) -> T:
        value = self._enter()
        with self._lock:
            if not self._is_abandoned:
                self._entered = [value]
                return value
        self._leave(value, *_CANCELLED)
        return value


class _Front:
    """Wraps an object. Methods in `_waited` are awaited; those in `_iterated` yield their values in pages."""

    _waited: tuple[str, ...] = ()
    _iterated: tuple[str, ...] = ()
    _plain: tuple[str, ...] = ()  # read from memory at once

    def __init__(self, sync: Any) -> None:
        self.sync = sync  # the object itself

    def __getattr__(self, name: str) -> Any:
        if name in self._plain:
            return getattr(self.sync, name)
        run: Any = _in_thread if name in self._waited else _values if name in self._iterated else None
        if run is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        method = getattr(self.sync, name)
        return functools.wraps(method)(functools.partial(run, method))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._waited, *self._iterated, *self._plain})


class AsyncTask(_Front):
    """A task whose methods are awaited. `tool` and `tangent` are for `async with`."""

    _waited = (
        *("add", "extend", "follow", "wants_reply", "window", "shrink_budget", "compact", "stats", "snapshot"),
        *("reconfigure", "pending_calls", "answer", "unfold", "recall", "begin_tangent", "end_tangent", "rewind"),
        *("reset", "undo", "checkpoint", "restore", "pin", "unpin", "sticky", "version", "link", "plan"),
        *("complete", "fail", "stop", "pause", "close"),
    )
    _plain = ("uuid", "row", "config", "inheritance", "session", "lookups")

    def add_reply(self, reply: Any, *, api: str | None = None, key: str | None = None) -> Any:
        """Append a reply, to be awaited; of a stream, return one for `async for`, which stores it at its end."""
        if is_stream(reply):
            return self.sync.add_reply(reply, api=api, key=key)
        return _in_thread(self.sync.add_reply, reply, api=api, key=key)

    def tool(self, call: Any) -> Opening[Any]:
        """Run a tool: `async with task.tool(call) as run`."""
        return _block(self.sync.tool(call))

    def tangent(self, question: str = "", **options: Any) -> Opening[None]:
        """Open a side conversation: `async with task.tangent(…)`."""
        return _block(self.sync.tangent(question, **options))

    async def sticky_files(self) -> Any:
        """Return the files that stand in every window."""
        return await _in_thread(lambda: self.sync.sticky_files)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await finish_in_thread(self.sync.__exit__, *error)


class AsyncReader(_Front):
    """A task that is only read."""

    _waited = ("message", "window")
    _iterated = ("messages", "summaries", "tools", "events", "plan", "replies")
    _plain = ("uuid", "row", "metadata")


class AsyncEngine(_Front):
    """The tasks of one store. `start`, `resume` and `session` are awaited, or entered with `async with`."""

    _waited = ("row", "inheritance", "close")
    _iterated = ("tasks", "rows")
    _plain = ("settings", "user", "store")

    def start(self, *arguments: Any, **options: Any) -> Opening[AsyncTask]:
        """Start a task on a key."""
        return self._open(self.sync.start, *arguments, **options)

    def resume(self, *arguments: Any, **options: Any) -> Opening[AsyncTask]:
        """Continue a task."""
        return self._open(self.sync.resume, *arguments, **options)

    def session(self, *arguments: Any, **options: Any) -> Opening[AsyncTask]:
        """Return the task that stays open under an id."""
        return self._open(self.sync.session, *arguments, **options)

    async def read(self, uuid: str) -> AsyncReader:
        """Return a task for reading."""
        return AsyncReader(await _in_thread(self.sync.read, uuid))

    @staticmethod
    def _open(open_task: Callable[..., Task], *arguments: Any, **options: Any) -> Opening[AsyncTask]:
        return Opening(
            lambda: AsyncTask(open_task(*arguments, **options)), lambda task, *error: task.sync.__exit__(*error)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await finish_in_thread(self.sync.close)


def open(*arguments: Any, **options: Any) -> Opening[AsyncEngine]:  # noqa: A001 - as in `orihon.open`
    """Return the engine over a store, as `orihon.open` does; to be awaited, or entered with `async with`."""
    return Opening(lambda: AsyncEngine(open_engine(*arguments, **options)), lambda engine, *_: engine.sync.close())


def _block(manager: AbstractContextManager[T]) -> Opening[T]:
    return Opening(manager.__enter__, lambda _, *error: manager.__exit__(*error))


__all__ = ["AsyncEngine", "AsyncReader", "AsyncTask", "Opening", "open"]
