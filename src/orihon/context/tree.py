"""JSON and UI trees made small: first to the limits of an accessibility tree or a DOM, then to the room there is.

A node is an object that stands in a list, or that has children of its own. The objects around the tree do not count
as levels, and objects such as a position belong to their node. Two forms are known: nodes that hold their children,
and flat lists of nodes that name each other, as Android's `views` and Chromium's `nodes` do. Of a flat list the root
stays, then what a user can press, type into or choose, then the rest in the order of the document; a node whose parent
is left out hangs below the next one that stays.

The result is JSON, and cutting it once more changes nothing. A kept node keeps its scalars. Where a handle can bring
the whole tree back, what was cut is counted under the key "[truncated]", beside the handle.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import Any, NamedTuple

import msgspec

from orihon.coerce import decode_json
from orihon.context.pieces import whole_character
from orihon.parts import Load, load_part
from orihon.records import Message, Part

CUT = "[truncated]"
DROPPED = frozenset({"description", "help"})
WEB_ELEMENTS = "webElements"
DATA = frozenset({"data", "elementsJson", WEB_ELEMENTS})
UI_TOOLS = frozenset({"elementsjson", "webelements", "getfullaxtree", "accessibility_tree", "dom", "ui_tree"})
_SPACE = 64  # characters before a value, at most
_MOST_LEVELS = 50  # of anything, tree or not: deeper text is not a window's matter
_REFINEMENTS = 2  # halvings of the interval in which the largest tree that fits is searched

_HINT = re.compile(r'"(?:children|childIds|parentId|parent|elements|elementsJson|webElements)"\s*:')
_ID_KEYS, _PARENT_KEYS = ("nodeId", "temp_id", "id"), ("parentId", "parent", "parent_id")
_CHILD_KEYS = ("childIds", "children", "child_ids")
_UI_KEYS = frozenset({"role", "tag", "tagName", "bounds", "position", "AXRole", "class", "selector", "xpath"})
_KIND_KEYS = ("role", "AXRole", "tag", "tagName", "nodeName", "type", "class")
_WORD_KEYS = ("name", "text", "title", "value", "content_description", "label")
_PRESSED = ("clickable", "long_clickable", "checkable", "editable", "focusable", "onclick")
_INTERACTIVE = frozenset((
    *("a", "button", "link", "textbox", "textfield", "searchfield", "searchbox", "textarea", "input", "select"),
    *("option", "combobox", "checkbox", "radio", "radiobutton", "switch", "slider", "spinner", "spinbutton"),
    *("menuitem", "menuitemcheckbox", "menuitemradio", "menubutton", "popupbutton", "tab", "treeitem", "listbox"),
    *("imagebutton", "edittext", "togglebutton"),
))  # fmt: skip


class Limits(msgspec.Struct, frozen=True):
    """How much of a tree is shown."""

    nodes: int = 200
    children: int = 20
    depth: int = 2
    text_chars: int = 1000
    data_chars: int = 2000
    web_elements: int = 200

    def scaled(self, share: float) -> Limits:
        """Return a share of everything but the depth."""
        return Limits(
            nodes=max(1, int(self.nodes * share)),
            children=max(1, int(self.children * share)),
            depth=self.depth,
            text_chars=max(40, int(self.text_chars * share)),
            data_chars=max(40, int(self.data_chars * share)),
            web_elements=max(1, int(self.web_elements * share)),
        )


_GENERAL = Limits(depth=4)  # of other JSON


def parse(text: str) -> Any:
    """Return the JSON value of a text, or None if it is none worth cutting."""
    if text[:_SPACE].lstrip()[:1] not in ("{", "["):
        return None
    try:
        return decode_json(text)  # strict: it takes no NaN and no half of a character
    except ValueError:
        return None


def limit_trees(message: Message, limits: Limits, *, handle: str = "", load: Load | None = None) -> Message:
    """Return a tool's result with its trees inside the limits; the same message if it has none, or none too large."""
    if message.role != "tool" or message.blob is not None:
        return message
    is_ui = is_ui_tool(message.tool_name)
    if isinstance(message.content, str):
        shown = _limited(message.content, limits, handle, is_ui=is_ui)
        return message if shown is message.content else msgspec.structs.replace(message, content=shown, tokens=0)
    parts = [_limited_part(part, limits, handle, is_ui=is_ui, load=load) for part in message.content]
    same = all(one is other for one, other in zip(parts, message.content, strict=True))
    return message if same else msgspec.structs.replace(message, content=parts, tokens=0)


def _limited_part(part: Part, limits: Limits, handle: str, *, is_ui: bool, load: Load | None) -> Part:
    text = (part.text or "") if part.type == "text" else ""
    if text[:_SPACE].lstrip()[:1] not in ("{", "["):
        return part
    text = load_part(part, load).text or ""
    shown = _limited(text, limits, handle, is_ui=is_ui)
    return part if shown is text else msgspec.structs.replace(part, text=shown, blob=None)


def _limited(text: str, limits: Limits, handle: str, *, is_ui: bool) -> str:
    value = parse_tree(text, is_ui=is_ui)
    return text if value is None else _limit(value, text, limits, handle)


def parse_tree(text: str, *, is_ui: bool = False) -> Any:
    """Return the value of a JSON text that holds a tree; None for any other text."""
    if text[:_SPACE].lstrip()[:1] not in ("{", "[") or not (is_ui or _HINT.search(text)):
        return None
    value = parse(text)
    return value if isinstance(value, dict | list) and (is_ui or is_tree(value)) else None


def is_ui_tool(name: str | None) -> bool:
    """Return whether a tool of this name, perhaps with the name of its server before it, gives the elements of a UI."""
    name = (name or "").lower()
    return name in UI_TOOLS or name.rpartition("_")[2] in UI_TOOLS


def is_tree(value: Any) -> bool:
    """Return whether nodes with children, a flat list of such nodes, or elements of a UI are anywhere in a value."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if _holds_tree(item):
                return True
            waiting.extend(item.values())
        elif isinstance(item, list):
            if _is_flat(item):
                return True
            waiting.extend(item)
    return False


def _holds_tree(item: dict[str, Any]) -> bool:
    children = item.get("children")
    if isinstance(children, dict) or (isinstance(children, list) and any(isinstance(one, dict) for one in children)):
        return True
    for key in ("elements", "elementsJson", WEB_ELEMENTS):
        inner = item.get(key)
        if isinstance(inner, list) and any(isinstance(one, dict) and not _UI_KEYS.isdisjoint(one) for one in inner):
            return True
        if isinstance(inner, str) and key != "elements" and isinstance(parse(inner), dict | list):
            return True
    return False


def fold_tree(text: str, *, handle: str = "", limits: Limits | None = None) -> str:
    """Return the tree in a JSON text within the limits; the text itself if it is not JSON, or within them."""
    value = parse(text)
    return _limit(value, text, limits or Limits(), handle) if isinstance(value, dict | list) else text


def _limit(value: Any, text: str, limits: Limits, handle: str) -> str:
    whole = _split_note(value)
    cut = _cut(whole, limits)
    if cut.counts == whole.counts:
        return text
    shown = cut.dump(handle) if handle or whole.counts else _dump(cut.value)
    return shown if len(shown) < len(text) else text


def fit_tree(value: Any, text: str, *, max_chars: int, handle: str = "", limits: Limits | None = None) -> str:
    """Return a parsed JSON text in about `max_chars` characters: as much of it as fits, and at least a mark.

    With `limits` it is a tree: what a user can press or choose goes last; what is false or empty, and lists beside the
    children, go first.
    """
    if len(text) <= max_chars:
        return text
    is_tree, limits = limits is not None, limits or _GENERAL
    whole = _split_note(value)
    if not whole.value or not isinstance(whole.value, dict | list):
        return text  # a mark, or a single value
    limited = _cut(whole, limits)
    if limited.counts != whole.counts and len(shown := limited.dump(handle)) <= max_chars:
        return shown

    def cut(share: float) -> str:
        return _cut(limited, limits.scaled(share), fitting=is_tree).dump(handle)

    share = _power_of_two(2 * max_chars / len(text))
    shown = cut(share)
    while share < 1 and len(shown) <= max_chars:
        share *= 2
        shown = cut(share)
    while len(shown) > max_chars and share * max(limits.nodes, limits.text_chars // 40) > 1:
        share /= 2
        shown = cut(share)
    if len(shown) > max_chars:
        counts = whole.counts + Counter({"nodes": max(1, _nodes(whole.value, listed=False))})
        return _Counted({}, counts).dump(handle)
    step = share
    for _ in range(_REFINEMENTS if share < 1 else 0):
        step /= 2
        if len(larger := cut(share + step)) <= max_chars:
            share, shown = share + step, larger
    return shown


def _power_of_two(share: float) -> float:
    """Return the smallest power of two that is at least the share, and at most 1."""
    return 1.0 if share >= 1 else 2.0 ** -int(-math.log2(max(share, 1e-9)))


class _Counted(NamedTuple):
    """A value, and what was left out of it."""

    value: Any
    counts: Counter[str]

    def dump(self, handle: str) -> str:
        """Return the JSON text of the value with the counts and the handle in it."""
        note = {CUT: {**self.counts, **({"unfold": handle} if handle else {})}}
        return _dump({**self.value, **note} if isinstance(self.value, dict) else [*self.value, note])


def _split_note(value: Any) -> _Counted:
    """Return a value without its note, and what that counts."""
    holder = value[-1] if isinstance(value, list) and value else value
    note = holder.get(CUT) if isinstance(holder, dict) else None
    if not isinstance(note, dict):
        return _Counted(value, Counter())
    rest = value[:-1] if isinstance(value, list) else {key: item for key, item in value.items() if key != CUT}
    return _Counted(rest, Counter({name: count for name, count in note.items() if type(count) is int and count > 0}))


def _cut(whole: _Counted, limits: Limits, *, fitting: bool = False) -> _Counted:
    cutter = _Cutter(limits, fitting=fitting)
    return _Counted(cutter.value(whole.value, depth=0, level=0), whole.counts + cutter.counts)


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Cutter:
    """Walks a value and counts what it leaves out."""

    def __init__(self, limits: Limits, *, fitting: bool = False) -> None:
        self.limits = limits
        self.fitting = fitting  # to the room there is: what can be pressed is kept first everywhere
        self.counts: Counter[str] = Counter()

    def value(self, value: Any, *, depth: int, level: int, key: str = "") -> Any:
        if isinstance(value, str):
            return self.text(value, depth=depth, level=level, key=key)
        if isinstance(value, dict | list) and level > _MOST_LEVELS:
            self.counts["levels"] += 1
            return CUT
        if isinstance(value, list):
            return self.items(value, depth=depth, level=level, key=key)
        if isinstance(value, dict):
            return self.object(value, depth=depth + _is_node(value), level=level)
        return value

    def object(self, value: dict[str, Any], *, depth: int, level: int) -> Any:
        if depth > self.limits.depth:
            self.counts["nodes"] += _nodes(value)
            return CUT
        kept = {key: inner for key, inner in value.items() if key not in DROPPED or not depth}
        if self.fitting and depth:
            kept = {key: inner for key, inner in kept.items() if not _is_spare(key, inner)}
        if len(kept) < len(value):
            self.counts["keys"] += len(value) - len(kept)
        return {key: self.value(inner, depth=depth, level=level + 1, key=key) for key, inner in kept.items()}

    def items(self, value: list[Any], *, depth: int, level: int, key: str = "") -> Any:
        objects = any(isinstance(item, dict) for item in value)
        of_tree = objects and (not depth or key == "children")
        if objects and depth >= self.limits.depth:
            self.counts["nodes" if of_tree else "items"] += _nodes(value) if of_tree else len(value)
            return CUT
        top = self.limits.web_elements if key == WEB_ELEMENTS else self.limits.nodes
        most = self.limits.children if depth else top
        if len(value) > most:
            kept = self.first(value, most) if depth or not _is_flat(value) else _Flat(value).kept(most, self.limits)
            gone = _nodes(value) - _nodes(kept) if of_tree else len(value) - len(kept)
            self.counts["nodes" if of_tree else "items"] += gone
            value = kept
        return [
            self.object(item, depth=depth + 1, level=level + 1)
            if isinstance(item, dict)
            else self.value(item, depth=depth, level=level + 1)
            for item in value
        ]

    def first(self, value: Sequence[Any], most: int) -> list[Any]:
        if not self.fitting:
            return list(value[:most])
        chosen = sorted(range(len(value)), key=lambda place: not is_interactive(value[place]))[:most]
        return [value[place] for place in sorted(chosen)]

    def text(self, value: str, *, depth: int, level: int, key: str) -> str:
        most = self.limits.data_chars if key in DATA else self.limits.text_chars
        if key in DATA and isinstance(inner := parse(value), dict | list):  # a tree that was sent as a string
            shown = _dump(self.value(inner, depth=depth, level=level + 1))
            if len(shown) < len(value):
                return shown
        if len(value) <= most + len("..." + CUT):
            return value
        self.counts["characters"] += len(value) - most
        return value[: whole_character(value, most)] + "..." + CUT


def _is_node(value: dict[str, Any]) -> bool:
    return isinstance(value.get("children"), list | dict)


def _is_spare(key: str, value: Any) -> bool:
    """Return whether a field of a node says nothing, or is a list of objects that are not its children."""
    if isinstance(value, list) and key != "children":
        return not value or any(isinstance(item, dict) for item in value)
    return value is None or value is False or value in ("", {})


def _nodes(value: Any, *, listed: bool = True) -> int:
    """Return how many nodes a value holds, itself included; lists of a node other than its children hold none."""
    found, waiting = 0, [(value, listed, False)]
    while waiting:
        item, listed, inside = waiting.pop()
        if isinstance(item, dict):
            is_node = listed or _is_node(item)
            found += is_node
            inside = inside or is_node
            for key, inner in item.items():
                if isinstance(inner, dict) or (isinstance(inner, list) and (key == "children" or not inside)):
                    waiting.append((inner, False, inside))
        elif isinstance(item, list):
            waiting.extend((inner, True, inside) for inner in item)
    return found


def is_interactive(node: Any) -> bool:
    """Return whether a user can press a node, type into it or choose it."""
    if not isinstance(node, dict):
        return False
    for key in _PRESSED:
        if key in node and node[key] not in (None, False, "", "false"):
            return True
    for key in _KIND_KEYS:
        if key in node and _word(node[key]).rpartition(".")[2].lower().removeprefix("ax") in _INTERACTIVE:
            return True
    properties = node.get("properties")
    return isinstance(properties, list) and any(_is_focusable(item) for item in properties)


def _is_focusable(item: Any) -> bool:
    if not isinstance(item, dict) or item.get("name") not in ("focusable", "editable"):
        return False
    value = item.get("value")
    return (value.get("value") if isinstance(value, dict) else value) not in (None, False, "")


def _word(value: Any) -> str:
    """Return a value that is a text, or that holds one as Chromium's do."""
    value = value.get("value") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""


# flat lists


def _is_flat(value: Sequence[Any]) -> bool:
    """Return whether most items name a parent, and are known by an id or name their children."""
    if not value or not all(isinstance(item, dict) for item in value):
        return False
    linked = sum(
        _id(item, _PARENT_KEYS) is not None and ("nodeId" in item or any(key in item for key in _CHILD_KEYS))
        for item in value
    )
    return linked * 2 >= len(value)


def _id(node: dict[str, Any], keys: Sequence[str]) -> str | int | None:
    for key in keys:
        found = node.get(key)
        if isinstance(found, str | int) and not isinstance(found, bool):
            return found
    return None


class _Rank(NamedTuple):
    """How early a node is kept, the smallest first."""

    worth: int
    place: int


class _Flat:
    """A flat list of nodes as a tree. What its parents say counts; cycles and nodes without an id do no harm."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self._nodes = nodes
        ids = [found for node in nodes if (found := _id(node, _ID_KEYS)) is not None]
        self._positional = len(ids) < len(nodes)  # then a node is known by its place
        self._ids: Sequence[str | int] = range(len(nodes)) if self._positional else ids
        places: dict[str | int, int] = {}
        for place, own in enumerate(self._ids):
            places.setdefault(own, place)
        named = (_id(node, _PARENT_KEYS) for node in nodes)
        self._parents = [None if parent is None else places.get(parent) for parent in named]
        self._order = list(self._in_order())

    def _in_order(self) -> Iterator[int]:
        """Yield the places of the nodes, each after its parent; those of a cycle come last."""
        below: list[list[int]] = [[] for _ in self._nodes]
        for place, parent in enumerate(self._parents):
            if parent is not None:
                below[parent].append(place)
        seen = bytearray(len(self._nodes))
        roots = [place for place, parent in enumerate(self._parents) if parent is None]
        for root in (*roots, *range(len(self._nodes))):
            waiting = [root]
            while waiting:
                place = waiting.pop()
                if not seen[place]:
                    seen[place] = 1
                    yield place
                    waiting.extend(reversed(below[place]))

    def kept(self, most: int, limits: Limits) -> list[dict[str, Any]]:
        """Return at most so many nodes, in their order in the list; those that can be pressed come first."""
        chosen = nsmallest(most, self._ranks(limits.children))
        return self._joined(sorted(rank.place for rank in chosen))

    def _ranks(self, most_children: int) -> Iterator[_Rank]:
        """Yield the rank of each node that may be kept; `place` is its place in the order of the document."""
        children: Counter[int] = Counter()
        crowded: set[int] = set()  # nodes that are one child too many, and what is below them
        for number, place in enumerate(self._order):
            node, parent = self._nodes[place], self._parents[place]
            above = self._nodes[parent] if parent is not None else {}
            hidden = node.get("ignored") is True or node.get("visible") is False
            if number == 0:
                yield _Rank(0, number)
            elif is_interactive(node):
                yield _Rank(2 if hidden else 1, number)
            elif parent in crowded or (parent is not None and children[parent] >= most_children):
                crowded.add(place)
                continue
            else:
                yield _Rank(4 if hidden or _repeats(node, above) else 3, number)
            if parent is not None:
                children[parent] += 1

    def _joined(self, numbers: list[int]) -> list[dict[str, Any]]:
        """Return the nodes at these places of the order, joined to a tree of their own."""
        wanted = {self._order[number] for number in numbers}
        new = {place: number if self._positional else self._ids[place] for number, place in enumerate(sorted(wanted))}
        anchors: dict[int, int | None] = {}  # of each node, the next one above that is kept
        below: dict[int, list[str | int]] = {place: [] for place in wanted}
        for place in self._order:
            parent = self._parents[place]
            anchor = parent if parent in wanted else None if parent is None else anchors.get(parent)
            anchors[place] = anchor
            if place in wanted and anchor is not None and anchor != place:
                below[anchor].append(new[place])
        return [self._node(place, anchors[place], below[place], new) for place in sorted(wanted)]

    def _node(
        self, place: int, anchor: int | None, below: list[str | int], new: dict[int, str | int]
    ) -> dict[str, Any]:
        node = dict(self._nodes[place])
        root = self._order[0]
        if anchor is None and self._parents[place] is not None and place != root:
            anchor = root  # of a cycle
        for key in _PARENT_KEYS:
            if key in node and anchor is not None and isinstance(node[key], str | int):
                node[key] = new[anchor]
        for key in _CHILD_KEYS:
            if isinstance(node.get(key), list):
                node[key] = below
        return node


def _repeats(node: dict[str, Any], above: dict[str, Any]) -> bool:
    """Return whether the words of a node are those of its parent."""
    words = {_word(node.get(key)) for key in _WORD_KEYS} - {""}
    return bool(words) and words <= {_word(above.get(key)) for key in _WORD_KEYS}
