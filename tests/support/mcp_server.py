"""An MCP server to be started by tests: `server.py` over stdio, `server.py PORT` over HTTP."""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("test")
READ_ONLY = ToolAnnotations(read_only_hint=True)
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fcffff3f0300050001ff"
    "a3b5d5f30000000049454e44ae426082"
)


@server.tool(annotations=READ_ONLY)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail as a tool fails."""
    raise ValueError("the moon is full")


@server.tool()
def crash() -> str:
    """End the server."""
    sys.stderr.write("goodbye, cruel world\n")
    sys.stderr.flush()
    os._exit(3)


@server.tool(annotations=READ_ONLY)
def crash_once(marker: str) -> str:
    """End the server the first time."""
    if Path(marker).exists():
        return "here again"
    Path(marker).touch()
    os._exit(3)


@server.tool()
def count(file: str) -> str:
    """Add a line to a file and end the server."""
    with Path(file).open("a") as lines:
        lines.write("x\n")
    os._exit(3)


def leave(name):
    Path(name).touch()


@server.tool(annotations=READ_ONLY)
async def slow(marker: str) -> str:
    """Never answer; leave a file when nobody waits any more."""
    try:
        leave(f"{marker}.begun")
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        leave(f"{marker}.cancelled")
        raise
    return "too late"


@server.tool(annotations=READ_ONLY)
def picture() -> list:
    """A text and a picture."""
    return ["a pixel", Image(data=PIXEL, format="png")]


@server.tool(annotations=READ_ONLY)
def environment() -> dict[str, str]:
    """What the server sees."""
    return dict(os.environ)


@server.tool(annotations=READ_ONLY)
def pid() -> int:
    """Who it is."""
    return os.getpid()


@server.tool(annotations=READ_ONLY)
def headers(ctx: Context) -> str:
    """A header of the request."""
    return (ctx.headers or {}).get("authorization", "")


@server.tool(name="weird name/ü", annotations=READ_ONLY)
def weird() -> str:
    """A name that no provider takes."""
    return "weird"


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer one more tool."""
    server.add_tool(lambda: "new", name="grown", description="Was not there before.")
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "grown"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()
