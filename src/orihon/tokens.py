"""Count the tokens of texts, messages and tool schemas. Every process gets the same number.

| counter            | text                                          | message                                       |
|--------------------|-----------------------------------------------|-----------------------------------------------|
| `estimate`         | the table `_WEIGHTS`; needs nothing installed | role, calls, pictures and files as in `_Wire` |
| `o200k`, `cl100k`  | exact, offline, by `orihon[tokens]`           | the same                                      |
| `bytes4`           | a quarter of its UTF-8 bytes, rounded up      | 4 more, and names, ids and arguments of calls |
| `chars4`           | a quarter of its characters, rounded down     | names and ids; a call is its JSON             |

A message is counted as it is sent. The wire formats differ: a picture in one is a line of text in another, arguments
are a text or an object, a provider gets its own payload back. The largest form counts, so that the count is valid for
every format. A text in a blob that was not loaded counts one token per byte, which is the upper limit. Data that a
provider encrypted for itself counts a quarter of its bytes.

The estimate stays close to `o200k` because tokens follow the shape of a text: the length of words and numbers, the
position of punctuation and line ends, and the script. Every character is mapped to one letter for its class, and a few
patterns of classes are counted, each by one pass in C. The weights were fitted to relative errors (least absolute
deviations, with a higher penalty for undercounting) on 10,000 messages of prose, code, logs and markup in 30 languages
and validated on other files. The estimate is a sum, so it hardly depends on where a text is split.
In texts over 2,048 characters every other block of 512 is sampled, which changes the mean error by at most 0.2 %.
"""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Protocol

from orihon.errors import UsageError
from orihon.parts import (
    MAX_ID_CHARS,
    PIXELS,
    WireForm,
    iter_sent_ids,
    iter_wire_forms,
    make_payload_form,
    render_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from orihon.records import Call, Message

ROLE_TOKENS: Final = 4  # OpenAI: 3 a message and 1 for its role
CALL_TOKENS: Final = 8  # markup around a call, and again around its result; undocumented, so a safe upper estimate
PICTURE_TOKENS: Final = 1600  # the maximum of `picture_tokens`, for pictures of unknown size
PIECE_CHARS: Final = 16_384  # at most 64 KB of UTF-8; the tokenizer needs much more memory for longer texts
SAMPLED_CHARS: Final = 2_048
BLOCK_CHARS: Final = 512
EXACT: Final = frozenset(("o200k", "cl100k"))
CEILING: Final = 1.03  # of the estimate: more than it was ever below the tokens of real text in common scripts
CEILING_WIDE: Final = 0.05  # tokens for each character of a common script that is not ASCII: vocabularies differ
MIN_PAIRS: Final = 5
FACTORS: Final = (0.5, 2.0)
MOST_SCALE: Final = 1000.0  # upper limit for the ratio of a refused window to an accepted one


class Counter(Protocol):
    """A token counter. The same input always has the same count."""

    @property
    def name(self) -> str:
        """The name that `counter` accepts."""

    def text(self, text: str) -> int:
        """Return the tokens of a bare text; 0 if it is empty."""

    def message(self, message: Message) -> int:
        """Return the tokens of a message with its role, content, calls and pictures."""

    def tools(self, schemas: Sequence[Mapping[str, Any]]) -> int:
        """Return the tokens of the tool schemas as they are sent, in JSON."""


def counter(name: str = "estimate") -> Counter:
    """Return the counter with this name. An exact counter loads its vocabulary at the first text."""
    if not isinstance(name, str) or name not in _COUNTERS:
        raise UsageError(f"Unknown token counter {name!r:.80}.", hint=f"Choose one of {', '.join(_COUNTERS)}.")
    return _COUNTERS[name]()


def calibrate(pairs: Iterable[tuple[int, int]]) -> float:
    """Return the factor for future counts, given (counted, reported) pairs of past requests.

    A factor above 1 covers three of four past requests, so that a few outliers have no effect. A factor below 1
    covers all of them. With fewer than `MIN_PAIRS` usable pairs the factor is 1.0.
    """
    ratios = sorted(reported / counted for counted, reported in pairs if counted > 0 and reported > 0)
    if len(ratios) < MIN_PAIRS:
        return 1.0
    usual = ratios[(3 * len(ratios) - 1) // 4]
    factor = usual if usual > 1 else min(1.0, ratios[-1])
    return min(max(factor, FACTORS[0]), FACTORS[1])


def picture_tokens(width: int | None, height: int | None) -> int:
    """Return the tokens of a picture: the larger of the counts that OpenAI and Anthropic document.

    OpenAI, at high detail: 85, and 170 for each tile of 512 pixels, after the picture was scaled to fit 2048 x 2048
    and its shorter side to 768. Anthropic: one token per 750 pixels, and at most 1,600.
    """
    if not width or not height or not 0 < min(width, height) <= max(width, height) <= PIXELS:
        return PICTURE_TOKENS
    ratio = min(1.0, 2048 / max(width, height), 768 / min(width, height))
    tiles = ceil(width * ratio / 512) * ceil(height * ratio / 512)
    return max(85 + 170 * tiles, min(PICTURE_TOKENS, ceil(width * height / 750)))


class Ceiling:
    """Counts the tokens that a text has at most, whatever its script, for a limit that must hold.

    The estimate is calibrated on common scripts. Characters of other scripts may take a token per byte.
    """

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self.name = counter.name
        self.message, self.tools = counter.message, counter.tools

    def text(self, text: str) -> int:
        """Return the highest number of tokens that the text may have."""
        tokens = self._counter.text(text)
        if self.name in EXACT:
            return tokens
        common = _UNCOMMON.sub("0", text)
        rare = len(text.encode("utf-8", "replace")) - len(common.encode("utf-8", "replace")) if common != text else 0
        wide = 0 if common.isascii() else sum(not char.isascii() for char in common)
        return max(tokens, ceil(CEILING * _estimate(common) + CEILING_WIDE * wide) + rare)


class _Wire:
    """A counter that adds the overhead of a provider's chat format to the tokens of the texts."""

    def __init__(self, name: str, text: Callable[[str], int]) -> None:
        self.name = name
        self.text = text
        self._count_short = lru_cache(maxsize=1024)(text)  # names and ids repeat

    def message(self, message: Message) -> int:
        overhead = ROLE_TOKENS
        if message.tool_calls or message.role == "tool":
            overhead += self._count_calls(message)
        if isinstance(message.content, str) and message.blob is None and message.native is None:
            return overhead + self.text(message.content)
        tokens = overhead + max(map(self._count_form, iter_wire_forms(message)))
        payload = make_payload_form(message)
        if payload is None:
            return tokens
        extra = self._count_form(payload)
        return tokens + extra if payload.is_extra else max(tokens, ROLE_TOKENS + extra)

    def tools(self, schemas: Sequence[Mapping[str, Any]]) -> int:
        return self.text(_encode_json(schemas)) if schemas else 0

    def _count_calls(self, message: Message) -> int:
        """Return the tokens of the calls, or of the reference to the answered call."""
        tokens = 0
        for call in message.tool_calls:
            tokens += CALL_TOKENS + self._count_name(call.name) + self._count_id(call.id)
            tokens += call.blob.size_bytes if call.blob else max(map(self.text, render_arguments(call.arguments)))
        if message.role == "tool":
            tokens += CALL_TOKENS + self._count_id(message.tool_call_id or "")
            tokens += self._count_name(message.tool_name or "")
        return tokens

    def _count_name(self, name: str) -> int:
        return self._count_short(name) if len(name) <= MAX_ID_CHARS else self.text(name)

    def _count_id(self, id: str) -> int:
        return max(map(self._count_name, iter_sent_ids(id)))

    def _count_form(self, form: WireForm) -> int:
        pictures = sum(picture_tokens(part.width, part.height) for part in form.pictures)
        markup = ROLE_TOKENS * form.messages + CALL_TOKENS * form.items
        return sum(map(self.text, form.texts)) + pictures + markup + form.unseen_bytes + ceil(form.opaque_bytes / 4)


class _Quarter:
    """The counters `chars4` and `bytes4`: they add up the sizes of a message, then divide the sum and round it up."""

    def __init__(
        self, name: str, size: Callable[[str], int], render_call: Callable[[Call], str], *, role: int, rest: int
    ) -> None:
        self.name = name
        self._size, self._render_call, self._role, self._rest = size, render_call, role, rest

    def text(self, text: str) -> int:
        return (self._size(text) + self._rest) // 4

    def message(self, message: Message) -> int:
        calls = sum(self._size(self._render_call(call)) for call in message.tool_calls)
        if message.role == "tool":
            calls += self._size(message.tool_name or "") + self._size(_pick_longest_id(message.tool_call_id or ""))
        calls += sum(call.blob.size_bytes for call in message.tool_calls if call.blob)
        payload = make_payload_form(message)
        if payload is not None and payload.is_extra:
            calls += self._sum_sizes(payload)
        tokens = [self._count(self._sum_sizes(form) + calls, form) for form in iter_wire_forms(message)]
        if payload is not None and not payload.is_extra:
            tokens.append(self._count(self._sum_sizes(payload), payload))
        return max(tokens)

    def tools(self, schemas: Sequence[Mapping[str, Any]]) -> int:
        return self.text(_encode_json(schemas)) if schemas else 0

    def _sum_sizes(self, form: WireForm) -> int:
        return sum(map(self._size, form.texts)) + form.unseen_bytes + form.opaque_bytes

    def _count(self, size: int, form: WireForm) -> int:
        return ceil(size / 4) + 100 * len(form.pictures) + self._role * (1 + form.messages)


def _encode_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _render_call_json(call: Call) -> str:
    arguments = max(render_arguments(call.arguments), key=len)
    return (
        f'{{"id":{_encode_json(_pick_longest_id(call.id))},"name":{_encode_json(call.name)},"arguments":{arguments}}}'
    )


def _render_call_text(call: Call) -> str:
    return call.name + _pick_longest_id(call.id) + max(render_arguments(call.arguments), key=_size_bytes)


def _pick_longest_id(id: str) -> str:
    return max(iter_sent_ids(id), key=_size_bytes)


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# The class of each byte. Only the first byte of a character outside ASCII counts, because it identifies the script.
_CLASSES: Final = (
    ("a", "abcdefghijklmnopqrstuvwxyz"),
    ("A", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ("0", "0123456789"),
    (" ", " "),
    ("\n", "\t\r\n"),
    (".", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    ("l", range(0xC2, 0xCC)),  # accented Latin
    ("r", range(0xD0, 0xD4)),  # Cyrillic
    ("g", (*range(0xCC, 0xD0), *range(0xD4, 0xE2))),  # Greek, Hebrew, Arabic, the scripts of India, Thai
    ("q", range(0xE2, 0xE3)),  # curly quotes, dashes, arrows, boxes
    ("h", (0xE3, 0xEE, 0xEF)),  # kana and full-width marks
    ("k", range(0xE4, 0xEA)),  # kanji
    ("o", range(0xEA, 0xEE)),  # hangul
    ("e", range(0xF0, 0x100)),  # emoji
)

_WEIGHTS: Final = (  # tokens for each occurrence of the pattern of classes
    (b"aaaaa", -0.67),  # long words are often one token
    (b"aA0", 6.02),  # base64
    (b"AAAAAAAAAAAAAAAA", 5.21),  # base32, genomes
    (b"0", 1.53),  # numbers are split every three digits
    (b"00", -1.71),
    (b"000", -1.74),
    (b".", 0.48),  # punctuation; about half of it merges with the following word
    (b"...", -1.28),
    (b"................", -4.49),  # rules and borders
    (b"        ", -1.90),  # indentation of any depth is one token
    (b"\n\n\n\n", -0.65),
    (b"a\n", 0.85),  # a line end after punctuation costs nothing
)
_SCRIPT_WEIGHTS: Final = (  # counted only in texts that are not ASCII
    (b"l", 1.20),  # an accent splits a word
    (b"r", 0.09),
    (b"g", 0.15),
    (b"q", 0.88),
    (b"h", 0.41),
    (b"k", 1.20),
    (b"kkh", -1.04),  # the second kanji of a Japanese word usually merges with the first
    (b"kkkk", -3.13),  # the same in Chinese
    (b"o", 0.42),
    (b"e", 1.46),
)
# Borders of tables: a run of four equal characters is one token.
_BORDERS: Final = tuple(4 * character.encode() for character in "─━═█░▒▓▀▄—…•·")
_BORDER_WEIGHT: Final = -3.79
# Scripts that are rare in the vocabularies cost two or three tokens per character. Each row has a first byte, the
# second bytes of common characters (the most common first), and the extra cost of every other character.
_RARE: Final[tuple[tuple[int, Sequence[int], float], ...]] = (
    (0xCC, (), 1.4),  # accents on their own
    (0xCD, range(0xB0, 0xC0), 1.4),
    *((lead, (), 1.2) for lead in range(0xDC, 0xE0)),  # Syriac, Thaana, N'Ko
    (0xE0, (0xA4, 0xA5, 0xB8, 0xB9, *range(0xA6, 0xB8)), 1.25),  # Lao, Tibetan; not the scripts of India and Thai
    (0xE1, (0xBB, 0xBA, 0x80, 0x83, 0x9E, 0x81, 0x82, 0x9F, 0xB8, 0xB9), 2.0),  # Ethiopic, Cherokee, Mongolian
    (
        0xE2,
        (0x80, 0x94, 0x95, 0x86, 0x96, 0x9C, *range(0x81, 0x90), *range(0x91, 0x94), *range(0x97, 0xA0)),
        2.3,
    ),  # braille, Coptic; not punctuation and boxes
    (0xEA, range(0xB0, 0xC0), 2.2),  # Yi, Vai; not hangul
    (0xEE, (), 2.3),  # private use, as in icon fonts
    (0xEF, (0xBC, 0xBD, 0xB8, 0xBB), 1.5),  # not full-width letters
    (0xF0, (0x9F,), 1.6),  # not emoji
    *((lead, (), 2.3) for lead in range(0xF1, 0xF5)),
)
_RARE_SHARE: Final = 64  # rarer than one in this many characters is ignored, to save time
_CHAR_WEIGHT: Final = 0.245  # each character of any class
_NOISE_WEIGHT: Final = 15.5  # each occurrence of j, q and z together: random letters hardly merge

_CLASS_OF: Final = {byte if isinstance(byte, int) else ord(byte): name for name, of in _CLASSES for byte in of}
_SHAPES: Final = "".join(_CLASS_OF.get(byte, "0") for byte in range(256)).encode()  # control characters: as digits
_TAILS: Final = bytes(range(0x80, 0xC0))


def _estimate(text: str) -> int:
    """Return the estimated tokens of a text. A long text is sampled: every other block is weighed."""
    if len(text) <= PIECE_CHARS:
        return ceil(_weigh(text)) if text else 0
    sample = text
    if len(text) > SAMPLED_CHARS:
        sample = "".join([text[i : i + BLOCK_CHARS] for i in range(0, len(text), 2 * BLOCK_CHARS)])
    weight = sum([_weigh(sample[i : i + PIECE_CHARS]) for i in range(0, len(sample), PIECE_CHARS)])
    return ceil(weight * len(text) / len(sample)) if sample else 0


def _weigh(text: str) -> float:
    """Return the weight of a text that is short enough for the processor's cache."""
    raw = text.encode("utf-8", "surrogatepass")
    shapes = raw.translate(_SHAPES, _TAILS)
    chars, count = len(shapes), shapes.count
    tokens = _CHAR_WEIGHT * chars
    for pattern, weight in _WEIGHTS:
        tokens += weight * count(pattern)
    if len(raw) != chars:
        count = shapes.translate(None, b"aA0").count  # so that a few curly quotes do not cost full passes over the text
        for pattern, weight in _SCRIPT_WEIGHTS:
            tokens += weight * count(pattern)
        tokens += _weigh_rare(raw, chars)
        if b"qqqq" in shapes:
            tokens += _BORDER_WEIGHT * sum(map(raw.count, _BORDERS))
    usual = 1 + chars / 128  # pangrams and prose contain these letters too
    if raw.count(b"q") > usual:
        tokens += _NOISE_WEIGHT * max(0.0, min(map(raw.count, (b"j", b"q", b"z"))) - usual)
    return min(tokens, len(raw))  # a token is at least a byte


def _weigh_rare(raw: bytes, chars: int) -> float:
    """Return the extra weight of characters in rare scripts."""
    tokens = 0.0
    few = chars // _RARE_SHARE
    if len(raw) - chars <= few:  # there are not that many characters outside ASCII
        return tokens
    for lead, usual, weight in _RARE:
        rare = raw.count(lead)
        for second in dict.fromkeys(usual) if rare > few else ():
            rare -= raw.count(bytes((lead, second)))
            if rare <= few:
                break
        tokens += weight * rare if rare > few else 0.0
    return tokens


def _split(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = _find_cut(text, start, start + PIECE_CHARS)
        yield text[start:end]
        start = end
    yield text[start:]


def _find_cut(text: str, start: int, end: int) -> int:
    """Return the last index where a cut does not change the count, or `end`, where a cut may cost a token or two.

    No token spans the end of a word and a line end, or a line end and a character other than a space or a slash.
    """
    line = end
    while (line := text.rfind("\n", start, line)) > start:
        if text[line - 1].isalnum():
            return line
        if not (text[line + 1].isspace() or text[line + 1] == "/"):
            return line + 1
    return end


@cache
def _load_encoder(vocabulary: str) -> Callable[[str], list[int]]:
    tokenizer = import_module("splintr").Tokenizer.from_pretrained(f"{vocabulary}_base")  # 40 MB
    encode: Callable[[str], list[int]] = tokenizer.encode_ordinary  # encodes "<|endoftext|>" as ordinary text
    return encode


def _make_exact_counter(vocabulary: str) -> Counter:
    if find_spec("splintr") is None:
        raise UsageError(f"Counting with {vocabulary!r} needs splintr-rs.", hint="pip install 'orihon[tokens]'")

    def count(text: str) -> int:
        if not text.isascii():  # a lone surrogate is replaced before it is sent, so its replacement is counted
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return sum(len(_load_encoder(vocabulary)(piece)) for piece in _split(text))

    return _Wire(vocabulary, count)


# what is not ASCII, Latin, Cyrillic, punctuation, Japanese, Chinese or Korean
_UNCOMMON: Final = re.compile(
    "[^\x00-\u017f\u0400-\u045f\u2010-\u2027\u2190-\u2193\u2500-\u257f\u3000-\u30ff\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff5e]+"
)

_COUNTERS: Final[Mapping[str, Callable[[], Counter]]] = {
    "estimate": lambda: _Wire("estimate", _estimate),
    "chars4": lambda: _Quarter("chars4", len, _render_call_json, role=0, rest=0),
    "bytes4": lambda: _Quarter("bytes4", _size_bytes, _render_call_text, role=ROLE_TOKENS, rest=3),
    "o200k": lambda: _make_exact_counter("o200k"),
    "cl100k": lambda: _make_exact_counter("cl100k"),
}
