"""Patterns for paths: those of `.gitignore`, and those that a model gives to a search."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

_BRACES = re.compile(r"\{([^{}]*)\}")
_MOST_BRACES = 64  # what one pattern may stand for
_PIECES = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[[!^]?\]?[^\]]*\]|\\.|.", re.DOTALL)
_SIMPLE = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Rule(NamedTuple):
    """One line of a `.gitignore`."""

    expression: re.Pattern[str]
    only_directories: bool
    takes_back: bool


def rules_of(text: str, base: str) -> list[Rule]:
    """The rules of a `.gitignore` that stands in the directory `base` (empty for the top)."""
    found = []
    for raw in text.splitlines():
        line = raw if raw.endswith("\\ ") else raw.rstrip()
        if not line or line.startswith("#"):
            continue
        takes_back = line.startswith("!")
        line = line.removeprefix("!")
        pattern = line.rstrip("/")
        anchored = "/" in pattern
        where = re.escape(f"{base}/") if base else ""
        body = ("" if anchored else "(?:.*/)?") + _body(pattern.lstrip("/"))
        try:
            expression = re.compile(where + body, re.DOTALL)
        except re.error:  # a class such as [z-a] fits nothing
            continue
        found.append(Rule(expression, line.endswith("/"), takes_back))
    return found


def ignored(path: str, rules: Iterable[Rule], *, directory: bool) -> bool:
    """Whether the rules leave a path out; the last one that fits decides."""
    verdict = False
    for rule in rules:
        if (directory or not rule.only_directories) and rule.expression.fullmatch(path):
            verdict = not rule.takes_back
    return verdict


@lru_cache(maxsize=64)
def glob(pattern: str) -> re.Pattern[str]:
    """A pattern for whole paths; without a slash it is one for names, wherever they are. Raises `re.error`."""
    bodies = []
    for one in _spread(pattern.removeprefix("./")):
        anywhere = "" if "/" in one else "(?:.*/)?"
        bodies.append(anywhere + _body(one.lstrip("/")))
    return re.compile("|".join(f"(?:{body})" for body in bodies), re.DOTALL)


def _spread(pattern: str) -> list[str]:
    """`*.{js,ts}` as `*.js` and `*.ts`."""
    waiting: list[str] = [pattern]
    done: list[str] = []
    while waiting and len(waiting) + len(done) < _MOST_BRACES:
        one = waiting.pop()
        found = _BRACES.search(one)
        if found is None:
            done.append(one)
        else:
            waiting += [one[: found.start()] + word + one[found.end() :] for word in found[1].split(",")]
    return done + waiting


def _body(pattern: str) -> str:
    return "".join(_piece(piece) for piece in _PIECES.findall(pattern))


def _piece(piece: str) -> str:
    if piece in _SIMPLE:
        return _SIMPLE[piece]
    if piece.startswith("[") and len(piece) > 1:
        inner = piece[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        return f"[^/{inner[1:]}]" if inner[:1] in {"!", "^"} else f"(?!/)[{inner}]"
    return re.escape(piece[1:] if piece.startswith("\\") and len(piece) > 1 else piece)
