"""Put masks in the place of secrets.

Promised: what has the shape of a known provider's token, what stands under a name that names a secret and looks like
one, private keys, passwords in URLs and on command lines, mail addresses, and the exact values the process was given,
do not survive.
Not promised: a bare random string that nothing around it explains, a secret that its sender cut in two, a password of
plain words in a sentence, and what is inside pictures and archives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from orihon.redaction import colours, fast, find, gate, spoken
from orihon.redaction.rules import MASK

if TYPE_CHECKING:
    from orihon.redaction.known import KnownSecrets

_ANNOUNCE = frozenset(b"Kc")  # how the words begin that announce a block or a command
_SHORTEST = 6  # as long as a@b.cd
_LONG = 1_000_000  # characters


def mask(text: str, *, known: KnownSecrets | None = None, kinds: frozenset[str] | None = None) -> str:
    """Put a mask in the place of every secret; a text without one comes back as the same object.

    `kinds` are the masks to use, all of them by default. Known values are masked in any case.
    """
    return mask_with(_gate_for(len(text)), text, known, kinds)


def mask_few(text: str, *, known: KnownSecrets | None = None, kinds: frozenset[str] | None = None) -> str:
    """The same for a few words, which would not pay for getting the faster gate ready."""
    return mask_with(gate.pure, text, known, kinds)


def mask_with(
    hits_in: gate.Gate, text: str, known: KnownSecrets | None = None, kinds: frozenset[str] | None = None
) -> str:
    """Mask with a gate of choice; which one decides about speed alone."""
    if len(text) < _SHORTEST:
        return text
    data = text.encode("utf-8", "surrogatepass")
    changed = False
    # A mask can change what stands next to it, so look again until nothing changes: masking twice is masking once.
    words, codes = spoken.words_in(text), colours.has_codes(text)
    while spans := _spans(hits_in, data, known, kinds, words, codes=codes):
        data = find.replaced(data, spans)
        changed = True
    return data.decode("utf-8", "surrogatepass") if changed else text


def _gate_for(size: int) -> gate.Gate:
    """The gate for a text of this size: Hyperscan takes 6 MB and up to 0.3 s to get ready, so only a long text pays."""
    return fast.hits if size >= _LONG and _has_hyperscan() else gate.pure


@cache
def _has_hyperscan() -> bool:
    return find_spec("hyperscan") is not None


def _spans(
    hits_in: gate.Gate,
    data: bytes,
    known: KnownSecrets | None,
    kinds: frozenset[str] | None,
    words: list[tuple[bytes, bytes]],
    *,
    codes: bool,
) -> list[find.Span]:
    spans = _found(hits_in, data)
    if words:
        spans += spoken.spoken(data, words)
    if codes:
        spans += [part.back(span) for part in colours.uncoloured(data) for span in _found(hits_in, part.data)]
    if kinds is not None:
        spans = [span for span in spans if span[2].decode() in kinds]
    if known:
        spans = [*known.spans(data), *spans]
    return find.merged(data, spans) if spans else spans


def _found(hits_in: gate.Gate, data: bytes) -> list[find.Span]:
    stems, runs, ats, flags = hits_in(data)
    by_stems, by_runs, by_ats, by_flags = _finders()
    spans: list[find.Span] = []
    if runs:
        spans += by_runs(data, runs)
    if stems:
        spans += by_stems(data, stems)
    if ats:
        spans += by_ats(data, ats)
    if flags:
        spans += by_flags(data, flags)
    return spans


@cache
def _finders() -> tuple[Callable[[bytes, Any], Iterable[find.Span]], ...]:
    """What looks at the hits of each kind, loaded with the first text."""
    from orihon.redaction import assigned, blocks, commands, mail, tables, tokens  # noqa: PLC0415 - when it is used

    def by_stems(data: bytes, stems: list[int]) -> Iterable[find.Span]:
        spans = list(assigned.assigned(data, stems))
        if blocks_or_commands := [stem for stem in stems if data[stem] in _ANNOUNCE]:
            spans += blocks.announced(data, blocks_or_commands)
            spans += commands.named(data, blocks_or_commands)
        if titles := [stem for stem in stems if data[stem] in b"pP"]:
            spans += tables.in_tables(data, titles)
            spans += commands.written(data, titles)
        return spans

    return by_stems, tokens.tokens, mail.around, commands.on_lines


def masks_in(text: str) -> frozenset[str]:
    """The masks that occur in a text, brackets included."""
    return frozenset(MASK.findall(text)) if "[" in text else frozenset()


def has_mask(text: str) -> bool:
    """Whether a text holds a mask."""
    return bool(masks_in(text))
