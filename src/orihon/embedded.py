"""Text inside bytes and base64: the files that a message carries, as far as they are text.

Pictures, sound, PDF files, archives and databases are recognised by how they begin, and hold no text. Neither do bytes
that are full of control characters, unless they are UTF-16 or UTF-32 or their media type is textual. All other bytes
are text, also where they are not UTF-8, or where NULs stand between their lines.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import NamedTuple

SHORTEST = 16  # characters of base64 that are worth a look

_BINARY = re.compile(
    rb"\x89PNG|\xff\xd8\xff|GIF8[79]a(?=.{0,6}[\0-\x08])|RIFF.{4}(?:WAVE|WEBP|AVI )|II\*\0|MM\0\*|BM.{4}\0{4}"
    rb"|%PDF-\d|PK[\3\5]|\x1f\x8b\x08|BZh\d1AY|\xfd7zXZ|7z\xbc\xaf|\x28\xb5\x2f\xfd|Rar!\x1a|.{257}ustar"
    rb"|ID3[\2-\4]|OggS\0|fLaC[\0\x80]|.{4}ftyp|\0asm|\x7fELF|SQLite format 3\0|\xca\xfe\xba\xbe|wOF[F2]\0",
    re.DOTALL,
)
_HEAD_CHARS = 400  # of base64 that show how the bytes begin
_WHOLE = re.compile(r"[A-Za-z0-9+/_-]++(?:\r?\n[A-Za-z0-9+/_-]++)*+={0,2}[\r\n]*+")
_QUOTED = re.compile(
    r"""["']([A-Za-z0-9+/_-]{8,}+(?:(?:\\+[nr])++[A-Za-z0-9+/_-]++)*+={0,2})(?=(?:\\+[nr])*+\\*+["'])"""
)
_CLASSES = bytes(120 if chr(byte).isalnum() or byte in b"+/_-" else 32 for byte in range(128)) + b" " * 128
_LONG_RUN = b"x" * 24
# Base64 in which four groups in a row decode to ASCII; of random letters, one group in eight does.
_BLOB = re.compile(
    rb"(?=(?:[A-Za-z0-9+/_-]{4})*?(?:[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]){4})"
    rb"[A-Za-z0-9+/_-]+(?:\r?\n[A-Za-z0-9+/_-]+)*={0,2}"
)
_ESCAPED_ENDS = re.compile(r"\\+[nr]")
_URL_ALPHABET = str.maketrans("-_", "+/")
_DATA_URL = re.compile(r"data:([^,;]{0,200})(?:;[^,]{0,200})?;base64,", re.ASCII | re.IGNORECASE)
_CONTROLS = bytes({*range(32), 127} - {9, 10, 12, 13, 27})  # but tabs, line ends and the escapes of terminals
_CONTROL = re.compile(r"[\0-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ue000-\uf8ff\ufffe\uffff]")
_CONTROLS_AND_HIGH = _CONTROLS + bytes(range(128, 256))
_LONG = 64  # bytes of noise have so many control characters by then that they are told from text
_LOOKED_AT = 4096  # bytes by which an encoding is recognised
_LETTERS = 4  # ASCII characters without which there is nothing to find
_LINE_ENDS = re.compile(r"\r?\n")


class Text(NamedTuple):
    """A text, and how its bytes are written."""

    text: str
    encoding: str
    errors: str

    def encoded(self, text: str) -> bytes:
        """Return another text in the same encoding."""
        return text.encode(self.encoding, self.errors)


def is_binary(data: bytes) -> bool:
    """Return whether bytes begin as a picture, sound, a PDF file, an archive or a database does."""
    return _BINARY.match(data) is not None


def text_in(data: bytes, *, textual: bool = False) -> Text | None:
    """Return the text that bytes hold, such that its bytes can be had back; None when they hold none."""
    if is_binary(data) and not textual:
        return None
    if encoding := _wide_encoding(data):
        return Text(data.decode(encoding, "surrogatepass"), encoding, "surrogatepass")
    if not textual and not _is_mostly_text(data):
        return None
    return Text(data.decode("utf-8", "surrogateescape"), "utf-8", "surrogateescape")


def _is_mostly_text(data: bytes) -> bool:
    """Whether bytes have few control characters, and NULs only between texts."""
    plain = data.replace(b"\0", b"")
    if len(plain) < len(data) and (len(plain) * 4 < len(data) * 3 or not is_plain_text(plain)):
        return False
    return (len(plain) - len(plain.translate(None, _CONTROLS))) * 16 <= len(plain) + 16


def _wide_encoding(data: bytes) -> str:
    """UTF-16 or UTF-32 in either byte order, by its mark or by the NULs of ASCII; empty when it is something else."""
    if len(data) % 2 or b"\0" not in data:
        return ""
    for mark, encoding in _MARKS:
        if data.startswith(mark) and _decodes(data, encoding):
            return encoding
    head = data[:_LOOKED_AT]
    plain = head.replace(b"\0", b"")
    if len(plain) * 4 >= len(head) * 3 and is_plain_text(plain):
        return ""  # NULs stand between texts
    found = {encoding: _ascii_in(head, encoding) for encoding in _WIDE if _decodes(data, encoding)}
    best = max(found, key=found.__getitem__, default="")
    return best if best and found[best] >= _LETTERS else ""


_MARKS = (
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding, "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _ascii_in(head: bytes, encoding: str) -> int:
    """How much of the beginning is ASCII in an encoding; 0 when much of it is nothing that people write."""
    text = head.decode(encoding, "replace")
    if len(_CONTROL.findall(text)) * 16 > len(text) + 16:
        return 0
    return len(text.encode("ascii", "ignore"))


def is_plain_text(data: bytes) -> bool:
    """Return whether bytes are UTF-8 without control characters, as nothing but text is."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return len(data.translate(None, _CONTROLS)) == len(data)


def is_base64(text: str) -> bool:
    """Return whether a whole text can be base64: in lines, in the alphabet of URLs, or without its padding as well."""
    return len(text) >= SHORTEST and _WHOLE.fullmatch(text) is not None


def holds_binary(text: str) -> bool:
    """Return whether base64 begins as that of a picture, sound, a PDF file, an archive or a database does."""
    return is_binary(_decoded("".join(text[:_HEAD_CHARS].split())) or b"")


def decoded(data: str, *, textual: bool = False) -> bytes | None:
    """Return the bytes of base64; None when it is something else.

    Base64 in lines, in the alphabet of URLs or without its padding counts only if a text comes out, or one should.
    """
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raw = _decoded("".join(data.split()))
    if raw is None:
        return None
    return raw if textual or is_binary(raw) or text_in(raw) is not None else None


def _decoded(data: str) -> bytes | None:
    """The bytes of base64 in either alphabet, as far as there are whole ones."""
    plain = data if data.isalnum() else data.translate(_URL_ALPHABET).rstrip("=")
    rest = len(plain) % 4
    try:
        padded = plain if rest == 0 else plain[:-1] if rest == 1 else plain + "=" * (4 - rest)
        return binascii.a2b_base64(padded, strict_mode=True)
    except ValueError:
        return None


def bytes_with_text(data: str) -> bytes | None:
    """Return the bytes of base64 of which nobody said what they are, if they can be a text; words seldom can."""
    raw = _decoded(data if "\n" not in data else "".join(data.split()))
    if raw is None or len(raw) >= _LONG:
        return raw
    printable = len(raw.translate(None, _CONTROLS_AND_HIGH))
    can_be = printable * 4 >= len(raw) * 3 or (printable * 2 >= len(raw) and (0 in raw or is_plain_text(raw)))
    return raw if can_be or raw.count(0) * 4 >= len(raw) else None


def encoded_like(data: bytes, before: str) -> str:
    """Return bytes in base64, in the alphabet, the lines and with the padding of another one."""
    encode = base64.urlsafe_b64encode if "-" in before or "_" in before else base64.b64encode
    text = encode(data).decode()
    text = text if before.rstrip().endswith("=") or len("".join(before.split())) % 4 == 0 else text.rstrip("=")
    found = _LINE_ENDS.search(before)
    if found is None or not found.start():
        return text
    lines = (text[place : place + found.start()] for place in range(0, len(text), found.start()))
    return found[0].join(lines) + before[len(before.rstrip()) :]


def in_text(text: str, look: Callable[[str], str]) -> str:
    """Return a text with each base64 in it replaced by what `look` makes of it.

    In quotes, the quotes and the line ends inside may be escaped, as in JSON. Elsewhere only long base64 that can hold
    ASCII is examined; it may have several lines. Without a change the same object is returned.
    """
    if len(text) < SHORTEST:
        return text
    seen = _in_quotes(text, look) if '"' in text or "'" in text else text
    data = seen.encode("utf-8", "surrogatepass")
    classes = data.translate(_CLASSES)
    start = classes.find(_LONG_RUN)
    if start < 0:
        return seen
    parts, done = [], 0
    while start >= 0:
        blob = _BLOB.match(data, start)
        end = blob.end() if blob else classes.find(b" ", start)
        if blob and (before := _cut_lines(blob.group()).decode()) != (after := look(before)):
            end = start + len(before)
            parts += [data[done:start], after.encode()]
            done = end
        start = classes.find(_LONG_RUN, end) if end >= 0 else -1
    return b"".join([*parts, data[done:]]).decode("utf-8", "surrogatepass") if parts else seen


def _cut_lines(blob: bytes) -> bytes:
    """Return the lines of base64 that have the length of the first, and the last one, which may be shorter."""
    lines = blob.splitlines(keepends=True)
    count = next((number for number, line in enumerate(lines) if len(line) != len(lines[0])), len(lines))
    last = count < len(lines) and len(lines[count]) < len(lines[0])
    return b"".join(lines[: count + last]).rstrip(b"\r\n")


def _in_quotes(text: str, look: Callable[[str], str]) -> str:
    def replaced(found: re.Match[str]) -> str:
        whole = found[1] if "\\" not in found[1] else _ESCAPED_ENDS.sub("", found[1])
        if len(whole) < SHORTEST:
            return found[0]
        seen = look(whole)
        return found[0] if seen == whole else found[0][0] + seen

    made = _QUOTED.sub(replaced, text)
    return text if made == text else made


class Inline(NamedTuple):
    """A `data:` URL in its parts."""

    head: str
    media_type: str
    data: str


def split_data_url(url: str) -> Inline | None:
    """Return the parts of a `data:` URL in base64; None for any other address."""
    found = _DATA_URL.match(url)
    return Inline(found[0], found[1].lower(), url[found.end() :]) if found else None
