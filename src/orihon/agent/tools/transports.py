"""How the bytes come to an MCP server and back: over the pipes of a process that we start, or over HTTP.

A process gets the variables that it was configured with, and HOME, LOGNAME, PATH, SHELL, TERM and USER; nothing else
of our environment. What it writes to the terminal is read and dropped, but for its last words.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

from orihon.settings.schema import McpServer

LAST_BYTES = 1000
LAST_LINES = 3
HTTP_SECONDS, STREAM_SECONDS = 30.0, 300.0


class LastWords:
    """The end of what a process said."""

    def __init__(self) -> None:
        self._said = bytearray()

    def hear(self, reading: int) -> None:
        """Take what is in the pipe."""
        with suppress(BlockingIOError):
            self._said += os.read(reading, 65_536)
            del self._said[:-LAST_BYTES]

    def text(self) -> str:
        """What was said."""
        lines = bytes(self._said).decode("utf-8", "replace").strip().splitlines()
        return "\n".join(lines[-LAST_LINES:])


@asynccontextmanager
async def over_http(server: McpServer) -> AsyncIterator[Any]:
    """Streams to a server that runs somewhere."""
    import httpx2  # noqa: PLC0415 - paid for by those who have such a server
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    headers = {name: value.reveal() for name, value in server.headers.items()}
    waits = httpx2.Timeout(HTTP_SECONDS, read=max(STREAM_SECONDS, server.timeout_seconds))
    async with (
        httpx2.AsyncClient(headers=headers, timeout=waits) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def over_stdio(server: McpServer, ended: Callable[[], None], last: LastWords) -> AsyncIterator[Any]:
    """Streams to a server that is started here; `ended` is called when it closes its side."""
    from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415 - as above

    command, *arguments = server.command
    env = {name: value.reveal() for name, value in server.env.items()}
    loop = asyncio.get_running_loop()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    loop.add_reader(reading, last.hear, reading)
    try:
        with os.fdopen(writing, "w") as terminal:
            started = StdioServerParameters(command=command, args=arguments, env=env)
            async with stdio_client(started, errlog=terminal) as (incoming, outgoing):
                yield _Watched(incoming, ended), outgoing
    finally:
        last.hear(reading)
        loop.remove_reader(reading)
        os.close(reading)


class _Watched:
    """An incoming stream that says when it ends."""

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream, self._ended = stream, ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except Exception:
            self._ended()
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except Exception:
            self._ended()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._stream.__aexit__(*error)
