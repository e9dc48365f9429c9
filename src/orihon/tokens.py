"""How many tokens a text, a message or a set of tool schemas costs; the same number in every process.

| counter            | a text                                        | and a message                                 |
|--------------------|-----------------------------------------------|-----------------------------------------------|
| `estimate`         | the table `_WEIGHTS`; needs nothing installed | role, calls, pictures and files as in `_Wire` |
| `o200k`, `cl100k`  | exact, offline, by `orihon[tokens]`           | the same                                      |
| `bytes4`           | a quarter of its UTF-8 bytes, rounded up      | 4 more, and the names and arguments of calls  |
| `chars4`           | a quarter of its characters (the seeds' rule) | nothing more; a call is its JSON, a picture 100 |

The estimate stays close to `o200k` because tokens follow the shape of a text: how long its words and numbers are,
where marks and line ends stand, and in which script. Every character is mapped to one letter for its class, and a few
patterns of classes are counted, each by one pass in C. The weights were fitted to relative errors (least absolute
deviations, undercounting a little dearer) on 10,000 messages of prose, code, logs and markup in 30 languages, and
checked on files that the fit had not seen. It is a sum, so it hardly depends on where a text is cut.
Of texts over 2,048 characters every other block of 512 is looked at, which changes the mean error by 0.2 % at most.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Protocol

from orihon.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from orihon.records import Call, Message, Part

ROLE_TOKENS: Final = 4  # OpenAI: 3 a message and 1 for its role
CALL_TOKENS: Final = 8  # the marks around a call, and again around its result; not documented, so on the safe side
PICTURE_TOKENS: Final = 1445  # the dearest picture of `picture_tokens`, for one whose size nobody told
PIECE_CHARS: Final = 16_384  # at most 64 KB of UTF-8; longer texts make the tokenizer keep much more memory
SAMPLED_CHARS: Final = 2_048
BLOCK_CHARS: Final = 512
MIN_PAIRS: Final = 5
FACTORS: Final = (0.5, 2.0)


class Counter(Protocol):
    """Counts without a clock, a network or a memory of what it counted before."""

    @property
    def name(self) -> str:
        """What `counter` knows it by."""

    def text(self, text: str) -> int:
        """Tokens of a bare text; 0 for the empty one."""

    def message(self, message: Message) -> int:
        """Tokens of a whole message: role, content, calls, pictures."""

    def tools(self, schemas: Sequence[Mapping[str, Any]]) -> int:
        """Tokens of the tool schemas, as JSON, the way they are sent."""


def counter(name: str = "estimate") -> Counter:
    """Return the counter of this name; the exact ones load their vocabulary at the first text."""
    if name not in _COUNTERS:
        raise UsageError(f"There is no token counter {name!r}.", hint=f"Choose one of {', '.join(_COUNTERS)}.")
    return _COUNTERS[name]()


def calibrate(pairs: Iterable[tuple[int, int]]) -> float:
    """Return what to multiply counts by, given (counted, reported) of past requests.

    Up: three of four past requests would have been covered, so that a few outliers move nothing. Down: only as far
    as every one of them would still have been covered. Less than `MIN_PAIRS` usable pairs prove nothing: 1.0.
    """
    ratios = sorted(reported / counted for counted, reported in pairs if counted > 0 and reported > 0)
    if len(ratios) < MIN_PAIRS:
        return 1.0
    usual = ratios[(3 * len(ratios) - 1) // 4]
    factor = usual if usual > 1 else min(1.0, ratios[-1])
    return min(max(factor, FACTORS[0]), FACTORS[1])


def scaled(counter: Counter, factor: float) -> Counter:
    """Return a counter whose counts are `factor` times those of `counter`, rounded up."""
    if not FACTORS[0] <= factor <= FACTORS[1]:
        raise UsageError(f"A factor of {factor} is not believable.", hint="Take it from `calibrate`.")
    return counter if factor == 1 else _Scaled(counter, factor)


def picture_tokens(width: int | None, height: int | None) -> int:
    """Tokens of a picture by OpenAI's published rule for high detail: 85, and 170 for each tile of 512 pixels.

    Before it is cut, the picture is made to fit into 2048 x 2048, and then its shorter side into 768.
    """
    if not width or not height or width < 0 or height < 0:
        return PICTURE_TOKENS
    scale = min(1.0, 2048 / max(width, height), 768 / min(width, height))
    return 85 + 170 * ceil(width * scale / 512) * ceil(height * scale / 512)


class _Wire:
    """What a message costs beside its texts, in a provider's chat format."""

    def __init__(self, name: str, text: Callable[[str], int]) -> None:
        self.name = name
        self.text = text

    def message(self, message: Message) -> int:
        result = CALL_TOKENS if message.role == "tool" else 0
        calls = sum(CALL_TOKENS + self.text(call.name) + self.text(call.arguments) for call in message.tool_calls)
        return ROLE_TOKENS + result + calls + self._content(message.content)

    def tools(self, schemas: Sequence[Mapping[str, Any]]) -> int:
        return self.text(_json(schemas)) if schemas else 0

    def _content(self, content: str | list[Part]) -> int:
        if isinstance(content, str):
            return self.text(content)
        return sum(self._part(part) for part in content)

    def _part(self, part: Part) -> int:
        if _is_picture(part):
            return picture_tokens(part.width, part.height)
        if part.text is None and (part.data or part.blob):  # a file: its words are known only to the provider
            return PICTURE_TOKENS
        return self.text(part.text or "") + self.text(part.name or "") + self.text(part.url or "")


class _Quarter:
    """`chars4` and `bytes4`: sizes are summed over the message first, and then divided."""

    def __init__(
        self, name: str, size: Callable[[str], int], call: Callable[[Call], str], *, role: int, rest: int
    ) -> None:
        self.name = name
        self._size, self._call, self._role, self._rest = size, call, role, rest

    def text(self, text: str) -> int:
        return (self._size(text) + self._rest) // 4

    def message(self, message: Message) -> int:
        parts = [] if isinstance(message.content, str) else message.content
        texts = [message.content] if isinstance(message.content, str) else [part.text or "" for part in parts]
        texts += map(self._call, message.tool_calls)
        pictures = sum(100 for part in parts if _is_picture(part))
        return (sum(map(self._size, texts)) + self._rest) // 4 + pictures + self._role

    def tools(self, schemas: Sequence[Mapping[str, Any]]) -> int:
        return self.text(_json(schemas)) if schemas else 0


class _Scaled:
    def __init__(self, counter: Counter, factor: float) -> None:
        self.name = f"{counter.name} x {factor:.3f}"
        self._counter, self._factor = counter, factor

    def text(self, text: str) -> int:
        return ceil(self._counter.text(text) * self._factor)

    def message(self, message: Message) -> int:
        return ceil(self._counter.message(message) * self._factor)

    def tools(self, schemas: Sequence[Mapping[str, Any]]) -> int:
        return ceil(self._counter.tools(schemas) * self._factor)


def _is_picture(part: Part) -> bool:
    return "image" in part.type or (part.media_type or "").startswith("image/")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _call_json(call: Call) -> str:
    return f'{{"name":{_json(call.name)},"arguments":{call.arguments}}}'


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# The class of each byte. Of a character outside ASCII only the first byte counts, which tells its script.
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

_WEIGHTS: Final = (  # tokens for each time the pattern of classes stands in the text
    (b"aaaaa", -0.67),  # long words are often one token
    (b"aA0", 6.02),  # the unrest of base64
    (b"AAAAAAAAAAAAAAAA", 5.21),  # base32, genomes; no word is written so
    (b"0", 1.53),  # numbers are cut every three digits
    (b"00", -1.71),
    (b"000", -1.74),
    (b".", 0.48),  # a mark: every other one melts into the word that follows
    (b"...", -1.28),
    (b"................", -4.49),  # rules and borders
    (b"        ", -1.90),  # indentation is one token, however deep
    (b"\n\n\n\n", -0.65),
    (b"a\n", 0.85),  # after a mark the line end costs nothing
)
_SCRIPT_WEIGHTS: Final = (  # looked for only where a text is not ASCII
    (b"l", 1.20),  # an accent breaks a word
    (b"r", 0.09),
    (b"g", 0.15),
    (b"q", 0.88),
    (b"qqqq", -3.79),  # the borders of tables
    (b"h", 0.41),
    (b"k", 1.20),
    (b"kkh", -1.04),  # the second kanji of a Japanese word mostly belongs to the first
    (b"kkkk", -3.13),  # as do those of Chinese
    (b"o", 0.42),
    (b"e", 1.46),
)
_CHAR_WEIGHT: Final = 0.245  # each character, whatever its class
_NOISE_WEIGHT: Final = 15.5  # each time that j, q and z are all there: random letters hardly merge

_CLASS_OF: Final = {byte if isinstance(byte, int) else ord(byte): name for name, of in _CLASSES for byte in of}
_SHAPES: Final = "".join(_CLASS_OF.get(byte, "0") for byte in range(256)).encode()  # control characters: as digits
_TAILS: Final = bytes(range(0x80, 0xC0))


def _estimate(text: str) -> int:
    """Weigh a text; of a long one every other block, because its halves are alike and the time is not."""
    sample = text
    if len(text) > SAMPLED_CHARS:
        sample = "".join([text[i : i + BLOCK_CHARS] for i in range(0, len(text), 2 * BLOCK_CHARS)])
    weight = sum([_weigh(sample[i : i + PIECE_CHARS]) for i in range(0, len(sample), PIECE_CHARS)])
    return ceil(weight * len(text) / len(sample)) if sample else 0


def _weigh(text: str) -> float:
    """Weigh one piece, short enough to stay in the processor's cache."""
    raw = text.encode("utf-8", "surrogatepass")
    shapes = raw.translate(_SHAPES, _TAILS)
    chars, count = len(shapes), shapes.count
    tokens = _CHAR_WEIGHT * chars
    for pattern, weight in _WEIGHTS:
        tokens += weight * count(pattern)
    if len(raw) != chars:
        count = shapes.translate(None, b"aA0").count  # a few curly quotes in a long text should not cost its length
        for pattern, weight in _SCRIPT_WEIGHTS:
            tokens += weight * count(pattern)
    usual = 1 + chars / 128  # a pangram has these letters, and so has a page of prose
    if raw.count(b"q") > usual:
        tokens += _NOISE_WEIGHT * max(0.0, min(map(raw.count, (b"j", b"q", b"z"))) - usual)
    return min(tokens, len(raw))  # a token is at least a byte


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = _border(text, start, start + PIECE_CHARS)
        yield text[start:end]
        start = end
    yield text[start:]


def _border(text: str, start: int, end: int) -> int:
    """Find the last place where a cut changes no count; failing that `end`, where it costs a token or two.

    No token holds the end of a word and a line end, nor a line end and what follows but spaces and slashes.
    """
    line = end
    while (line := text.rfind("\n", start, line)) > start:
        if text[line - 1].isalnum():
            return line
        if not (text[line + 1].isspace() or text[line + 1] == "/"):
            return line + 1
    return end


@cache
def _encoder(vocabulary: str) -> Callable[[str], list[int]]:
    tokenizer = import_module("splintr").Tokenizer.from_pretrained(f"{vocabulary}_base")  # 40 MB, for who asks
    encode: Callable[[str], list[int]] = tokenizer.encode_ordinary  # "<|endoftext|>" is text like any other
    return encode


def _exact(vocabulary: str) -> Counter:
    if find_spec("splintr") is None:
        raise UsageError(f"Counting with {vocabulary!r} needs splintr-rs.", hint="pip install 'orihon[tokens]'")

    def count(text: str) -> int:
        if not text.isascii():  # a lone surrogate cannot be sent; it counts as what it is replaced with
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return sum(len(_encoder(vocabulary)(piece)) for piece in _pieces(text))

    return _Wire(vocabulary, count)


_COUNTERS: Final[Mapping[str, Callable[[], Counter]]] = {
    "estimate": lambda: _Wire("estimate", _estimate),
    "chars4": lambda: _Quarter("chars4", len, _call_json, role=0, rest=0),
    "bytes4": lambda: _Quarter(
        "bytes4", _size_bytes, lambda call: call.name + call.arguments, role=ROLE_TOKENS, rest=3
    ),
    "o200k": lambda: _exact("o200k"),
    "cl100k": lambda: _exact("cl100k"),
}
