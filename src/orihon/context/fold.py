"""One large content made small in the way its kind asks for: logs and test runs, diffs, JSON and UI trees, pictures.

The kind is known by the content. Logs keep error lines, their beginning and their end, and say how often a line was
repeated; diffs keep files and the heads of hunks; trees keep their upper nodes; other texts keep both ends. Every fold
names its handle, is at most as long as asked for (but never shorter than a mark), never longer than its input, cuts no
character in half, and folding it again changes nothing. Time is linear in the length of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from orihon.context.pieces import Mark, join, lay
from orihon.context.tree import Limits, fit_tree, is_tree, parse
from orihon.context.trouble import reports_error
from orihon.parts import PIXELS, shorten_name
from orihon.records import Call, Message, Part

_DIFF_HEADS = [
    re.compile(head)
    for head in (r"diff --git |Index: ", r"@@ ", r"--- |\+\+\+ |rename |new file|deleted file", r"[-+]")
]
_DIFF = re.compile(r"^(?:diff --git |@@ -\d+)", re.MULTILINE)
_OUTLINE = re.compile(r"[ \t]*(?:\[\d+\]|<[a-zA-Z/!]|- \w+|\d+:? )")
_WARNING = re.compile(r"(?i)\bwarn(?:ing)?\b|警告|\b\d+ (?:passed|failed|skipped|errors?)\b")
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|(?<![\d.:])\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?(?![\d:])"
    r"|(?<![\w.])\d+(?:\.\d+)? ?(?:[mnµ]?s|sec|seconds)\b"
)
_COUNTER = re.compile(r"(?<![\w.:,=#@$€¥£-])\d{1,9}(?![\w.:@-])(?!,\d)")  # a number on its own: no address, no amount
_TIMES = re.compile(r" \(× (\d+)(?:, [^\s()]+)?\)$", re.MULTILINE)
_MARK = re.compile(r"\[…[^\n\]]*\]\n?")

REPEATS = 3  # lines that make a repetition
ENDS = 5  # lines at each end that say what it is and how it ended
AFTER_ERROR = 3  # lines after an error that belong to it
_MARK_CHARS = 48  # that a mark takes at most
_KNOWN_LINE = 10_000  # characters; a line is not looked at further than that


def fold_content(
    text: str,
    *,
    max_chars: int,
    handle: str = "",
    is_error: bool = False,
    ui: Limits = Limits(),  # noqa: B008 - frozen
    user_rate: float = 0,
) -> str:
    """Return the text in at most `max_chars` characters, with what matters for its kind; itself if it is that short.

    What a user wrote has a `user_rate` of tokens per character. Its beginning and its end stay, verbatim.
    """
    if len(text) <= max_chars or _MARK.fullmatch(text):
        return text
    if user_rate:
        return keep_ends(text, max_chars=max_chars, mark=Mark(handle, user_rate))
    value = parse(text)
    if isinstance(value, dict | list):
        return fit_tree(value, text, max_chars=max_chars, handle=handle, limits=ui if is_tree(value) else None)
    if not _DIFF.search(text):
        shown = fold_repeats(text, handle=handle)
        if len(shown) <= max_chars:
            return shown
        once = fold_repeats(text)
        shown = _fold_lines(once, max_chars=max_chars, handle=handle, is_error=is_error)
        if shown != once:  # otherwise it left no gap to name the handle in
            return shown
    return _fold_lines(text, max_chars=max_chars, handle=handle, is_error=is_error)


def keep_ends(text: str, *, max_chars: int, mark: Mark) -> str:
    """Return the beginning and the end of a text, twice as much of the beginning, and a mark between them."""
    starts, joined = lay(text)
    starts.append(len(text))
    room = max(0, max_chars - _MARK_CHARS)
    head = bisect_right(starts, room * 2 // 3) - 1
    tail = max(head + 1, bisect_left(starts, len(text) - (room - starts[head])))
    kept = [piece < head or piece >= tail for piece in range(len(joined))]
    return join(text, starts, joined, kept, mark)


def fold_repeats(text: str, *, handle: str = "") -> str:
    """Return the text with runs of equal lines shown once, `(× 212)`; the first names the handle.

    Lines are equal if they differ only in a time, or in one number that counts them.
    """
    lines = text.split("\n")
    out: list[str] = []
    at = 0
    while at < len(lines):
        end = at + 1
        while end < len(lines) and _repeats(lines[end - 1], lines[end]):
            end += 1
        if end - at >= REPEATS:
            out.append(f"{lines[at]} (× {end - at}{handle and ', '}{handle})")
            handle = ""
        else:
            out += lines[at:end]
        at = end
    shown = "\n".join(out)
    return shown if len(shown) < len(text) else text


def _repeats(before: str, line: str) -> bool:
    """Return whether a line says the same as the one before, but for times and for one number that grew by one."""
    if not line.strip() or len(before) > _KNOWN_LINE or len(line) > _KNOWN_LINE or _TIMES.search(before):
        return False
    if before == line:
        return True
    before, line = _TIME.sub("0:0", before), _TIME.sub("0:0", line)
    if before == line or not any(map(str.isalpha, line)):
        return before == line
    old, new = _COUNTER.findall(before), _COUNTER.findall(line)
    if len(old) != len(new) or _COUNTER.sub("0", before) != _COUNTER.sub("0", line):
        return False
    changed = [(int(one), int(other)) for one, other in zip(old, new, strict=True) if one != other]
    return len(changed) == 1 and changed[0][1] == changed[0][0] + 1


class _RepeatsMark(Mark):
    """Counts a line that was shown once for many as many."""

    def lines(self, gap: str) -> int:
        return super().lines(gap) + sum(int(times) - 1 for times in _TIMES.findall(gap))


def _fold_lines(text: str, *, max_chars: int, handle: str, is_error: bool) -> str:
    starts, joined = lay(text)
    starts.append(len(text))
    ranks = _ranks(text, starts, is_error=is_error)
    order = sorted(range(len(ranks)), key=lambda piece: (ranks[piece], min(piece, 2 * (len(ranks) - piece)), piece))
    kept = [False] * len(ranks)
    room = max_chars - 24 - len(handle)  # one mark at least
    taken = []
    for piece in order:
        size = starts[piece + 1] - starts[piece]
        lonely = not (piece and kept[piece - 1]) and not (piece + 1 < len(kept) and kept[piece + 1])
        size += 16 * lonely  # and the mark of another gap
        if size > room:
            break
        kept[piece] = True
        taken.append(piece)
        room -= size
    while len(shown := join(text, starts, joined, kept, _RepeatsMark(handle))) > max_chars and taken:
        for piece in taken[-max(1, len(taken) // 20) :]:
            kept[piece] = False
        del taken[-max(1, len(taken) // 20) :]
    return shown


def _ranks(text: str, starts: Sequence[int], *, is_error: bool) -> list[int]:
    """Return how early each piece is left out: the lower the later."""
    pieces = [
        text[starts[piece] : min(starts[piece + 1], starts[piece] + _KNOWN_LINE)] for piece in range(len(starts) - 1)
    ]
    if _DIFF.search(text):
        heads = len(_DIFF_HEADS)
        return [next((rank for rank in range(heads) if _DIFF_HEADS[rank].match(piece)), heads) for piece in pieces]
    if _is_outline(pieces):
        return [(len(piece) - len(piece.lstrip())) // 2 for piece in pieces]
    ranks = [3] * len(pieces)
    for at, piece in enumerate(pieces):
        if reports_error(piece):
            ranks[at] = 0
            for after in range(at + 1, min(at + 1 + AFTER_ERROR, len(pieces))):
                ranks[after] = min(ranks[after], 2)
        elif _WARNING.search(piece):
            ranks[at] = min(ranks[at], 2)
    ends = ENDS * (2 if is_error else 1)
    for at in (*range(min(ENDS, len(pieces))), *range(max(0, len(pieces) - ends), len(pieces))):
        ranks[at] = min(ranks[at], 1)
    return ranks


def _is_outline(pieces: Sequence[str]) -> bool:
    some = [piece for piece in pieces[:400] if piece.strip()]
    indented = sum(piece[0] in " \t" for piece in some)
    return (
        len(some) > 2 * ENDS
        and indented * 2 > len(some)
        and sum(map(bool, map(_OUTLINE.match, some))) * 3 > 2 * len(some)
    )


def picture_line(part: Part, *, handle: str = "") -> str:
    """Return one line for a picture or a file: what it is, how large, and its handle."""
    size = part.blob.size_bytes if part.blob else len(part.data or "") * 3 // 4
    about = [
        shorten_name(part.name or ""),
        shorten_name(part.media_type or ""),
        f"{part.width}×{part.height}" if 0 < (part.width or 0) <= PIXELS and 0 < (part.height or 0) <= PIXELS else "",
        f"{max(1, round(size / 1000))} kB" if size else "",
        handle,
    ]
    kind = shorten_name(part.type.replace("_", " "))
    return f"[{' '.join([kind, ', '.join(filter(None, about))]).strip()}]"


def words(message: Message, *, handle: str = "") -> str:
    """Return the text of a message; a picture or a file becomes a line that says what it was."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(part.text or picture_line(part, handle=handle) for part in message.content)


def superseded(messages: Iterable[Message]) -> set[int]:
    """Return the results that a later one replaces: of the same call, or of parts of a file read whole later."""
    asked: dict[str | None, Call] = {}
    seen: dict[tuple[str, str], list[tuple[int, str]]] = {}
    old: set[int] = set()
    for message in messages:
        for call in message.tool_calls:
            asked[call.id] = call
        if message.role != "tool" or message.is_error or message.tool_call_id not in asked:
            continue
        call = asked[message.tool_call_id]
        file, alone = _file(call.arguments)
        before = seen.setdefault((call.name, file), [])
        old.update(seq for seq, arguments in before if alone or arguments == call.arguments)
        before.append((message.seq, call.arguments))
    return old


def _file(arguments: str) -> tuple[str, bool]:
    """Return the file that a call names, else its arguments, and whether it names nothing else."""
    value = parse(arguments)
    if isinstance(value, dict):
        for key in ("path", "file_path", "filename", "file", "uri", "url"):
            if isinstance(file := value.get(key), str):
                return file, len(value) == 1
    return arguments, True
