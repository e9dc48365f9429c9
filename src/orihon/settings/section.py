"""The base of the settings: sections, which are frozen structs, and secrets.

A secret, or a password inside a URL, never appears in a repr and is never encoded in plain text.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta, structs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HIDDEN = "[hidden]"
MOST = 2**53 - 1  # the largest integer that every JSON parser and database represents exactly; not shown as a bound


class Secret:
    """A value that is shown only by `reveal()`."""

    __slots__ = ("_value",)
    _value: str

    def __init__(self, value: str) -> None:
        object.__setattr__(self, "_value", value)

    def reveal(self) -> str:
        return self._value

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a secret cannot be changed")

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> tuple[type[Secret], tuple[str]]:
        # Spawned workers receive the settings by pickling, and __setattr__ refuses the default protocol.
        return Secret, (self._value,)


def enc_hook(value: object) -> str:
    """Encode a secret as `[hidden]`; a hook for msgspec's encoders."""
    if isinstance(value, Secret):
        return HIDDEN
    raise NotImplementedError(f"{type(value).__name__} cannot be encoded")


def dec_hook(kind: type, value: object) -> Secret:
    """Convert text to a secret; a hook for msgspec's decoders."""
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    raise ValueError("expected text")


def redact(value: object) -> object:
    """Return a value for display, with the credentials inside a URL or a connection string hidden."""
    if not isinstance(value, str) or not ("://" in value or "=" in value):
        return value
    from orihon.redaction import looks_secret  # noqa: PLC0415 - needed for few values

    def hide_argument(match: re.Match[str]) -> str:
        return f"{match[1]}={HIDDEN}" if looks_secret(match[1]) else match[0]

    # Up to the last @, because an unescaped password may contain one.
    bare = re.sub(r"(?s)://.*@", f"://{HIDDEN}@", value)
    return re.sub(r"([^?&;=\s]+)=[^&;\s]*", hide_argument, bare)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A group of settings."""

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(name, redact(getattr(self, name))) for name in self.__struct_fields__]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


_MANY = {tuple: "a list of texts", dict: "a section of texts, kept hidden"}


class Setting(NamedTuple):
    """One setting: its path, type, current value and meaning."""

    path: str
    type: Any
    value: object
    meaning: str

    @property
    def plain_type(self) -> Any:
        return self._bounded[0]

    @property
    def _bounded(self) -> tuple[Any, ...]:
        """The type and its bounds; of a number that may be unset, those of the number."""
        first = get_args(self.type)[0]
        inner = next(iter(get_args(first)), None)
        return (
            get_args(inner) if get_origin(inner) is Annotated and type(None) in get_args(first) else get_args(self.type)
        )

    @property
    def is_secret(self) -> bool:
        return get_origin(self.plain_type) is not dict and Secret in get_args(self.plain_type)

    @property
    def item(self) -> type[Section] | None:
        """The type of the items if the setting is a list of sections, else None."""
        first = next(iter(get_args(self.plain_type)), None)
        return first if isinstance(first, type) and issubclass(first, Section) else None

    @property
    def allowed(self) -> str:
        """A description of the allowed values."""
        plain = self.plain_type
        if self.item is not None:
            return f"a list of sections of {', '.join(self.item.__struct_fields__)}"
        if get_origin(plain) in _MANY:
            metas = getattr(get_args(plain)[0], "__metadata__", ())
            return next((f"a list of {meta.description}" for meta in metas), _MANY[get_origin(plain)])
        if get_origin(plain) is Literal:
            *most, last = (f"`{word}`" for word in get_args(plain))
            return f"{', '.join(most)} or {last}"
        if self.is_secret:
            return "text, kept hidden"
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[plain]
        return f"{words} {' and '.join(_describe_bounds(self._bounded[1:]))}".strip()


def _describe_bounds(metas: tuple[Meta, ...]) -> Iterator[str]:
    for meta in metas:
        if meta.gt is not None:
            yield f"above {meta.gt}"
        if meta.ge is not None:
            yield f"of at least {meta.ge}"
        if meta.le is not None and meta.le != MOST:
            yield f"at most {meta.le}"
        if meta.min_length:
            yield "that is not empty"


@cache  # resolving the annotations takes milliseconds
def _fields(kind: type[Section]) -> tuple[structs.FieldInfo, ...]:
    return structs.fields(kind)


def iter_settings(section: Section, prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of a section and of the sections inside it, in the order of their definition."""
    for field in _fields(type(section)):
        value = getattr(section, field.name)
        path = prefix + field.name
        if isinstance(value, Section):
            yield from iter_settings(value, f"{path}.")
        else:
            meaning = next(meta.description for meta in get_args(field.type)[1:] if meta.description)
            yield Setting(path, field.type, value, meaning)


def iter_list_settings(kind: type[Section], prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of a section that is an item of a list. A required setting has the value None."""
    for field in _fields(kind):
        value = None if field.required else _get_default(field)
        meaning = next(meta.description for meta in get_args(field.type)[1:] if meta.description)
        yield Setting(prefix + field.name, field.type, value, meaning)


def _get_default(field: structs.FieldInfo) -> object:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def iter_secrets(value: object) -> Iterator[str]:
    """Yield every secret in a section in plain text, at every level."""
    if isinstance(value, Secret):
        yield value.reveal()
    elif isinstance(value, Section):
        for name in value.__struct_fields__:
            yield from iter_secrets(getattr(value, name))
    elif isinstance(value, dict | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from iter_secrets(item)


S = TypeVar("S", bound=Section)


def replace(section: S, values: Mapping[str, object], prefix: str = "") -> S:
    """Return the section with other values, given by their paths."""
    changes: dict[str, object] = {}
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if isinstance(value, Section):
            changes[name] = replace(value, values, f"{prefix}{name}.")
        elif prefix + name in values:
            changes[name] = values[prefix + name]
    return structs.replace(section, **changes)
