"""The tools of MCP servers, for callers who are not asynchronous.

One thread with an event loop holds the sessions of all servers. A server is started when its tools are first asked
for and stays open; its list of tools is kept until it says that the list has changed. A server that ended is started
again, once in a call. A call during which it ended is repeated only if its tool says that this does no harm.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from orihon.context.repair import plain_name
from orihon.errors import OrihonError
from orihon.settings.schema import McpServer

if TYPE_CHECKING:
    from orihon.agent.tools.sessions import Hub, Listed

log = logging.getLogger("orihon")


class McpTool(NamedTuple):
    """A tool of a server, under the name by which the model knows it."""

    name: str
    server: str
    listed: Listed

    @property
    def read_only(self) -> bool:
        """Whether the server says that it changes nothing."""
        return self.listed.read_only

    @property
    def schema(self) -> dict[str, Any]:
        """What the model is told."""
        about = {"name": self.name, "description": self.listed.description, "parameters": self.listed.parameters}
        return {"type": "function", "function": about}


class Servers:
    """All configured servers, and what they offer."""

    def __init__(self, servers: Sequence[McpServer], taken: Iterable[str] = ()) -> None:
        self._configured = tuple(servers)
        self._taken = frozenset(taken)
        self._hub: Hub | None = None
        self._known: dict[str, McpTool] = {}
        self._lock = Lock()
        self._closed = False

    def schemas(self) -> list[dict[str, Any]]:
        """What the model is told about their tools; a server that does not answer is left out, with a warning."""
        return [tool.schema for tool in self._list().values()]

    def names(self) -> list[str]:
        """The names of their tools, as far as they are known."""
        return list(self._known)

    def by_server(self) -> dict[str, list[str]]:
        """The same for each server."""
        found: dict[str, list[str]] = {}
        for tool in self._known.values():
            found.setdefault(tool.server, []).append(tool.name)
        return found

    def has(self, name: str) -> bool:
        """Whether a name is one of theirs, as far as it can be told without starting a server to ask it."""
        return name in self._known or name.startswith(
            tuple(f"{server.mcp_server_name}_" for server in self._configured)
        )

    def tool(self, name: str) -> McpTool | None:
        """The tool of a name, if there is one; the servers are asked only when that may have changed."""
        if not self._configured:
            return None
        known = self._known if name in self._known and not self._opened().changed() else self._list()
        return known.get(name)

    def call(self, tool: McpTool, arguments: dict[str, Any]) -> Any:
        """What a tool answers; a ToolError when it, or its server, failed."""
        return self._opened().call(tool.server, tool.listed, arguments)

    def close(self) -> None:
        """End the sessions and the servers that were started."""
        with self._lock:
            self._closed = True
            if self._hub is not None:
                self._hub.close()
                self._hub = None

    def _opened(self) -> Hub:
        from orihon.agent.tools.sessions import Hub  # noqa: PLC0415 - asyncio and the SDK are for those who have servers

        with self._lock:
            if self._closed:
                raise OrihonError("The toolbox is closed.", hint="Make a new one.")
            if self._hub is None:
                self._hub = Hub(self._configured)
            return self._hub

    def _list(self) -> dict[str, McpTool]:
        if not self._configured:
            return {}
        found: dict[str, McpTool] = {}
        for server, listed in self._opened().lists():
            if isinstance(listed, Exception):
                log.warning("%s Its tools are left out.", listed)
                continue
            for one in listed:
                name = _free(f"{server}_{one.name}", found.keys() | self._taken)
                found[name] = McpTool(name, server, one)
        self._known = found
        return found


def _free(name: str, used: Iterable[str]) -> str:
    """A name that every provider takes and nobody else has."""
    found, number = plain_name(name), 2
    while found in used:
        digest = hashlib.sha256(f"{name} {number}".encode("utf-8", "replace")).hexdigest()[:8]
        found, number = f"{plain_name(name)[:54]}_{digest}", number + 1
    return found
