"""The caller's tools in the shape of each API, under the names that repaired calls have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orihon.context.repair import plain_name
from orihon.errors import UsageError

APIS = ("openai", "responses", "anthropic", "gemini")


def tools(schemas: Sequence[dict[str, Any]], api: str) -> list[dict[str, Any]]:
    """Tools as OpenAI's chat completions describe them (`{"type": "function", "function": {…}}`), for any API.

    A name that some provider refuses goes out as `plain_name` has it, and a model's calls come back under that one.
    """
    functions = [_function(schema) for schema in schemas]
    if api == "openai":
        return [{"type": "function", "function": function} for function in functions]
    if api == "responses":
        return [{"type": "function", "strict": False} | function for function in functions]
    if api == "anthropic":
        return [_renamed(function, "input_schema") for function in functions]
    if api == "gemini":
        declared = [_renamed(function, "parametersJsonSchema") for function in functions]
        return [{"functionDeclarations": declared}] if declared else []
    raise UsageError(f"There is no API called {api!r}.", hint=f"Use one of: {', '.join(APIS)}.")


def _function(schema: dict[str, Any]) -> dict[str, Any]:
    function = schema.get("function", schema)
    if not isinstance(function, dict) or not function.get("name") or not isinstance(function["name"], str):
        raise UsageError(
            f"This tool has no name: {str(schema)[:200]}",
            hint='Describe it as {"type": "function", "function": {"name": …, "description": …, "parameters": {…}}}.',
        )
    kept = {key: value for key, value in function.items() if key not in {"type", "name"}}
    kept.setdefault("parameters", {"type": "object", "properties": {}})
    return {"name": plain_name(function["name"])} | kept


def _renamed(function: dict[str, Any], parameters: str) -> dict[str, Any]:
    described = {key: function[key] for key in ("name", "description") if function.get(key)}
    return described | {parameters: function["parameters"]}
