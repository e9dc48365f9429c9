"""Tools by origin, and calls to tools that are gone.

| seed 004 | row | test |
|---|---|---|
| §8.1 | `Builtin` | test_builtin |
| §8.1 | `Custom` | test_custom |
| §8.1 | `Mcp` | test_mcp |
| §8.2 | tools and servers are rebuilt when it runs | test_origins_are_told_without_starting_a_server |
| §8.2 | it talks to MCP servers, and carries out calls | tests/agent/tools/test_mcp.py |
"""

import sys
from pathlib import Path

import pytest

import orihon
from orihon.agent.tools.toolbox import BUILTIN_TOOLS, Toolbox
from orihon.chat.origins import by_origin
from orihon.context.repair import DUMMY
from orihon.settings.schema import McpServer, Settings
from orihon.task.config import name_of

KEY = orihon.TaskKey.parse("local/issue/1")
SERVER = str(Path(__file__).parent.parent / "support" / "mcp_server.py")
MINE = {"type": "function", "function": {"name": "deploy", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def box(tmp_path):
    with Toolbox(tmp_path, servers=[McpServer(mcp_server_name="calc", command=(sys.executable, SERVER))]) as made:
        yield made


def names(schemas):
    return [name_of(schema) for schema in schemas]


def sorted_for(box, tools):
    with orihon.open("memory:", settings=Settings()) as engine, engine.start(KEY, tools=tools, inherit=False) as task:
        return by_origin(task.config.schemas, box)


def test_builtin(box):
    """The tools for files, the shell, and the engine's own."""
    assert names(sorted_for(box, box.schemas)["builtin"]) == [*BUILTIN_TOOLS, "unfold", "recall"]


def test_custom(box):
    """What the caller brought along; also one that has the name of ours, where there is no box of ours."""
    found = sorted_for(box, [*box.schemas, MINE])
    assert found["custom"] == [MINE]
    theirs = {"type": "function", "function": {"name": "read"}}
    assert sorted_for(None, [theirs, MINE])["custom"] == [theirs, MINE]
    assert names(sorted_for(None, [])["builtin"]) == ["unfold", "recall"]


def test_mcp(box):
    """What a server offers, under the name by which the model knows it."""
    found = sorted_for(box, [*box.schemas, MINE])
    assert "calc_add" in names(found["mcp"])
    assert all(name.startswith("calc_") for name in names(found["mcp"]))
    assert [*found] == ["builtin", "custom", "mcp"]


def test_origins_are_told_without_starting_a_server(box):
    """After a resume the tools are known by the task; a server is started when one of its tools is called."""
    schemas = [MINE, {"type": "function", "function": {"name": "calc_add"}}]
    assert names(by_origin(schemas, box)["mcp"]) == ["calc_add"]
    assert box.servers._hub is None


def test_a_history_whose_tools_are_gone_can_be_sent(tmp_path):
    """The tools of a server that was removed are `dummy` in the window, the log keeps their names, and it is stable."""
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
            DUMMY, "deploy"
        ]  # fmt: skip
        assert [call.name for message in engine.read(task.uuid).messages() for call in message.tool_calls] == [
            "gone_search", "deploy"
        ]  # fmt: skip
        task.add("user", "And now?")
        assert task.window().openai()[: len(before)] == before


def test_a_caller_who_keeps_the_tools_to_himself_is_left_alone():
    """Where the task was told of no tools, nobody can say that one is gone."""
    with orihon.open("memory:", settings=Settings()) as engine, engine.start(KEY, inherit=False) as task:
        task.add("user", "Go.")
        task.add("assistant", "", tool_calls=[{"id": "1", "name": "mine", "arguments": "{}"}])
        task.add("tool", "found", tool_call_id="1")
        assert task.window().openai()[1]["tool_calls"][0]["function"]["name"] == "mine"
