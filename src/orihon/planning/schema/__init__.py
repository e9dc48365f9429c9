"""What a plan, a revision, a reflection, a verification and a decision to replan look like: one shape, everywhere.

The prompt shows this shape (`json_schema`), the model answers in it (`parse`), the history stores it (`entry`), and
the next run reads it back (`value_of`). A field has its name here and nowhere else, so no two of them can disagree.

Reading what is stored is tolerant: unknown fields are ignored, a field of a wrong type has its default, flat shapes and
old names are understood, and a list has `MAX_ITEMS` items at most. Reading a model's answer is as tolerant in form, but
says what is missing, so that the model can be asked again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from orihon.codec import clean_text, clean_value
from orihon.coerce import decode_json
from orihon.errors import ModelError
from orihon.planning.schema.reading import MAX_ITEMS, gaps, read
from orihon.planning.schema.values import (
    KIND_OF,
    KINDS,
    Action,
    ActionPlan,
    Change,
    Complexity,
    Criterion,
    Decomposition,
    Goal,
    Placeholders,
    Plan,
    Reflection,
    ReplanDecision,
    Revision,
    StepStatus,
    Subtask,
    Value,
    Verification,
)
from orihon.records import PlanEntry, PlanKind

__all__ = [
    "MAX_ITEMS",
    "Action",
    "ActionPlan",
    "Change",
    "Complexity",
    "Criterion",
    "Decomposition",
    "Goal",
    "Placeholders",
    "Plan",
    "Reflection",
    "ReplanDecision",
    "Revision",
    "StepStatus",
    "Subtask",
    "Value",
    "Verification",
    "data_of",
    "entry",
    "json_schema",
    "kind_of",
    "parse",
    "progress",
    "value_of",
]


def kind_of(value: Value) -> PlanKind:
    """The type that an entry of this value has."""
    return KIND_OF[type(value)]


def data_of(value: Value) -> dict[str, Any]:
    """The value as JSON data: the shape in which a model answers and in which it is stored."""
    _, outer, _ = KINDS[kind_of(value)]
    data: dict[str, Any] = clean_value(_plain(value))
    return {outer: data} if outer else data


def entry(task_uuid: str, value: Value) -> PlanEntry:
    """A step in the history that the store has still to number and date."""
    return PlanEntry(id=0, type=kind_of(value), task_uuid=task_uuid, data=data_of(value), timestamp="")


def value_of(entry: PlanEntry) -> Value | None:
    """What an entry says, as far as it can be understood; None when nothing of it can."""
    try:
        return read(entry.data, entry.type)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None


def parse(text: str, kind: PlanKind) -> Value:
    """A model's answer; ModelError says what is missing."""
    hint = "Ask the model again, and show it the form."
    found = ((value, data) for data in _objects(clean_text(text)) if (value := read(data, kind)) is not None)
    value, data = next(found, (None, None))
    if value is None:
        name = kind.replace("_", " ")
        raise ModelError(f"The model's answer holds no JSON object with a {name}.", hint=hint, retryable=True)
    if lacks := gaps(data, kind):
        raise ModelError(f"The model's answer lacks {' and '.join(lacks)}.", hint=hint, retryable=True)
    return value


def json_schema(kind: PlanKind) -> dict[str, Any]:
    """The form of an answer, as a JSON schema without references."""
    struct, outer, _ = KINDS[kind]
    whole = msgspec.json.schema(struct)
    form: dict[str, Any] = _form(whole, whole["$defs"])
    return {"type": "object", "properties": {outer: form}, "required": [outer]} if outer else form


def progress(plan: Plan) -> Counter[str]:
    """How many subtasks have each status."""
    return Counter(subtask.status for subtask in plan.subtasks)


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


# a model's answer


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that an answer may mean, the likeliest first."""
    said = _without_thoughts(text)
    candidates = [text, said, *_FENCED.findall(said), said[said.find("{") : said.rfind("}") + 1]]
    for candidate in candidates:
        try:
            data = decode_json(candidate)
        except ValueError:
            continue
        if isinstance(data, dict):
            yield data


_FENCED = re.compile(r"^[ \t]*```[a-zA-Z]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


def _without_thoughts(text: str) -> str:
    """The text without <think>…</think>, also when the beginning of it was cut off."""
    *thoughtful, said = text.split("</think>")
    kept = [part.partition("<think>")[0] for part in thoughtful if "<think>" in part]
    return "".join([*kept, said])


# the form of an answer


def _form(schema: Any, parts: dict[str, Any]) -> Any:
    """A schema with its references put in, without what the model is not asked for."""
    if isinstance(schema, list):
        return [_form(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _form(parts[schema["$ref"].rpartition("/")[2]], parts)
    form = {name: _form(item, parts) for name, item in schema.items() if name not in _NOT_SHOWN}
    if "properties" in schema:
        shown = {name: item for name, item in schema["properties"].items() if not item.get("ours")}
        form["properties"] = {name: _form(item, parts) for name, item in shown.items()}
        needed = [name for name, item in shown.items() if item.get("needed")]
        form |= {"required": needed} if needed else {}
    return form


_NOT_SHOWN = frozenset(("default", "title", "$defs", "needed", "ours", "required"))
