"""Values of other libraries as the plain ones they stand for.

Frameworks pass subclasses of `str`, enumerations, numbers of arrays, models and data classes. Where it is clear what is
meant, the plain value is taken; where it is not, a UsageError says what to give instead. Nothing is stored as it came,
because no encoder knows the types of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar, overload

import msgspec

from orihon.errors import UsageError

T = TypeVar("T")

EXACT = frozenset((str, int, float, bool, bytes, type(None), dict, list, tuple, set, frozenset))


@overload
def decode_json(data: bytes | str) -> Any: ...
@overload
def decode_json(data: bytes | str, *, type: type[T]) -> T: ...
def decode_json(data: bytes | str, *, type: Any = Any) -> Any:  # the names are msgspec's
    """Decode strict JSON; raise ValueError for everything that cannot be decoded, deep nesting included."""
    try:
        return msgspec.json.decode(data, type=type)
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is nested too deeply") from error


def text_of(value: Any, what: str, *, hint: str = "Give a text.") -> str:
    """Return a text, also of a subclass or an enumeration; UsageError for anything else."""
    value = value.value if isinstance(value, Enum) else value
    if not isinstance(value, str):
        raise UsageError(f"{what} cannot be {_kind(value)}.", hint=hint)
    return value if type(value) is str else str.__str__(value)


def text_or_none(value: Any, what: str) -> str | None:
    """Return a text, or None."""
    return None if value is None else text_of(value, what)


def bool_of(value: Any, what: str) -> bool:
    """Return a truth, also one of an array; UsageError for what is neither true nor false."""
    plain = unwrapped(value)
    if plain not in (True, False) or isinstance(plain, float):
        raise UsageError(f"{what} cannot be {_kind(value)}.", hint="Give true or false.")
    return bool(plain)


def list_of(value: Any, what: str, *, hint: str = "Give a list.") -> list[Any]:
    """Return the items of a list or its like; a text, a mapping or a single thing is none."""
    if isinstance(value, str | bytes | Mapping | Enum) or not isinstance(value, Iterable):
        raise UsageError(f"{what} cannot be {_kind(value)}.", hint=hint)
    return list(value)


def mapping_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a mapping, a model, a struct or a data class; None for anything else."""
    found = unwrapped(value)
    return found if isinstance(found, dict) else None


def unwrapped(value: Any) -> Any:  # noqa: PLR0911 - one line per kind of value
    """Return the plain value that stands for another library's, one level deep; its text where there is none.

    What is plain already is returned as it is.
    """
    if type(value) in EXACT:
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return bytes(value)
    try:
        return _fields(value)
    except Exception:  # noqa: BLE001 - it is somebody else's code
        return f"[a {type(value).__name__} that cannot be shown]"


def deep(value: Any, what: str) -> Any:
    """Return a value with everything in it plain; UsageError where something in it stands for no value of JSON."""
    try:
        return _deep(value)
    except (TypeError, RecursionError) as error:
        raise UsageError(f"{what} cannot be sent: {error}.", hint="Use values of JSON.") from error


def _deep(value: Any) -> Any:
    plain = unwrapped(value)
    if isinstance(plain, dict):
        return {text_of(key, "A name"): _deep(item) for key, item in plain.items()}
    if isinstance(plain, list | tuple):
        return [_deep(item) for item in plain]
    if not isinstance(value, str) and not isinstance(plain, str | int | float | None):
        raise TypeError(f"{_kind(value)} is no value of JSON")
    if isinstance(plain, str) and not isinstance(value, str | Enum):  # its text only
        raise TypeError(f"{_kind(value)} is no value of JSON")
    return plain


def dump_model(value: Any, **options: Any) -> Any:
    """Return a model of an SDK as builtins. Raise UsageError, with the reason, if it cannot be dumped."""
    try:
        return value.model_dump(**options)
    except Exception as error:
        reason = f"its `model_dump` failed with {type(error).__name__}: {error!s:.200}"
        sentence = f"A value of type {type(value).__name__} cannot be read: {reason}."
        raise UsageError(sentence, hint="Give a complete model, or a dict.") from error


def _fields(value: Any) -> Any:  # noqa: PLR0911 - one line per kind of value
    """A model, a struct, a data class or a mapping as a dict, a list's like as a list, numbers of arrays as numbers."""
    if callable(getattr(value, "model_dump", None)) and not isinstance(value, type):
        return dict(dump_model(value))
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if hasattr(value, "dtype") and callable(numbers := getattr(value, "tolist", None)):
        return numbers()
    return int(value) if hasattr(value, "__index__") and not isinstance(value, type) else str(value)


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
