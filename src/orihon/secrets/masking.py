"""Put masks in the place of secrets.

Promised: what has the shape of a known provider's token, what stands under a name that names a secret and looks like
one, private keys, passwords in URLs, mail addresses, and the exact values the process was given, do not survive.
Not promised: a bare random string that nothing around it explains, a secret cut in two by whoever sent it, a
password in a sentence, and what is inside pictures and archives.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from orihon.secrets import blocks, fast, find, gate, mail
from orihon.secrets.rules import MASK

if TYPE_CHECKING:
    from orihon.secrets.known import KnownSecrets

_SHORTEST = 6  # as long as a@b.cd


def mask(text: str, *, known: KnownSecrets | None = None) -> str:
    """Put a mask in the place of every secret; a text without one comes back as the same object."""
    return mask_with(_best_gate(), text, known)


def mask_few(text: str, *, known: KnownSecrets | None = None) -> str:
    """The same for a few words, which would not pay for getting the faster gate ready."""
    return mask_with(gate.pure, text, known)


def mask_with(hits_in: gate.Gate, text: str, known: KnownSecrets | None = None) -> str:
    """Mask with a gate of choice; which one decides about speed alone."""
    if len(text) < _SHORTEST:
        return text
    data = text.encode("utf-8", "surrogatepass")
    changed = False
    # A mask can change what stands next to it, so look again until nothing changes: masking twice is masking once.
    while spans := _spans(hits_in, data, known):
        data = find.replaced(data, spans)
        changed = True
    return data.decode("utf-8", "surrogatepass") if changed else text


@cache
def _best_gate() -> gate.Gate:
    return fast.hits if find_spec("hyperscan") else gate.pure


def _spans(hits_in: gate.Gate, data: bytes, known: KnownSecrets | None) -> list[find.Span]:
    spans = list(known.spans(data)) if known else []
    hits = hits_in(data)
    spans += find.tokens(data, hits.runs)
    spans += find.assigned(data, hits.stems)
    spans += blocks.announced(data, hits.stems)
    spans += mail.around(data, hits.ats)
    return find.merged(data, spans) if spans else spans


def masks_in(text: str) -> frozenset[str]:
    """The masks that occur in a text, brackets included."""
    return frozenset(MASK.findall(text)) if "[" in text else frozenset()


def has_mask(text: str) -> bool:
    """Whether a text holds a mask."""
    return bool(masks_in(text))
