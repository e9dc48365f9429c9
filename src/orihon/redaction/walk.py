"""The walk over a structure: every string in it is masked, and a value also by the key or the flag it stands under.

A structure keeps nothing that the same content as JSON text would not keep.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from orihon.redaction.masking import mask
from orihon.redaction.names import Kind, kind_of
from orihon.redaction.values import Place, is_odd_word, is_placeholder, is_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orihon.redaction.known import KnownSecrets

Mask = Callable[..., str]

_CONTAINERS = (dict, list, tuple)
_NUMBERS = frozenset((int, float, bool, type(None)))
_IN_SECRET, _SECRET, _SECRETS = object(), object(), object()  # the data of a Secret, a Secret, a list of them
_SECRET_DATA = ("data", "stringData")
_SHORTEST, _LONGEST_NAME = 4, 64
_WORDS = frozenset((b"password", b"string", b"hidden", b"required", b"optional", b"true", b"false", b"null", b"none"))
# Keys of which one holds the name of a value, and one the value; in small letters, without signs.
_NAME_KEYS = ("name", "key", "label", "field", "parameterkey", "parametername", "variable", "header", "option")
_VALUE_KEYS = frozenset(("value", "parametervalue", "stringvalue", "securevalue", "plaintext", "new", "newvalue"))


class _Within(NamedTuple):
    """The name of the container in which a value stands: it promises less than a name of the value's own."""

    name: str


def mask_value(
    value: Any, *, known: KnownSecrets | None = None, kinds: frozenset[str] | None = None, by: Mask = mask
) -> Any:
    """Mask a structure of dicts, lists, tuples and strings; without a secret the same object comes back.

    Keys are masked too; `by` is the function for each string, and `kinds` are the masks to use. The walk keeps its
    own stack, so no depth is too deep. Other objects pass unseen.
    """
    by = partial(by, known=known, kinds=kinds)
    # One frame is a container, its items still to come, and its masked items so far; the lowest holds the result.
    frames: list[tuple[Any, Iterator[tuple[object, Any]], list[Any]]] = [(None, iter([(None, value)]), [])]
    while True:
        container, items, out = frames[-1]
        for key, item in items:
            if isinstance(item, _CONTAINERS) and not _is_of_numbers(item):
                frames.append((item, _items(item, key), []))
                break
            out.append(_masked(key, item, kinds, by))
        else:
            frames.pop()
            if not frames:
                return out[0]
            frames[-1][2].append(_rebuilt(container, _as_command(container, out, by), by))


def _is_of_numbers(container: Any) -> bool:
    """Whether there is nothing to look at, as in the thousands of pairs that say which messages are shown."""
    return not isinstance(container, dict) and _NUMBERS.issuperset(map(type, container))


def _items(container: Any, key: object) -> Iterator[tuple[object, Any]]:
    """The items of a container, each with the key that says what it is."""
    if not isinstance(container, dict):
        return _in_list(container, key)
    if key is _IN_SECRET:
        return ((_IN_SECRET, item) for item in container.values())
    if key is _SECRET or container.get("kind") == "Secret":  # of Kubernetes
        return ((_IN_SECRET if name in _SECRET_DATA else name, item) for name, item in container.items())
    if container.get("kind") == "SecretList":
        return ((_SECRETS if name == "items" else name, item) for name, item in container.items())
    plain = {each: _plain(each) for each in container}
    if not _VALUE_KEYS.isdisjoint(plain.values()) and (owner := _owner(container, plain, key)):
        return ((owner if plain[each] in _VALUE_KEYS else each, item) for each, item in container.items())
    return iter(container.items())


def _plain(key: object) -> object:
    """A key as it is compared: without case and signs."""
    return key.replace("_", "").replace("-", "").lower() if isinstance(key, str) else key


def _owner(container: Any, plain: dict[Any, object], key: object) -> object:
    """What names the value in a container: another item, as in a header or a variable, or the container's own name."""
    named = {name: container[each] for each, name in plain.items() if isinstance(container[each], str)}
    own = next((named[name] for name in _NAME_KEYS if name in named), None)
    return own if own is not None else _within(key)


def _within(key: object) -> object:
    return _Within(key) if isinstance(key, str) else key if isinstance(key, _Within) or key is _IN_SECRET else None


def _in_list(items: Any, key: object) -> Iterator[tuple[object, Any]]:
    """The items of a list: named by the list, by the flag before them, or, in a pair, by the first of the two."""
    if key is _SECRETS:
        return ((_SECRET, item) for item in items)
    inherited = _within(key)
    if inherited is _IN_SECRET or (isinstance(inherited, _Within) and kind_of(inherited.name) is not Kind.NOTHING):
        return ((inherited, item) for item in items)
    names = [_Within(item) if _names_next(item, len(items)) else None for item in items]
    return zip(chain([None], names[:-1]), items, strict=True) if any(names) else ((None, item) for item in items)


def _names_next(item: Any, count: int) -> bool:
    return isinstance(item, str) and len(item) <= _LONGEST_NAME and (item[:1] == "-" or count == 2)  # noqa: PLR2004 - a pair


def _masked(key: object, item: Any, kinds: frozenset[str] | None, by: Mask) -> Any:
    text = item if isinstance(item, str) else str(item) if type(item) is int else None
    if text is None:
        return item
    if key is _IN_SECRET:
        kind, name = Kind.PASSWORD, "SECRET"
    else:
        own = key.name if isinstance(key, _Within) else key
        kind = kind_of(own) if isinstance(own, str) else Kind.NOTHING
        name = kind.mask.decode()
    if kind is not Kind.NOTHING and (kinds is None or name in kinds) and _is_promised(key, text, kind, text is item):
        return f"[{name}]"
    return by(item) if text is item else item


def _is_promised(key: object, text: str, kind: Kind, is_text: bool) -> bool:  # noqa: FBT001 - a fact
    """Whether a value is the secret that its key promises."""
    data = text.encode("utf-8", "surrogatepass")
    if isinstance(key, _Within):
        return (
            is_text
            and is_secret(data, kind, quoted=True, place=Place.DATA)
            and (key.name[:1] == "-" or is_odd_word(data))
        )
    if not is_text:
        return is_secret(data, kind, quoted=True, place=Place.DATA)
    return _is_secret(text, kind)


def _is_secret(item: str, kind: Kind) -> bool:
    """Whether the key alone settles it; a password needs no further proof than not to be a placeholder."""
    data = item.encode("utf-8", "surrogatepass")
    if kind is Kind.PASSWORD:
        return len(data) >= _SHORTEST and not is_placeholder(data) and data.lower() not in _WORDS and b"\n" not in data
    return is_secret(data, kind, quoted=True, place=Place.DATA)


def _as_command(container: Any, out: list[Any], by: Mask) -> list[Any]:
    """The words of a command line, which are looked at together: `["mysql", "-p…"]`."""
    if isinstance(container, dict) or not _is_command(out):
        return out
    text = json.dumps(out, ensure_ascii=False)
    masked = by(text)
    try:
        words = out if masked is text else json.loads(masked)
    except ValueError:
        return out
    fits = isinstance(words, list) and len(words) == len(out)
    return [a if a == b else b for a, b in zip(out, words, strict=True)] if fits else out


def _is_command(out: list[Any]) -> bool:
    return all(isinstance(word, str) for word in out) and any(word[:1] == "-" for word in out)


def _rebuilt(container: Any, out: list[Any], by: Mask) -> Any:
    """The container itself if nothing in it changed, otherwise one of its kind with the masked items."""
    if isinstance(container, dict):
        keys = [by(key) if isinstance(key, str) else key for key in container]
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
