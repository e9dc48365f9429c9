"""An MCP server of 2024, by hand: it knows the handshake and nothing newer, and says by itself what changes."""

import json
import sys

tools = ["first"]


def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    asked = json.loads(line)
    match asked.get("method"):
        case "initialize":
            about = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {"listChanged": True}}}
            say(id=asked["id"], result=about | {"serverInfo": {"name": "old", "version": "1"}})
        case "tools/list":
            say(id=asked["id"], result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]})
        case "tools/call":
            tools.append("second")
            say(method="notifications/tools/list_changed")
            say(id=asked["id"], result={"content": [{"type": "text", "text": asked["params"]["name"]}]})
        case _ if "id" in asked:
            say(id=asked["id"], error={"code": -32601, "message": "unknown"})
