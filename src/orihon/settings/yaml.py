"""Parse a small, safe subset of YAML and keep the line number of each key.

The subset has mappings, lists, texts, numbers, booleans and null. Aliases and tags are refused: settings do not need
them, and aliases let a short file expand in memory. Dates stay text. Nesting is limited, so no file can exhaust the
stack. Duplicate keys are returned, so that the caller can report both lines.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

MAX_DEPTH = 20


class YamlError(Exception):
    """The text is not YAML, or is outside the supported subset."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        self.line, self.column = line, column
        super().__init__(message)


class Entry(NamedTuple):
    """A key and its value: a plain value, a list, or a tuple of entries for a mapping."""

    key: str
    line: int
    value: object


class _Loader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        position = event.start_mark.line + 1, event.start_mark.column + 1
        if isinstance(event, yaml.AliasEvent):
            raise YamlError("aliases are not allowed", *position)
        if getattr(event, "tag", None) is not None:
            raise YamlError("tags are not allowed", *position)
        if self.depth > MAX_DEPTH:
            raise YamlError("the nesting is too deep", *position)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def parse(text: str) -> object:
    """Return the value of a YAML text; None if it is empty."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else _convert(loader, node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        # Not chained: the message quotes the line, which may contain a secret.
        raise YamlError(error.problem or error.context or "it is incomplete", *position) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        raise YamlError("the character is not allowed", line, column) from error
    except (ValueError, OverflowError) as error:  # PyYAML passes an escape such as \UFFFFFFFF to chr()
        raise YamlError("an escape or a number is invalid") from error


def _convert(loader: _Loader, node: yaml.Node) -> object:
    if isinstance(node, yaml.MappingNode):
        return tuple(Entry(_get_key(key), key.start_mark.line + 1, _convert(loader, item)) for key, item in node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_convert(loader, item) for item in node.value]
    if node.tag.rpartition(":")[2] in {"null", "bool", "int", "float"}:
        value: object = loader.construct_object(node)
        return value
    text: str = node.value
    return text


def _get_key(node: yaml.Node) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else "(a list or a mapping)"
