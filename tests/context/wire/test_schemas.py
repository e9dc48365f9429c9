"""Tools in every form that people write them."""

from typing import Literal

import pytest
from pydantic import BaseModel, Field

from orihon.context.wire.schemas import parse_tools
from orihon.errors import UsageError
from orihon.task_key import TaskKey

PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
DESCRIBED = {"name": "read", "description": "Read a file."}
EXPECTED = {"type": "function", "function": {**DESCRIBED, "parameters": PARAMETERS}}
GEMINI = {"type": "OBJECT", "properties": {"path": {"type": "STRING"}}, "required": ["path"]}


def read(path: str):
    """Read a file."""


class Read(BaseModel):
    """Read a file."""

    model_config = {"title": "read"}
    path: str = Field(title=None)


@pytest.mark.parametrize(
    "tool",
    [
        pytest.param(EXPECTED, id="chat completions"),
        pytest.param({"type": "function", **DESCRIBED, "parameters": PARAMETERS}, id="responses"),
        pytest.param({**DESCRIBED, "input_schema": PARAMETERS}, id="anthropic"),
        pytest.param({"type": "custom", **DESCRIBED, "input_schema": PARAMETERS}, id="anthropic custom"),
        pytest.param({"functionDeclarations": [{**DESCRIBED, "parameters": GEMINI}]}, id="gemini"),
        pytest.param({"function_declarations": [{**DESCRIBED, "parametersJsonSchema": PARAMETERS}]}, id="gemini json"),
        pytest.param({**DESCRIBED, "inputSchema": PARAMETERS, "annotations": {"readOnlyHint": True}}, id="mcp"),
        pytest.param({"title": "read", "description": "Read a file.", **PARAMETERS}, id="json schema"),
        pytest.param(read, id="function"),
    ],
)
def test_any_tool_schema_is_understood(tool):
    """The parameters arrive, whatever the API calls them."""
    assert parse_tools([tool]) == [EXPECTED]


def test_a_model_class():
    """Pydantic describes the fields; the class describes the tool."""
    (tool,) = parse_tools([Read])
    assert tool["function"]["name"] == "read"
    assert tool["function"]["description"] == "Read a file."
    assert tool["function"]["parameters"]["required"] == ["path"]


def test_a_function_with_everything():
    """Defaults, choices and lists are in the schema; `*args` is not."""

    def search(query: str, *rest: str, kind: Literal["code", "docs"] = "code", paths: list[str] | None = None):
        pass

    (tool,) = parse_tools([search])
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "kind": {"enum": ["code", "docs"], "default": "code"},
            "paths": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
        },
        "required": ["query"],
    }


@pytest.mark.parametrize(
    "tool",
    [
        5,
        "read",
        {},
        {"type": "object", "properties": {}},
        {"type": "web_search_20250305", "name": "web_search"},
        {**DESCRIBED, "input_schema": "path"},
        {"functionDeclarations": [7]},
    ],
    ids=str,
)
def test_what_is_no_tool_is_an_error(tool):
    """The sentence says which forms are known; nothing is dropped in silence."""
    with pytest.raises(UsageError) as raised:
        parse_tools([tool])
    assert raised.value.hint


def test_the_schema_reaches_every_format(engine):
    """A tool in Anthropic's form has its parameters in the request of each API."""
    with engine.start(TaskKey.local("t"), tools=[{**DESCRIBED, "input_schema": PARAMETERS}]) as task:
        task.add("user", "Go.")
        window = task.window()
        assert window.tools("openai")[0]["function"]["parameters"] == PARAMETERS
        assert window.tools("anthropic")[0]["input_schema"] == PARAMETERS
        assert window.tools("responses")[0]["parameters"] == PARAMETERS
        assert window.tools("gemini")[0]["functionDeclarations"][0]["parametersJsonSchema"] == PARAMETERS
