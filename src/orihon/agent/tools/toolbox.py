"""All tools in one box: what the model is told about them, and how one of its calls is carried out.

    with Toolbox(Path("."), approve="edits") as box:
        task = engine.start(key, tools=box.schemas)
        for call in task.pending_calls():
            with task.tool(call) as run:
                run.result = box.run(call)

`unfold` and `recall` are not here: the engine answers them itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from orihon.agent.tools.approval import Approval, Approve, Ask
from orihon.agent.tools.edit import Edit, Write, edit, write
from orihon.agent.tools.events import ProgramRan, Watch
from orihon.agent.tools.list_files import ListFiles, list_files
from orihon.agent.tools.mcp import Servers
from orihon.agent.tools.read import Read, read
from orihon.agent.tools.search import Search, search
from orihon.agent.tools.shell import RunShell, Shell, Tell
from orihon.agent.tools.workspace import Workspace
from orihon.errors import ToolError
from orihon.settings.schema import McpServer
from orihon.task.runs import PendingCall

BUILTIN_TOOLS: dict[str, type[msgspec.Struct]] = {
    "read": Read,
    "write": Write,
    "edit": Edit,
    "search": Search,
    "list_files": ListFiles,
    "shell": RunShell,
}
SHELL_SECONDS = 120.0

A = TypeVar("A", bound=msgspec.Struct)


class Toolbox:
    """The tools for one workspace. Close it, or use it in a `with` block: that ends whatever they started."""

    def __init__(
        self,
        workspace: Path | str,
        *,
        approve: Approve = "ask",
        ask: Ask | None = None,
        servers: Sequence[McpServer] = (),
        shell_timeout: float = SHELL_SECONDS,
        environ: Mapping[str, str] | None = None,
        on_event: Watch | None = None,
    ) -> None:
        self.environ = dict(os.environ if environ is None else environ)
        self.approval = Approval(approve, ask)
        self.servers = Servers(servers, taken=(*BUILTIN_TOOLS, "unfold", "recall"))
        self.workspace = Workspace(workspace)
        self.shell = Shell(self.workspace.root, self.environ, shell_timeout)
        self.on_event = on_event

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """What the model is told about every tool; servers are started to be asked for theirs."""
        return [*(_schema(name) for name in BUILTIN_TOOLS), *self.servers.schemas()]

    def origins(self) -> dict[str, list[str]]:
        """The names of the tools by where they come from: our own under "", and those of each server under its name."""
        return {"": list(BUILTIN_TOOLS), **self.servers.by_server()}

    def run(self, call: PendingCall, *, on_output: Tell | None = None) -> Any:  # noqa: PLR0911 - one for each tool
        """Carry out a call; `tell` hears what a command says while it runs. A ToolError says why it failed."""
        if call.name not in BUILTIN_TOOLS:
            return self._run_foreign(call)
        asked = arguments(call, BUILTIN_TOOLS[call.name])
        match asked:
            case Read():
                return read(self.workspace, asked, self.on_event)
            case Write():
                allowed = partial(self.approval.check_change, "write")
                return write(self.workspace, asked, allowed, self.on_event)
            case Edit():
                allowed = partial(self.approval.check_change, "edit")
                return edit(self.workspace, asked, allowed, self.on_event)
            case Search():
                return search(self.workspace, asked, self.environ)
            case ListFiles():
                return list_files(self.workspace, asked, self.environ)
            case RunShell():
                self.approval.check("run", f"the command {asked.command[:80]!a}", f"Run this?\n{asked.command}")
                with self._heard("shell"):
                    return self.shell.run(asked, on_output)
        raise AssertionError(asked)

    def _run_foreign(self, call: PendingCall) -> Any:
        tool = self.servers.tool(call.name)
        if tool is None:
            names = ", ".join([*BUILTIN_TOOLS, *self.servers.names()])
            raise ToolError(f"There is no tool {call.name!a}; there are {names}.")
        if not tool.read_only:
            self.approval.check("run", call.name, f"Call {call.name}?\n{call.text}")
        with self._heard(call.name):
            return self.servers.call(tool, call.arguments)

    @contextmanager
    def _heard(self, name: str) -> Iterator[None]:
        """Whoever watches hears of a program before it runs and after it, also of one that fails."""
        on_event = self.on_event or (lambda _: None)
        on_event(ProgramRan(name, is_over=False))
        try:
            yield
        finally:
            on_event(ProgramRan(name, is_over=True))

    def close(self) -> None:
        """End the servers and everything the shell started."""
        try:
            self.shell.close()
        finally:
            self.servers.close()
            self.workspace.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def arguments(call: PendingCall, kind: type[A]) -> A:
    """The arguments of a call, checked; what is wrong is said in a sentence for the model."""
    try:
        return msgspec.convert(call.arguments, kind, strict=False)
    except msgspec.ValidationError as error:
        fields = ", ".join(kind.__struct_fields__)
        raise ToolError(f"The arguments of {call.name} are wrong: {error}. It takes {fields}.") from error


@cache
def _schema(name: str) -> dict[str, Any]:
    kind = BUILTIN_TOOLS[name]
    described = msgspec.json.schema(kind)["$defs"][kind.__name__]
    parameters = {key: described[key] for key in ("type", "properties", "required", "additionalProperties")}
    about = " ".join((kind.__doc__ or "").split())
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}
