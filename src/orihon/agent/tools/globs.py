"""Patterns for paths: those of `.gitignore`, and those that a model gives to a search.

A pattern becomes one regular expression without backtracking: the text between two stars, and the names between two
`**`, are searched from the left in atomic groups, because the first match leaves the most room for the rest. The work
is bounded by the length of the pattern times that of the path, whatever a model or a workspace contains. docs/adr/0011
says why this is not pathspec.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

MAX_CHARS = 1000  # of a pattern
MAX_VARIANTS = 64  # of one pattern with braces
MAX_RULES = 5000  # of one `.gitignore`

_BRACES = re.compile(r"\{([^{}]*)\}")
_TOKENS = re.compile(r"\*\*+|\*|\?|\[[!^]?\]?[^\]]{0,100}\]|\\.|.", re.DOTALL)
_INNER_DOUBLE_STAR = re.compile(
    r"(?<=[^/*\\])\*\*+(?!\*)|(?<!\*)\*\*+(?=[^/*])"
)  # a `**` that is only a part of a name
_ANY_NAMES = "(?:[^/]*+/)*"
_NOTHING = "(?!)"


class GlobError(ValueError):
    """A pattern cannot be read."""


class Glob(NamedTuple):
    """A compiled pattern."""

    variants: tuple[re.Pattern[str], ...]

    def matches(self, path: str) -> bool:
        """Return whether the pattern matches the whole path."""
        return any(variant.fullmatch(path) for variant in self.variants)


class IgnoreRule(NamedTuple):
    """One line of a `.gitignore`."""

    pattern: re.Pattern[str]
    only_directories: bool
    is_negated: bool


@lru_cache(maxsize=64)
def compile_glob(text: str) -> Glob:
    """Compile a pattern for whole paths. Without a slash it matches names in any directory. Raise GlobError."""
    if len(text) > MAX_CHARS:
        raise GlobError(f"it has {len(text):,} characters; the maximum is {MAX_CHARS:,}")
    variants = [
        _compile(variant.lstrip("/"), anywhere="/" not in expanded)
        for expanded in _expand_braces(text.removeprefix("./"))
        for variant in _expand_double_stars(expanded)
    ]
    _check_count(len(variants))
    return Glob(tuple(variants))


def parse_gitignore(text: str, base: str) -> list[IgnoreRule]:
    """Return the rules of a `.gitignore` in the directory `base` (empty for the workspace)."""
    rules: list[IgnoreRule] = []
    for raw in text.splitlines():
        line = raw if raw.endswith("\\ ") else raw.rstrip()
        if not line or line.startswith("#") or len(line) > MAX_CHARS:
            continue
        if len(rules) == MAX_RULES:
            break
        pattern = line.removeprefix("!").rstrip("/")
        try:
            compiled = _compile(pattern.lstrip("/"), anywhere="/" not in pattern, base=base)
        except GlobError:  # a class such as [z-a] matches nothing
            continue
        rules.append(IgnoreRule(compiled, line.endswith("/"), line.startswith("!")))
    return rules


def is_ignored(path: str, rules: Iterable[IgnoreRule], *, is_directory: bool) -> bool:
    """Return whether the rules exclude a path; the last rule that matches decides."""
    ignored = False
    for rule in rules:
        if (is_directory or not rule.only_directories) and rule.pattern.fullmatch(path):
            ignored = not rule.is_negated
    return ignored


def _check_count(count: int) -> None:
    if count > MAX_VARIANTS:
        raise GlobError(f"it stands for more than {MAX_VARIANTS} patterns")


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
        _check_count(len(pending) + len(expanded))
    return expanded


def _expand_double_stars(pattern: str) -> list[str]:
    """Return both readings of a `**` inside a name, as in `src/**.py`: within the name and across directories."""
    first, *others = _INNER_DOUBLE_STAR.split(pattern)
    _check_count(2 ** len(others))
    readings = [first]
    for other in others:
        readings = [f"{reading}{stars}{other}" for reading in readings for stars in ("*", "*/**/*")]
    return readings


def _compile(pattern: str, *, anywhere: bool, base: str = "") -> re.Pattern[str]:
    """Compile a pattern; its names are grouped between two `**`."""
    groups: list[list[str]] = [[re.escape(base)] if base else []]
    if anywhere:
        groups.append([])
    for tokens in _split_names(pattern):
        if len(tokens) == 1 and tokens[0].startswith("**"):
            groups.append([])
        else:
            groups[-1].append(_translate_name(tokens))
    if not groups[-1]:  # `dir/**` is everything below
        groups[-1].append("[^/]+")
    head, *rest = ("/".join(group) for group in groups)
    if not rest:
        return re.compile(head, re.DOTALL)
    middles = "".join(f"(?>{_ANY_NAMES}?{middle}/)" for middle in rest[:-1] if middle)
    return re.compile(f"{head}{'/' if head else ''}{middles}{_ANY_NAMES}{rest[-1]}", re.DOTALL)


def _split_names(pattern: str) -> list[list[str]]:
    names: list[list[str]] = [[]]
    for token in _TOKENS.findall(pattern):
        if token == "/":  # noqa: S105 - of a pattern
            names.append([])
        else:
            names[-1].append(token)
    return names


def _translate_name(tokens: list[str]) -> str:
    runs = [""]  # what stands between two stars
    for token in tokens:
        if token.startswith("*"):
            runs.append("")
        else:
            runs[-1] += _translate_token(token)
    first, *others = runs
    if not others:
        return first
    inner = "".join(f"(?>[^/]*?{run})" for run in others[:-1] if run)
    return f"(?>{first}{inner}[^/]*{others[-1]}(?![^/]))"


def _translate_token(token: str) -> str:
    if token == "?":  # noqa: S105
        return "[^/]"
    return _translate_class(token[1:-1]) if token.startswith("[") and len(token) > 1 else re.escape(token[-1])


def _translate_class(text: str) -> str:
    """Translate `[a-z]`, so that nothing in it means more than it does in a pattern."""
    is_negated = text[:1] in {"!", "^"}
    text = text[is_negated:]
    items, at = "", 0
    while at < len(text):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            low, high = text[at], text[at + 2]
            if low > high:
                raise GlobError(f"{low}-{high} is no range")
            items += f"{re.escape(low)}-{re.escape(high)}"
            at += 3
        else:
            items += re.escape(text[at])
            at += 1
    return f"(?!/)[{'^' if is_negated else ''}{items}]" if items else _NOTHING
