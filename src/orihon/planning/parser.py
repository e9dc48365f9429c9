"""Reading plans: replies of a model, and stored entries.

Both are read tolerantly. Unknown fields are ignored, a field of the wrong type gets its default, flat shapes and old
names are understood, and a list keeps at most `MAX_ITEMS` items. `parse_reply` also requires the fields that a reply
cannot do without, so that the model can be asked again.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from itertools import islice
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct

from orihon.codec import clean_text
from orihon.coerce import decode_json
from orihon.errors import ModelError
from orihon.planning.schema import KIND_OF, KINDS, OLD_NAMES, REQUIRED, Value
from orihon.records import PlanEntry, PlanKind

MAX_ITEMS = 1000

V = TypeVar("V", bound=Value)

_FENCED = re.compile(r"^[ \t]*```[a-zA-Z]*[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


def parse_reply(text: str, struct: type[V]) -> V:
    """Return the value in a model's reply. Raise ModelError with the names of missing fields."""
    kind = KIND_OF[struct]
    hint = "Ask the model again and show it the form."
    for data in _find_objects(clean_text(text)):
        fields = _unwrap(data, kind)
        if not fields:
            continue
        wrapper = KINDS[kind][1]
        if missing := list(_find_missing(struct, fields, f"{wrapper}." if wrapper else "")):
            raise ModelError(f"The model's answer lacks {' and '.join(missing)}.", hint=hint, retryable=True)
        value: V = _build(fields, struct)
        return value
    name = kind.replace("_", " ")
    raise ModelError(f"The model's answer holds no JSON object with a {name}.", hint=hint, retryable=True)


def read_entry(entry: PlanEntry) -> Value | None:
    """Return the value of an entry, as far as it can be understood; None if nothing of it can."""
    try:
        fields = _unwrap(entry.data, entry.type)
        value: Value | None = _build(fields, KINDS[entry.type][0]) if fields else None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    return value


def _find_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that a reply may mean, the likeliest first."""
    answer = _strip_thoughts(text)
    for candidate in (text, answer, *_FENCED.findall(answer), answer[answer.find("{") : answer.rfind("}") + 1]):
        try:
            data = decode_json(candidate)
        except ValueError:
            continue
        if isinstance(data, dict):
            yield data


def _strip_thoughts(text: str) -> str:
    """Return the text without <think>…</think>, even if the opening tag was cut off."""
    *thoughts, answer = text.split("</think>")
    return "".join([*(part.partition("<think>")[0] for part in thoughts if "<think>" in part), answer])


def _unwrap(data: Any, kind: PlanKind) -> dict[str, Any]:
    """Return the fields of a kind, from inside its wrapper and from next to it."""
    if not isinstance(data, dict):
        return {}
    struct, wrapper, old_wrapper = KINDS[kind]
    for name in (old_wrapper, wrapper):
        if name and isinstance(inside := data.get(name), dict):
            data = {key: item for key, item in data.items() if key != name} | inside
    return _arrange(data, struct)


def _arrange(data: dict[str, Any], struct: type[Struct]) -> dict[str, Any]:
    """Return the fields of a struct under their current names, with flat fields moved into their inner struct."""
    fields = {name: data[name] for name in _hints(struct) if name in data}
    for old, new in OLD_NAMES.get(struct, {}).items():
        if old in data:
            fields.setdefault(new, data[old])
    for name, hint in _hints(struct).items():
        inner = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if _is_struct(inner) and not isinstance(fields.get(name), dict) and (flat := _arrange(data, inner)):
            fields[name] = flat
    return fields


def _build(data: dict[str, Any], struct: Any) -> Any:
    """Return the struct with the fields that fit."""
    fields = _arrange(data, struct)
    fitting = {name: _fit(fields[name], hint) for name, hint in _hints(struct).items() if name in fields}
    return struct(**{name: value for name, value in fitting.items() if value is not UNSET})


def _fit(value: Any, hint: Any) -> Any:
    """Return the value as a field of this type holds it; UNSET if it does not fit."""
    bare = _bare_type(hint)
    if _is_struct(bare):
        return _build(value, bare) if isinstance(value, dict) else UNSET
    if get_origin(bare) is tuple:
        items = value if isinstance(value, list | tuple) else () if value in (None, "") else (value,)
        fitting = (_fit_item(item, get_args(bare)[0]) for item in items)
        return tuple(islice((item for item in fitting if item is not UNSET), MAX_ITEMS))
    if bare is str:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if isinstance(value, str) else str(value) if is_number else UNSET
    if get_origin(bare) is Literal and isinstance(value, str):
        value = value.strip().lower()
    try:
        converted = msgspec.convert(value, hint, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return UNSET
    return UNSET if isinstance(converted, float) and not math.isfinite(converted) else converted


def _fit_item(item: Any, hint: Any) -> Any:
    if hint is str and isinstance(item, dict):  # {"file": "a.py", "line": 7} instead of a text
        return "; ".join(f"{name}: {part}" for name, part in item.items() if isinstance(part, str | int | float))
    return _fit(item, hint)


def _find_missing(struct: Any, data: dict[str, Any], path: str) -> Iterator[str]:
    fields = _arrange(data, struct)
    for name, hint in _hints(struct).items():
        if REQUIRED not in getattr(hint, "__metadata__", ()):
            continue
        if _is_struct(_bare_type(hint)):
            inner = fields.get(name)
            yield from _find_missing(_bare_type(hint), inner if isinstance(inner, dict) else {}, f"{path}{name}.")
        elif name not in fields or _fit(fields[name], hint) in (UNSET, "", ()):
            yield path + name


@functools.cache
def _hints(struct: Any) -> dict[str, Any]:
    return get_type_hints(struct, include_extras=True)


def _bare_type(hint: Any) -> Any:
    """Return the type without its annotations and without None."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    options = get_args(hint) if NoneType in get_args(hint) else (hint,)
    return next(option for option in options if option is not NoneType)


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)
