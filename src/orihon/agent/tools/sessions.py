"""Sessions with MCP servers: opened when needed, kept open, opened again when the server ended.

Everything here but `Hub` lives in the event loop of one thread. A session is entered and left in the same task, as
the SDK wants it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from orihon.agent.tools.answers import answer_of
from orihon.agent.tools.transports import LastWords, over_http, over_stdio
from orihon.errors import ToolError
from orihon.settings.schema import McpServer

MAX_PAGES = 100
CLOSE_SECONDS = 10.0
BACK_OFF = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before a start that follows so many failures

T = TypeVar("T")


class Listed(NamedTuple):
    """A tool as its server describes it."""

    name: str
    description: str
    parameters: dict[str, Any]
    read_only: bool
    repeatable: bool


class _Lost(Exception):
    """The server ended; `sent` says whether it may have begun with the call."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__("the connection ended")
        self.sent = sent


class Hub:
    """The thread, the loop, and the servers in it."""

    def __init__(self, servers: Sequence[McpServer]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="orihon-mcp", daemon=True)
        self._thread.start()
        self._links = {server.mcp_server_name: Link(server) for server in servers}

    def lists(self) -> list[tuple[str, list[Listed] | Exception]]:
        """The tools of every server, or why there are none."""
        return self._wait(self._lists())

    def changed(self) -> bool:
        """Whether a server said that its list is another one now."""
        return any(link.changed for link in self._links.values())

    def call(self, server: str, tool: Listed, arguments: dict[str, Any]) -> Any:
        """What a tool answers."""
        return self._wait(self._links[server].call(tool, arguments))

    def close(self) -> None:
        """Leave all sessions and end the thread."""
        try:
            self._wait(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: the server is told that nobody waits any more
            raise

    async def _lists(self) -> list[tuple[str, list[Listed] | Exception]]:
        found = await asyncio.gather(*(link.tools() for link in self._links.values()), return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, Exception):
                raise one
        return list(zip(self._links, found, strict=True))  # type: ignore[arg-type]

    async def _close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()))
        await self._loop.shutdown_asyncgens()


class Link:
    """One server: its present session, and the list of its tools."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self._session: Session | None = None
        self._tools: list[Listed] | None = None
        self._failures = 0
        self._lock: asyncio.Lock | None = None

    @property
    def changed(self) -> bool:
        """Whether the server said that its list is another one now."""
        return self._session is not None and self._session.changed

    async def tools(self) -> list[Listed]:
        """The list; asked for again when the server said that it changed, or was started again."""
        session = await self._open()
        if self._tools is None or session.changed:
            session.changed = False
            try:
                self._tools = await session.tools()
            except Exception as error:
                session.changed = True
                raise self._failed("did not list its tools", error, session) from error
        return self._tools

    async def call(self, tool: Listed, arguments: dict[str, Any]) -> Any:
        """What a tool answers."""
        for again in (True, False):
            session = await self._open()
            try:
                result = await session.call(tool.name, arguments)
            except _Lost as lost:
                await session.close()
                if again and (tool.repeatable or not lost.sent):
                    continue
                raise self._gone(tool, session) from lost
            except TimeoutError as error:
                seconds = self.server.timeout_seconds
                raise ToolError(f"{self._name} did not answer {tool.name} within {seconds:g} s.") from error
            except Exception as error:
                raise self._failed(f"failed with {tool.name}", error, session) from error
            return answer_of(result, tool.name)
        raise AssertionError

    async def close(self) -> None:
        """Leave the session, if there is one."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def _name(self) -> str:
        return f"The MCP server {self.server.mcp_server_name}"

    async def _open(self) -> Session:
        """The session; a new one if there is none, or the server of the last one ended."""
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            if self._session is not None and self._session.alive:
                return self._session
            await self.close()
            await asyncio.sleep(BACK_OFF[min(self._failures, len(BACK_OFF) - 1)])
            session = Session(self.server)
            try:
                await asyncio.wait_for(session.open(), self.server.timeout_seconds)
            except Exception as error:
                self._failures += 1
                await session.close()
                raise self._failed("could not be started", error, session) from error
            self._failures = 0
            self._session, self._tools = session, None
            return session

    def _gone(self, tool: Listed, session: Session) -> ToolError:
        self._failures += 1
        unknown = "" if tool.repeatable else " What it had done until then is not known."
        words = session.words()
        return ToolError(
            f"{self._name} ended while it ran {tool.name}; it is started again when it is needed.{unknown}{words}"
        )

    def _failed(self, what: str, error: BaseException, session: Session) -> ToolError:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ToolError):
            return error
        if isinstance(error, ImportError):
            return ToolError(f"{self._name} needs the extra `agent`: pip install 'orihon[agent]'.")
        seconds = self.server.timeout_seconds
        reason = (
            f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        )
        return ToolError(f"{self._name} {what}: {reason.rstrip('.')}.{session.words()}")


class Session:
    """One connection, from its begin to its end."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.changed = False  # the list of tools, since it was asked for
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._ready, self._over = asyncio.Event(), asyncio.Event()
        self._last = LastWords()

    @property
    def alive(self) -> bool:
        """Whether the other side is there, as far as we know."""
        return self._task is not None and not self._task.done() and not self._over.is_set()

    async def open(self) -> None:
        """Start the server, or connect to it, and shake hands."""
        self._task = asyncio.create_task(self._serve())
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._task.done():
            self._task.result()
            raise ConnectionError("it ended at once")

    async def close(self) -> None:
        """Leave it; a server of ours is ended with its children."""
        self._over.set()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=CLOSE_SECONDS if self._ready.is_set() else 0)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        if self._task.done() and not self._task.cancelled():
            self._task.exception()  # looked at, so that nobody complains that it was not

    async def tools(self) -> list[Listed]:
        """All pages of the list."""
        found: list[Listed] = []
        cursor = None
        for _ in range(MAX_PAGES):
            page = await self._until_lost(self._client.list_tools(cursor=cursor))
            found += [_listed(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """The result as the SDK gives it."""
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - the SDK is loaded when a server is used
        from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT  # noqa: PLC0415

        if not self.alive:
            raise _Lost(sent=False)
        try:
            return await self._until_lost(self._client.call_tool(name, arguments))
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise TimeoutError from error
            if error.code == CONNECTION_CLOSED:
                raise _Lost(sent=True) from error
            if error.code == INVALID_REQUEST and error.message == "Session terminated":
                raise _Lost(sent=False) from error  # it was started again and does not know us
            raise

    def words(self) -> str:
        """What a server of ours said last on its way to the terminal, for whoever looks for the reason."""
        return f" Its last words: {text}" if (text := self._last.text()) else ""

    async def _until_lost(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the session; when that ends first, so does the work."""
        assert self._task is not None  # noqa: S101 - it was opened
        working = asyncio.create_task(work)
        try:
            await asyncio.wait({working, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise _Lost(sent=not self._refused())
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait({working}, timeout=CLOSE_SECONDS)

    def _refused(self) -> bool:
        """Whether the session ended because nobody was there to take a request."""
        error = self._task.exception() if self._task is not None and not self._task.cancelled() else None
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return type(error).__name__ == "ConnectError"

    async def _serve(self) -> None:
        from mcp.client import Client  # noqa: PLC0415

        transport = over_http(self.server) if self.server.url else over_stdio(self.server, self._over.set, self._last)
        seconds = self.server.timeout_seconds
        async with Client(
            transport, read_timeout_seconds=seconds, message_handler=self._notice, cache=None
        ) as self._client:
            self._ready.set()
            listening = asyncio.create_task(self._listen())
            try:
                await self._over.wait()
            finally:
                listening.cancel()
                await asyncio.wait({listening})

    async def _notice(self, message: Any) -> None:
        """A server of before 2026 says by itself that its list has changed."""
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self.changed = True

    async def _listen(self) -> None:
        """One of after says so to those who listen."""
        with suppress(Exception):  # who cannot tell is asked again when it is started again
            async with self._client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self.changed = True


def _listed(tool: Any) -> Listed:
    hints = tool.annotations
    read_only = bool(hints and hints.read_only_hint)
    repeatable = read_only or bool(hints and hints.idempotent_hint)
    return Listed(tool.name, tool.description or tool.title or "", dict(tool.input_schema), read_only, repeatable)
