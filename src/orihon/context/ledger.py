"""The ledger of a run: what was asked, decided, changed, tried and left, as short entries with their messages.

Entries are verbatim and ordered by what they are worth within their kind. A summary, an inherited block and the next
ledger are made of them. `render` shows as many as fit, each kind under a heading with a share of the room; passages of
the log take what is left. `parse` reads a rendered ledger again, so that a summary can be continued instead of being
quoted by the next one. Nothing here reads a log: `extract` finds the entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from orihon.context.transcript import quoted
from orihon.tokens import Counter

Kind = Literal["request", "constraint", "decision", "state", "file", "command", "error", "passage"]

SHARES: Final[dict[Kind, tuple[float, float]]] = {  # of the room, at most: of 1,000 tokens, and of 4,000 and more
    "request": (0.10, 0.10),
    "constraint": (0.18, 0.25),
    "decision": (0.03, 0.07),
    "state": (0.09, 0.10),
    "file": (0.06, 0.06),
    "command": (0.02, 0.03),
    "error": (0.02, 0.04),
    "passage": (1.0, 1.0),
}
KINDS: Final = tuple(SHARES)
SMALL, LARGE = 1000, 4000  # tokens
LASTING: Final = frozenset(("constraint", "decision"))  # what older runs hand on to all later ones
MOST_LASTING = 0.35  # of the room, for each of them, when there are many runs
MAX_CHARS_PER_TOKEN = 32
LEAST_TOKENS = 60  # for requests, and for the state at the end, however short the summary is
MIN_CUT_CHARS = 40  # a first entry that is too long is cut down to so little
HEADINGS: Final[dict[str, dict[Kind, str]]] = {
    "en": {
        "request": "Requests",
        "constraint": "Instructions that still count",
        "decision": "Decisions",
        "state": "State at the end",
        "file": "Files changed",
        "command": "Commands that worked",
        "error": "Errors and what followed",
        "passage": "Passages of the log",
    },
    "ja": {
        "request": "依頼",
        "constraint": "有効な指示",
        "decision": "決定事項",
        "state": "終了時の状態",
        "file": "変更したファイル",
        "command": "成功したコマンド",
        "error": "エラーとその後",
        "passage": "記録からの抜粋",
    },
}
GAP = "…"  # between two passages of one message

_KIND_OF = {f"## {name}": kind for names in HEADINGS.values() for kind, name in names.items()}
_HANDLE = re.compile(r"\[(?:([0-9a-f]{1,8}) )?m(\d{1,15})\]")
_ENTRY = re.compile(rf"- {_HANDLE.pattern} ")
_OURS = re.compile(rf"^((?:{'|'.join(_KIND_OF)})$|(?:- )?\[(?:[0-9a-f]{{1,8}} )?m\d)", re.MULTILINE)


class Entry(Struct, frozen=True, array_like=True, omit_defaults=True):
    """Something that a run leaves, and the message that it comes from."""

    kind: Kind
    seq: int
    text: str
    weight: float = 0.0  # among the entries of its kind
    place: int = 0  # of a passage in its message, in characters
    run: str = ""  # the beginning of the id of an earlier run
    age: int = 0  # how many runs ago that was


def render(
    entries: Sequence[Entry],
    *,
    max_tokens: int,
    counter: Counter,
    language: str = "en",
    runs: int = 1,
    handles: bool = True,
    whole: Kind | None = None,
) -> str:
    """Return the entries under their headings, in `max_tokens` at most. Those of a kind come by their worth.

    `runs` is how many runs they are of. Without `handles`, passages do not name their messages, which saves room.
    Entries of the kind `whole` come before all others: as many as fit.
    """
    headings = HEADINGS["ja" if language == "ja" else "en"]
    page = _Page(entries, max_tokens, counter, headings, runs, handles=handles)
    return page.render(whole)


class _Page:
    """What is shown of some entries."""

    def __init__(
        self,
        entries: Sequence[Entry],
        max_tokens: int,
        counter: Counter,
        headings: dict[Kind, str],
        runs: int,
        *,
        handles: bool,
    ) -> None:
        self.handles = handles
        self.max_tokens, self.counter, self.headings, self.runs = max_tokens, counter, headings, runs
        self.entries = {kind: [entry for entry in entries if entry.kind == kind] for kind in KINDS}
        self.shown: dict[Kind, list[Entry]] = {}
        self.costs: dict[Kind, int] = {}

    def render(self, whole: Kind | None) -> str:
        if whole is not None:
            self._show(whole, self.room)
        for kind in KINDS:
            self._show(kind, min(self.room, self._share(kind)))
        for kind in KINDS:  # what the passages left
            if len(self.shown.get(kind, ())) < len(self.entries[kind]):
                self._show(kind, self.room + self.costs.get(kind, 0))
        while self.shown and self.counter.text(self.text) > self.max_tokens:  # a counter need not add up
            last = next(kind for kind in reversed(KINDS) if kind in self.shown)
            self.shown[last].pop()
            if not self.shown[last]:
                del self.shown[last]
        return self.text

    @property
    def text(self) -> str:
        return "\n".join(self._section(kind, self.shown[kind]) for kind in KINDS if kind in self.shown)

    def _section(self, kind: Kind, entries: Iterable[Entry]) -> str:
        """Return a heading and its entries, the newest run first, and of a run in the order of its log."""
        ordered = sorted(entries, key=lambda entry: (entry.age, entry.seq, entry.place))
        if kind == "passage":
            lines = _join_passages(ordered, handles=self.handles)
        else:
            lines = [f"- [{_handle(entry)}] {escape(entry.text)}" for entry in ordered]
        return "\n".join([f"## {self.headings[kind]}", *lines])

    @property
    def room(self) -> int:
        return self.max_tokens - sum(self.costs.values())

    def _share(self, kind: Kind) -> int:
        small, large = SHARES[kind]
        share = small + (large - small) * min(1.0, max(0.0, (self.max_tokens - SMALL) / (LARGE - SMALL)))
        if kind in LASTING:  # they come from all runs
            share = min(MOST_LASTING, share * (1 + (self.runs - 1) / 4))
        least = min(LEAST_TOKENS, self.max_tokens // 3) if kind in {"request", "state"} else 0
        return max(least, int(self.max_tokens * share))

    def _show(self, kind: Kind, max_tokens: int) -> None:
        told = "\n".join(entry.text for other, kept in self.shown.items() if other != kind for entry in kept)
        mine = [entry for entry in self.entries[kind] if entry.text not in told]
        kept = self._fit(kind, mine, max_tokens)
        if len(kept) > len(self.shown.get(kind, ())):
            self.shown[kind] = kept
            self.costs[kind] = self.counter.text(self._section(kind, kept)) + 1

    def _fit(self, kind: Kind, entries: Sequence[Entry], max_tokens: int) -> list[Entry]:
        """Return as many of the first entries as fit; a first one that is too long is cut."""

        def fits(kept: Sequence[Entry]) -> bool:
            return self.counter.text(self._section(kind, kept)) < max_tokens

        low, high = 0, len(entries)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(entries[:middle]) else (low, middle - 1)
        if low or not entries or kind == "passage":
            return list(entries[:low])
        text = entries[0].text[: max(0, max_tokens) * MAX_CHARS_PER_TOKEN]
        while len(text) > MIN_CUT_CHARS:
            text = text[: len(text) * 3 // 4]
            cut = replace(entries[0], text=f"{text.rstrip()} …")
            if fits([cut]):
                return [cut]
        return []


def _join_passages(entries: Sequence[Entry], *, handles: bool) -> list[str]:
    """Return passages as they stand in the log; those that overlap are one."""
    parts: list[str] = []
    last: Entry | None = None
    for entry in entries:
        if last is None or (last.run, last.seq) != (entry.run, entry.seq):
            parts.append(f"[{_handle(entry)}]" if handles else GAP)
        elif entry.place <= (end := last.place + len(last.text)) + 1:
            between = "\n" if entry.place == end + 1 else ""
            last = replace(last, text=last.text + between + entry.text[max(0, end - entry.place) :])
            parts[-1] = escape(last.text)
            continue
        else:
            parts.append(GAP)
        parts.append(escape(entry.text))
        last = entry
    return parts


def _handle(entry: Entry) -> str:
    return f"{entry.run} m{entry.seq}".strip()


def escape(text: str) -> str:
    """Return text of a log so that it can pose neither as a heading nor as an entry of ours."""
    return _OURS.sub(r"\\\1", quoted(text))


def parse(text: str) -> tuple[str, list[Entry]]:
    """Return what a summary says before its first heading, and the entries under its headings."""
    prose: list[str] = []
    entries: list[Entry] = []
    kind: Kind | None = None
    for line in text.split("\n"):
        if line in _KIND_OF:
            kind = _KIND_OF[line]
        elif kind is None:
            prose.append(line)
        elif kind == "passage" and (found := _HANDLE.fullmatch(line)):
            entries.append(Entry(kind, int(found[2]), "", run=found[1] or ""))
        elif kind == "passage" and line == GAP and entries:
            last = entries[-1]
            entries.append(replace(last, text="", place=last.place + len(last.text) + GAP_CHARS))
        elif kind != "passage" and (found := _ENTRY.match(line)):
            entries.append(Entry(kind, int(found[2]), line[found.end() :], run=found[1] or ""))
        elif entries:
            last = entries[-1]
            entries[-1] = replace(last, text=f"{last.text}\n{line}" if last.text or last.kind != "passage" else line)
    return "\n".join(prose).strip(), [entry for entry in entries if entry.text]


GAP_CHARS = 1000  # the places of passages that were parsed are not known; they only keep their order


def find_prose(text: str) -> str:
    """Return what a summary says before its first heading: the words of a model, or of another program."""
    return parse(text)[0]


# entries that say the same, and entries that take another one back

_WORD = re.compile(r"[a-z0-9_]{3,}|[぀-ヿ一-鿿]{2}")
_EMPTY_WORDS = (
    "the and for you are not now may can but has have was were will that this with from into its our your any all "
    "again never always must should would don please important make sure only use using longer forget ignore need "
    "allowed fine drop undo revoke cancel decided decision going instead because "
    "してく てくだ くださ ださい です ます した こと する して"
)
_EMPTY = frozenset(_EMPTY_WORDS.split())
_REVOKES = re.compile(
    r"\b(?:no longer|not any ?more|any longer|revoked?|withdraw\w*|cancel\w*|forget (?:about|that|the|what|it)"
    r"|never ?mind|(?:ignore|disregard|scrap|drop|undo|lift\w*) (?:the|that|my|this|our)|you (?:may|can) (?:now|again)"
    r"|may now|can now|(?:is|are) (?:now )?(?:allowed|permitted|fine)|does not apply|doesn['\u2019]t apply"
    r"|scratch that)\b"
    r"|取り消|撤回|取りやめ|やめ(?:て|ます|ました|よう|る)|不要にな|忘れて|[かカ]まいません|構いません"
    r"|てもよい|てもいい|てよい|解除|もう.{0,12}(?:不要|ない|いい)",
    re.IGNORECASE,
)
SAME = 0.8  # of the words of two entries that say the same
REVOKED = 0.6  # of the words of an entry, in a sentence that takes it back


def words_of(text: str) -> list[str]:
    """Return the words of a text, for comparing two of them."""
    return _WORD.findall(text.lower())


def revokes(text: str) -> bool:
    """Return whether a sentence takes back something that was said before."""
    return _REVOKES.search(text) is not None


def drop_superseded(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries without instructions and decisions that are said again or taken back later."""
    lasting = [entry for entry in entries if entry.kind in LASTING]
    words = {id(entry): frozenset(words_of(entry.text)) - _EMPTY for entry in lasting}
    by_time = sorted(lasting, key=lambda entry: (entry.age, -entry.seq))  # the newest first
    kept: list[Entry] = []
    dropped: set[int] = set()
    for entry in by_time:
        mine = words[id(entry)]
        if any(_replaces(other, words[id(other)], entry, mine) for other in kept):
            dropped.add(id(entry))
        else:
            kept.append(entry)
    return [entry for entry in entries if id(entry) not in dropped]


def _replaces(newer: Entry, new: frozenset[str], older: Entry, old: frozenset[str]) -> bool:
    shared = len(new & old)
    if not shared:
        return False
    if newer.kind == older.kind and shared >= SAME * len(new | old):
        return True
    is_later = (newer.age, -newer.seq) < (older.age, -older.seq)
    return is_later and revokes(newer.text) and shared >= REVOKED * len(old)


# the ledgers of several runs

CARRIED: Final = frozenset(("request", "constraint", "decision", "file", "error", "passage"))  # of older runs
FADES: Final[dict[Kind, float]] = {"passage": 0.5, "constraint": 0.99, "decision": 0.99}  # what is left a run later


def merge_runs(ledgers: Sequence[Sequence[Entry]]) -> list[Entry]:
    """Return the entries of some runs, the newest run first, as those of one: the worthiest of each kind first."""
    merged: list[Entry] = []
    for kind in KINDS:
        found = [
            replace(entry, age=age, weight=entry.weight * FADES.get(kind, 1.0) ** age)
            for age, ledger in enumerate(ledgers)
            for entry in _select_carried(ledger, kind, age)
        ]
        merged += sorted(found, key=lambda entry: -entry.weight) if kind in FADES else found
    return drop_superseded(merged)


def _select_carried(ledger: Sequence[Entry], kind: Kind, age: int) -> list[Entry]:
    """Return the entries of a kind that a run hands on; of an older run, only what lasts."""
    mine = [entry for entry in ledger if entry.kind == kind]
    if not age:
        return mine
    if kind == "passage":  # what users said is told by requests and instructions
        said = {entry.seq for entry in ledger if entry.kind in {"request", "constraint"}}
        return [entry for entry in mine if entry.seq not in said]
    if kind != "request":
        return mine if kind in CARRIED else []
    demands = [entry.text for entry in ledger if entry.kind == "constraint"]  # they may be taken back: told once
    texts = [_without(entry.text, demands) for entry in mine[:1]]
    return [replace(entry, text=text) for entry, text in zip(mine, texts, strict=False) if text]


def _without(text: str, parts: Iterable[str]) -> str:
    for part in parts:
        text = text.replace(part, "")
    return text.strip()
