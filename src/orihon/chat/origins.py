"""Where the tools of a conversation come from: Engine itself, the caller, or an MCP server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from orihon.agent.tools.toolbox import BUILTIN_TOOLS, Toolbox
from orihon.context.recall import RECALL, UNFOLD
from orihon.task.config import name_of

Origin = Literal["builtin", "custom", "mcp"]
Schema = dict[str, Any]


def by_origin(schemas: Iterable[Schema], box: Toolbox | None = None) -> dict[Origin, list[Schema]]:
    """The tools of a task, `task.config.schemas`, sorted by origin in their order; servers are not asked for theirs."""
    found: dict[Origin, list[Schema]] = {"builtin": [], "custom": [], "mcp": []}
    for schema in schemas:
        found[_origin(schema, box)].append(schema)
    return found


def _origin(schema: Schema, box: Toolbox | None) -> Origin:
    name = name_of(schema)
    if schema in (UNFOLD, RECALL) or (box is not None and name in BUILTIN_TOOLS):
        return "builtin"
    return "mcp" if box is not None and box.servers.has(name) else "custom"
