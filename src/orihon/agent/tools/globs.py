"""Patterns for paths: those of `.gitignore`, and those that a model gives to a search.

A pattern and a path are compared name by name, and `**` stands for any number of names. Inside a name, the text
between two stars is looked for once, from the left, without going back: what comes first leaves the most room for the
rest. The work is bounded by the length of the pattern times that of the path, whatever a model or a workspace says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

MAX_CHARS = 1000  # of a pattern
MAX_VARIANTS = 64  # that one pattern with braces may stand for
MAX_RULES = 5000  # of one `.gitignore`

_BRACES = re.compile(r"\{([^{}]*)\}")
_TOKENS = re.compile(r"\*\*+|\*|\?|\[[!^]?\]?[^\]]{0,100}\]|\\.|.", re.DOTALL)
_INSIDE = re.compile(r"(?<=[^/*\\])\*\*+(?!\*)|(?<!\*)\*\*+(?=[^/*])")  # a `**` that is not a name of its own
_NOTHING = "(?!)"

Name = str | re.Pattern[str]  # a name, or what names must fit
Names = tuple[Name, ...]


class GlobError(ValueError):
    """A pattern that cannot be read; it says why."""


class Glob(NamedTuple):
    """A pattern, cut where it has a `**`; without one there is only a head."""

    head: Names
    middles: tuple[Names, ...] = ()
    tail: Names | None = None

    def matches(self, names: Sequence[str]) -> bool:
        """Whether it matches the whole path, given as its names."""
        if self.tail is None:
            return len(names) == len(self.head) and _fit(self.head, names, 0)
        at, end = len(self.head), len(names) - len(self.tail)
        if at > end or not _fit(self.head, names, 0) or not _fit(self.tail, names, end):
            return False
        for middle in self.middles:  # the first place that matches leaves the most room for the rest
            while at + len(middle) <= end and not _fit(middle, names, at):
                at += 1
            at += len(middle)
        return at <= end


class Pattern(NamedTuple):
    """All that a pattern with braces stands for."""

    variants: tuple[Glob, ...]

    def matches(self, path: str) -> bool:
        """Whether it matches a path, from its first name to its last."""
        names = path.split("/")
        return any(one.matches(names) for one in self.variants)


class Rule(NamedTuple):
    """One line of a `.gitignore`."""

    glob: Glob
    only_directories: bool
    takes_back: bool


def rules_of(text: str, base: str) -> list[Rule]:
    """The rules of a `.gitignore` that stands in the directory `base` (empty for the top)."""
    found: list[Rule] = []
    above: Names = tuple(base.split("/")) if base else ()
    for raw in text.splitlines():
        line = raw if raw.endswith("\\ ") else raw.rstrip()
        if not line or line.startswith("#") or len(line) > MAX_CHARS:
            continue
        if len(found) == MAX_RULES:
            break
        takes_back = line.startswith("!")
        line = line.removeprefix("!")
        pattern = line.rstrip("/")
        try:
            glob = _cut([*above, *_names(pattern.lstrip("/"), anywhere="/" not in pattern)])
        except GlobError:  # a class such as [z-a] matches nothing
            continue
        found.append(Rule(glob, line.endswith("/"), takes_back))
    return found


def ignored(path: str, rules: Iterable[Rule], *, directory: bool) -> bool:
    """Whether the rules leave a path out; the last one that matches decides."""
    verdict, names = False, path.split("/")
    for rule in rules:
        if (directory or not rule.only_directories) and rule.glob.matches(names):
            verdict = not rule.takes_back
    return verdict


@lru_cache(maxsize=64)
def compile_glob(text: str) -> Pattern:
    """A pattern for whole paths; without a slash it is one for names, wherever they are. GlobError if it is none."""
    if len(text) > MAX_CHARS:
        raise GlobError(f"it has {len(text):,} characters, and {MAX_CHARS:,} are allowed")
    variants = []
    for one in _spread(text.removeprefix("./")):
        variants += [_cut(names) for names in _crossed(one.lstrip("/"), anywhere="/" not in one)]
    if len(variants) > MAX_VARIANTS:
        raise GlobError(f"it stands for more than {MAX_VARIANTS} patterns")
    return Pattern(tuple(variants))


def _fit(pattern: Names, names: Sequence[str], at: int) -> bool:
    return all(
        names[place] == one if isinstance(one, str) else one.fullmatch(names[place]) is not None
        for place, one in enumerate(pattern, at)
    )


def _spread(pattern: str) -> list[str]:
    """`*.{js,ts}` as `*.js` and `*.ts`."""
    waiting: list[str] = [pattern]
    done: list[str] = []
    while waiting:
        one = waiting.pop()
        found = _BRACES.search(one)
        if found is None:
            done.append(one)
            continue
        waiting += [one[: found.start()] + word + one[found.end() :] for word in found[1].split(",")]
        if len(waiting) + len(done) > MAX_VARIANTS:
            raise GlobError(f"it stands for more than {MAX_VARIANTS} patterns")
    return done


def _crossed(pattern: str, *, anywhere: bool) -> list[list[Name | None]]:
    """A `**` inside a name, as in `src/**.py`, may stay in the name or cross directories: both, one after the other."""
    first, *others = _INSIDE.split(pattern)
    if 2 ** len(others) > MAX_VARIANTS:
        raise GlobError(f"it stands for more than {MAX_VARIANTS} patterns")
    ways = [first]
    for other in others:
        ways = [f"{way}{link}{other}" for way in ways for link in ("*", "*/**/*")]
    return [_names(way, anywhere=anywhere) for way in ways]


def _names(pattern: str, *, anywhere: bool) -> list[Name | None]:
    """The names of a pattern; None stands for any number of names."""
    tokens: list[list[str]] = [[]]
    for token in _TOKENS.findall(pattern):
        if token == "/":  # noqa: S105 - of a pattern
            tokens.append([])
        else:
            tokens[-1].append(token)
    found: list[Name | None] = [None] if anywhere else []
    found += [None if _is_any(one) else _name(one) for one in tokens]
    return [*found, re.compile(".+", re.DOTALL)] if found[-1] is None else found  # `dir/**` is what is below


def _is_any(tokens: list[str]) -> bool:
    return len(tokens) == 1 and tokens[0].startswith("**")


def _name(tokens: list[str]) -> Name:
    """What a name must fit; between two stars the first fit is taken and kept, which is what makes it linear."""
    runs: list[list[str]] = [[]]
    for token in tokens:
        if token.startswith("*"):
            runs.append([])
        else:
            runs[-1].append(token)
    if len(runs) == 1 and not any(token == "?" or _is_class(token) for token in tokens):  # noqa: S105
        return "".join(token[-1] for token in tokens)
    first, *others = ("".join(map(_expression, run)) for run in runs)
    inner = "".join(f"(?>.*?{run})" for run in others[:-1] if run)
    last = f".*{others[-1]}" if others else ""
    return re.compile(f"{first}{inner}{last}", re.DOTALL)


def _is_class(token: str) -> bool:
    return token.startswith("[") and len(token) > 1


def _expression(token: str) -> str:
    if token == "?":  # noqa: S105 - of a pattern
        return "."
    return _class(token[1:-1]) if _is_class(token) else re.escape(token[-1])


def _class(text: str) -> str:
    """`[a-z]`, written so that nothing in it means more than it does in a pattern."""
    negated = text[:1] in {"!", "^"}
    text = text[negated:]
    items, at = [], 0
    while at < len(text):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            low, high = text[at], text[at + 2]
            if low > high:
                raise GlobError(f"{low}-{high} is no range")
            items.append(f"{re.escape(low)}-{re.escape(high)}")
            at += 3
        else:
            items.append(re.escape(text[at]))
            at += 1
    inner = "".join(items)
    return f"[{'^' if negated else ''}{inner}]" if inner else _NOTHING


def _cut(names: Sequence[Name | None]) -> Glob:
    """The names, cut where there may be any number of others."""
    groups: list[list[Name]] = [[]]
    for name in names:
        if name is None:
            groups.append([])
        else:
            groups[-1].append(name)
    head, *others = (tuple(group) for group in groups)
    return Glob(head, tuple(group for group in others[:-1] if group), others[-1] if others else None)
