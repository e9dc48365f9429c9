"""Values that stand under a name that names a secret, in the notations of settings, code, headers, URLs and prose."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orihon.redaction.escapes import GLUES, past_glue
from orihon.redaction.gate import IN_RUN
from orihon.redaction.names import Kind, kind_of
from orihon.redaction.urls import connection_around
from orihon.redaction.values import (
    Place,
    is_basic,
    is_dressed,
    is_odd_word,
    is_placeholder,
    is_secret,
    is_template,
    looks_random,
)
from orihon.redaction.words import is_odd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orihon.redaction.find import Span

_NAME = IN_RUN + b"."
_FARTHEST_NAME = 64
_LONGEST_VALUE = 600  # a value is judged by this much of it
_LONGEST_JUDGED, _LONGEST_QUOTED = 4096, 65536
# Almost all names are followed by a word: a cheap test before the expensive ones.
_HINT = re.compile(
    rb"[\w.-]{0,64}+(?:[=:\"'`>\[\](){%|*\\\x1b\x80-\xff]|&quot;|</key>|"
    rb"[ \t]{1,40}+(?:[=:\"'`|+?.!>\x80-\xff]|(?:is|was|to|string|str|String|value)[ \t:=]|,[ \t]{0,8}[\"'`v])|"
    rb",?\s{1,40}+[\"']?value|,[ \t]*[\"'`])|"
    rb"(?:(?<=[_-])|[A-Z]|pass)[\w.-]{0,64}+[ \t]{1,40}+(?![a-z]{1,12}\b)[^\s(-]|"
    rb"[Pp]ass(?:word|wd)(?:[ \t]{1,40}+\w|-stdin)"
)
_IS = "は|：|＝".encode()  # noqa: RUF001 - the signs of Japanese
_COLOUR = rb"(?:(?:(?:\x1b|\\(?:u001[bB]|x1[bB]|033|e))?\[|\xc2\x9b|\\(?:u009[bB]|x9[bB]))[0-9;]{0,20}[mK])*"
_COLOUR_BEHIND = re.compile(
    rb"(?<=.)(?:(?:\\(?:u001[bB]|x1[bB]|033|e)|\^\[|\xe2\x90\x9b|<0x1[bB]>|%1B)?(?:\[|%5B)|\xc2\x9b)[0-9;]{0,20}m"
)
_ASSIGN = re.compile(
    rb"""
    (?:\[\w{0,8}\])?                                          # char secret[25]
    """ + _COLOUR + rb"""
    (?P<close>(?:\\{0,7}["'`]|&quot;|%22|\*\*|__)?) [\])]{0,2}
    """ + _COLOUR + rb"""
    (?:[ \t]for[ \t]["'`]?[\w.@-]{1,60}["'`]?(?=:))?          # password for bob: ...
    (?: [ \t]{1,8}(?:string|String|str) (?=[ \t]*=)           # var token string = ...
      | [ \t]?:[ \t]?[&A-Za-z'][\w.|\[\], &'<>?:]{1,30}[ \t](?==[ \t]) )?   # token: str = ...
    (?P<op>
        :[ \t]*[|>][+-]?[ \t]*\r?\n[ \t]*                     # a YAML block
      | [ \t]{0,8}(?::|=>)[ \t]{0,8}\r?\n\s{0,80}(?=["'])     # on the next line
      | :[ \t]{0,8}\r?\n[ \t]{1,40}(?=[^\s:#"'&*!|>{}\[\]-][^\s:]{5,200}[ \t]{0,8}(?:\r?\n|$))
      | [ \t]{0,40}(?:[:?+.!|=]{0,3}=>?|:{1,3}|%3[AaDd]|\\u003[dD])(?:\*\*|__)?[ \t]{0,40}
      | >\s{0,40}                                             # <token> ...
      | </key>\s{0,40}<string>                                # <key>token</key> <string>...
      | [ \t]*,?\s{0,40}\\{0,3}["']?(?:Parameter)?[Vv]alue\\{0,3}["']?[ \t]*[=:][ \t]*  # name="TOKEN" value="..."
      | [ \t]*,\s{0,40}(?=\\{0,3}["'`])                       # setProperty("TOKEN", "...")
      | [({](?=["'`])                                         # setPassword("...")
      | [ \t]+\|[ \t]+(?=[^\s|])                              # | token | ... |
      | [ \t]{1,8}(?:is|was|to)(?:[ \t]now)?:?[ \t]{1,8}      # the password is ...
      | [ \t]{0,2}(?:""" + _IS + rb""")[ \t]{0,2}             # ... in Japanese
      | [ \t]{1,40}(?=["'`])                                  # password "..."
      | [ \t]+(?!-)                                           # --token ...
    )
    """ + _COLOUR + rb"""
    (?:(?P<prefix>[@bBrRuUfF]{0,2})(?P<quote>\\{0,7}(?:"{3}|'{3}|["'`])|&quot;|%22))?
    """ + _COLOUR + rb"""
    (?P<scheme>(?i:bearer|basic|token|api-?key|api-token|digest|negotiate|ssws|key|oauth|splunk|geniekey)[ \t]{1,4})?
    """,
    re.VERBOSE,
)  # fmt: skip
_NESTED = re.compile(
    rb"\\{0,7}[\"']\s{0,8}:\s{0,40}(?:\[|\{\s{0,40}\\{0,7}[\"'](?i:value|plaintext|new|string_?value)\\{0,7}[\"']\s{0,8}:)"
)
_ITEM = re.compile(rb"\s{0,80}(?P<quote>\\{0,7}[\"'])(?P<value>[^\"'\\\n]{1,600})(?P=quote)\s{0,80},?")
_QUOTES = (b'"', b"'", b"\\")
_MOST_SLASHES = 64
_MOST_LISTED = 1000
_LIST_BEHIND = re.compile(rb"[^\"'\n]{1,600}[\"']\s{0,40}\]")
_LIST_BEFORE = re.compile(rb"\[\s{0,40}\\{0,7}[\"']$")
_LINE_BEFORE = re.compile(rb"(?:^|\n|\\n)[ \t]{0,40}(?:(?:-|export|set|ENV|declare -x)[ \t]{1,8})?$")
_LINE_VALUE = re.compile(rb"(?!\S{0,200}(?:&&|\|\||\$[({]))[^\s\"'`=\\\x1b]{5,200}(?=[ \t]{0,8}(?:\r?\n|$))")
_BARE = re.compile(rb"[^\s\"'`,;<&\\\x1b]+(?:,(?![\w \"'-]{0,40}[=:])[^\s\"'`,;<&\\\x1b]+)*")
_FOREIGN_END = re.compile("(?:”|’|」|』|）|】|。|、|，)+$".encode())  # noqa: RUF001 - the signs of Japanese
_VERBS = frozenset((b"is", b"wa", b"to", *(word[:2] for word in _IS.split(b"|"))))
_ENDINGS = frozenset((b".", b":", b";", b")", b"]", b"}", b"|", b"*"))
_CLOSING = {b")": b"(", b"]": b"[", b"}": b"{"}
_CREDENTIAL = re.compile(rb"(?=.*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{24,}")
_MIXED = re.compile(rb"(?=\w*[a-z])(?=\w*[A-Z])(?=\w*\d\w*\d)\w{20,}")
_CLOSES = re.compile(rb"[^<>\n]{1,600}\s{0,40}</")
_COMPARED = re.compile(rb"([\"'`])(?P<value>[^\"'`\n]{5,200})\1[ \t]{0,4}[!=]=+[ \t]{0,4}$")
_WORDS_BEFORE = re.compile(
    rb"(?:\blogin\s+\S+\s+|\b(?:ENV|ARG|setenv|set(?:[ \t]+-\w+)+|configure[ \t]+set|setx)[ \t]+)$"
)
_KEY_BEFORE = re.compile(rb"(?i)(?:\b(?:api|access|secret|private|license|signing)[ \t]|[?&])$")  # `API key`, `?key=`
_ECHOED = re.compile(
    rb"\b(?:echo|printf)[ \t]+(?:-\w+[ \t]+)?[\"']?(?P<value>[^\s\"'|\\]{5,200})[\"']?[ \t]*\|[^\n|]{0,120}$"
)
_SECOND = re.compile(
    rb"[ \t]{0,2}=?[ \t]{0,2}\([ \t]{0,2}(?P<quote>[\"'])[^\"'\n\\]{0,80}(?P=quote)[ \t]{0,2},[ \t]{0,2}"
    rb"(?P=quote)(?P<value>[^\"'\n\\]{5,200})(?P=quote)"
)
_CELL_BEFORE = re.compile(rb"\|[ \t]+[*_`]{0,2}$")
_ELEMENT_BEFORE = re.compile(rb"<(?:[\w.-]{1,40}:)?$|\b(?:name|key)=[\"']$")
_CODE_BEFORE = re.compile(rb"(?:\b(?:const|let|var|final|static|def|val|String|string|if|return)[ \t]+|[.>(])$")
_SECTION_BEFORE = re.compile(
    rb"(?:^|\n)\[[\w .:/-]{1,60}\][ \t]*\r?\n(?:[ \t]*[#;\w][^\n(){}\"']*\n|[ \t]*\r?\n)*[ \t]*$"
)
_PAIRS_BEFORE = re.compile(
    rb"(?i)(?:(?:server|host|data source|user ?id|user ?name|user|uid|port|database|dbname|initial catalog)"
    rb"[ \t]?=[ \t]?[^=;\n\"',()]{1,80}[; \t]\s*|[?&;]|%26|\\u0026|&amp;)$"
)


def assigned(data: bytes, stems: list[int]) -> Iterator[Span]:
    """Values that stand under a name that names a secret."""
    done = 0
    for stem in stems:
        if stem < done:
            continue
        if _HINT.match(data, stem):
            done, spans = _named(data, stem)
            for span in spans:
                yield span
                done = max(done, span[1])


def _named(data: bytes, stem: int) -> tuple[int, list[Span]]:
    """Where the name ends of which the stem is a part, and the secrets that it names."""
    head = data[max(0, stem - _FARTHEST_NAME) : stem]
    start = stem - len(head) + len(head.rstrip(_NAME))
    tail = data[stem : stem + _FARTHEST_NAME]
    end = stem + len(tail) - len(tail.lstrip(_NAME))
    if start and data[start - 1] in GLUES:
        start = min(past_glue(data, start), stem)
    kind = _kind(data, start, end)
    if kind is Kind.NOTHING or _is_mask(data, start, end):
        return end, []
    if span := _value(data, start, end, kind):
        return end, [span]
    nested = _NESTED.match(data, end) if data[end : end + 1] in _QUOTES else None
    return end, _listed(data, nested.end(), kind) if nested else []


def _listed(data: bytes, first: int, kind: Kind) -> list[Span]:
    """The values of a list or of an object that stands under a name; they must be odd, for messages stand there too."""
    spans: list[Span] = []
    while len(spans) < _MOST_LISTED and (item := _ITEM.match(data, first)):
        if is_odd_word(item["value"]) and is_secret(item["value"], kind, quoted=True, place=Place.DATA):
            spans.append((*item.span("value"), kind.mask))
        first = item.end()
    return spans


def _kind(data: bytes, start: int, end: int) -> Kind:
    kind = kind_of(data[start:end].decode("ascii"))
    if (
        kind is Kind.NOTHING
        and data[start:end].lower() == b"key"
        and _KEY_BEFORE.search(data, max(0, start - 12), start)
    ):
        return Kind.API_KEY
    if data[start:end].lower() == b"passe" and data[start - 7 : start].lower() == b"mot de ":
        return Kind.PASSWORD
    return kind


def _is_mask(data: bytes, start: int, end: int) -> bool:
    return data[start - 1 : start] == b"[" and data[end : end + 1] == b"]" and data[start:end].isupper()


def _value(data: bytes, start: int, end: int, kind: Kind) -> Span | None:
    compared = data[max(0, start - 6) : start].rstrip().endswith(b"=")
    if compared and (found := _COMPARED.search(data, max(0, start - 220), start)):
        secret = is_secret(found["value"], kind, quoted=True, place=Place.CODE)
        return (*found.span("value"), kind.mask) if secret else None
    if span := _beside(data, start, end, kind):
        return span
    assign = _ASSIGN.match(data, end)
    if not assign or not _fits(data, start, assign):
        return None
    first = assign.end()
    quote = assign["quote"] or b""
    close = _closing(data, first, quote) if quote else -1
    last = close if close >= 0 else _end_of_bare(data, first, first + _LONGEST_VALUE)
    if close < 0 and assign["op"] == b"=" and (line := _end_of_line(data, start, assign)) > last:
        return (first, line, kind.mask) if _is_value(data, start, assign, data[first:line], kind) else None
    if assign["op"].strip() == b">":
        last = first + len(data[first : data.find(b"<", first)].rstrip())  # a label has several words
    elif close < 0:
        last = first + len(_trimmed(data[first:last], assign["op"]))
    if not _is_value(data, start, assign, data[first : min(last, first + _LONGEST_JUDGED)], kind):
        return None
    if close < 0 and last - first >= _LONGEST_VALUE - 2:
        last = _end_of_bare(data, first, first + _LONGEST_QUOTED)
    return connection_around(data, first, last) or (first, last, kind.mask)


def _beside(data: bytes, start: int, end: int, kind: Kind) -> Span | None:
    """A password that stands elsewhere than behind the name: `echo x | tool --password-stdin`, `auth=("user", "x")`."""
    found = None
    if data[start:end] == b"--password-stdin":
        found = _ECHOED.search(data, max(0, start - 300), start)
    elif kind in (Kind.TOKEN, Kind.SECRET) and data[end : end + 1] in (b"(", b"=", b" "):
        found = _SECOND.match(data, end)
    if not found or is_placeholder(found["value"]) or not is_odd_word(found["value"]):
        return None
    return (*found.span("value"), b"PASSWORD")


def _is_value(data: bytes, start: int, assign: re.Match[bytes], value: bytes, kind: Kind) -> bool:
    """Whether a value is the secret that its name promises."""
    first, last = assign.end(), assign.end() + len(value)
    value = value.strip(b"\"'`")
    if kind is Kind.PASSWORD and connection_around(data, first, last):
        return bool(value) and not is_template(value)
    if is_placeholder(value) and not is_dressed(value):
        return False
    if kind is Kind.TOKEN and (assign["scheme"] or len(value) >= 12) and is_basic(value):  # noqa: PLR2004 - not `a:b`
        return True
    if kind is Kind.TOKEN and assign["scheme"]:
        return bool(_CREDENTIAL.fullmatch(value))
    op = assign["op"].strip(b" \t,({|")
    if not op and data[start : start + 1] != b"-" and not _WORDS_BEFORE.search(data, max(0, start - 80), start):
        return _is_loose(data, start, assign, value, kind)
    return _is_assigned(data, start, assign, value, kind, last=last)


def _is_assigned(data: bytes, start: int, assign: re.Match[bytes], value: bytes, kind: Kind, *, last: int) -> bool:
    """Whether a value behind a name and a sign of assignment is a secret."""
    op = assign["op"].strip(b" \t,({|")
    if op[:1] == b":" and b"\n" in op and not assign["quote"] and op[1:].lstrip(b" \t")[:1] not in (b"|", b">"):
        return is_odd_word(value) and looks_random(value, least=8)
    if op[:2] in _VERBS:
        return kind is not Kind.KEY and is_odd_word(value) and looks_random(value, least=8)
    if kind is Kind.PASS and _PAIRS_BEFORE.search(data, max(0, start - 100), start):
        kind = Kind.PASSWORD
    header = value.isalnum() and data[last : last + 1] in (b'"', b"'")  # -H "X-Token: abc"
    quoted = bool(assign["quote"]) or header or op == b">"
    return is_secret(value, kind, quoted=quoted, place=_place(data, start, last, assign))


def _is_loose(data: bytes, start: int, assign: re.Match[bytes], value: bytes, kind: Kind) -> bool:
    """`pass "words"`, `("password", "words")`, `| password | string |`, `setToken("x")`: the value must be random."""
    if kind is Kind.KEY or is_placeholder(value) or value[:1] in b",)+;.| " or value.endswith(b"="):
        return False
    if kind is Kind.PASS:
        return bool(assign["quote"]) and is_odd_word(value)
    if assign["quote"] and data[start : assign.start()] == b"PASSWORD":  # ALTER ROLE app PASSWORD '...'
        return is_secret(value, kind, quoted=True, place=Place.DATA)
    if assign["quote"] or assign["op"].strip():
        return is_odd_word(value) or looks_random(value, least=8) or value.isdigit()
    line = data.rfind(b"\n", max(0, start - 80), start) + 1
    alone = not data[line:start].strip() and data[assign.end() + len(value) : assign.end() + len(value) + 1] in b"\r\n"
    if kind is not Kind.PASSWORD:
        return bool(_MIXED.fullmatch(value)) and is_odd(value, base=5.6)
    return is_odd_word(value) and looks_random(value, least=8 if alone else 12) and not value.startswith(b"0x")


def _trimmed(value: bytes, op: bytes) -> bytes:
    """An unquoted value without what the sentence, the call or the query around it adds."""
    if op.startswith(b"%"):
        value = value.partition(b"%26")[0]
    value = _COLOUR_BEHIND.split(value, maxsplit=1)[0]
    value = _FOREIGN_END.sub(b"", value)
    while value[-1:] in _ENDINGS and (
        value[-1:] not in _CLOSING or value.count(_CLOSING[value[-1:]]) < value.count(value[-1:])
    ):
        value = value[:-1]
    return value


def _place(data: bytes, start: int, last: int, assign: re.Match[bytes]) -> Place:
    """Where a value stands: in data, as in `"name": "x"`, `NAME=x`, `--name x`; `f(name=x1)` is code."""
    value, op, behind = data[assign.end() : last], assign["op"], data[last : last + 1]
    if assign["close"] or data[start : start + 1] == b"-" or b"value" in op or op.strip() == b">":
        word = value.isalpha() and (value.islower() or value.isupper())
        return Place.DATA if assign["quote"] or not word else Place.SETTING
    code = _CODE_BEFORE.search(data, max(0, start - 16), start)
    tight = op in (b"=", b"%3D", b"%3d", b"\\u003d")
    variable = tight and data[start : assign.start()].isupper() and not code and behind not in (b")", b",")
    listed = op == b": " and data[start : assign.start()].isupper() and behind in (b"\n", b"\r", b"")
    if listed and not value.isalpha() and _LINE_BEFORE.search(data, max(0, start - 60), start):
        return Place.DATA  # the environment of a container
    if variable or op.endswith(b"<string>") or _stands_in_data(data, start):
        return Place.DATA
    line = data[max(data.rfind(b"\n", max(0, start - 200), start), start - 200, 0) : start]
    called = behind in (b"<", b"(", b"{", b"[") or (behind in (b")", b",") and b"(" in line)
    if assign["quote"] or code or called:
        return Place.CODE
    if _SECTION_BEFORE.search(data, max(0, start - 400), start):
        return Place.DATA
    return Place.SETTING if (tight or op in (b":", b": ")) and not value.isalpha() else Place.CODE


def _stands_in_data(data: bytes, start: int) -> bool:
    """Whether what stands before a name says that it is not code: other settings of a connection, a command."""
    before = max(0, start - 100)
    return bool(_WORDS_BEFORE.search(data, before, start) or _PAIRS_BEFORE.search(data, before, start))


def _fits(data: bytes, start: int, assign: re.Match[bytes]) -> bool:  # noqa: PLR0911 - one line an operator
    """Whether the operator is one in this place, and the value is written out."""
    op, before = assign["op"].strip(), data[start - 2 : start]
    if assign["prefix"] and assign["prefix"].lower() != b"b" and assign["prefix"] != b"@":
        return False  # an f-string holds a variable, an r-string an expression
    if assign["quote"] and not assign["close"] and before[1:] == assign["quote"]:
        return False  # the quote that opened before the name closes here
    if op == b",":
        first = before[:1] in (b"(", b"{", b"[") or data[start : start + 1] == b"-"  # of a call, or a flag
        return bool(assign["close"]) and (first or _is_pair(data, start, assign))
    if op == b">":
        return bool(_CLOSES.match(data, assign.end()) and _ELEMENT_BEFORE.search(data, max(0, start - 44), start))
    if op == b":":
        # arn:aws:...:secret:name, ${NAME:-default}, `--- PASS: Test`
        return before[1:] != b":" and before != b"${" and data[start - 4 : start] != b"--- "
    if op in (b"(", b"{", b"|") or op[:2] in _VERBS:
        return op != b"|" or bool(_CELL_BEFORE.search(data, max(0, start - 6), start))
    return bool(op) or not assign["close"]


def _is_pair(data: bytes, start: int, assign: re.Match[bytes]) -> bool:
    """Whether a name and a value are the two items of a list that has a line for each."""
    opens = _LIST_BEFORE.search(data, max(0, start - 60), start)
    return bool(opens and _LIST_BEHIND.match(data, assign.end()))


def _end_of_line(data: bytes, start: int, assign: re.Match[bytes]) -> int:
    """Where `NAME=value` ends that has a line for itself: there, other signs than a space belong to the value."""
    if not data[start : assign.start()].isupper() or not _LINE_BEFORE.search(data, max(0, start - 60), start):
        return -1
    found = _LINE_VALUE.match(data, assign.end())
    return found.end() if found else -1


def _end_of_bare(data: bytes, first: int, limit: int) -> int:
    bare = _BARE.match(data, first, limit)
    return bare.end() if bare else first


def _closing(data: bytes, first: int, quote: bytes) -> int:
    """Where a quote closes; one that is escaped more deeply than the opening one belongs to the value.

    A backslash of the value itself is doubled at each depth, so it adds twice the backslashes of a quote, and one.
    """
    limit = first + _LONGEST_QUOTED
    depth = len(quote) - len(quote.lstrip(b"\\"))
    sign = quote[depth:]
    close = data.find(sign, first, limit)
    while close >= 0:
        before = data[max(first, close - _MOST_SLASHES) : close]
        slashes = len(before) - len(before.rstrip(b"\\"))
        if slashes <= depth or slashes % (2 * depth + 2) == depth:
            return close - min(slashes, depth) if data.find(b"\n", first, close) < 0 else -1
        close = data.find(sign, close + 1, limit)
    return -1
