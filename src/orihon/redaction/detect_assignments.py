"""Find secrets that a word announces: `password=…` in every notation.

The notations are those of settings, code, headers, URLs, markup and sentences. `key_names` decides whether a name
speaks of a secret, and `entropy` whether a value looks like one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from orihon.redaction.detect_blocks import find_blocks, find_columns
from orihon.redaction.detect_logins import find_connection_around, find_logins, find_stored_secrets
from orihon.redaction.detect_tokens import NAME_BYTES, Span
from orihon.redaction.entropy import (
    Context,
    is_attribute,
    is_basic_auth,
    is_dressed,
    is_odd,
    is_odd_word,
    is_path,
    is_placeholder,
    is_random,
    is_secret,
    is_template,
)
from orihon.redaction.escapes import ESCAPE_SIGNS, skip_escape
from orihon.redaction.key_names import Kind, classify_name

__all__ = ["find_announced", "find_foreign", "find_logins"]

# Assignments

_MAX_NAME = 64
_MAX_BARE, _MAX_JUDGED, _MAX_QUOTED = 600, 4096, 65536  # bytes of a value
_MAX_SLASHES, _MAX_ITEMS = 64, 1000
# Almost all names are followed by a word: a cheap test before the expensive ones.
_HINT = re.compile(
    # A key that is not of an API and not in a query; a verb.
    rb"(?!(?<![\w.?&-])(?:(?<![istegISTEG][ \t])key|pass(?:ed|es|ing))(?![\w.-]))(?:"
    rb"[\w.-]{0,64}+(?:[=:\"'`>\[\](){%|*\\\x1b\x80-\xff]|&(?:quot|\#x27|\#39|\#34);|</(?:key|t[dh]|dt|b|strong|label|span)>|"
    rb"[ \t]{1,40}+(?:[=:\"'`|+?.!>\[\x80-\xff]|-{1,2}>|<-|,[ \t]{0,8}[\"'`v]|"
    rb"(?:is|was|to|are|ist|est|lautet|string|str|String|value)[ \t:=])|"
    rb",?\s{1,40}+[\"']?value|,[ \t]*[\"'`])|"
    rb"(?:(?<=[_-])|(?<=[_-]se)|[A-Z]|pass)[\w.-]{0,64}+[ \t]{1,40}+(?![a-z]{1,12}(?:[^\w+/]|$))[^\s(-]|"
    rb"(?<=with-)token|"
    rb"[Pp]ass(?:word|wd)(?:[ \t]{1,40}+\w|-stdin))"
)
_IS = "は|：|＝".encode()  # noqa: RUF001 - Japanese punctuation
_COLOUR = rb"(?:(?:(?:\x1b|\\(?:u001[bB]|x1[bB]|033|e))?\[|\xc2\x9b|\\(?:u009[bB]|x9[bB]))[0-9;]{0,20}[mK])*"
_ASSIGN = re.compile(
    rb"""
    (?:\[\w{0,8}\]|[ ]\[[\w*]{0,24}\](?=:))?                  # char secret[25], Secret Access Key [None]:
    """ + _COLOUR + rb"""
    (?P<close>(?:\\{0,7}["'`]|&(?:quot|\#x27|\#39|\#34);|%22|\*{1,2}|__)?) [\])]{0,2}
    """ + _COLOUR + rb"""
    (?:[ \t]for[ \t]["'`]?[\w.@-]{1,60}["'`]?(?=:))?          # password for bob: ...
    (?: [ \t]{1,8}(?:string|String|str) (?=[ \t]*=)           # var token string = ...
      | [ \t]?:[ \t]?[&A-Za-z'][\w.|\[\], &'<>?:]{1,30}[ \t](?==[ \t]) )?   # token: str = ...
    (?P<op>
        :[ \t]*[|>][+-]?[ \t]*\r?\n[ \t]*                     # a YAML block
      | [ \t]{0,8}(?::|=>)[ \t]{0,8}\r?\n\s{0,80}(?=["'])     # on the next line
      | :[ \t]{0,8}\r?\n[ \t]{1,40}(?=[^\s:#"'&*!|>{}\[\]-][^\s:]{5,200}[ \t]{0,8}(?:\r?\n|$))
      | [ \t]{0,40}(?:[:?+.!|=]{0,3}=>?|:{1,3}|%3[AaDd]|\\u003[dD])(?:\*\*|__)?[ \t]{0,40}
        (?:(?:&\w{1,40}|!!str)[ \t]{1,8})?                    # of YAML: an anchor, a type
      | (?<![)\]])[ \t]{1,8}-{1,2}>[ \t]{1,8}                # token -> ...
      | [ \t]{1,8}<-[ \t]{1,8}                                # token <- "..."
      | [ \t]{1,8}(?:\|\||\?\?)[ \t]{1,8}(?=["'`])            # env.TOKEN || "..."
      | </(?:t[dh]|dt|b|strong|label|span)>\s{0,40}          # a cell of HTML
        <(?:td|dd|code|span|b)(?:[ \t][^<>\n]{0,80})?>\s{0,8}
      | >\s{0,40}                                             # <token> ...
      | </key>\s{0,40}<string>                                # <key>token</key> <string>...
      | [ \t]*,?\s{0,40}(?:[a-z-]{2,16}=["'][^"'<>\n]{0,60}["']\s{1,8}){0,4}
        \\{0,3}["']?(?:Parameter)?[Vv]alue\\{0,3}["']?[ \t]*[=:][ \t]*  # name="TOKEN" value="..."
      | [ \t]*,\s{0,40}(?=\\{0,3}["'`])                       # setProperty("TOKEN", "...")
      | [({](?=["'`])                                         # setPassword("...")
      | [ \t]+\|[ \t]+(?=[^\s|])                              # | token | ... |
      | [ \t]{1,8}(?:is|was|to|ist|est|lautet)(?:[ \t]now)?:?[ \t]{1,8}      # the password is ...
      | [ \t]{0,2}(?:""" + _IS + rb""")[ \t]{0,2}             # the same in Japanese
      | [ \t]{1,40}(?=["'`])                                  # password "..."
      | [ \t]+(?!-)                                           # --token ...
    )
    """ + _COLOUR + rb"""
    (?:[\w.$]{1,80}[ \t]{1,8}(?:\|\||\?\?)[ \t]{1,8}(?=["'`]))?     # = env.TOKEN || "..."
    (?:(?:new[ \t])?(?:[\w:]{1,40}::)?(?:String|SecretString|SecretStr|Secret|Some|Zeroizing)
       (?:::(?:from|new))?\((?=["']))?
    (?:(?P<prefix>[@bBrRuUfFN]{0,2})(?P<quote>\\{0,7}(?:"{3}|'{3}|["'`])|&(?:quot|\#x27|\#39|\#34);|%22))?
    """ + _COLOUR + rb"""
    (?P<scheme>(?i:bearer|basic|token|api-?key|api-token|digest|negotiate|ssws|key|oauth|splunk|geniekey
      |aws4-hmac-sha256)[ \t]{1,4})?
    """,
    re.VERBOSE,
)  # fmt: skip
_NESTED = re.compile(
    rb"\\{0,7}[\"']\s{0,8}:\s{0,40}(?:\[|\{(?:\s{0,40}\\{0,7}[\"']\w{1,20}\\{0,7}[\"']\s{0,8}:\s{0,8}"
    rb"(?:true|false|null|\\{0,7}[\"']\w{0,20}\\{0,7}[\"'])\s{0,8},){0,3}\s{0,40}\\{0,7}[\"'](?i:value|plaintext|new|string_?value)\\{0,7}[\"']\s{0,8}:)"
)
_ITEM = re.compile(rb"\s{0,80}(?P<quote>\\{0,7}[\"'])(?P<value>[^\"'\\\n]{1,600})(?P=quote)\s{0,80},?")
_QUOTES = (b'"', b"'", b"\\")
_LIST_END = re.compile(rb"[^\"'\n]{1,600}[\"']\s{0,40}\]")
_LIST_START = re.compile(rb"\[\s{0,40}\\{0,7}[\"']$")
_CALL_BEFORE = re.compile(rb"[({\[][ \t]{0,4}[\"'`]$")
_SET_BEFORE = re.compile(rb"\bsetenv[ \t]+[\"']$")
_LINE_START = re.compile(rb"(?:^|\n|\\n)[ \t]{0,40}(?:(?:-|export|set|ENV|declare -x)[ \t]{1,8})?$")
_LINE_VALUE = re.compile(rb"(?!\S{0,200}(?:&&|\|\||\$[({]))[^\s\"'`=\\\x1b]{5,200}(?=[ \t]{0,8}(?:\r?\n|$))")
_BARE = re.compile(rb"[^\s\"'`,;<&\\\x1b]+(?:,(?![\w \"'-]{0,40}[=:])[^\s\"'`,;<&\\\x1b]+)*")
_END_COLOUR = re.compile(
    rb"(?<=.)(?:(?:\\(?:u001[bB]|x1[bB]|033|e)|\^\[|\xe2\x90\x9b|<0x1[bB]>|%1B)?(?:\[|%5B)|\xc2\x9b)[0-9;]{0,20}m"
)
_END_PUNCTUATION = re.compile("(?:”|’|」|』|）|】|。|、|，)+$".encode())  # noqa: RUF001 - Japanese punctuation
_FILE_SUFFIX = re.compile(rb"\.(?:txt|md|json|ya?ml|env|log|csv|html?|xml|toml|ini|cfg|conf|bak|py|js|ts|sh|pdf|zip)$")
_VERBS = frozenset((b"is", b"wa", b"to", *(word[:2] for word in _IS.split(b"|"))))
_ENDINGS = frozenset((b".", b":", b";", b")", b"]", b"}", b"|", b"*", b">"))
_CLOSING = {b")": b"(", b"]": b"[", b"}": b"{", b">": b"<"}
_CUT = re.compile(rb",|[\x80-\xff]")  # a cell of CSV ends, or a sentence continues without a space
_VARIABLE = re.compile(rb"\$\{[\w.]{1,60}\}")
_CREDENTIAL = re.compile(rb"(?=.*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{24,}")
_MIXED = re.compile(rb"(?=\w*[a-z])(?=\w*[A-Z])(?=\w*\d\w*\d)\w{20,}")
_AWS_SECRET = re.compile(rb"(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/]{40}")
_ELEMENT_END = re.compile(rb"[^<>\n]{1,600}\s{0,40}</")
_COMPARED = re.compile(rb"([\"'`])(?P<value>[^\"'`\n]{5,200})\1[ \t]{0,4}[!=]=+[ \t]{0,4}$")
_COMMAND_BEFORE = re.compile(
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
_HERE_STRING = re.compile(rb"[^\n|;&]{0,80}<<<[ \t]*[\"']?(?P<value>[^\s\"'\\]{5,200})")
_SHELL_DEFAULT = re.compile(rb":[-=]?(?P<value>[^\s\"'${}]{5,200})\}")  # ${NAME:-...}
_ACCOUNT_PAIR = re.compile(  # credentials: admin / ...
    rb"(?:[ \t]{1,4}(?:are|is)|[ \t]?[:=])[ \t]{1,4}[`\"']?[\w.@-]{1,40}[`\"']?[ \t]{0,2}[/:|][ \t]{0,2}"
    rb"[`\"']?(?P<value>[^\s\"'`,;]{6,100})"
)
_DEFAULT = re.compile(
    rb"\"\s*\{[^{}\"]{0,400}?(?:description\s*=\s*\"[^\"\n]*\"[^{}\"]{0,200})?\bdefault\s*=\s*\"(?P<value>[^\"\n\\]{5,400})\""
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


class _Assignment(NamedTuple):
    """A name, and the match of everything between the name and its value."""

    data: bytes
    start: int  # of the name
    kind: Kind
    match: re.Match[bytes]

    @property
    def sign(self) -> bytes:
        """The operator without what belongs to the notation around it; empty for `pass "word"` and `setToken("x")`."""
        return self.match["op"].strip(b" \t,({|")


def find_announced(data: bytes, stems: list[int]) -> list[Span]:
    """Return the secrets that the words at `stems` announce."""
    spans = _find_assignments(data, stems)
    columns = [stem for stem in stems if data[stem] in b"pP"]
    # secret, PRIVATE KEY, PuTTY-User-Key-File
    blocks = [
        stem for stem in stems if data[stem] in b"cCkK" and data[stem - 1 : stem + 1] in (b"ec", b"EC", b" K", b"-K")
    ]
    if columns:
        spans += find_columns(data, columns)
    if blocks:
        spans += find_blocks(data, blocks)
    if columns or blocks:
        spans += find_stored_secrets(data, sorted(columns + blocks))
    return spans


def _find_assignments(data: bytes, stems: list[int]) -> list[Span]:
    """Return the values of the names that contain a stem."""
    spans: list[Span] = []
    done = 0
    for stem in stems:
        if stem < done or not _HINT.match(data, stem):
            continue
        head, tail = data[max(0, stem - _MAX_NAME) : stem], data[stem : stem + _MAX_NAME]
        start = stem - len(head) + len(head.rstrip(NAME_BYTES))
        done = stem + len(tail) - len(tail.lstrip(NAME_BYTES))
        if start and data[start - 1] in ESCAPE_SIGNS:
            start = min(skip_escape(data, start), stem)
        kind = _classify(data, start, done)
        if kind is not Kind.NOTHING:
            values = _find_values(data, start, done, kind)
            spans += values
            done = max(done, *(value[1] for value in values)) if values else done
    return spans


def _classify(data: bytes, start: int, end: int) -> Kind:
    """Return the kind of a name, which may depend on the word before it. A mask is no name."""
    name = data[start:end]
    kind = classify_name(name.decode("ascii"))
    if kind is Kind.NOTHING:
        small = name.lower()
        if small == b"key" and _KEY_BEFORE.search(data, max(0, start - 12), start):
            return Kind.API_KEY
        if small == b"passe" and data[start - 7 : start].lower() == b"mot de ":
            return Kind.PASSWORD
        if name == b"PWD" and _PAIRS_BEFORE.search(data, max(0, start - 100), start):  # UID=sa;PWD=...
            return Kind.PASSWORD
    elif name.isupper() and data[start - 1 : start] == b"[" and data[end : end + 1] == b"]":
        return Kind.NOTHING
    return kind


def _find_values(data: bytes, start: int, end: int, kind: Kind) -> list[Span]:
    """Return the values of a name: one, or those of the list or the object under it."""
    if span := _find_value(data, start, end, kind):
        return [span]
    nested = _NESTED.match(data, end) if data[end : end + 1] in _QUOTES else None
    item = _ITEM.match(data, nested.end()) if nested else None
    spans: list[Span] = []
    while item and len(spans) < _MAX_ITEMS:  # messages stand there too, so the values must be odd
        value = item["value"]
        if is_odd_word(value) and is_secret(value, kind, quoted=True, context=Context.DATA):
            spans.append((*item.span("value"), kind.mask))
        item = _ITEM.match(data, item.end())
    return spans


def _find_value(data: bytes, start: int, end: int, kind: Kind) -> Span | None:
    """Return the secret value of the name between `start` and `end`."""
    compared = None
    if data[max(0, start - 6) : start].rstrip().endswith(b"="):
        compared = _COMPARED.search(data, max(0, start - 220), start)
    if compared:
        secret = is_secret(compared["value"], kind, quoted=True, context=Context.CODE)
        return (*compared.span("value"), kind.mask) if secret else None
    if span := _find_elsewhere(data, start, end, kind):
        return span
    match = _ASSIGN.match(data, end)
    assignment = _Assignment(data, start, kind, match) if match else None
    return _find_assigned(assignment) if assignment and _fits(assignment) else None


def _find_assigned(assignment: _Assignment) -> Span | None:
    """Return the value behind the operator, if it is a secret."""
    data, _, kind, match = assignment
    first, op = match.end(), match["op"]
    close = _find_closing_quote(data, first, match["quote"]) if match["quote"] else -1
    if close >= 0:
        ends = [close]
    elif op.strip() == b">" or op.startswith((b"</t", b"</d")):
        ends = [first + len(data[first : data.find(b"<", first)].rstrip())]  # a label has several words
    else:
        ends = _find_bare_ends(assignment)
    for last in ends:
        if _is_value(assignment, data[first : min(last, first + _MAX_JUDGED)]):
            if close < 0 and last - first >= _MAX_BARE - 2:
                last = _find_bare_end(data, first, first + _MAX_QUOTED)  # noqa: PLW2901 - the whole of a long value
            return find_connection_around(data, first, last) or (first, last, kind.mask)
    return None


def _find_bare_ends(assignment: _Assignment) -> list[int]:
    """Return where an unquoted value may end, the farthest first: with its line, its list, or before a file suffix."""
    data, _, kind, match = assignment
    first, op = match.end(), match["op"]
    last = _find_bare_end(data, first, first + _MAX_BARE)
    ends = [_find_line_end(assignment)] if op == b"=" else []
    value = _trim(data[first:last], op)
    ends = [end for end in ends if end > last] + [first + len(value)]
    cut = _CUT.search(value)
    if cut and is_random(value[: cut.start()], min_length=8):
        ends.append(first + cut.start())
    suffix = _FILE_SUFFIX.search(value)
    if suffix and is_random(value[: suffix.start()], min_length=10 if kind is not Kind.PASSWORD else 8):
        ends.append(first + suffix.start())
    return ends


def _find_elsewhere(data: bytes, start: int, end: int, kind: Kind) -> Span | None:
    """Return a password that is not behind its name: `echo x | tool --password-stdin`, `auth=("user", "x")`."""
    found = None
    if data[start:end] in (b"--password-stdin", b"--with-token"):
        found = _ECHOED.search(data, max(0, start - 300), start) or _HERE_STRING.match(data, end)
    elif kind is not Kind.KEY and data[start - 10 : start] == b'variable "':
        found = _DEFAULT.match(data, end)
    elif kind is not Kind.KEY and data[start - 2 : start] == b"${":
        found = _SHELL_DEFAULT.match(data, end)
    elif kind is Kind.SECRET and data[start:end].lower() in (b"credentials", b"creds"):
        found = _ACCOUNT_PAIR.match(data, end)
    elif kind in (Kind.TOKEN, Kind.SECRET) and data[end : end + 1] in (b"(", b"=", b" "):
        found = _SECOND.match(data, end)
    if not found or is_placeholder(found["value"]) or not is_odd_word(found["value"]):
        return None
    return (*found.span("value"), b"PASSWORD" if kind is Kind.NOTHING else kind.mask)


def _fits(assignment: _Assignment) -> bool:  # noqa: PLR0911 - one line for each operator
    """Return whether the operator is one in this place, and the value is literal."""
    data, start, _, match = assignment
    op, before = match["op"].strip(), data[start - 2 : start]
    if match["prefix"] and match["prefix"] not in (b"b", b"B", b"@", b"N"):
        return False  # an f-string contains a variable, an r-string an expression
    if match["quote"] and not match["close"] and before[1:] == match["quote"]:
        return False  # the quote that opened before the name closes here
    if op == b",":
        first = _CALL_BEFORE.search(data, max(0, start - 8), start) or data[start : start + 1] == b"-"  # or a flag
        return bool(match["close"]) and (bool(first) or _is_pair(data, start, match))
    if op == b">":
        return bool(_ELEMENT_END.match(data, match.end()) and _ELEMENT_BEFORE.search(data, max(0, start - 44), start))
    if op == b":":
        # arn:aws:...:secret:name, ${NAME:-default}, `--- PASS: Test`
        joined = before == b"::" or (before[1:] == b":" and match["op"] == b":")
        return not joined and before != b"${" and data[start - 4 : start] != b"--- "
    if op in (b"(", b"{", b"|") or op[:2] in _VERBS:
        return op != b"|" or bool(_CELL_BEFORE.search(data, max(0, start - 6), start))
    return bool(op) or not match["close"] or bool(_SET_BEFORE.search(data, max(0, start - 16), start))


def _is_pair(data: bytes, start: int, match: re.Match[bytes]) -> bool:
    """Return whether a name and a value are the two items of a list with a line for each."""
    return bool(_LIST_START.search(data, max(0, start - 60), start) and _LIST_END.match(data, match.end()))


def _is_value(assignment: _Assignment, value: bytes) -> bool:
    """Return whether a value is the secret that its name promises."""
    data, start, kind, match = assignment
    last = match.end() + len(value)
    value = value.strip(b"\"'`")
    if kind is Kind.PASSWORD and find_connection_around(data, match.end(), last):
        return bool(value) and not is_template(value)
    if (is_placeholder(value) and not is_dressed(value)) or _is_expression(assignment, value, last):
        return False
    if kind is Kind.TOKEN and (match["scheme"] or len(value) >= 12) and is_basic_auth(value):  # noqa: PLR2004 - not `a:b`
        return True
    if kind is Kind.TOKEN and match["scheme"]:
        return bool(_CREDENTIAL.fullmatch(value))
    flag = data[start : start + 1] == b"-"
    if not assignment.sign and not flag and not _COMMAND_BEFORE.search(data, max(0, start - 80), start):
        return _is_loose_value(assignment, value)
    return _is_assigned_value(assignment, value, last)


def _is_expression(assignment: _Assignment, value: bytes, last: int) -> bool:
    """Return whether a value is a template of JavaScript with a variable, or a type of Python: `str | None`."""
    quote = assignment.match["quote"]
    return (
        bool(_VARIABLE.search(value)) if quote == b"`" else not quote and assignment.data[last : last + 7] == b" | None"
    )


def _is_assigned_value(assignment: _Assignment, value: bytes, last: int) -> bool:
    """Return whether a value behind an operator is a secret."""
    data, start, kind, match = assignment
    sign = assignment.sign
    if sign[:1] == b":" and b"\n" in sign and not match["quote"] and sign[1:].lstrip(b" \t")[:1] not in (b"|", b">"):
        return is_odd_word(value) and is_random(value, min_length=8)
    if sign[:2] in _VERBS:
        return (
            kind is not Kind.KEY and is_odd_word(value) and is_random(value, min_length=8) and not is_attribute(value)
        )
    if kind is Kind.PASS and _PAIRS_BEFORE.search(data, max(0, start - 100), start):
        kind = Kind.PASSWORD
    header = value.isalnum() and data[last : last + 1] in (b'"', b"'")  # -H "X-Token: abc"
    quoted = bool(match["quote"]) or header or sign == b">"
    return is_secret(value, kind, quoted=quoted, context=_find_context(assignment, last))


def _is_loose_value(assignment: _Assignment, value: bytes) -> bool:
    """Return whether a value is random that stands in `pass "x"`, `("password", "x")`, `| password | x |`."""
    data, start, kind, match = assignment
    if kind is Kind.KEY or is_placeholder(value) or value[:1] in b",)+;.| " or value.endswith(b"="):
        return False
    if kind is Kind.PASS:
        return bool(match["quote"]) and is_odd_word(value)
    if match["quote"] and data[start : match.start()] == b"PASSWORD":  # ALTER ROLE app PASSWORD '...'
        return is_secret(value, kind, quoted=True, context=Context.DATA)
    if match["quote"] or match["op"].strip():
        return is_odd_word(value) or value.isdigit() or (is_random(value, min_length=8) and not is_path(value))
    if kind is not Kind.PASSWORD:
        return bool(_MIXED.fullmatch(value) or _AWS_SECRET.fullmatch(value)) and is_odd(value, base=5.6)
    line, last = data.rfind(b"\n", max(0, start - 80), start) + 1, match.end() + len(value)
    alone = not data[line:start].strip() and data[last : last + 1] in b"\r\n"
    return is_odd_word(value) and is_random(value, min_length=8 if alone else 12) and not value.startswith(b"0x")


def _find_context(assignment: _Assignment, last: int) -> Context:
    """Return where a value stands: `"name": "x"`, `NAME=x` and `--name x` are data, `f(name=x1)` is code."""
    data, start, _, match = assignment
    value, op, after = data[match.end() : last], match["op"], data[last : last + 1]
    if match["close"] or data[start : start + 1] == b"-" or b"value" in op or op.strip() == b">":
        word = value.isalpha() and (value.islower() or value.isupper())
        return Context.DATA if match["quote"] or not word else Context.SETTING
    code = _CODE_BEFORE.search(data, max(0, start - 16), start)
    tight = op in (b"=", b"%3D", b"%3d", b"\\u003d")
    upper = data[start : match.start()].isupper()
    listed = op == b": " and upper and after in (b"\n", b"\r", b"")
    if listed and not value.isalpha() and _LINE_START.search(data, max(0, start - 60), start):
        return Context.DATA  # the environment of a container
    before = max(0, start - 100)
    if (
        (tight and upper and not code and after not in (b")", b","))
        or op.endswith(b"<string>")
        or _COMMAND_BEFORE.search(data, before, start)
        or _PAIRS_BEFORE.search(data, before, start)
    ):
        return Context.DATA
    line = data[max(data.rfind(b"\n", max(0, start - 200), start), start - 200, 0) : start]
    called = after in (b"<", b"(", b"{", b"[") or (after in (b")", b",") and b"(" in line)
    if match["quote"] or code or called:
        return Context.CODE
    if _SECTION_BEFORE.search(data, max(0, start - 400), start):
        return Context.DATA
    plain = value.isalpha() and not is_odd(value)
    return Context.SETTING if (tight or op in (b":", b": ")) and not plain else Context.CODE


def _trim(value: bytes, op: bytes) -> bytes:
    """Return an unquoted value without what the sentence, the call or the query around it adds."""
    if op.startswith(b"%"):
        value = value.partition(b"%26")[0]
    value = _END_PUNCTUATION.sub(b"", _END_COLOUR.split(value, maxsplit=1)[0])
    while value[-1:] in _ENDINGS and (
        value[-1:] not in _CLOSING or value.count(_CLOSING[value[-1:]]) < value.count(value[-1:])
    ):
        value = value[:-1]
    return value


def _find_line_end(assignment: _Assignment) -> int:
    """Return where `NAME=value` on its own line ends, or -1. Any sign but a space belongs to the value there."""
    data, start, _, match = assignment
    if not data[start : match.start()].isupper() or not _LINE_START.search(data, max(0, start - 60), start):
        return -1
    value = _LINE_VALUE.match(data, match.end())
    return value.end() if value else -1


def _find_bare_end(data: bytes, first: int, limit: int) -> int:
    bare = _BARE.match(data, first, limit)
    return bare.end() if bare else first


def _find_closing_quote(data: bytes, first: int, quote: bytes) -> int:
    """Return where a quote closes, or -1. A quote that is escaped more deeply than the opening one is in the value.

    A backslash of the value itself is doubled at each depth, so it adds twice the backslashes of a quote, and one.
    """
    limit = first + _MAX_QUOTED
    depth = len(quote) - len(quote.lstrip(b"\\"))
    sign = quote[depth:]
    close = data.find(sign, first, limit)
    while close >= 0:
        before = data[max(first, close - _MAX_SLASHES) : close]
        slashes = len(before) - len(before.rstrip(b"\\"))
        if slashes <= depth or slashes % (2 * depth + 2) == depth:
            return close - min(slashes, depth) if data.find(b"\n", first, close) < 0 else -1
        close = data.find(sign, close + 1, limit)
    return -1


# Words of other languages

_FOREIGN_VALUE = re.compile(
    "[\"'`”」*]{0,2}(?:[ \t　]*(?:는|은|は|を|が|是|为|為|：|:|=|＝|→|es |"  # noqa: RUF001
    r"\\+u(?:b294|c740|306f|3092|304c|662f|4e3a|70ba|ff1a|ff1d|2192))[ \t　]*|[ \t　]+)"  # the same in JSON
    "[\"'`「『（(]?(?P<value>[!-~]{6,200})".encode()  # noqa: RUF001
)
_FOREIGN_END = re.compile(rb"[\"'`,;<&\\]")
_MIN_FOREIGN_TOKEN = 16


def find_foreign(data: bytes, words: list[tuple[bytes, bytes]]) -> list[Span]:
    """Return the passwords and tokens behind words of other languages. Each word comes with its mask."""
    spans: list[Span] = []
    for word, mask in words:
        at = data.find(word)
        while at >= 0:
            at += len(word)
            found = _FOREIGN_VALUE.match(data, at)
            value = _FOREIGN_END.split(found["value"], maxsplit=1)[0].rstrip(b".:;)]}!?") if found else b""
            odd = is_odd_word(value) if mask == b"PASSWORD" else is_random(value, min_length=_MIN_FOREIGN_TOKEN)
            if found and odd and not is_placeholder(value) and not is_path(value):
                spans.append((found.start("value"), found.start("value") + len(value), mask))
            at = data.find(word, at)
    return spans
