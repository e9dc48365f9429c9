"""The masks, and the tables of tokens made ready for use: indexed by how a token begins, compiled when needed."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from orihon.redaction.names import words
from orihon.redaction.providers import SHAPES, SIGNED, TABLE

MASKS = words(
    "GITHUB_TOKEN GITLAB_TOKEN OPENAI_KEY ANTHROPIC_KEY AWS_KEY GOOGLE_KEY SLACK_TOKEN STRIPE_KEY "
    "PRIVATE_KEY JWT EMAIL PASSWORD TOKEN API_KEY SECRET WEBHOOK DATABASE_URL"
)
MASK = re.compile(r"\[(?:" + "|".join(sorted(MASKS)) + r")\]")
_STRONG = 4  # a beginning as long as this, ending in a sign, is found inside a run too


class Rule(NamedTuple):
    """A mask, how a token begins, the expression its body must match, and how sure the beginning is."""

    mask: bytes
    start: bytes
    body: bytes
    even_filler: bool
    alone: bool

    def match(self, data: bytes, at: int, end: int) -> re.Match[bytes] | None:
        """Match the body of a token that begins at a place; None if none does."""
        return compiled(self.body).match(data, at + len(self.start), end) if data.startswith(self.start, at) else None


@cache
def compiled(body: bytes) -> re.Pattern[bytes]:
    """Compile a body when it is first needed: all of them at import would cost a twentieth of a second."""
    return re.compile(rb"(?:" + body + rb")(?![A-Za-z0-9])")


@cache
def rules() -> tuple[Rule, ...]:
    """The rules of the table, read when they are first needed."""
    found = []
    for line in TABLE.strip().splitlines():
        mask, *starts, body = line.split()
        flags = mask.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ_")
        name = mask.removesuffix(flags).encode()
        found += [Rule(name, start.encode(), body.encode(), "!" in flags, "^" in flags) for start in starts]
    return tuple(found)


@cache
def starts() -> dict[bytes, list[Rule]]:
    """The rules by their first three bytes, so that a run of text costs one look-up."""
    index: dict[bytes, list[Rule]] = {}
    for rule in rules():
        start = rule.start
        for key in [start[:3]] if start[2:] else [start + b"%x" % digit for digit in range(16)]:
            index.setdefault(key, []).append(rule)
    return index


@cache
def sure() -> frozenset[bytes]:
    """How the runs begin that are looked at even without a digit: four bytes, or three that end in a sign."""
    return frozenset(
        rule.start[:_STRONG] for rule in rules() if not rule.alone or rule.start[2:3] in b"_-" or rule.even_filler
    )


def _read_shapes(table: str) -> re.Pattern[bytes]:
    bodies: dict[str, list[str]] = {}
    for line in table.strip().splitlines():
        mask, body = line.split(maxsplit=1)
        bodies.setdefault(mask, []).append(body)
    groups = (rf"(?P<{mask}>(?:{'|'.join(rows)})(?![A-Za-z0-9]))" for mask, rows in bodies.items())
    return re.compile("|".join(groups).encode())


@cache
def shape() -> re.Pattern[bytes]:
    """All shapes without a beginning of their own."""
    return _read_shapes(SHAPES)


@cache
def signed() -> re.Pattern[bytes]:
    """All shapes with a mark inside."""
    return _read_shapes(SIGNED)


@cache
def tails() -> dict[bytes, list[Rule]]:
    """The rules whose beginning is so particular that it is found behind other letters: `acme-glpat-`, `[32mghp_`.

    Indexed by the last four bytes of the beginning, which end in a separator.
    """
    index: dict[bytes, list[Rule]] = {}
    for rule in rules():
        if _is_strong(rule):
            index.setdefault(rule.start[-_STRONG:], []).append(rule)
    return index


def _is_strong(rule: Rule) -> bool:
    return not rule.alone and len(rule.start) >= _STRONG and rule.start[-1:] in b"_-"
