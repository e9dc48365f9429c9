"""The walk over a structure: every string in it is masked, and a value also by the key it stands under."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orihon.secrets.masking import mask
from orihon.secrets.names import Kind, kind_of
from orihon.secrets.values import is_placeholder, is_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orihon.secrets.known import KnownSecrets

Mask = Callable[..., str]

_CONTAINERS = (dict, list, tuple)
_NUMBERS = frozenset((int, float, bool, type(None)))
_SHORTEST = 4
_WORDS = frozenset((b"password", b"string", b"hidden", b"required", b"optional", b"true", b"false", b"null", b"none"))


def mask_value(value: Any, *, known: KnownSecrets | None = None, by: Mask = mask) -> Any:
    """Mask a structure of dicts, lists, tuples and strings; without a secret the same object comes back.

    Keys are masked too; `by` is the function for each string. The walk keeps its own stack, so no depth is too deep.
    Other objects pass unseen.
    """
    # One frame is a container, its items still to come, and its masked items so far; the lowest holds the result.
    frames: list[tuple[Any, Iterator[tuple[object, Any]], list[Any]]] = [(None, iter([(None, value)]), [])]
    while True:
        container, items, out = frames[-1]
        for key, item in items:
            if isinstance(item, _CONTAINERS) and not _is_of_numbers(item):
                frames.append((item, _items(item), []))
                break
            out.append(_masked(key, item, known, by))
        else:
            frames.pop()
            if not frames:
                return out[0]
            frames[-1][2].append(_rebuilt(container, out, known, by))


def _is_of_numbers(container: Any) -> bool:
    """Whether there is nothing to look at, as in the thousands of pairs that say which messages are shown."""
    return not isinstance(container, dict) and _NUMBERS.issuperset(map(type, container))


def _items(container: Any) -> Iterator[tuple[object, Any]]:
    return iter(container.items()) if isinstance(container, dict) else ((None, item) for item in container)


def _masked(key: object, item: Any, known: KnownSecrets | None, by: Mask) -> Any:
    if not isinstance(item, str):
        return item
    kind = kind_of(key) if isinstance(key, str) else Kind.NOTHING
    if kind is not Kind.NOTHING and _is_secret(item, kind):
        return f"[{(b'API_KEY' if kind is Kind.KEY else kind.value).decode()}]"
    return by(item, known=known)


def _is_secret(item: str, kind: Kind) -> bool:
    """Whether the key alone settles it; a password needs no further proof than not to be a placeholder."""
    data = item.encode("utf-8", "surrogatepass")
    if kind is Kind.PASSWORD:
        return len(data) >= _SHORTEST and not is_placeholder(data) and data.lower() not in _WORDS and b"\n" not in data
    return is_secret(data, kind, quoted=True, data=True)


def _rebuilt(container: Any, out: list[Any], known: KnownSecrets | None, by: Mask) -> Any:
    """The container itself if nothing in it changed, otherwise one of its kind with the masked items."""
    if isinstance(container, dict):
        keys = [by(key, known=known) if isinstance(key, str) else key for key in container]
        if all(a is b for a, b in zip(keys, container, strict=True)) and _same(out, container.values()):
            return container
        return dict(zip(_apart(keys), out, strict=True))
    if _same(out, container):
        return container
    if isinstance(container, list):
        return out
    return type(container)(*out) if hasattr(container, "_fields") else tuple(out)


def _same(out: list[Any], items: Any) -> bool:
    return all(a is b for a, b in zip(out, items, strict=True))


def _apart(keys: list[Any]) -> list[Any]:
    """Number keys that masking made equal, so that no item is lost."""
    seen: dict[Any, int] = {}
    out = []
    for key in keys:
        seen[key] = seen.get(key, 0) + 1
        out.append(key if seen[key] == 1 else f"{key} {seen[key]}")
    return out
