"""JSON and UI trees made small: the limits, dropped keys and marks of an accessibility tree or a DOM in a window.

A node is an object that stands in a list, or that has children of its own. The objects around the tree do not count
as levels, and objects such as a position belong to their node. A kept node keeps its scalars. What was cut is counted
under the key "[truncated]", with the handle that brings it back; the result is JSON again, and folding it once more
changes nothing.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from orihon.coerce import decode_json
from orihon.context.pieces import whole_character

CUT = "[truncated]"
DROPPED = frozenset({"description", "help"})
WEB_ELEMENTS = "webElements"
DATA = frozenset({"data", "elementsJson", WEB_ELEMENTS})
_MOST_LEVELS = 50  # of anything, tree or not: deeper text is not a window's matter


class Limits(msgspec.Struct, frozen=True):
    """How much of a tree is shown."""

    nodes: int = 200
    children: int = 20
    depth: int = 2
    text_chars: int = 1000
    data_chars: int = 2000
    web_elements: int = 200

    def tighter(self) -> Limits:
        """Half of everything but the depth, for a tree that is still too large."""
        return Limits(
            nodes=max(1, self.nodes // 2),
            children=max(1, self.children // 2),
            depth=self.depth,
            text_chars=max(40, self.text_chars // 2),
            data_chars=max(40, self.data_chars // 2),
            web_elements=max(1, self.web_elements // 2),
        )


def parse(text: str) -> Any:
    """The JSON value of a text, or None if it is none worth cutting."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return decode_json(text)  # strict: it takes no NaN and no half of a character
    except ValueError:
        return None


def fold_tree(text: str, *, handle: str = "", limits: Limits | None = None) -> str:
    """The tree in a JSON text within the limits; the text itself if it is not JSON, within them, or folded already."""
    value = parse(text)
    if not isinstance(value, dict | list):
        return text
    return fold_value(value, text, handle=handle, limits=limits or Limits())


def fold_value(value: Any, text: str, *, handle: str, limits: Limits) -> str:
    """As `fold_tree`, for a text that was parsed before."""
    marked = value[-1] if isinstance(value, list) and value else value
    if isinstance(marked, dict) and CUT in marked:
        return text
    cutter = _Cutter(limits)
    cut = cutter.value(value, depth=0, level=0)
    if not cutter.counts:
        return text
    note = {CUT: {**cutter.counts, **({"unfold": handle} if handle else {})}}
    cut = {**cut, **note} if isinstance(cut, dict) else [*cut, note]
    shown = json.dumps(cut, ensure_ascii=False, separators=(",", ":"))
    return shown if len(shown) < len(text) else text


class _Cutter:
    """Walks a value and counts what it leaves out."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.counts: dict[str, int] = {}

    def _count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def value(self, value: Any, *, depth: int, level: int, key: str = "") -> Any:
        if isinstance(value, str):
            return self.text(value, depth=depth, level=level, key=key)
        if isinstance(value, dict | list) and level > _MOST_LEVELS:
            self._count("levels")
            return CUT
        if isinstance(value, list):
            return self.list(value, depth=depth, level=level, key=key)
        if isinstance(value, dict):
            if depth or _is_node(value):
                return self.object(value, depth=depth + _is_node(value), level=level)
            return self.object(value, depth=0, level=level)
        return value

    def object(self, value: dict[str, Any], *, depth: int, level: int) -> Any:
        if depth > self.limits.depth:
            self._count("nodes", _nodes(value))
            return CUT
        kept = {key: inner for key, inner in value.items() if key not in DROPPED or not depth}
        if len(kept) < len(value):
            self._count("keys", len(value) - len(kept))
        return {key: self.value(inner, depth=depth, level=level + 1, key=key) for key, inner in kept.items()}

    def list(self, value: list[Any], *, depth: int, level: int, key: str = "") -> Any:
        objects = any(isinstance(item, dict) for item in value)
        if objects and depth >= self.limits.depth:
            self._count("nodes", _nodes(value))
            return CUT
        top = self.limits.web_elements if key == WEB_ELEMENTS else self.limits.nodes
        most = self.limits.children if depth else top
        if len(value) > most:
            self._count("nodes" if objects else "items", _nodes(value[most:]) if objects else len(value) - most)
            value = value[:most]
        return [
            self.object(item, depth=depth + 1, level=level + 1)
            if isinstance(item, dict)
            else self.value(item, depth=depth, level=level + 1)
            for item in value
        ]

    def text(self, value: str, *, depth: int, level: int, key: str) -> str:
        most = self.limits.data_chars if key in DATA else self.limits.text_chars
        if len(value) <= most + len("..." + CUT):
            return value
        if key in DATA and isinstance(inner := parse(value), dict | list):  # a tree that was sent as a string
            shown = json.dumps(self.value(inner, depth=depth, level=level + 1), ensure_ascii=False)
            if len(shown) < len(value):
                return shown
        self._count("characters", len(value) - most)
        return value[: whole_character(value, most)] + "..." + CUT


def _is_node(value: dict[str, Any]) -> bool:
    return isinstance(value.get("children"), list | dict)


def _nodes(value: Any) -> int:
    """How many nodes a value holds, itself included."""
    found, waiting = 0, [(value, True)]
    while waiting:
        item, listed = waiting.pop()
        if isinstance(item, dict):
            found += listed or _is_node(item)
            waiting.extend((inner, False) for inner in item.values())
        elif isinstance(item, list):
            waiting.extend((inner, True) for inner in item)
    return found
