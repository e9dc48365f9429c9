"""Secrets the process was given: their exact values, in the disguises in which text carries them."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

from orihon.redaction.names import looks_secret
from orihon.redaction.values import is_placeholder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SHORTEST = 8
_TRIVIAL = re.compile(
    r"[A-Za-z]+|\d{1,11}|[\d.]+|[~./][\w./~-]*|(?:file|https?)://[^@]*|[\w.-]+\.(?:json|pem|key|crt|txt|ya?ml)"
)


class KnownSecrets:
    """Exact values to mask as `[SECRET]`, also when JSON-escaped, URL-encoded or inside base64."""

    def __init__(self, values: Iterable[str]) -> None:
        self._needles = sorted({needle for value in values for needle in _disguises(value)}, key=len, reverse=True)

    @classmethod
    def gather(cls, environ: Mapping[str, str], extra: Iterable[str] = ()) -> KnownSecrets:
        """Take the variables whose name looks like a secret and whose value could be one, and the extra values."""
        named = (value for name, value in environ.items() if looks_secret(name) and not _is_trivial(value))
        return cls([*named, *(value for value in extra if len(value) >= _SHORTEST)])

    def __bool__(self) -> bool:
        return bool(self._needles)

    def spans(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Where the values stand."""
        for needle in self._needles:
            at = data.find(needle)
            while at >= 0:
                yield at, at + len(needle), b"SECRET"
                at = data.find(needle, at + len(needle))


def _is_trivial(value: str) -> bool:
    """Whether a value is too short or too ordinary to look for everywhere: a path, a word, a number, a URL."""
    if len(value) < _SHORTEST or _TRIVIAL.fullmatch(value):
        return True
    return is_placeholder(value.encode("utf-8", "surrogatepass"))


def _disguises(value: str) -> Iterator[bytes]:
    from urllib.parse import quote, quote_plus  # noqa: PLC0415 - 0.4 MB, for a process that knows a secret

    raw = value.encode("utf-8", "surrogatepass")
    yield raw
    for ascii_only in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogatepass")
    yield quote(raw, safe="").encode()
    yield quote_plus(raw).encode()
    # Base64 of a longer text holds one of three forms of the value; the letters at its ends depend on what is around.
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + raw).rstrip(b"=")
        core = whole[(0, 2, 3)[shift] : len(whole) - (1 if (shift + len(raw)) % 3 else 0)]
        if len(core) >= _SHORTEST + 2:
            yield core
