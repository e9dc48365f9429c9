"""Tools by origin, and calls to tools that no longer exist.

| specification 004 | row | test |
|---|---|---|
| §8.1 | `Builtin` | test_builtin |
| §8.1 | `Custom` | test_custom |
| §8.1 | `Mcp` | test_mcp |
| §8.2 | tools and servers are rebuilt at run time | test_no_server_is_started |
| §8.2 | communication with MCP servers, execution of calls | tests/agent/tools/test_mcp.py |
"""

import sys
from pathlib import Path

import pytest

import orihon
from orihon.agent.tools.toolbox import BUILTIN_TOOLS, Toolbox
from orihon.chat.files import group_by_origin
from orihon.settings.schema import McpServer, Settings
from orihon.task.config import tool_name

KEY = orihon.TaskKey.parse("local/issue/1")
SERVER = str(Path(__file__).parent.parent / "support" / "mcp_server.py")
SERVERS = [McpServer(mcp_server_name="calc", command=(sys.executable, SERVER))]
MINE = {"type": "function", "function": {"name": "deploy", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def box(tmp_path_factory):
    with Toolbox(tmp_path_factory.mktemp("box"), servers=SERVERS) as box:
        yield box


def names(schemas):
    return [tool_name(schema) for schema in schemas]


def sorted_for(box, tools):
    with orihon.open("memory:", settings=Settings()) as engine, engine.start(KEY, tools=tools, inherit=False) as task:
        return group_by_origin(task.config.schemas, box)


def test_builtin(box):
    """The tools for files, the shell, and those of the engine."""
    assert names(sorted_for(box, box.schemas)["builtin"]) == [*BUILTIN_TOOLS, "unfold", "recall"]


def test_custom(box):
    """Tools of the caller; without a toolbox, also one with the name of a built-in tool."""
    found = sorted_for(box, [*box.schemas, MINE])
    assert found["custom"] == [MINE]
    theirs = {"type": "function", "function": {"name": "read"}}
    assert sorted_for(None, [theirs, MINE])["custom"] == [theirs, MINE]
    assert names(sorted_for(None, [])["builtin"]) == ["unfold", "recall"]


def test_mcp(box):
    """Tools of a server, under the names that the model uses."""
    found = sorted_for(box, [*box.schemas, MINE])
    assert "calc_add" in names(found["mcp"])
    assert all(name.startswith("calc_") for name in names(found["mcp"]))
    assert [*found] == ["builtin", "custom", "mcp"]


def test_no_server_is_started(tmp_path):
    """After a resume the task knows its tools; a server starts when one of its tools is called."""
    schemas = [MINE, {"type": "function", "function": {"name": "calc_add"}}]
    with Toolbox(tmp_path, servers=SERVERS) as box:
        assert names(group_by_origin(schemas, box)["mcp"]) == ["calc_add"]
        assert box.servers._connections == {}


def test_a_history_with_calls_of_removed_tools_can_be_sent(tmp_path):
    """Calls of removed tools keep their names in the window and in the log, and the prefix is stable."""
    with (
        orihon.open(str(tmp_path / "contexts"), settings=Settings()) as engine,
        engine.start(KEY, tools=[MINE], inherit=False) as task,
    ):
        task.add("user", "Go.")
        task.add("assistant", "", tool_calls=[{"id": "1", "name": "gone_search", "arguments": "{}"}])
        task.add("tool", "found", tool_call_id="1", tool_name="gone_search")
        task.add("assistant", "", tool_calls=[{"id": "2", "name": "deploy", "arguments": "{}"}])
        task.add("tool", "done", tool_call_id="2")
        before = task.window().openai()
        assert [call["function"]["name"] for message in before for call in message.get("tool_calls", ())] == [
            "gone_search", "deploy"
        ]  # fmt: skip
        assert [call.name for message in engine.read(task.uuid).messages() for call in message.tool_calls] == [
            "gone_search", "deploy"
        ]  # fmt: skip
        task.add("user", "And now?")
        assert task.window().openai()[: len(before)] == before


def test_a_task_without_declared_tools_keeps_all_names():
    """Without declared tools it is unknown which ones were removed."""
    with orihon.open("memory:", settings=Settings()) as engine, engine.start(KEY, inherit=False) as task:
        task.add("user", "Go.")
        task.add("assistant", "", tool_calls=[{"id": "1", "name": "mine", "arguments": "{}"}])
        task.add("tool", "found", tool_call_id="1")
        assert task.window().openai()[1]["tool_calls"][0]["function"]["name"] == "mine"
