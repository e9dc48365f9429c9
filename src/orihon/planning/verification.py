"""Whether the work is done: what the model finds, and what we find ourselves in the files that were written.

Only lines that a writing tool was given in this run count, so that what stood in a file before is nobody's fault. A
Python function that does nothing counts by its syntax, and an abstract one does not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from orihon import ingest
from orihon.coerce import decode_json
from orihon.context.repair import INTERRUPTED
from orihon.errors import OrihonError
from orihon.planning.history.steps import norm
from orihon.planning.schema import Placeholders, Verification
from orihon.records import Blob, Call, Message

MAX_BYTES = 1024 * 1024  # a larger file is not looked at
MAX_FOUND = 50
LINE_CHARS = 120

_WRITES = re.compile(r"write|edit|create|patch|replace|insert|append|save", re.IGNORECASE)
_PATHS = ("path", "file_path", "filepath", "filename", "file", "target_file")
_COMMENT = re.compile(r"#|//|/\*|<!--|--|;|^\s*\*|%|\"\"\"|'''")
_MARKED = re.compile(
    r"(?:\b(?:TODO|FIXME)\b(?!\s+(?:list|app|item)s?\b)|"
    r"\b(?:your |the )?(?:implementation|code) (?:goes )?here\b|\bimplement (?:me|this|later)\b|"
    r"ここに実装|未実装|後で実装|実装予定)",
    re.IGNORECASE,
)
_UNDONE = re.compile(
    r"^\s*(?:raise NotImplementedError|throw new (?:NotImplemented\w*|Error\(.not implemented))", re.IGNORECASE
)
_ELLIPSIS = re.compile(r"^\s*(?:\.\.\.|…)\s*(?:#.*|//.*)?$")


def written(messages: Iterable[Message], load: Callable[[Blob], bytes]) -> dict[str, set[str]]:
    """The files that tools have written, each with the lines that were given to them.

    A call that was interrupted may have written as well.
    """
    found: dict[str, set[str]] = {}
    waiting: dict[str, tuple[str, set[str]]] = {}
    for message in messages:
        for call in message.tool_calls:
            if _WRITES.search(call.name) and (given := _given(call, load)):
                waiting[call.id] = given
        path, lines = waiting.pop(message.tool_call_id or "", ("", set()))
        if path and (not message.is_error or message.text == INTERRUPTED):
            found.setdefault(path, set()).update(lines)
    return found


def _given(call: Call, load: Callable[[Blob], bytes]) -> tuple[str, set[str]] | None:
    """The path and the lines that a tool was given."""
    try:
        args = decode_json(load(call.blob) if call.blob else call.arguments)
    except (ValueError, OrihonError):
        return None
    path = next((args[name] for name in _PATHS if args.get(name)), None) if isinstance(args, dict) else None
    if not isinstance(path, str):
        return None
    texts = (text for name, value in args.items() if name not in _PATHS for text in _texts(value))
    return path, {line.strip() for text in texts for line in text.splitlines()}


def placeholders(root: Path, files: dict[str, set[str]]) -> list[str]:
    """Where in the written files something is still to be filled in: `path:line: text`."""
    found: list[str] = []
    for path, lines in files.items():
        text = _read(root, path)
        shown = text.splitlines()
        for number in sorted(set(_places(path, text))):
            said = shown[number - 1].strip()
            if said in lines or said.lstrip("+ ") in lines or f"+{said}" in lines:
                found.append(f"{path}:{number}: {ingest.shown(said)[:LINE_CHARS]}")
    return found[:MAX_FOUND]


def checked(answer: Verification, found: list[str], *, round: int) -> Verification:
    """The model's verdict with what we found ourselves: nothing that is open passes."""
    said = answer.placeholder_detected
    places = tuple(dict.fromkeys((*said.locations, *found)))
    unmet = [item.criterion for item in answer.criteria if not item.met]
    known = {norm(text) for text in answer.issues_found}
    issues = (*answer.issues_found, *(text for text in (*unmet, *found) if norm(text) not in known))
    count = max(said.count, len(places))
    passed = answer.verification_passed and not (count or unmet or answer.additional_actions)
    return replace(
        answer,
        round=round,
        verification_passed=passed,
        issues_found=issues,
        placeholder_detected=Placeholders(count=count, locations=places),
        additional_work_needed=not passed,
    )


def _places(path: str, text: str) -> Iterator[int]:
    """The lines of a file that look like placeholders."""
    python = _tree(text) if path.endswith((".py", ".pyi")) else None
    if python is not None and path.endswith(".py"):
        yield from _idle(python)
    for number, line in enumerate(text.splitlines(), start=1):
        is_undone = python is None and (_UNDONE.search(line) or _ELLIPSIS.search(line))
        comment = _COMMENT.search(line)
        if is_undone or (comment is not None and _MARKED.search(line, comment.end())):
            yield number


def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _idle(tree: ast.Module) -> Iterator[int]:
    """The lines of Python functions that do nothing and are not meant to."""
    abstract = {
        function
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and {_name(base) for base in node.bases} & {"Protocol", "ABC"}
        for function in node.body
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node in abstract:
            continue
        if {_name(item) for item in node.decorator_list} & {"abstractmethod", "overload"}:
            continue
        body = [item for item in node.body if not (isinstance(item, ast.Expr) and _is_text(item.value))]
        if len(body) == 1 and _does_nothing(body[0]):
            yield body[0].lineno


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant) and statement.value.value is ...
    if isinstance(statement, ast.Raise) and statement.exc is not None:
        return _name(statement.exc) == "NotImplementedError"
    return isinstance(statement, ast.Pass)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _read(root: Path, path: str) -> str:
    """The text of a file inside the workspace; empty when it is none."""
    try:
        place = (root / path).resolve()
        if not place.is_relative_to(root.resolve()) or not place.is_file() or place.stat().st_size > MAX_BYTES:
            return ""
        text = place.read_bytes().decode("utf-8")
    except (OSError, ValueError):
        return ""
    return "" if "\0" in text else text
