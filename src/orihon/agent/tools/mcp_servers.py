"""The tools of MCP servers, for synchronous callers.

One thread with an event loop holds the sessions of all servers. A server is started when its tools are first needed and
stays open. Its list of tools is kept until the server announces a change.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from orihon.context.repair import plain_name
from orihon.errors import OrihonError, ToolError
from orihon.settings.schema import McpServer

if TYPE_CHECKING:
    from orihon.agent.tools.mcp_session import McpConnection, ToolInfo

log = logging.getLogger("orihon")


class McpTool(NamedTuple):
    """A tool of a server, with the name that the model knows."""

    name: str
    server: str
    info: ToolInfo

    @property
    def schema(self) -> dict[str, Any]:
        """The description for the model."""
        function = {"name": self.name, "description": self.info.description, "parameters": self.info.parameters}
        return {"type": "function", "function": function}


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

    def names(self) -> list[str]:
        """Return the known names of tools."""
        return list(self._tools)

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
        return self._open()[tool.server].call(tool.info, arguments)

    def close(self) -> None:
        """End the sessions, and the servers that were started."""
        with self._lock:
            self._closed = True
            for connection in self._connections.values():
                connection.close()
            self._connections = {}
            self._stack.close()

    def _open(self) -> dict[str, McpConnection]:
        from anyio.from_thread import start_blocking_portal  # noqa: PLC0415 - asyncio and the SDK are large

        from orihon.agent.tools.mcp_session import McpConnection  # noqa: PLC0415

        with self._lock:
            if self._closed:
                raise OrihonError("The toolbox is closed.", hint="Create a new one.")
            if not self._connections:
                portal = self._stack.enter_context(start_blocking_portal(name="orihon-mcp"))
                self._connections = {server.mcp_server_name: McpConnection(server, portal) for server in self._servers}
            return self._connections

    def _list_tools(self) -> dict[str, McpTool]:
        if not self._servers:
            return {}
        try:
            connections = self._open()
        except ImportError:
            log.warning("MCP servers need the extra `agent`: pip install 'orihon[agent]'. Their tools are left out.")
            return {}
        for connection in connections.values():
            connection.start()  # all at the same time
        tools: dict[str, McpTool] = {}
        for server, connection in connections.items():
            try:
                infos = connection.list_tools()
            except ToolError as error:
                log.warning("%s Its tools are left out.", error)
                continue
            for info in infos:
                name = make_unique_name(f"{server}_{info.name}", tools.keys() | self._reserved)
                tools[name] = McpTool(name, server, info)
        self._tools = tools
        return tools


def make_unique_name(name: str, used: Iterable[str]) -> str:
    """Return a name that every provider accepts and no other tool has."""
    unique, number = plain_name(name), 2
    while unique in used:
        digest = hashlib.sha256(f"{name} {number}".encode("utf-8", "replace")).hexdigest()[:8]
        unique, number = f"{plain_name(name)[:54]}_{digest}", number + 1
    return unique
