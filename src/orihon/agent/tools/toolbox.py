"""All tools of a workspace: their descriptions for the model, and the execution of its calls.

    with Toolbox(Path("."), approve="edits") as toolbox:
        task = engine.start(key, tools=toolbox.schemas)
        for call in task.pending_calls():
            with task.tool(call) as run:
                run.result = toolbox.run(call)

`unfold` and `recall` are not here: the engine answers them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from orihon.agent.tools.approval import Approval, Approve, Ask
from orihon.agent.tools.files import Edit, Read, Write, edit, read, write
from orihon.agent.tools.search import ListFiles, Search, list_files, search
from orihon.agent.tools.shell import OnOutput, RunShell, Shell
from orihon.agent.tools.workspace import OnEvent, ProgramRan, Workspace
from orihon.errors import ToolError
from orihon.settings.schema import McpServer
from orihon.task.tool_run import PendingCall

if TYPE_CHECKING:
    from orihon.agent.tools.mcp import McpServers

log = logging.getLogger("orihon")

BUILTIN_TOOLS: dict[str, type[msgspec.Struct]] = {
    "read": Read,
    "write": Write,
    "edit": Edit,
    "search": Search,
    "list_files": ListFiles,
    "shell": RunShell,
}
SHELL_SECONDS = 120.0


class Toolbox:
    """The tools of one workspace. Close it, or use it in a `with` block: that ends everything they started."""

    def __init__(
        self,
        workspace: Path | str,
        *,
        approve: Approve = "ask",
        ask: Ask | None = None,
        servers: Sequence[McpServer] = (),
        shell_timeout: float = SHELL_SECONDS,
        environ: Mapping[str, str] | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.environ = dict(os.environ if environ is None else environ)
        self.approval = Approval(approve, ask)
        self.servers = _open_servers(servers) if servers else None
        self.workspace = Workspace(workspace)
        self.shell = Shell(self.workspace.root, self.environ, shell_timeout)
        self.on_event = on_event

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The descriptions of all tools. This starts the MCP servers."""
        schemas = [_make_schema(name) for name in BUILTIN_TOOLS]
        return [*schemas, *(self.servers.schemas() if self.servers is not None else ())]

    def origins(self) -> dict[str, list[str]]:
        """Return the names of the tools by server; the built-in ones are under an empty name."""
        return {"": list(BUILTIN_TOOLS)} | (self.servers.names_by_server() if self.servers is not None else {})

    def run(self, call: PendingCall, *, on_output: OnOutput | None = None) -> Any:  # noqa: PLR0911
        """Carry out a call; `on_output` receives the output of a command while it runs. Raise ToolError."""
        if call.name not in BUILTIN_TOOLS:
            return self._run_server_tool(call)
        args = parse_arguments(call)
        match args:
            case Read():
                return read(self.workspace, args, self.on_event)
            case Write():
                return write(self.workspace, args, partial(self.approval.check_change, "write"), self.on_event)
            case Edit():
                return edit(self.workspace, args, partial(self.approval.check_change, "edit"), self.on_event)
            case Search():
                return search(self.workspace, args, self.environ)
            case ListFiles():
                return list_files(self.workspace, args, self.environ)
            case RunShell():
                self.approval.check("run", f"the command {args.command[:80]!a}", f"Run this?\n{args.command}")
                with self._announce("shell"):
                    return self.shell.run(args, on_output)
        raise AssertionError(args)

    def _run_server_tool(self, call: PendingCall) -> Any:
        tool = self.servers.find_tool(call.name) if self.servers is not None else None
        if self.servers is None or tool is None:
            names = ", ".join(name for names in self.origins().values() for name in names)
            raise ToolError(f"There is no tool {call.name!a}; there are {names}.")
        if not tool.read_only:
            self.approval.check("run", call.name, f"Call {call.name}?\n{call.text}")
        with self._announce(call.name):
            return self.servers.call(tool, call.arguments)

    @contextmanager
    def _announce(self, name: str) -> Iterator[None]:
        """Tell the listener that a program is about to run, and that it has ended, also if it failed."""
        on_event = self.on_event or (lambda _: None)
        on_event(ProgramRan(name, is_over=False))
        try:
            yield
        finally:
            on_event(ProgramRan(name, is_over=True))

    def close(self) -> None:
        """End the servers and everything that the shell started."""
        try:
            self.shell.close()
        finally:
            if self.servers is not None:
                self.servers.close()
            self.workspace.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_servers(servers: Sequence[McpServer]) -> McpServers | None:
    try:
        from orihon.agent.tools.mcp import McpServers  # noqa: PLC0415 - asyncio is large
    except ImportError:
        log.warning("MCP servers need the extra `agent`: pip install 'orihon[agent]'. Their tools are left out.")
        return None
    return McpServers(servers, reserved=(*BUILTIN_TOOLS, "unfold", "recall"))


def parse_arguments(call: PendingCall) -> msgspec.Struct:
    """Return the arguments of a call to a built-in tool. Raise ToolError for the model if they are wrong."""
    kind = BUILTIN_TOOLS[call.name]
    try:
        return msgspec.convert(call.arguments, kind, strict=False)
    except msgspec.ValidationError as error:
        fields = ", ".join(kind.__struct_fields__)
        raise ToolError(f"The arguments of {call.name} are wrong: {error}. It takes {fields}.") from error


@cache
def _make_schema(name: str) -> dict[str, Any]:
    kind = BUILTIN_TOOLS[name]
    schema = msgspec.json.schema(kind)["$defs"][kind.__name__]
    parameters = {key: schema[key] for key in ("type", "properties", "required", "additionalProperties")}
    description = " ".join((kind.__doc__ or "").split())
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
