"""An MCP server of 2024 that needs only the standard library, so that it starts in a moment.

It knows the handshake of 2024 and nothing newer, and announces a changed list of tools on its own.
"""

import json
import os
import sys
from pathlib import Path

READ_ONLY = {"readOnlyHint": True}
TOOLS = {"add": READ_ONLY, "pid": READ_ONLY, "environment": READ_ONLY, "crash_once": READ_ONLY, "fail": {}, "crash": {}}
TOOLS |= {"count": {}, "grow": {}}


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(name, arguments):
    """Return the text of a result."""
    match name:
        case "add":
            return str(arguments["a"] + arguments["b"])
        case "pid":
            return str(os.getpid())
        case "environment":
            return json.dumps(dict(os.environ))
        case "crash_once" if Path(arguments["marker"]).exists():
            return "here again"
        case "crash_once":
            Path(arguments["marker"]).touch()
            os._exit(3)
        case "count":
            with Path(arguments["file"]).open("a") as lines:
                lines.write("x\n")
            os._exit(3)
        case "crash":
            sys.stderr.write("goodbye, cruel world\n")
            sys.stderr.flush()
            os._exit(3)
        case "grow":
            TOOLS["grown"] = {}
            send(method="notifications/tools/list_changed")
    return name


for line in sys.stdin:
    request = json.loads(line)
    match request.get("method"):
        case "initialize":
            about = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {"listChanged": True}}}
            send(id=request["id"], result=about | {"serverInfo": {"name": "light", "version": "1"}})
        case "tools/list":
            schema = {"type": "object"}
            tools = [{"name": name, "inputSchema": schema, "annotations": hints} for name, hints in TOOLS.items()]
            send(id=request["id"], result={"tools": tools})
        case "tools/call":
            text = call(request["params"]["name"], request["params"].get("arguments") or {})
            send(id=request["id"], result={"content": [{"type": "text", "text": text}]})
        case _ if "id" in request:
            send(id=request["id"], error={"code": -32601, "message": "unknown"})
