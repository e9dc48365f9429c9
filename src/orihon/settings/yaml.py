"""A small, safe subset of YAML, with the line on which each key stands.

Mappings, lists, texts, numbers, booleans and nothing. Aliases and tags are refused: settings need neither, and without
them a short file cannot grow in memory. Dates stay text. Nesting is limited, so no file can exhaust the stack.
Doubled keys are passed on, so that the reader can name both lines.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

MAX_DEPTH = 20


class YamlError(Exception):
    """The text is not YAML, or more of it than settings need."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        self.line, self.column = line, column
        super().__init__(message)


class Entry(NamedTuple):
    """A key and what stands at it: a plain value, a list, or a tuple of entries for a mapping."""

    key: str
    line: int
    value: object


class _Loader(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        place = event.start_mark.line + 1, event.start_mark.column + 1
        if isinstance(event, yaml.AliasEvent):
            raise YamlError("aliases are not allowed", *place)
        if getattr(event, "tag", None) is not None:
            raise YamlError("tags are not allowed", *place)
        if self.depth > MAX_DEPTH:
            raise YamlError("the nesting is too deep", *place)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def parse(text: str) -> object:
    """The value of the whole text; None if it is empty."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else _value(loader, node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        # Not chained: its text quotes the line, and the line may hold a secret.
        raise YamlError(error.problem or error.context or "it is incomplete", *place) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        raise YamlError("the character is not allowed", line, column) from error
    except (ValueError, OverflowError) as error:  # PyYAML lets an escape such as \UFFFFFFFF through to chr()
        raise YamlError("an escape or a number means nothing") from error


def _value(loader: _Loader, node: yaml.Node) -> object:
    if isinstance(node, yaml.MappingNode):
        return tuple(Entry(_key(key), key.start_mark.line + 1, _value(loader, value)) for key, value in node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_value(loader, item) for item in node.value]
    if node.tag.rpartition(":")[2] in {"null", "bool", "int", "float"}:
        value: object = loader.construct_object(node)
        return value
    text: str = node.value
    return text


def _key(node: yaml.Node) -> str:
    return node.value if isinstance(node, yaml.ScalarNode) else "(a list or a mapping)"
