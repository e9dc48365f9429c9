"""How many tokens a text, a message or a set of tool schemas costs; the same number in every process.

| counter            | a text                                        | and a message                                 |
|--------------------|-----------------------------------------------|-----------------------------------------------|
| `estimate`         | the table `_WEIGHTS`; needs nothing installed | role, calls, pictures and files as in `_Wire` |
| `o200k`, `cl100k`  | exact, offline, by `orihon[tokens]`           | the same                                      |
| `bytes4`           | a quarter of its UTF-8 bytes, rounded up      | 4 more, and names, ids and arguments of calls |
| `chars4`           | a quarter of its characters, rounded down     | names and ids; a call is its JSON             |

A message is counted as it is sent. The formats differ: a picture in one is a line of text in another, arguments are a
text or an object, a provider gets its own payload back. The largest counts, so that the count holds for each of them.
A text that is kept in a blob and was not loaded counts as many tokens as it has bytes, which is the most it can be. Of
what a provider encrypted for itself, a quarter of the bytes counts.

The estimate stays close to `o200k` because tokens follow the shape of a text: how long its words and numbers are,
where marks and line ends stand, and in which script. Every character is mapped to one letter for its class, and a few
patterns of classes are counted, each by one pass in C. The weights were fitted to relative errors (least absolute
deviations, undercounting a little dearer) on 10,000 messages of prose, code, logs and markup in 30 languages, and
checked on files that the fit had not seen. It is a sum, so it hardly depends on where a text is cut.
Of texts over 2,048 characters every other block of 512 is looked at, which changes the mean error by 0.2 % at most.
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from math import ceil
from typing import TYPE_CHECKING, Any, Final, Protocol

from orihon.errors import UsageError
from orihon.parts import LONGEST_ID, PIXELS, Way, payload_of, sent_arguments, sent_ids, ways

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from orihon.records import Call, Message

ROLE_TOKENS: Final = 4  # OpenAI: 3 a message and 1 for its role
CALL_TOKENS: Final = 8  # the marks around a call, and again around its result; not documented, so on the safe side
PICTURE_TOKENS: Final = 1600  # the dearest picture of `picture_tokens`, for one whose size is not known
PIECE_CHARS: Final = 16_384  # at most 64 KB of UTF-8; longer texts make the tokenizer keep much more memory
SAMPLED_CHARS: Final = 2_048
BLOCK_CHARS: Final = 512
MIN_PAIRS: Final = 5
FACTORS: Final = (0.5, 2.0)
MOST_SCALE: Final = 1000.0  # of the window that a provider refuses to the one that it takes


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
    if not isinstance(name, str) or name not in _COUNTERS:
        raise UsageError(f"There is no token counter {name!r:.80}.", hint=f"Choose one of {', '.join(_COUNTERS)}.")
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
    """Return the tokens of a picture: what OpenAI or what Anthropic publishes, whichever is more.

    OpenAI, at high detail: 85, and 170 for each tile of 512 pixels, once the picture was made to fit into 2048 x 2048
    and its shorter side into 768. Anthropic: a token for 750 pixels, and 1,600 at most.
    """
    if not width or not height or not 0 < min(width, height) <= max(width, height) <= PIXELS:
        return PICTURE_TOKENS
    scale = min(1.0, 2048 / max(width, height), 768 / min(width, height))
    tiles = ceil(width * scale / 512) * ceil(height * scale / 512)
    return max(85 + 170 * tiles, min(PICTURE_TOKENS, ceil(width * height / 750)))


class _Wire:
    """What a message costs beside its texts, in a provider's chat format."""

    def __init__(self, name: str, text: Callable[[str], int]) -> None:
        self.name = name
        self.text = text
        self._short = lru_cache(maxsize=1024)(text)  # names and ids come again

    def message(self, message: Message) -> int:
        around = ROLE_TOKENS + self._around(message)
        if isinstance(message.content, str) and message.blob is None and message.native is None:
            return around + self.text(message.content)
        tokens = around + max(map(self._cost, ways(message)))
        payload = payload_of(message)
        if payload is None:
            return tokens
        return tokens + self._cost(payload) if payload.beside else max(tokens, ROLE_TOKENS + self._cost(payload))

    def tools(self, schemas: Sequence[Mapping[str, Any]]) -> int:
        return self.text(_json(schemas)) if schemas else 0

    def _around(self, message: Message) -> int:
        """The calls, or what says which call is answered."""
        tokens = 0
        for call in message.tool_calls:
            tokens += CALL_TOKENS + self._name(call.name) + self._id(call.id)
            tokens += call.blob.size_bytes if call.blob else max(map(self.text, sent_arguments(call.arguments)))
        if message.role == "tool":
            tokens += CALL_TOKENS + self._id(message.tool_call_id or "") + self._name(message.tool_name or "")
        return tokens

    def _name(self, name: str) -> int:
        return self._short(name) if len(name) <= LONGEST_ID else self.text(name)

    def _id(self, id: str) -> int:
        return max(map(self._name, sent_ids(id)))

    def _cost(self, way: Way) -> int:
        pictures = sum(picture_tokens(part.width, part.height) for part in way.pictures)
        marks = ROLE_TOKENS * way.messages + CALL_TOKENS * way.items
        return sum(map(self.text, way.texts)) + pictures + marks + way.unseen_bytes + ceil(way.opaque_bytes / 4)


class _Quarter:
    """`chars4` and `bytes4`: sizes are summed over the message first, then divided and rounded up."""

    def __init__(
        self, name: str, size: Callable[[str], int], call: Callable[[Call], str], *, role: int, rest: int
    ) -> None:
        self.name = name
        self._size, self._call, self._role, self._rest = size, call, role, rest

    def text(self, text: str) -> int:
        return (self._size(text) + self._rest) // 4

    def message(self, message: Message) -> int:
        around = sum(self._size(self._call(call)) for call in message.tool_calls)
        if message.role == "tool":
            around += self._size(message.tool_name or "") + self._size(_longest_id(message.tool_call_id or ""))
        around += sum(call.blob.size_bytes for call in message.tool_calls if call.blob)
        payload = payload_of(message)
        if payload is not None and payload.beside:
            around += self._sum(payload)
        tokens = [self._tokens(self._sum(way) + around, way) for way in ways(message)]
        if payload is not None and not payload.beside:
            tokens.append(self._tokens(self._sum(payload), payload))
        return max(tokens)

    def tools(self, schemas: Sequence[Mapping[str, Any]]) -> int:
        return self.text(_json(schemas)) if schemas else 0

    def _sum(self, way: Way) -> int:
        return sum(map(self._size, way.texts)) + way.unseen_bytes + way.opaque_bytes

    def _tokens(self, size: int, way: Way) -> int:
        return ceil(size / 4) + 100 * len(way.pictures) + self._role * (1 + way.messages)


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


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _call_json(call: Call) -> str:
    arguments = max(sent_arguments(call.arguments), key=len)
    return f'{{"id":{_json(_longest_id(call.id))},"name":{_json(call.name)},"arguments":{arguments}}}'


def _call_words(call: Call) -> str:
    return call.name + _longest_id(call.id) + max(sent_arguments(call.arguments), key=_size_bytes)


def _longest_id(id: str) -> str:
    return max(sent_ids(id), key=_size_bytes)


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
    (b"h", 0.41),
    (b"k", 1.20),
    (b"kkh", -1.04),  # the second kanji of a Japanese word mostly belongs to the first
    (b"kkkk", -3.13),  # as do those of Chinese
    (b"o", 0.42),
    (b"e", 1.46),
)
# The borders of tables: these are one token, if the character is the same one four times.
_BORDERS: Final = tuple(4 * character.encode() for character in "─━═█░▒▓▀▄—…•·")
_BORDER_WEIGHT: Final = -3.79
# Scripts that no vocabulary knows well cost two or three tokens a character. Each row: a first byte, the second bytes
# of characters that are usual after it, the most usual first, and what each of the others costs more.
_RARE: Final[tuple[tuple[int, Sequence[int], float], ...]] = (
    (0xCC, (), 1.4),  # accents on their own
    (0xCD, range(0xB0, 0xC0), 1.4),
    *((lead, (), 1.2) for lead in range(0xDC, 0xE0)),  # Syriac, Thaana, N'Ko
    (0xE0, (0xA4, 0xA5, 0xB8, 0xB9, *range(0xA6, 0xB8)), 1.25),  # not India's scripts and Thai: Lao, Tibetan
    (0xE1, (0xBB, 0xBA, 0x80, 0x83, 0x9E, 0x81, 0x82, 0x9F, 0xB8, 0xB9), 2.0),  # Ethiopic, Cherokee, Mongolian
    (
        0xE2,
        (0x80, 0x94, 0x95, 0x86, 0x96, 0x9C, *range(0x81, 0x90), *range(0x91, 0x94), *range(0x97, 0xA0)),
        2.3,
    ),  # not marks and boxes: braille, Coptic
    (0xEA, range(0xB0, 0xC0), 2.2),  # not hangul: Yi, Vai
    (0xEE, (), 2.3),  # private use, as fonts with icons have it
    (0xEF, (0xBC, 0xBD, 0xB8, 0xBB), 1.5),  # not full-width letters
    (0xF0, (0x9F,), 1.6),  # not emoji
    *((lead, (), 2.3) for lead in range(0xF1, 0xF5)),
)
_RARE_SHARE: Final = 64  # one of so many characters is not worth the time
_CHAR_WEIGHT: Final = 0.245  # each character, whatever its class
_NOISE_WEIGHT: Final = 15.5  # each time that j, q and z are all there: random letters hardly merge

_CLASS_OF: Final = {byte if isinstance(byte, int) else ord(byte): name for name, of in _CLASSES for byte in of}
_SHAPES: Final = "".join(_CLASS_OF.get(byte, "0") for byte in range(256)).encode()  # control characters: as digits
_TAILS: Final = bytes(range(0x80, 0xC0))


def _estimate(text: str) -> int:
    """Weigh a text; of a long one every other block, because its halves are alike and the time is not."""
    if len(text) <= PIECE_CHARS:
        return ceil(_weigh(text)) if text else 0
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
        tokens += _weigh_rare(raw, chars)
        if b"qqqq" in shapes:
            tokens += _BORDER_WEIGHT * sum(map(raw.count, _BORDERS))
    usual = 1 + chars / 128  # a pangram has these letters, and so has a page of prose
    if raw.count(b"q") > usual:
        tokens += _NOISE_WEIGHT * max(0.0, min(map(raw.count, (b"j", b"q", b"z"))) - usual)
    return min(tokens, len(raw))  # a token is at least a byte


def _weigh_rare(raw: bytes, chars: int) -> float:
    """Weigh what the characters of rare scripts cost more than their neighbours in Unicode."""
    tokens = 0.0
    few = chars // _RARE_SHARE
    for lead, usual, weight in _RARE:
        found = raw.count(lead)
        for second in dict.fromkeys(usual) if found > few else ():
            found -= raw.count(bytes((lead, second)))
            if found <= few:
                break
        tokens += weight * found if found > few else 0.0
    return tokens


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
    "bytes4": lambda: _Quarter("bytes4", _size_bytes, _call_words, role=ROLE_TOKENS, rest=3),
    "o200k": lambda: _exact("o200k"),
    "cl100k": lambda: _exact("cl100k"),
}
