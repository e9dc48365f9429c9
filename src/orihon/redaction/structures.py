"""Mask structures of dicts, lists and tuples: every string, and every value by the key or the flag that names it.

A structure is masked at least as strictly as the same content in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache, partial
from operator import is_
from typing import Any, NamedTuple

from orihon.redaction.entropy import Context, is_odd_word, is_placeholder, is_secret
from orihon.redaction.key_names import Kind, classify_name
from orihon.redaction.masking import KnownSecrets, mask

_NUMBERS = frozenset((int, float, bool, type(None)))
_MIN_PASSWORD, _MAX_NAME = 4, 64
_WORDS = frozenset((b"password", b"string", b"hidden", b"required", b"optional", b"true", b"false", b"null", b"none"))
# Keys of an object of which one holds the name of a value, and one the value: in small letters, without signs.
_NAME_KEYS = ("name", "key", "label", "field", "parameterkey", "parametername", "variable", "header", "option")
_VALUE_KEYS = frozenset(("value", "parametervalue", "stringvalue", "securevalue", "plaintext", "new", "newvalue"))


class _Kubernetes(Enum):
    """The parts of a Kubernetes Secret, as labels of items."""

    DATA = 0
    SECRET = 1
    LIST = 2


class _Inherited(NamedTuple):
    """The name of the container of a value, or of the item before it. It proves less than the value's own name."""

    name: str


_Label = str | _Kubernetes | _Inherited | object  # what names an item


def mask_value(
    value: Any,
    *,
    known: KnownSecrets | None = None,
    kinds: frozenset[str] | None = None,
    by: Callable[..., str] = mask,
) -> Any:
    """Mask a structure of dicts, lists, tuples and strings. Without a secret, the same object is returned.

    Keys are masked too. `by` masks one string, and `kinds` are the masks to use. Other objects are returned unchanged.
    The depth is not limited.
    """
    mask_text = partial(by, known=known, kinds=kinds)
    # A frame is a container, its items still to come, and its masked items. The lowest frame holds the result.
    frames: list[tuple[Any, Any, list[Any]]] = [(None, iter([(None, value)]), [])]
    while True:
        container, items, masked = frames[-1]
        for label, item in items:
            if isinstance(item, dict) or (isinstance(item, list | tuple) and not _NUMBERS.issuperset(map(type, item))):
                frames.append((item, iter(_label_items(item, label)), []))
                break
            masked.append(_mask_item(item, label, kinds, mask_text))
        else:
            frames.pop()
            if not frames:
                return masked[0]
            frames[-1][2].append(_rebuild(container, masked, mask_text))


def _label_items(container: Any, label: _Label) -> Iterable[tuple[_Label, Any]]:
    """Return the items of a container, each with what names it."""
    if not isinstance(container, dict):
        return _label_list(container, label)
    if label is _Kubernetes.DATA:
        return [(label, item) for item in container.values()]
    if label is _Kubernetes.SECRET or container.get("kind") == "Secret":
        labels: dict[Any, _Label] = {"data": _Kubernetes.DATA, "stringData": _Kubernetes.DATA}
    elif container.get("kind") == "SecretList":
        labels = {"items": _Kubernetes.LIST}
    else:
        plain = {_normalise(key): key for key in container}
        if _VALUE_KEYS.isdisjoint(plain):
            return container.items()
        # Another item names the value, as in a header or a variable; otherwise the container does.
        names = [plain[key] for key in _NAME_KEYS if key in plain and isinstance(container[plain[key]], str)]
        owner = container[names[0]] if names else _inherit(label)
        labels = {key: owner for key in container if owner and _normalise(key) in _VALUE_KEYS}
    return [(labels.get(key, key), item) for key, item in container.items()]


@lru_cache(maxsize=1024)
def _normalise(key: Any) -> str:
    return key.replace("_", "").replace("-", "").lower() if isinstance(key, str) else ""


def _inherit(label: _Label) -> _Label:
    """Return the label that the items of a container take over from it."""
    return _Inherited(label) if isinstance(label, str) else label if isinstance(label, _Inherited) else None


def _label_list(items: Any, label: _Label) -> Iterable[tuple[_Label, Any]]:
    """Return the items of a list, named by the list, by the flag before them, or, in a pair, by the first item."""
    if label is _Kubernetes.LIST or label is _Kubernetes.DATA:
        return [(_Kubernetes.SECRET if label is _Kubernetes.LIST else label, item) for item in items]
    inherited = _inherit(label)
    if isinstance(inherited, _Inherited) and classify_name(inherited.name) is not Kind.NOTHING:
        return [(inherited, item) for item in items]
    labels: list[_Label] = [None]
    for item in items:
        short = isinstance(item, str) and len(item) <= _MAX_NAME
        names_next = short and (item[:1] == "-" or len(items) == 2)  # noqa: PLR2004 - a pair
        labels.append(_Inherited(item) if names_next else None)
    return zip(labels, items, strict=False)


def _mask_item(item: Any, label: _Label, kinds: frozenset[str] | None, mask_text: Callable[[str], str]) -> Any:
    if not isinstance(item, str) and type(item) is not int:
        return item
    name = label.name if isinstance(label, _Inherited) else label
    kind = classify_name(name) if isinstance(name, str) else Kind.PASSWORD if name is _Kubernetes.DATA else Kind.NOTHING
    mask_name = "SECRET" if name is _Kubernetes.DATA else kind.mask.decode()
    if kind is not Kind.NOTHING and (kinds is None or mask_name in kinds) and _is_promised(item, label, kind):
        return f"[{mask_name}]"
    return mask_text(item) if isinstance(item, str) else item


def _is_promised(item: str | int, label: _Label, kind: Kind) -> bool:
    """Return whether a value is the secret that its label promises."""
    data = str(item).encode("utf-8", "surrogatepass")
    own = isinstance(item, str) and not isinstance(label, _Inherited)
    if own and kind is Kind.PASSWORD:  # no further evidence is needed than not being a placeholder
        return (
            len(data) >= _MIN_PASSWORD and b"\n" not in data and data.lower() not in _WORDS and not is_placeholder(data)
        )
    if not is_secret(data, kind, quoted=True, context=Context.DATA):
        return False
    if isinstance(label, _Inherited):
        return isinstance(item, str) and (label.name[:1] == "-" or is_odd_word(data))
    return True


def _rebuild(container: Any, masked: list[Any], mask_text: Callable[[str], str]) -> Any:
    """Return the container if nothing in it changed, otherwise one of its type with the masked items."""
    if isinstance(container, dict):
        keys = [mask_text(key) if isinstance(key, str) else key for key in container]
        if all(map(is_, keys, container)) and all(map(is_, masked, container.values())):
            return container
        return dict(zip(_number_duplicates(keys), masked, strict=True))
    masked = _mask_command(masked, mask_text)
    if all(map(is_, masked, container)):
        return container
    if isinstance(container, list):
        return masked
    return type(container)(*masked) if hasattr(container, "_fields") else tuple(masked)


def _mask_command(words: list[Any], mask_text: Callable[[str], str]) -> list[Any]:
    """Mask the words of a command line together, because a flag may announce the next word: `["mysql", "-p…"]`."""
    if not all(isinstance(word, str) for word in words) or not any(word[:1] == "-" for word in words):
        return words
    text = json.dumps(words, ensure_ascii=False)
    masked_text = mask_text(text)
    try:
        masked = words if masked_text is text else json.loads(masked_text)
    except ValueError:
        return words
    if not isinstance(masked, list) or len(masked) != len(words):
        return words
    return [word if word == new else new for word, new in zip(words, masked, strict=True)]


def _number_duplicates(keys: list[Any]) -> list[Any]:
    """Number keys that masking made equal, so that no item is lost."""
    counts: dict[Any, int] = {}
    numbered = []
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
        numbered.append(key if counts[key] == 1 else f"{key} {counts[key]}")
    return numbered
