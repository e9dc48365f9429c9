"""The caller's tools: understood in any form that people write, and described in the shape of each API.

Accepted are the tools of OpenAI (chat completions and Responses), Anthropic, Gemini and MCP, a JSON schema with a
`title`, a model class of Pydantic, and a Python function. Everything else is a UsageError, because a tool whose
parameters are not understood would reach the model without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from orihon.coerce import to_json_value, to_list, to_mapping
from orihon.context.repair import plain_name
from orihon.errors import UsageError

Schema = dict[str, Any]

APIS = ("openai", "responses", "anthropic", "gemini")

_HINT = (
    "Give tools as OpenAI, Anthropic, Gemini or MCP describe them, a JSON schema with a `title`, or a Python function."
)
_PARAMETERS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
_DECLARATIONS = ("functionDeclarations", "function_declarations")


def parse_tools(tools: Any) -> list[Schema]:
    """Return a list of tools as OpenAI's chat completions describe them; raise UsageError for one of no known form."""
    return [schema for tool in to_list(tools, "The tools", hint=_HINT) for schema in _parse_tool(tool)]


def _parse_tool(tool: Any) -> Iterator[Schema]:
    if callable(describe := getattr(tool, "model_json_schema", None)):
        yield _from_json_schema(to_json_value(describe(), "The tools"))
    elif callable(tool) and not isinstance(tool, type):
        yield _from_function(tool)
    else:
        fields = to_mapping(tool)
        if fields is None:
            raise UsageError(f"A tool cannot be a {type(tool).__name__}.", hint=_HINT)
        yield from _from_fields(to_json_value(fields, "The tools"))


def _from_fields(fields: Schema) -> Iterator[Schema]:
    declarations = next((fields[name] for name in _DECLARATIONS if fields.get(name)), None)
    if isinstance(declarations, list):
        for declaration in declarations:
            yield from _from_fields(_lower_types(declaration) if isinstance(declaration, dict) else {})
    elif "function" in fields:
        yield fields  # it is in the form of chat completions
    elif "name" in fields:
        yield _from_description(fields)
    else:
        yield _from_json_schema(fields)


def _lower_types(schema: Any) -> Any:
    """Return a schema of Gemini's, whose types may be written as STRING and OBJECT, as a JSON schema."""
    if isinstance(schema, list):
        return [_lower_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    lowered = {key: _lower_types(value) for key, value in schema.items()}
    kind = lowered.get("type")
    return lowered | {"type": kind.lower()} if isinstance(kind, str) and kind.isupper() else lowered


def _from_description(fields: Schema) -> Schema:
    """Return a tool that has its name and its parameters side by side, under the name that its API gives them."""
    given = [name for name in _PARAMETERS if name in fields]
    if not given and fields.get("type", "function") not in {"function", "custom"}:
        raise UsageError(
            f"The tool {fields['name']!a:.80} of the type {fields['type']!a:.80} has no parameters; it is run by its "
            "provider, and its calls cannot be kept.",
            hint="Leave it out, or give a tool with a schema.",
        )
    parameters = fields[given[0]] if given else None
    if parameters is not None and not isinstance(parameters, dict):
        raise UsageError(f"The parameters of the tool {fields['name']!a:.80} are not a JSON schema.", hint=_HINT)
    kept = {name: fields[name] for name in ("description", "strict") if fields.get(name) is not None}
    return _tool(fields["name"], kept, parameters)


def _from_json_schema(schema: Schema) -> Schema:
    name = schema.get("title")
    if (
        not isinstance(name, str)
        or not isinstance(schema.get("properties", {}), dict)
        or schema.get("type") != "object"
    ):
        raise UsageError(f"This is not a tool: {str(schema)[:80]!a}.", hint=_HINT)
    described = {"description": schema["description"]} if isinstance(schema.get("description"), str) else {}
    return _tool(name, described, {key: value for key, value in schema.items() if key not in {"title", "description"}})


def _from_function(function: Callable[..., Any]) -> Schema:
    """Return a tool of a Python function: its annotations are the parameters, its docstring is the description."""
    import inspect  # noqa: PLC0415 - few callers give a function

    name = getattr(function, "__name__", "")
    try:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
        named = [one for one in parameters if one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY}]
        types = [Any if one.annotation is one.empty else one.annotation for one in named]
        schemas, components = msgspec.json.schema_components(types)
    except (TypeError, ValueError, NameError) as error:
        raise UsageError(f"The function {name!a:.80} cannot be a tool: {error}.", hint=_HINT) from error
    properties = {one.name: schema for one, schema in zip(named, schemas, strict=True)}
    for one in named:
        if one.default is not one.empty:
            properties[one.name] = {
                **properties[one.name],
                "default": to_json_value(one.default, f"The default of {one.name}"),
            }
    required = [one.name for one in named if one.default is one.empty]
    described = {"description": text} if (text := inspect.getdoc(function)) else {}
    parameters_schema: Schema = {"type": "object", "properties": properties, "required": required}
    return _tool(name, described, parameters_schema | ({"$defs": components} if components else {}))


def _tool(name: Any, described: Schema, parameters: Schema | None) -> Schema:
    function = {"name": name, **described}
    return {"type": "function", "function": function | ({} if parameters is None else {"parameters": parameters})}


# as each API wants them


def tools(schemas: Sequence[dict[str, Any]], api: str) -> list[dict[str, Any]]:
    """Convert tools of OpenAI's chat completions (`{"type": "function", "function": {…}}`) to the form of an API.

    A name that some provider refuses is sent as `plain_name` returns it, and the model's calls use that name.
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
