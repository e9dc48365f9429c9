"""Find text in bytes and base64, such as the text files that a message contains.

Pictures, sound, PDF files, archives and databases are recognised by their first bytes and contain no text. Bytes with
many control characters are binary as well, unless they are UTF-16 or UTF-32 or their media type is textual. All other
bytes are text, including invalid UTF-8 and lines that are separated by NULs.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import NamedTuple

MIN_CHARS = 16  # shorter base64 is ignored

_BINARY = re.compile(
    rb"\x89PNG|\xff\xd8\xff|GIF8[79]a(?=.{0,6}[\0-\x08])|RIFF.{4}(?:WAVE|WEBP|AVI )|II\*\0|MM\0\*|BM.{4}\0{4}"
    rb"|%PDF-\d|PK[\3\5]|\x1f\x8b\x08|BZh\d1AY|\xfd7zXZ|7z\xbc\xaf|\x28\xb5\x2f\xfd|Rar!\x1a|.{257}ustar"
    rb"|ID3[\2-\4]|OggS\0|fLaC[\0\x80]|.{4}ftyp|\0asm|\x7fELF|SQLite format 3\0|\xca\xfe\xba\xbe|wOF[F2]\0",
    re.DOTALL,
)
_HEAD_CHARS = 400  # base64 characters that are enough to recognise the first bytes
_WHOLE = re.compile(r"[A-Za-z0-9+/_-]++(?:\r?\n[A-Za-z0-9+/_-]++)*+={0,2}[\r\n]*+")
_QUOTED = re.compile(
    r"""["']([A-Za-z0-9+/_-]{8,}+(?:(?:\\+[nr])++[A-Za-z0-9+/_-]++)*+={0,2})(?=(?:\\+[nr])*+\\*+["'])"""
)
# In this alphabet a quote is q, a backslash is b and a byte of base64 is x, so that one search tells whether anything
# between quotes can be base64.
_RUN = b"+/_-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_QUOTES = bytes(120 if byte in _RUN else {34: 113, 39: 113, 92: 98}.get(byte, 32) for byte in range(256))
_MAY_QUOTE = re.compile(rb"qx{8}(?:x{6}|x*+b)")  # 14 bytes and padding, or two lines
_CLASSES = bytes(120 if byte in _RUN else 32 for byte in range(256))
_LONG_RUN = b"x" * 24
# Base64 in which four groups in a row decode to ASCII; of random letters, one group in eight does.
_BLOB = re.compile(
    rb"(?=(?:[A-Za-z0-9+/_-]{4})*?(?:[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]){4})"
    rb"[A-Za-z0-9+/_-]+(?:\r?\n[A-Za-z0-9+/_-]+)*={0,2}"
)
_ESCAPED_ENDS = re.compile(r"\\+[nr]")
_URL_ALPHABET = str.maketrans("-_", "+/")
_DATA_URL = re.compile(r"data:([^,;]{0,200})(?:;[^,]{0,200})?;base64,", re.ASCII | re.IGNORECASE)
_CONTROLS = bytes({*range(32), 127} - {9, 10, 12, 13, 27})  # except tabs, line ends and terminal escapes
_CONTROL = re.compile(r"[\0-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ue000-\uf8ff\ufffe\uffff]")
_CONTROLS_AND_HIGH = _CONTROLS + bytes(range(128, 256))
_LONG = 64  # bytes from which binary data has enough control characters to be distinguished from text
_LOOKED_AT = 4096  # bytes that are examined to detect an encoding
_LETTERS = 4  # text with fewer ASCII characters is ignored
_LINE_ENDS = re.compile(r"\r?\n")


class Text(NamedTuple):
    """A text and the encoding of its bytes."""

    text: str
    encoding: str
    errors: str

    def encode(self, text: str) -> bytes:
        """Encode another text in the same encoding."""
        return text.encode(self.encoding, self.errors)


def is_binary(data: bytes) -> bool:
    """Return whether bytes begin like a picture, sound, a PDF file, an archive or a database."""
    return _BINARY.match(data) is not None


def decode_text(data: bytes, *, textual: bool = False) -> Text | None:
    """Decode bytes reversibly to text; return None if they are binary."""
    if is_binary(data) and not textual:
        return None
    if encoding := _detect_wide_encoding(data):
        return Text(data.decode(encoding, "surrogatepass"), encoding, "surrogatepass")
    if not textual and not _is_mostly_text(data):
        return None
    return Text(data.decode("utf-8", "surrogateescape"), "utf-8", "surrogateescape")


def _is_mostly_text(data: bytes) -> bool:
    """Return whether bytes have few control characters, and NULs only between texts."""
    plain = data.replace(b"\0", b"")
    if len(plain) < len(data) and (len(plain) * 4 < len(data) * 3 or not is_plain_text(plain)):
        return False
    return (len(plain) - len(plain.translate(None, _CONTROLS))) * 16 <= len(plain) + 16


def _detect_wide_encoding(data: bytes) -> str:
    """Detect UTF-16 or UTF-32 by a byte order mark or by the NULs of ASCII characters; return "" for anything else."""
    if len(data) % 2 or b"\0" not in data:
        return ""
    for mark, encoding in _MARKS:
        if data.startswith(mark) and _can_decode(data, encoding):
            return encoding
    head = data[:_LOOKED_AT]
    plain = head.replace(b"\0", b"")
    if len(plain) * 4 >= len(head) * 3 and is_plain_text(plain):
        return ""  # NULs separate texts
    counts = {encoding: _count_ascii(head, encoding) for encoding in _WIDE if _can_decode(data, encoding)}
    best = max(counts, key=counts.__getitem__, default="")
    return best if best and counts[best] >= _LETTERS else ""


_MARKS = (
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")


def _can_decode(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding, "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def _count_ascii(head: bytes, encoding: str) -> int:
    """Return the number of ASCII characters in `head`; 0 if many characters are control or private-use ones."""
    text = head.decode(encoding, "replace")
    if len(_CONTROL.findall(text)) * 16 > len(text) + 16:
        return 0
    return len(text.encode("ascii", "ignore"))


def is_plain_text(data: bytes) -> bool:
    """Return whether bytes are valid UTF-8 without control characters."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return len(data.translate(None, _CONTROLS)) == len(data)


def is_base64(text: str) -> bool:
    """Return whether a complete text may be base64, including wrapped, URL-safe and unpadded base64."""
    return len(text) >= MIN_CHARS and _WHOLE.fullmatch(text) is not None


def holds_binary(text: str) -> bool:
    """Return whether base64 begins like a picture, sound, a PDF file, an archive or a database."""
    return is_binary(_decode_loosely("".join(text[:_HEAD_CHARS].split())) or b"")


def decode_base64(data: str, *, textual: bool = False) -> bytes | None:
    """Decode base64; return None if the text is not base64.

    Wrapped, URL-safe or unpadded base64 is accepted only if it decodes to text or a known format, or if `textual`.
    """
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raw = _decode_loosely("".join(data.split()))
    if raw is None:
        return None
    return raw if textual or is_binary(raw) or decode_text(raw) is not None else None


def _decode_loosely(data: str) -> bytes | None:
    """Decode base64 in either alphabet, with or without padding, and drop an incomplete last byte."""
    plain = data if data.isalnum() else data.translate(_URL_ALPHABET).rstrip("=")
    rest = len(plain) % 4
    try:
        padded = plain if rest == 0 else plain[:-1] if rest == 1 else plain + "=" * (4 - rest)
        return binascii.a2b_base64(padded, strict_mode=True)
    except ValueError:
        return None


def decode_if_text(data: str) -> bytes | None:
    """Decode base64 of unknown origin; return None if the bytes cannot be text. Few ordinary words decode to text."""
    raw = _decode_loosely(data if "\n" not in data else "".join(data.split()))
    if raw is None or len(raw) >= _LONG:
        return raw
    printable = len(raw.translate(None, _CONTROLS_AND_HIGH))
    can_be = printable * 4 >= len(raw) * 3 or (printable * 2 >= len(raw) and (0 in raw or is_plain_text(raw)))
    return raw if can_be or raw.count(0) * 4 >= len(raw) else None


def encode_like(data: bytes, before: str) -> str:
    """Encode bytes as base64 with the alphabet, the line breaks and the padding of `before`."""
    encode = base64.urlsafe_b64encode if "-" in before or "_" in before else base64.b64encode
    text = encode(data).decode()
    text = text if before.rstrip().endswith("=") or len("".join(before.split())) % 4 == 0 else text.rstrip("=")
    line_end = _LINE_ENDS.search(before)
    if line_end is None or not line_end.start():
        return text
    width = line_end.start()
    lines = (text[start : start + width] for start in range(0, len(text), width))
    return line_end[0].join(lines) + before[len(before.rstrip()) :]


def replace_base64(text: str, convert: Callable[[str], str]) -> str:
    """Replace each base64 string in a text with the result of `convert`.

    In quoted base64, the quotes and the line ends inside may be escaped, as in JSON. Outside quotes only long base64
    that can contain ASCII is examined; it may have several lines. If nothing changes, the same object is returned.
    """
    if len(text) < MIN_CHARS:
        return text
    replaced, data = text, text.encode("utf-8", "surrogatepass")
    if _MAY_QUOTE.search(data.translate(_QUOTES)):
        replaced = _replace_quoted(text, convert)
        data = replaced.encode("utf-8", "surrogatepass")
    classes = data.translate(_CLASSES)
    start = classes.find(_LONG_RUN)
    if start < 0:
        return replaced
    parts, done = [], 0
    while start >= 0:
        blob = _BLOB.match(data, start)
        end = blob.end() if blob else classes.find(b" ", start)
        if blob and (before := _cut_lines(blob.group()).decode()) != (after := convert(before)):
            end = start + len(before)
            parts += [data[done:start], after.encode()]
            done = end
        start = classes.find(_LONG_RUN, end) if end >= 0 else -1
    return b"".join([*parts, data[done:]]).decode("utf-8", "surrogatepass") if parts else replaced


def _cut_lines(blob: bytes) -> bytes:
    """Return the lines of base64 that have the length of the first, and the last one, which may be shorter."""
    lines = blob.splitlines(keepends=True)
    count = next((number for number, line in enumerate(lines) if len(line) != len(lines[0])), len(lines))
    last = count < len(lines) and len(lines[count]) < len(lines[0])
    return b"".join(lines[: count + last]).rstrip(b"\r\n")


def _replace_quoted(text: str, convert: Callable[[str], str]) -> str:
    def replace(match: re.Match[str]) -> str:
        quoted = match[1] if "\\" not in match[1] else _ESCAPED_ENDS.sub("", match[1])
        if len(quoted) < MIN_CHARS:
            return match[0]
        converted = convert(quoted)
        return match[0] if converted == quoted else match[0][0] + converted

    result = _QUOTED.sub(replace, text)
    return text if result == text else result


class Inline(NamedTuple):
    """A `data:` URL in its parts."""

    head: str
    media_type: str
    data: str


def split_data_url(url: str) -> Inline | None:
    """Split a base64 `data:` URL into its parts; return None for any other address."""
    match = _DATA_URL.match(url)
    return Inline(match[0], match[1].lower(), url[match.end() :]) if match else None
