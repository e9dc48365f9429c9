"""Patterns for paths: those of `.gitignore`, and those that a model gives to a search.

A path is compared name by name with `fnmatch`, whose expressions do not backtrack. Between names only the last `**` is
tried again. The work is bounded by the length of the pattern times that of the path, whatever a model or a workspace
contains. docs/adr/0011 says why this is not pathspec.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

MAX_CHARS = 1000  # of a pattern
MAX_VARIANTS = 64  # of one pattern with braces
MAX_RULES = 5000  # of one `.gitignore`

_BRACES = re.compile(r"\{([^{}]*)\}")
_INNER_DOUBLE_STAR = re.compile(r"(?<=[^/*])\*\*+|(?<!\*)\*\*+(?=[^/*])")  # a `**` that is only a part of a name
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_NOTHING = "(?!)"  # how fnmatch translates a class such as [z-a]


class GlobError(ValueError):
    """A pattern cannot be read."""


class Pattern(NamedTuple):
    """A compiled pattern: one for each name, and None for `**`. Without a slash it is compared with the last name."""

    parts: tuple[re.Pattern[str] | None, ...]
    has_slash: bool

    def matches(self, path: str) -> bool:
        """Return whether the pattern matches the whole path."""
        if not self.has_slash:
            path = path.rpartition("/")[2]
        return _match(path.split("/"), self.parts)


class Glob(NamedTuple):
    """A pattern for whole paths, in all its variants."""

    variants: tuple[Pattern, ...]

    def matches(self, path: str) -> bool:
        """Return whether one of the variants matches the whole path."""
        return any(variant.matches(path) for variant in self.variants)


class IgnoreRule(NamedTuple):
    """One line of the `.gitignore` in the directory `base` (empty, or ending in `/`)."""

    pattern: Pattern
    base: str
    only_directories: bool
    is_negated: bool


@lru_cache(maxsize=64)
def compile_glob(text: str) -> Glob:
    """Compile a pattern for whole paths. Without a slash it matches names in any directory. Raise GlobError.

    A `**` inside a name, as in `src/**.py`, is read both ways: within the name and across directories.
    """
    if len(text) > MAX_CHARS:
        raise GlobError(f"it has {len(text):,} characters; the maximum is {MAX_CHARS:,}")
    expanded = _expand_braces(text.removeprefix("./"))
    readings = (_INNER_DOUBLE_STAR.sub(stars, variant) for variant in expanded for stars in ("*", "*/**/*"))
    return Glob(tuple(map(_compile, dict.fromkeys(readings))))


def parse_gitignore(text: str, base: str) -> list[IgnoreRule]:
    """Return the rules of a `.gitignore` in the directory `base` (empty for the workspace)."""
    rules: list[IgnoreRule] = []
    for raw in text.splitlines():
        line = raw if raw.endswith("\\ ") else raw.rstrip()
        if not line or line.startswith("#") or len(line) > MAX_CHARS:
            continue
        if len(rules) == MAX_RULES:
            break
        try:
            pattern = _compile(line.removeprefix("!").rstrip("/"))
        except GlobError:  # a class such as [z-a] matches nothing
            continue
        rules.append(IgnoreRule(pattern, f"{base}/" if base else "", line.endswith("/"), line.startswith("!")))
    return rules


def is_ignored(path: str, rules: Iterable[IgnoreRule], *, is_directory: bool) -> bool:
    """Return whether the rules exclude a path; the last rule that matches decides."""
    ignored = False
    for rule in rules:
        if rule.is_negated != ignored or not path.startswith(rule.base) or (rule.only_directories and not is_directory):
            continue
        ignored = ignored ^ rule.pattern.matches(path[len(rule.base) :])
    return ignored


def _expand_braces(pattern: str) -> list[str]:
    """Return `*.js` and `*.ts` for `*.{js,ts}`."""
    pending, expanded = [pattern], []
    while pending:
        text = pending.pop()
        match = _BRACES.search(text)
        if match is None:
            expanded.append(text)
        else:
            pending += [text[: match.start()] + word + text[match.end() :] for word in match[1].split(",")]
        if len(pending) + len(expanded) > MAX_VARIANTS:
            raise GlobError(f"it stands for more than {MAX_VARIANTS} patterns")
    return expanded


def _compile(pattern: str) -> Pattern:
    names = pattern.lstrip("/").split("/")
    parts = [None if len(name) > 1 and not name.strip("*") else _compile_name(name) for name in names]
    if parts[-1] is None:  # `dir/**` is everything below
        parts.append(_compile_name("*"))
    return Pattern(tuple(parts), has_slash="/" in pattern or len(parts) > 1)


def _compile_name(pattern: str) -> re.Pattern[str]:
    """Compile the pattern of one name. A backslash takes the meaning from the character after it."""
    text = _ESCAPE.sub(lambda match: f"[{match[1]}]" if match[1] in "*?[" else match[1], pattern)
    expression = fnmatch.translate(text.replace("[^", "[!"))
    if _NOTHING in expression:
        raise GlobError(f"{pattern} contains an empty range")
    return re.compile(expression)


def _match(names: Sequence[str], parts: Sequence[re.Pattern[str] | None]) -> bool:
    """Return whether the parts match all names. `**` first stands for no name, then for one more at a time."""
    at = part = 0
    last: tuple[int, int] | None = None  # the last `**`, and the name from which it was tried
    while at < len(names):
        pattern = parts[part] if part < len(parts) else _END
        if pattern is None:
            last, part = (part, at), part + 1
        elif pattern.match(names[at]):
            at, part = at + 1, part + 1
        elif last is not None:
            last = last[0], last[1] + 1
            part, at = last[0] + 1, last[1]
        else:
            return False
    return part == len(parts)


_END = re.compile(_NOTHING)
