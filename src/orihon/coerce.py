"""Convert values of other libraries to plain Python values.

Frameworks pass subclasses of `str`, enum members, NumPy scalars, Pydantic models and data classes. A value with an
obvious plain equivalent is converted; any other value raises UsageError with a hint. Foreign values are never stored
as they are, because encoders do not know their types.
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
    """Decode strict JSON; raise ValueError if it is invalid or nested too deeply."""
    try:
        return msgspec.json.decode(data, type=type)
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is nested too deeply") from error


def to_text(value: Any, what: str, *, hint: str = "Give a text.") -> str:
    """Convert a `str`, an instance of a subclass or an enum member to `str`; raise UsageError for anything else."""
    value = value.value if isinstance(value, Enum) else value
    if not isinstance(value, str):
        raise UsageError(f"{what} cannot be {_describe(value)}.", hint=hint)
    return value if type(value) is str else str.__str__(value)


def to_optional_text(value: Any, what: str) -> str | None:
    """Convert a value to `str`; None stays None."""
    return None if value is None else to_text(value, what)


def to_bool(value: Any, what: str) -> bool:
    """Convert a boolean, including a NumPy one, to `bool`; raise UsageError for anything else."""
    if value is True or value is False:
        return bool(value)
    plain = unwrap(value)
    if plain not in (True, False) or isinstance(plain, float):
        raise UsageError(f"{what} cannot be {_describe(value)}.", hint="Give true or false.")
    return bool(plain)


def to_list(value: Any, what: str, *, hint: str = "Give a list.") -> list[Any]:
    """Convert an iterable to a list; raise UsageError for a text, a mapping or a value that is not iterable."""
    if isinstance(value, str | bytes | Mapping | Enum) or not isinstance(value, Iterable):
        raise UsageError(f"{what} cannot be {_describe(value)}.", hint=hint)
    return list(value)


def to_mapping(value: Any) -> dict[str, Any] | None:
    """Convert a mapping, a model, a struct or a data class to a dict; return None for anything else."""
    plain = unwrap(value)
    return plain if isinstance(plain, dict) else None


def unwrap(value: Any) -> Any:  # noqa: PLR0911 - one line per kind of value
    """Convert a foreign value to a plain one, one level deep. A value without a plain equivalent becomes its text."""
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
        return _convert_object(value)
    except Exception:  # noqa: BLE001 - methods of a foreign class can raise anything
        return f"[a {type(value).__name__} that cannot be shown]"


def to_json_value(value: Any, what: str) -> Any:
    """Convert a value to plain JSON values at every level; raise UsageError if some part has no JSON equivalent."""
    try:
        return _convert(value)
    except (TypeError, RecursionError) as error:
        raise UsageError(f"{what} cannot be sent: {error}.", hint="Use JSON values.") from error


def _convert(value: Any) -> Any:
    plain = unwrap(value)
    if isinstance(plain, dict):
        return {to_text(key, "A name"): _convert(item) for key, item in plain.items()}
    if isinstance(plain, list | tuple):
        return [_convert(item) for item in plain]
    if not isinstance(value, str) and not isinstance(plain, str | int | float | None):
        raise TypeError(f"{_describe(value)} is not a JSON value")
    if isinstance(plain, str) and not isinstance(value, str | Enum):  # `unwrap` fell back to its text
        raise TypeError(f"{_describe(value)} is not a JSON value")
    return plain


def dump_model(value: Any, **options: Any) -> Any:
    """Convert an SDK model to plain values; raise UsageError with the reason if its `model_dump` fails."""
    try:
        return value.model_dump(**options)
    except Exception as error:
        reason = f"its `model_dump` failed with {type(error).__name__}: {error!s:.200}"
        sentence = f"A value of type {type(value).__name__} cannot be read: {reason}."
        raise UsageError(sentence, hint="Pass a complete model, or a dict.") from error


def _convert_object(value: Any) -> Any:  # noqa: PLR0911 - one line per kind of value
    """Convert a model, struct, data class or mapping to a dict, a sequence to a list, a NumPy value to numbers."""
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


def _describe(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
