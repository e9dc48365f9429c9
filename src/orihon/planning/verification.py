"""The verification of the work: the model's verdict, and placeholders that Orihon finds in the written files.

Only lines that a writing tool was given in this run count, so older placeholders are ignored. An empty Python function
is recognised by its syntax, and an abstract one is allowed.
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
from orihon.planning.plan_state import normalise
from orihon.planning.schema import Placeholders, Verification
from orihon.records import Blob, Call, Message

MAX_FILE_BYTES = 1024 * 1024  # a larger file is not searched
MAX_PLACEHOLDERS = 50
MAX_LINE_CHARS = 120

_WRITES = re.compile(r"write|edit|create|patch|replace|insert|append|save", re.IGNORECASE)
_PATHS = ("path", "file_path", "filepath", "filename", "file", "target_file")
_COMMENT = re.compile(r"#|//|/\*|<!--|--|;|^\s*\*|%|\"\"\"|'''")
_MARK = re.compile(
    r"(?:\b(?:TODO|FIXME)\b(?!\s+(?:list|app|item)s?\b)|"
    r"\b(?:your |the )?(?:implementation|code) (?:goes )?here\b|\bimplement (?:me|this|later)\b|"
    r"ここに実装|未実装|後で実装|実装予定)",
    re.IGNORECASE,
)
_UNDONE = re.compile(
    r"^\s*(?:raise NotImplementedError|throw new (?:NotImplemented\w*|Error\(.not implemented)|"
    r"(?:\.\.\.|…)\s*(?:#.*|//.*)?$)",
    re.IGNORECASE,
)


def check_verification(answer: Verification, placeholders: list[str], round_: int) -> Verification:
    """Return the model's verdict with the placeholders that were found. Open work never passes."""
    claimed = answer.placeholder_detected
    locations = tuple(dict.fromkeys((*claimed.locations, *placeholders)))
    unmet = [item.criterion for item in answer.criteria if not item.met]
    known = {normalise(text) for text in answer.issues_found}
    more = (text for text in (*unmet, *placeholders) if normalise(text) not in known)
    count = max(claimed.count, len(locations))
    passed = answer.verification_passed and not (count or unmet or answer.additional_actions)
    return replace(
        answer,
        round=round_,
        verification_passed=passed,
        issues_found=(*answer.issues_found, *more),
        placeholder_detected=Placeholders(count=count, locations=locations),
        additional_work_needed=not passed,
    )


def collect_written_lines(messages: Iterable[Message], load: Callable[[Blob], bytes]) -> dict[str, set[str]]:
    """Return the files that tools have written, each with the lines that the tools were given.

    A call that was interrupted counts: it may have written.
    """
    written: dict[str, set[str]] = {}
    pending: dict[str, tuple[str, set[str]]] = {}
    for message in messages:
        for call in message.tool_calls:
            if _WRITES.search(call.name) and (target := _read_call(call, load)):
                pending[call.id] = target
        path, lines = pending.pop(message.tool_call_id or "", ("", set()))
        if path and (not message.is_error or message.text == INTERRUPTED):
            written.setdefault(path, set()).update(lines)
    return written


def find_placeholders(root: Path, written: dict[str, set[str]]) -> list[str]:
    """Return the placeholders in the written lines, as `path:line: text`."""
    placeholders: list[str] = []
    for path, lines in written.items():
        content = _read_file(root, path)
        file_lines = content.splitlines()
        for number in sorted(set(_find_unfinished_lines(path, content))):
            line = file_lines[number - 1].strip()
            if lines & {line, line.lstrip("+ "), f"+{line}"}:
                placeholders.append(f"{path}:{number}: {ingest.mask_output(line)[:MAX_LINE_CHARS]}")
    return placeholders[:MAX_PLACEHOLDERS]


def _read_call(call: Call, load: Callable[[Blob], bytes]) -> tuple[str, set[str]] | None:
    """Return the path and the lines in the arguments of a call."""
    try:
        args = decode_json(load(call.blob) if call.blob else call.arguments)
    except (ValueError, OrihonError):
        return None
    path = next((args[name] for name in _PATHS if args.get(name)), None) if isinstance(args, dict) else None
    if not isinstance(path, str):
        return None
    texts = (text for name, value in args.items() if name not in _PATHS for text in _iter_texts(value))
    return path, {line.strip() for text in texts for line in text.splitlines()}


def _iter_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iter_texts(item)


def _read_file(root: Path, name: str) -> str:
    """Return the text of a file inside the workspace; empty if there is none."""
    try:
        path = (root / name).resolve()
        if not path.is_relative_to(root.resolve()) or not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return ""
        text = path.read_bytes().decode("utf-8")
    except (OSError, ValueError):
        return ""
    return "" if "\0" in text else text


def _find_unfinished_lines(path: str, text: str) -> Iterator[int]:
    """Yield the numbers of the lines that look like placeholders."""
    tree = _parse_python(text) if path.endswith((".py", ".pyi")) else None
    if tree is not None and path.endswith(".py"):
        yield from _find_empty_functions(tree)
    for number, line in enumerate(text.splitlines(), start=1):
        comment = _COMMENT.search(line)
        if (tree is None and _UNDONE.search(line)) or (comment is not None and _MARK.search(line, comment.end())):
            yield number


def _parse_python(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _find_empty_functions(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of functions that do nothing, unless they are abstract."""
    abstract = {
        function
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and {_get_name(base) for base in node.bases} & {"Protocol", "ABC"}
        for function in node.body
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node in abstract:
            continue
        if {_get_name(item) for item in node.decorator_list} & {"abstractmethod", "overload"}:
            continue
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        if len(body) == 1 and _does_nothing(body[0]):
            yield body[0].lineno


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant) and statement.value.value is ...
    if isinstance(statement, ast.Raise) and statement.exc is not None:
        return _get_name(statement.exc) == "NotImplementedError"
    return isinstance(statement, ast.Pass)


def _get_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
