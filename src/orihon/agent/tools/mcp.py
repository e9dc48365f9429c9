"""The tools of MCP servers, for synchronous callers.

A server is started when its tools are first needed and stays open. Its list of tools is kept until the server announces
a change. Each session is one task in the event loop of a blocking portal, because the SDK requires that a session is
entered and left in the same task. A server that has ended is started again, once in a call; a call during which it
ended is repeated only if the tool declares that this is harmless.

A server over stdio gets the variables of its configuration, and HOME, LOGNAME, PATH, SHELL, TERM and USER; nothing
else of the environment. The end of its standard error is kept for error messages. The SDK is loaded with the first
session.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from orihon.context.repair import plain_name
from orihon.errors import OrihonError, ToolError
from orihon.records import Part
from orihon.retry import Backoff
from orihon.settings.schema import McpServer

log = logging.getLogger("orihon")

MAX_PAGES = 100
CLOSE_SECONDS = 10.0
HTTP_SECONDS, STREAM_SECONDS = 30.0, 300.0
STDERR_BYTES, STDERR_LINES = 1000, 3
RESTARTS = Backoff(first_seconds=0.5, longest_seconds=8.0, jitter=0)


class McpTool(NamedTuple):
    """A tool of a server. `name` is the name that the model knows, `own_name` that of the server."""

    name: str
    server: str
    own_name: str
    schema: dict[str, Any]  # for the model
    read_only: bool
    repeatable: bool


class McpServers:
    """All configured servers and their tools."""

    def __init__(self, servers: Sequence[McpServer], reserved: Iterable[str] = ()) -> None:
        self._servers, self._reserved = tuple(servers), frozenset(reserved)
        self._connections: dict[str, McpConnection] = {}
        self._tools: dict[str, McpTool] = {}
        self._stack = ExitStack()
        self._lock = Lock()
        self._closed = False

    def schemas(self) -> list[dict[str, Any]]:
        """Return the descriptions of all tools. A server that does not answer is left out with a warning."""
        return [tool.schema for tool in self._list_tools().values()]

    def names_by_server(self) -> dict[str, list[str]]:
        """Return the known names of tools for each server."""
        names: dict[str, list[str]] = {}
        for tool in self._tools.values():
            names.setdefault(tool.server, []).append(tool.name)
        return names

    def owns(self, name: str) -> bool:
        """Return whether a tool belongs to a server, as far as is known without starting one."""
        return name in self._tools or name.startswith(tuple(f"{server.mcp_server_name}_" for server in self._servers))

    def find_tool(self, name: str) -> McpTool | None:
        """Return the tool of a name. The servers are asked only if their lists may have changed."""
        has_changed = any(connection.tools_changed for connection in self._connections.values())
        tools = self._tools if name in self._tools and not has_changed else self._list_tools()
        return tools.get(name)

    def call(self, tool: McpTool, arguments: dict[str, Any]) -> Any:
        """Return the result of a tool. Raise ToolError if the tool or its server failed."""
        return self._open()[tool.server].call(tool, arguments)

    def close(self) -> None:
        """End the sessions, and the servers that were started."""
        with self._lock:
            self._closed = True
            for connection in self._connections.values():
                connection.close()
            self._connections = {}
            self._stack.close()

    def _open(self) -> dict[str, McpConnection]:
        with self._lock:
            if self._closed:
                raise OrihonError("The toolbox is closed.", hint="Create a new one.")
            if not self._connections:
                portal = self._stack.enter_context(start_blocking_portal(name="orihon-mcp"))
                self._connections = {server.mcp_server_name: McpConnection(server, portal) for server in self._servers}
            return self._connections

    def _list_tools(self) -> dict[str, McpTool]:
        connections = self._open()
        for connection in connections.values():
            connection.start()  # all at the same time
        tools: dict[str, McpTool] = {}
        for server, connection in connections.items():
            try:
                listed = connection.list_tools()
            except ToolError as error:
                log.warning("%s Its tools are left out.", error)
                continue
            for tool in listed:
                name = make_unique_name(f"{server}_{tool.name}", tools.keys() | self._reserved)
                tools[name] = _make_tool(name, server, tool)
        self._tools = tools
        return tools


def make_unique_name(name: str, used: Iterable[str]) -> str:
    """Return a name that every provider accepts and no other tool has."""
    unique, number = plain_name(name), 2
    while unique in used:
        digest = hashlib.sha256(f"{name} {number}".encode("utf-8", "replace")).hexdigest()[:8]
        unique, number = f"{plain_name(name)[:54]}_{digest}", number + 1
    return unique


class SessionLost(Exception):
    """The server ended; `sent` says whether it may have begun with the call."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__("the connection ended")
        self.sent = sent


class McpConnection:
    """One server: its present session, and the list of its tools."""

    def __init__(self, server: McpServer, portal: BlockingPortal) -> None:
        self.server, self._portal = server, portal
        self._session: McpSession | None = None
        self._tools: list[Any] | None = None
        self._failures = 0
        self._lock = Lock()

    @property
    def tools_changed(self) -> bool:
        """Whether the server announced a changed list of tools."""
        return self._session is not None and self._session.tools_changed

    def start(self) -> McpSession:
        """Start a session if there is none. Return it without waiting until it is ready."""
        with self._lock:
            if self._session is None or not self._session.is_alive:
                self.close()
                pause = RESTARTS.pause_seconds(self._failures) if self._failures else 0.0
                self._session, self._tools = McpSession(self.server, self._portal, pause), None
            return self._session

    def list_tools(self) -> list[Any]:
        """Return the list as the SDK gives it. It is read again after a restart or an announced change."""
        session = self._open()
        if self._tools is None or session.tools_changed:
            session.tools_changed = False
            try:
                self._tools = session.list_tools()
            except Exception as error:
                session.tools_changed = True
                raise self._make_error("did not list its tools", error, session) from error
        return self._tools

    def call(self, tool: McpTool, arguments: dict[str, Any]) -> Any:
        """Return the result of a tool."""
        name = tool.own_name
        for is_first in (True, False):
            session = self._open()
            try:
                return parse_result(session.call(name, arguments), name)
            except SessionLost as lost:
                session.close()
                if is_first and (tool.repeatable or not lost.sent):
                    continue
                self._failures += 1
                unknown = "" if tool.repeatable else " How far it got is not known."
                raise ToolError(
                    f"{self._name} ended while it ran {name}; the next call starts it again.{unknown}"
                    f"{session.render_stderr()}"
                ) from lost
            except TimeoutError as error:
                seconds = self.server.timeout_seconds
                raise ToolError(f"{self._name} did not answer {name} within {seconds:g} s.") from error
            except Exception as error:
                raise self._make_error(f"failed with {name}", error, session) from error
        raise AssertionError

    def close(self) -> None:
        """End the session, if there is one."""
        if self._session is not None:
            self._session.close()
            self._session = None

    @property
    def _name(self) -> str:
        return f"The MCP server {self.server.mcp_server_name}"

    def _open(self) -> McpSession:
        session = self.start()
        try:
            session.wait_until_ready()
        except Exception as error:
            self._failures += 1
            session.close()
            raise self._make_error("could not be started", error, session) from error
        self._failures = 0
        return session

    def _make_error(self, what: str, error: Exception, session: McpSession) -> ToolError:
        if isinstance(error, ToolError):
            return error
        reason = str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            reason = f"no answer within {self.server.timeout_seconds:g} s"
        return ToolError(f"{self._name} {what}: {reason.rstrip('.')}.{session.render_stderr()}")


class McpSession:
    """One session, from its start to its end."""

    def __init__(self, server: McpServer, portal: BlockingPortal, pause: float) -> None:
        self.server, self._portal = server, portal
        self.tools_changed = False
        self._stderr = b""
        self._error: Exception | None = None
        self._deadline = time.monotonic() + pause + server.timeout_seconds
        self._ready: Future[Any] = Future()  # the SDK's client
        self._ended: Future[None] = Future()
        self._stop = anyio.Event()
        self._task = portal.start_task_soon(self._serve, pause)

    @property
    def is_alive(self) -> bool:
        """Whether the session is open or being opened, as far as is known."""
        return not self._ended.done() and not self._stop.is_set()

    def wait_until_ready(self) -> None:
        """Return when the handshake is done. Raise the error that prevented it, or TimeoutError."""
        remaining = max(0.0, self._deadline - time.monotonic())
        wait((self._ready, self._ended), remaining, FIRST_COMPLETED)
        if not self._ready.done():
            raise self._error or (ConnectionError("it ended at once") if self._ended.done() else TimeoutError())

    def list_tools(self) -> list[Any]:
        """Return all pages of the list."""
        tools: list[Any] = []
        cursor = None
        for _ in range(MAX_PAGES):
            page = self._run(partial(self._ready.result().list_tools, cursor=cursor))
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return tools

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return the result of a tool, as the SDK gives it."""
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - the SDK is loaded with the first session
        from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT  # noqa: PLC0415

        if not self.is_alive:
            raise SessionLost(sent=False)
        try:
            return self._run(partial(self._ready.result().call_tool, name, arguments))
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise TimeoutError from error
            if error.code == CONNECTION_CLOSED:
                raise SessionLost(sent=True) from error
            if error.code == INVALID_REQUEST and error.message == "Session terminated":
                raise SessionLost(sent=False) from error  # a restarted server does not know the session
            raise

    def close(self) -> None:
        """End the session. A server that was started here ends with its children."""
        if self._ready.done() and not self._ended.done():
            self._portal.call(self._stop.set)
            wait((self._ended,), CLOSE_SECONDS)
        if not self._ended.done():
            self._task.cancel()
            wait((self._ended,), CLOSE_SECONDS)

    def render_stderr(self) -> str:
        """Return the last lines of the server's standard error, as a sentence."""
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()[-STDERR_LINES:]
        return " Its last output: " + "\n".join(lines) if lines else ""

    def _run(self, function: Callable[[], Any]) -> Any:
        """Return the result of a coroutine function. Raise SessionLost if the session ends first."""
        future = self._portal.start_task_soon(function)
        try:
            wait((future, self._ended), return_when=FIRST_COMPLETED)
            if future.done():
                return future.result()
        finally:
            future.cancel()  # also after Ctrl-C: the server is told that the call is cancelled
        # a refused connection has transmitted nothing
        raise SessionLost(sent=type(self._error).__name__ != "ConnectError")

    async def _serve(self, pause: float) -> None:
        try:
            from mcp.client import Client  # noqa: PLC0415

            await anyio.sleep(pause)
            transport = self._open_http() if self.server.url else self._open_stdio()
            seconds = self.server.timeout_seconds
            async with (
                Client(transport, read_timeout_seconds=seconds, message_handler=self._on_message, cache=None) as client,
                anyio.create_task_group() as group,
            ):
                self._ready.set_result(client)
                group.start_soon(self._listen, client)
                await self._stop.wait()
                group.cancel_scope.cancel()
        except Exception as error:  # noqa: BLE001 - raised by the caller that waits for the session
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            self._error = error
        finally:
            self._ended.set_result(None)

    async def _on_message(self, message: Any) -> None:
        """Note a change of the list that a server before 2026 announces."""
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self.tools_changed = True

    async def _listen(self, client: Any) -> None:
        """Subscribe to changes of the list, as servers since 2026 offer it."""
        with suppress(Exception):  # other servers refuse
            async with client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self.tools_changed = True

    @asynccontextmanager
    async def _open_http(self) -> AsyncIterator[Any]:
        import httpx2  # noqa: PLC0415
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

        headers = {name: value.reveal() for name, value in self.server.headers.items()}
        timeout = httpx2.Timeout(HTTP_SECONDS, read=max(STREAM_SECONDS, self.server.timeout_seconds))
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout) as http,
            streamable_http_client(self.server.url, http_client=http) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _open_stdio(self) -> AsyncIterator[Any]:
        from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415

        command, *arguments = self.server.command
        env = {name: value.reveal() for name, value in self.server.env.items()}
        parameters = StdioServerParameters(command=command, args=arguments, env=env)
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        try:
            with os.fdopen(writing, "w") as stderr:
                async with stdio_client(parameters, errlog=stderr) as streams, anyio.create_task_group() as group:
                    to_client, incoming = anyio.create_memory_object_stream[Any](0)
                    group.start_soon(self._collect_stderr, reading)
                    group.start_soon(self._forward, streams[0], to_client)
                    yield incoming, streams[1]
                    group.cancel_scope.cancel()
        finally:
            self._read_stderr(reading)
            os.close(reading)

    async def _forward(self, source: Any, target: Any) -> None:
        """Pass messages on, and end the session when the server closes its side."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with target:
                async for message in source:
                    await target.send(message)
        self._stop.set()

    async def _collect_stderr(self, reading: int) -> None:
        while True:
            await anyio.wait_readable(reading)
            self._read_stderr(reading)

    def _read_stderr(self, reading: int) -> None:
        with suppress(BlockingIOError):
            self._stderr = (self._stderr + os.read(reading, 65_536))[-STDERR_BYTES:]


def _make_tool(name: str, server: str, tool: Any) -> McpTool:
    hints, description = tool.annotations, tool.description or tool.title or ""
    function = {"name": name, "description": description, "parameters": dict(tool.input_schema)}
    read_only = bool(hints and hints.read_only_hint)
    repeatable = read_only or bool(hints and hints.idempotent_hint)
    return McpTool(name, server, tool.name, {"type": "function", "function": function}, read_only, repeatable)


def parse_result(result: Any, name: str) -> Any:
    """Return a result as text, as parts with pictures, or as structured data. Raise ToolError for an error."""
    parts = [_make_part(block) for block in result.content]
    if result.is_error:
        message = "\n".join(part.text for part in parts if part.text)
        raise ToolError(message or f"{name} failed without a reason.")
    if not parts:
        return "" if result.structured_content is None else result.structured_content
    if all(part.type == "text" for part in parts):
        return "\n".join(part.text or "" for part in parts)
    return parts


def _make_part(block: Any) -> Part:
    text = f"({block.type}, {getattr(block, 'mime_type', 'unknown')}, cannot be shown)"
    match block.type:
        case "text":
            text = block.text
        case "image":
            return Part(type="image", data=block.data, media_type=block.mime_type)
        case "resource_link":
            text = f"{block.title or block.name}: {block.uri}"
        case "resource":
            resource = block.resource
            text = f"({resource.uri}, {resource.mime_type or 'binary'}, cannot be shown)"
            if getattr(resource, "text", None) is not None:
                text = f"{resource.uri}:\n{resource.text}"
            elif (resource.mime_type or "").startswith("image/"):
                return Part(type="image", data=resource.blob, media_type=resource.mime_type)
    return Part(type="text", text=text)
