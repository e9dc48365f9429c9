"""Data to values, with patience: whatever fits is taken, and the rest has its default."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from itertools import islice
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct

from orihon.planning.schema.values import KINDS, NEEDED, OLD_NAMES, Value
from orihon.records import PlanKind

MAX_ITEMS = 1000


def read(data: Any, kind: PlanKind) -> Value | None:
    """The value that data mean; None when there is nothing of it."""
    fields = _fields(data, kind)
    if fields is None:
        return None
    value: Value = built(fields, KINDS[kind][0])
    return value


def gaps(data: Any, kind: PlanKind) -> list[str]:
    """The fields that a value of this kind cannot be without, and that are not there."""
    struct, outer, _ = KINDS[kind]
    return list(_gaps(struct, _fields(data, kind) or {}, f"{outer}." if outer else ""))


def _fields(data: Any, kind: PlanKind) -> dict[str, Any] | None:
    """The fields of a kind, from under its name and from beside it; None when there is not one of them."""
    if not isinstance(data, dict):
        return None
    struct, outer, old = KINDS[kind]
    for name in (old, outer):
        if name and isinstance(inside := data.get(name), dict):
            data = {key: item for key, item in data.items() if key != name} | inside
    return _shaped(data, struct) or None


def _shaped(data: dict[str, Any], struct: type[Struct]) -> dict[str, Any]:
    """The fields of a struct under today's names; what lies flat is put where it belongs."""
    shaped = {name: data[name] for name in _types(struct) if name in data}
    for old, new in OLD_NAMES.get(struct, {}).items():
        if old in data:
            shaped.setdefault(new, data[old])
    for name, kind in _types(struct).items():
        inner = _noteless(kind)
        if _is_struct(inner) and not isinstance(shaped.get(name), dict) and (flat := _shaped(data, inner)):
            shaped[name] = flat
    return shaped


def built(data: dict[str, Any], struct: Any) -> Any:
    """The struct with those fields that fit."""
    shaped = _shaped(data, struct)
    fitted = {name: _fitted(shaped[name], kind) for name, kind in _types(struct).items() if name in shaped}
    return struct(**{name: value for name, value in fitted.items() if value is not UNSET})


def _fitted(value: Any, kind: Any) -> Any:
    """The value as a field of a kind holds it; UNSET when it does not fit."""
    bare = _bare(kind)
    if _is_struct(bare):
        return built(value, bare) if isinstance(value, dict) else UNSET
    if get_origin(bare) is tuple:
        items = value if isinstance(value, list | tuple) else () if value in (None, "") else (value,)
        fitted = (_fitted_item(item, get_args(bare)[0]) for item in items)
        return tuple(islice((item for item in fitted if item is not UNSET), MAX_ITEMS))
    if bare is str:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if isinstance(value, str) else str(value) if is_number else UNSET
    if get_origin(bare) is Literal and isinstance(value, str):
        value = value.strip().lower()
    try:
        fitted_value = msgspec.convert(value, kind, strict=False)
    except (msgspec.ValidationError, RecursionError):
        return UNSET
    return UNSET if isinstance(fitted_value, float) and not math.isfinite(fitted_value) else fitted_value


def _fitted_item(item: Any, kind: Any) -> Any:
    if kind is str and isinstance(item, dict):  # {"file": "a.py", "line": 7} where a text was asked for
        return "; ".join(f"{name}: {part}" for name, part in item.items() if isinstance(part, str | int | float))
    return _fitted(item, kind)


def _gaps(struct: Any, data: dict[str, Any], path: str) -> Iterator[str]:
    shaped = _shaped(data, struct)
    for name, kind in _types(struct).items():
        if NEEDED not in getattr(kind, "__metadata__", ()):
            continue
        if _is_struct(_bare(kind)):
            inner = shaped.get(name)
            yield from _gaps(_bare(kind), inner if isinstance(inner, dict) else {}, f"{path}{name}.")
        elif name not in shaped or _fitted(shaped[name], kind) in (UNSET, "", ()):
            yield path + name


@functools.cache
def _types(struct: Any) -> dict[str, Any]:
    return get_type_hints(struct, include_extras=True)


def _noteless(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _bare(kind: Any) -> Any:
    """The kind without its notes, and without the None of what may be left out."""
    kind = _noteless(kind)
    options = get_args(kind) if NoneType in get_args(kind) else (kind,)
    return next(option for option in options if option is not NoneType)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)
