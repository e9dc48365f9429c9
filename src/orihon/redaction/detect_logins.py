"""Find e-mail addresses, passwords in URLs, and passwords on command lines that no name announces.

A command line is written as typed, or as a JSON list of words: `["curl", "-u", "user:…"]`. A connection string is one
credential, including the location of the database.
"""

from __future__ import annotations

import re

from orihon.redaction.detect_tokens import Span, match_webhook
from orihon.redaction.entropy import Context, is_odd_word, is_placeholder, is_random, is_secret, is_template
from orihon.redaction.escapes import ESCAPE_SIGNS, skip_escape
from orihon.redaction.key_names import Kind

_LOCAL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.+"
_MAX_LOCAL = 64
_DOMAIN = re.compile(
    rb"(?P<name>(?:[A-Za-z0-9\x80-\xff](?:[A-Za-z0-9\x80-\xff-]{0,62})\.){1,8})"
    rb"(?P<top>[A-Za-z]{2,24}|xn--[a-z0-9-]{2,40}|(?:[\xc3-\xdf][\x80-\xbf]){2,12}"  # letters of one script
    rb"|(?:\xe3\x82[\xa0-\xbf]|\xe3\x83[\x80-\xbf]){2,12}|(?:[\xe4-\xe9][\x80-\xbf]{2}){2,8}|(?:[\xea-\xed][\x80-\xbf]{2}){2,8}"
    rb"|(?:\xe0[\xa4-\xbf][\x80-\xbf]){2,12})(?![\w(-])(?P<remote>:[\w~./]|/)?"
)
# File names such as icon@2x.png and units such as getty@tty1.service have the shape of an address.
_NOT_TOP = frozenset(
    b"png jpg jpeg gif svg webp ico js mjs cjs ts tsx jsx css json lock html pdf dist whl gz tgz zip service socket "
    b"target timer mount dot reshape sum mean yml yaml toml xml txt csv log conf cfg java cpp hpp ipynb map wasm "
    b"scss less".split()
)
_MAIL_TOP = frozenset(b"com org net edu gov info io dev ai jp de uk fr cn ru it es nl kr br au ca us ch se eu".split())
_HOST_BEFORE = re.compile(rb"[\w.-]+\.[a-z]{2,6}(?::\d+)?/")
# Japanese does not separate words, so the name in front of an @ is the part in one script: hiragana, katakana, han,
# hangul, Latin, or Greek and Cyrillic.
_ONE_SCRIPT = re.compile(
    r"(?:[\u3041-\u309f]+|[\u30a0-\u30ff]+|[\u3400-\u9fff]+|[\uac00-\ud7a3]+|[\u00c0-\u024f0-9A-Za-z_.+-]+"
    r"|[\u0370-\u052f]+)$"
)

_DATABASE = re.compile(
    rb"(?:jdbc:)?(?:mongodb|mysql|mariadb|postgres|postgresql|redis|rediss|amqps?|mssql|sqlserver|oracle(?::thin)?|"
    rb"cockroachdb|clickhouse|snowflake|cassandra|neo4j|couchbase|db2|presto|trino)(?:\+\w+)?:(?:@?//)$"
)
_HOST = re.compile(rb"[^\s\"'<>/?#`\\();,]{0,300}")
_HOST_NAME = re.compile(
    rb"[A-Za-z0-9._~%-]*(?:[\x80-\xff]+[A-Za-z0-9.-]*\.[a-z]{2,})?(?::\d{1,5})?|\[[0-9a-fA-F:]+\](?::\d{1,5})?"
)
_REST_OF_URL = re.compile(rb"[^\s\"'<>`\\;]*")
_HEX_USER = re.compile(rb"[0-9a-f]{8,}")
_SCHEME = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://$")
_PUBLIC_HOST = re.compile(
    rb"(?i)[@.](?:github\.com|githubusercontent\.com|gitlab\.com|bitbucket\.org|codeberg\.org|huggingface\.co|pypi\.org"
    rb"|npmjs\.org|dev\.azure\.com|docker\.io|ghcr\.io)(?::\d+)?$"
)
_ORACLE = re.compile(
    rb"(?i)(?:jdbc:oracle:(?:thin|oci8?):|\b(?:sqlplus|sqlldr|sqlcl|expdp|impdp)(?:[ \t]+-\w+)*[ \t]+[\"']?)"
    rb"[\w$#.]{1,60}$"
)
_ORACLE_VALUE = re.compile(rb"[^\s\"'@/]{1,100}")
_URL_BREAKS = frozenset(b" \t\r\n\"'<>/?#`\\();,")
_BRACKETS = {ord(")"): b"(", ord("]"): b"[", ord("}"): b"{"}
_MAX_URL, _MAX_SCHEME = 300, 24


def _compile_commands(names: bytes) -> re.Pattern[bytes]:
    """Compile the names of commands, followed by a space or by the end of a word in a JSON list.

    A terminal code may stand directly before them as text: `\\u001b[32mmysql`.
    """
    return re.compile(rb"(?i)(?:(?<![\w.])|(?<=\d[mk]))(?:" + names + rb")(?:\.exe)?(?:\s|\\{0,3}[\"'],)")


# Commands by the flag that holds their password. The command stands before the flag on the same line.
_USER = _compile_commands(rb"curl|wget|https?|xhs?|httpie|svn|mongosh?|lftp")
_GLUED = _compile_commands(rb"mysql\w*|mariadb[\w-]*|7za?|rar|unrar")
_SPACED = _compile_commands(
    rb"sshpass|twine|sqlcmd|isql|tsql|bcp|unzip|zip|mosquitto_\w+|mongo\w*|influx|cqlsh|vncpasswd|useradd|usermod|ipmitool|"
    rb"(?:docker|podman|nerdctl|helm|oras|crane|az|buildah|skopeo|npm|oc|registry|cf)\b[^\n]{0,120}?\blogin"
)
_BY_FLAG = {
    b"-a": _compile_commands(rb"(?:redis|valkey|keydb)-(?:cli|benchmark)|snmp\w+"),
    b"-w": _compile_commands(rb"ldap(?:search|add|modify|delete|compare|passwd|whoami|modrdn|exop)"),
    b"-k": _compile_commands(rb"openssl"),
}
_NEXT_WORD = rb"(?:\\{0,3}[\"'],\s{0,40}(?=\\{0,3}[\"']))?"  # the end of one word of a JSON list, before the next
_PAIR = re.compile(
    rb"(?:-u|-a|--(?:proxy-)?user)" + _NEXT_WORD + rb"[ =]?[ \t]{0,4}"
    rb"(?P<pair>\\?(?P<quote>[\"'])(?P<inner>[^\"'\\\n]{1,200})\\?(?P=quote)(?::\\?[\"'][^\"'\\\s,]{1,200}\\?[\"'])?|"
    rb"[^\s\"'\\]{1,200}(?:(?<=:)(?:\"[^\"\s,]{1,200}\"|'[^'\s,]{1,200}'))?)"
)
_AFTER_GLUED = re.compile(rb"-[pP](?:\\?[\"'])?(?P<value>[^\s\"'\\`]{1,200})")
_AFTER_SPACED = re.compile(rb"-[pPwakA]" + _NEXT_WORD + rb"[ \t=]{0,4}(?:\\{0,3}[\"'])?(?P<value>[^\s\"'\\`]{1,200})")
_SPACE = frozenset((b" ", b"\t", b"=", b'"', b"'", b"\\"))
_IDENTIFIED = re.compile(
    rb"(?i)identified\s{1,8}(?:with\s{1,8}\S{1,40}\s{1,8})?(?:by|as)\s{1,8}(?:password\s{1,8})?"
    rb"\\?(?P<quote>[\"'])(?P<value>[^\"'\\\n]{1,200})\\?(?P=quote)"
)
_ACCOUNT = re.compile(rb"(?i)\b(?:user|role|grant|to|login|account)\b")
_SECURE_STRING = re.compile(
    rb"(?i)securestring(?:[ \t]+-(?:string|asplaintext|force))*[ \t]+\(?[ \t]*\\?(?P<quote>[\"'])"
    rb"(?P<value>[^\"'\\\n]{1,200})\\?(?P=quote)"
)
_CHPASSWD = re.compile(
    rb"\b(?:echo|printf)[ \t]+(?:-\w+[ \t]+)?[\"']?[\w.@-]{1,60}:(?P<value>[^\s\"'|\\:]{1,200})(?:\\n)?"
    rb"[\"']?[ \t]*\|[^\n|]{0,60}$"
)
_ECHOED = re.compile(
    rb"\b(?:echo|printf)[ \t]+(?:-\w+[ \t]+)?[\"']?(?P<value>[^\s\"'|\\]{5,200}?)(?:\\n)?[\"']?[ \t]*"
    rb"\|[ \t]*sudo[ \t]+$"
)
_HERE_STRING = re.compile(rb"[^\n|;&]{0,120}<<<[ \t]*[\"']?(?:[\w.-]{1,40}:)?(?P<value>[^\s\"'\\:]{5,200})")
_HTPASSWD = re.compile(  # with -n there is no file before the user
    rb"htpasswd(?:\.exe)?[ \t]{1,8}-(?=\w*b)(?P<flags>\w{1,8})(?:[ \t]{1,8}-\w{1,9}(?:[ \t]{1,8}\d{1,3})?){0,4}"
    rb"(?P<words>(?:[ \t]{1,8}[^\s\"'`|;&\\]{1,200}){2,3})"
)
_STORES_SECRET = re.compile(
    rb"(?i)secrets?[ \t]+(?:set|put|add|create)\b|secret[ \t]+generic\b|secret/[\w./-]{1,80}[ \t]"
)
_STORED = re.compile(
    rb"[ \t](?:--body[= \t]|-b[ \t]?|--value[= \t]|--from-literal[= \t][\"']?[\w.-]{1,80}=|[A-Za-z_][\w.-]{0,80}=)"
    rb"[ \t]{0,4}\\?[\"']?(?P<value>[^\s\"'\\`]{1,200})"
)
_SECRET_INPUT = re.compile(  # echo ... | gh secret set NAME
    rb"\b(?:echo|printf)[ \t]+(?:-\w+[ \t]+)?[\"']?(?P<value>[^\s\"'|\\]{5,200}?)(?:\\n)?[\"']?[ \t]*\|[^\n|]{0,40}$"
)
_PUT = re.compile(rb"put-parameter\b[^\n|;]{0,200}?[ \t]--value[= \t]+[\"']?(?P<value>[^\s\"'\\]{5,200})")
_SHARE_USER = re.compile(rb"-U[ =]?[\"']?[\w.\\/@-]{1,60}%(?P<value>[^\s\"'`\\]{5,200})")
_SHARE = _compile_commands(rb"smbclient|smbget|rpcclient|smbcacls|wmic|winexe|net")
_SITE_USER = re.compile(rb"-u[ =]?[\"']?[\w.@-]{1,60},(?P<value>[^\s\"'`\\,]{5,200})")
_SITE = _compile_commands(rb"lftp")
_CHANGED = re.compile(rb"password[ \t]+[\w.@-]{1,60}[ \t]+[\"']?(?P<value>[^\s\"'\\]{6,200})[\"']?[ \t]*(?:$|[\n|;&])")
_DEVICE = re.compile(  # of a router or a switch
    rb"(?:^|[\n#])[ \t]*(?:enable|username[ \t]\S{1,40}(?:[ \t]privilege[ \t]\d{1,2})?)[ \t]"
    rb"(?:secret|password)[ \t](?:\d[ \t])?(?P<value>\S{6,100})"
)
_REST_OF_COMMAND = re.compile(rb"(?:[^\n|;&]|\\\n){0,400}")
_PGPASS = re.compile(rb"(?<=[\w*]):[\d*]{1,5}:[^:]{1,60}:[^:]{1,60}:(?P<value>[^\s:\"'\\]{5,200})")
_MAX_LINE = 300  # bytes between a command and its flag
_MIN_PAIR = 6


def find_logins(data: bytes, ats: list[int], flags: list[int]) -> list[Span]:
    """Return the addresses and the passwords of URLs around each @, and the passwords behind flags of commands."""
    spans: list[Span] = []
    done = 0
    for at in ats:
        if at < done:
            continue
        link = data.rfind(b"://", max(0, at - _MAX_URL), at)
        if link >= 0 and (_URL_BREAKS.isdisjoint(data[link + 3 : at]) or _is_quoted_database(data, link + 3, at)):
            span, done = _find_url_password(data, link + 3, at)
        else:
            slash = data.rfind(b"/", max(0, at - 101), at)
            span = (_find_oracle_password(data, slash, at) if slash >= 0 else None) or _find_address(data, at)
        if span:
            spans.append(span)
    values = [_find_flag_value(data, flag, data[flag : flag + 2].lower()) for flag in flags]
    return [*spans, *filter(None, values)] if flags else spans


def _find_address(data: bytes, at: int) -> Span | None:
    """Return the e-mail address around an @."""
    domain = _DOMAIN.match(data, at + (1 if data[at : at + 1] == b"@" else 3))
    if not domain or domain["remote"]:
        return None
    name, end, sure = domain["name"], domain.end("top"), domain["top"].lower() in _MAIL_TOP
    if domain["top"].lower() in _NOT_TOP:
        end, sure = domain.end("name") - 1, True
        if name.split(b".")[-2].lower() not in _MAIL_TOP or name.count(b".") < 2:  # noqa: PLR2004 - bob@corp.jp.txt
            return None
    if not name.isascii() and not name.decode("utf-8", "replace").replace("-", "").replace(".", "").isalnum():
        return None  # punctuation of a sentence
    head = data[max(0, at - _MAX_LOCAL) : at]
    start = at - len(head) + len(head.rstrip(_LOCAL))
    if start and data[start - 1] >= 0x80:  # noqa: PLR2004 - not ASCII
        start = _find_script_start(data, start)
    if start and data[start - 1] in ESCAPE_SIGNS:
        start = min(skip_escape(data, start), at)
    local = data[start:at].lstrip(b".-+_")
    before = data[start - 1 : start] if start else b""
    if (
        not local
        or local == b"git"
        or before in (b"@", b"$", b"{")
        or (before == b"/" and not _is_file(data, start, sure))
    ):
        return None
    return at - len(local), end, b"EMAIL"


def _is_file(data: bytes, start: int, sure: bool) -> bool:  # noqa: FBT001 - the domain ends as those of mail do
    """Return whether the path before an address is one of a file system. `//host/name@…` is a URL or an image."""
    path = data[max(0, start - _MAX_URL) : start]
    path = path[max(path.rfind(b" "), path.rfind(b"\n"), path.rfind(b'"')) + 1 :]
    return sure and b"//" not in path and not _HOST_BEFORE.match(path)


def _find_script_start(data: bytes, end: int) -> int:
    """Return where the letters of one script begin that end at `end`."""
    low = max(0, end - _MAX_LOCAL)
    while low < end and data[low] & 0xC0 == 0x80:  # noqa: PLR2004 - inside a character
        low += 1
    letters = _ONE_SCRIPT.search(data[low:end].decode("utf-8", "surrogatepass"))
    return end - len(letters.group().encode()) if letters else end


def _is_quoted_database(data: bytes, first: int, at: int) -> bool:
    """Return whether a connection string is in quotes, so that its password may contain a space."""
    scheme = _DATABASE.search(data, max(0, first - _MAX_SCHEME), first)
    quote = data[scheme.start() - 1 : scheme.start()] if scheme and scheme.start() else b""
    user = data[first:at]
    return quote in (b'"', b"'") and quote not in user and not any(byte in b"\n/<>\\" for byte in user)


def _find_url_password(data: bytes, first: int, at: int) -> tuple[Span | None, int]:
    """Return a URL with a password up to the end of its host, and that end. The location is a part of the credential,
    as in a connection string; only that of a public service tells nothing, so there the password alone is returned.

    A password may contain an @ itself, so the last one counts.
    """
    host = _HOST.match(data, at + 1)
    end = host.end() if host else at
    last = data.rfind(b"@", at, end)
    if last < 0:  # %40
        return None, end
    user, colon, password = data[first:last].partition(b":")
    masked = user[:1] == b"[" or (len(set(password)) == 1 and password[:1] in b"*x.X-")
    if colon and password and not masked and not is_template(password):
        if span := _find_connection(data, first, end):
            return span, span[1]
        if _PUBLIC_HOST.search(data, last, end):
            keep = first if _HEX_USER.fullmatch(user) or is_random(user, min_length=12) else first + len(user) + 1
            return (keep, last, b"PASSWORD"), end
        scheme = _SCHEME.search(data, max(0, first - _MAX_SCHEME), first)
        name = _HOST_NAME.match(data, last + 1)  # a sentence may continue without a space
        begin = skip_escape(data, scheme.start()) if scheme else first
        return (begin, name.end() if name else last, b"PASSWORD"), end
    if not colon and is_random(user, min_length=16) and not is_placeholder(user):
        return (first, last, b"TOKEN"), end
    return None, end


def _find_oracle_password(data: bytes, slash: int, at: int) -> Span | None:
    """Return the password of `user/password@`, as Oracle's tools write it."""
    if not _ORACLE_VALUE.fullmatch(data, slash + 1, at) or not _ORACLE.search(data, max(0, at - _MAX_URL), slash):
        return None
    return None if is_placeholder(data[slash + 1 : at]) else (slash + 1, at, b"PASSWORD")


def _find_connection(data: bytes, first: int, end: int) -> Span | None:
    """Return the connection string whose user begins at `first`."""
    scheme = _DATABASE.search(data, max(0, first - _MAX_SCHEME), first)
    if not scheme:
        return None
    rest = _REST_OF_URL.match(data, end, end + 2 * _MAX_URL)
    last = rest.end() if rest else end
    while data[last - 1] in b",.)]}":
        opening = _BRACKETS.get(data[last - 1])
        text = data[scheme.start() : last]
        if opening and text.count(opening) >= text.count(text[-1:]):
            break
        last -= 1
    return scheme.start(), last, b"DATABASE_URL"


def find_connection_around(data: bytes, first: int, last: int) -> Span | None:
    """Return the connection string in which a password is a parameter."""
    link = data.rfind(b"//", max(0, first - _MAX_URL), first)
    if link < 0 or any(byte in b" \t\r\n\"'<>`\\" for byte in data[link:first]):
        return None
    return _find_connection(data, link + 2, last)


def _find_flag_value(data: bytes, flag: int, first: bytes) -> Span | None:  # noqa: PLR0911 - one line for each flag
    """Return the password behind a flag. `first` are its first two bytes in small letters."""
    if first == b"-p":
        return _find_password(data, flag)
    if first == b"-u":
        return _find_user(data, flag)
    if first in _BY_FLAG:
        span = _match_value(_AFTER_SPACED, data, flag)
        if span and _follows_command(data, flag, _BY_FLAG[first]):
            return span
        return _find_pair(data, flag) if first == b"-a" else None
    if first == b":/":
        return match_webhook(data, flag)
    if first[:1] == b":":
        found = _PGPASS.match(data, flag)
        return (*found.span("value"), b"PASSWORD") if found and is_odd_word(found["value"]) else None
    if first == b"-s":
        return _match_value(_ECHOED, data, flag) or _match_value(_HERE_STRING, data, flag)
    if first == b"se":
        return _match_value(_SECURE_STRING, data, flag)
    return _match_value(_IDENTIFIED, data, flag) if _ACCOUNT.search(data, max(0, flag - 120), flag) else None


def _find_user(data: bytes, flag: int) -> Span | None:
    """Return the password behind the user of `curl -u user:…`, `smbclient -U user%…` or `lftp -u user,…`."""
    if data[flag - 1 : flag] in (b"-", b"y"):
        return _find_pair(data, flag - (1 if data[flag - 1 : flag] == b"-" else len("--proxy")))
    for pattern, commands in ((_SHARE_USER, _SHARE), (_SITE_USER, _SITE)):
        span = _match_value(pattern, data, flag)
        if span and _follows_command(data, flag, commands):
            return span
    return _find_pair(data, flag)


def _find_around(data: bytes, word: int) -> Span | None:
    """Return the value that a line with `password` or `secret` stores: in a router, or as a parameter of AWS."""
    low = max(0, word - _MAX_LINE)
    if data[word - 1] in b"/_-" and data.rfind(b"put-parameter", low, word) >= 0:
        pattern = _PUT
    elif data[word + 8 : word + 9] == b" " or data[word + 4 : word + 5] == b" ":
        pattern = _DEVICE
    else:
        return None
    found = pattern.search(data, max(low, data.rfind(b"\n", low, word)), word + _MAX_LINE)
    secret = found and is_odd_word(found["value"]) and not is_placeholder(found["value"])
    return (*found.span("value"), b"PASSWORD") if found and secret else None


def find_stored_secrets(data: bytes, stems: list[int]) -> list[Span]:
    """Return the values that commands store: `gh secret set`, `kubectl create secret`, `vault kv put`, `htpasswd`."""
    spans: list[Span] = []
    done = 0
    for stem in stems:
        span = None
        if data[stem : stem + 6] == b"passwd" and data[stem - 2 : stem] == b"ch":
            span = _match_value(_CHPASSWD, data, stem) or _match_value(_HERE_STRING, data, stem)
        elif data[stem : stem + 6] == b"passwd" and data[stem - 2 : stem] == b"ht":
            span = _find_htpasswd(data, stem - 2)
        elif stem >= done and data[stem - 2 : stem + 4] == b"secret" and _STORES_SECRET.match(data, stem - 2):
            command = _REST_OF_COMMAND.match(data, stem)
            done = command.end() if command else stem
            values = _STORED.finditer(data, stem, done)
            spans += [(*value.span("value"), b"SECRET") for value in values if _is_password(value["value"])]
            span = _match_value(_SECRET_INPUT, data, stem - 2)
        elif data[stem : stem + 4] in (b"pass", b"cret"):
            changes = data[stem - 7 : stem] == b"change_"  # rabbitmqctl change_password USER PASSWORD
            span = (_match_value(_CHANGED, data, stem) if changes else None) or _find_around(data, stem)
        if span:
            spans.append(span)
    return spans


def _find_htpasswd(data: bytes, start: int) -> Span | None:
    """Return the password of `htpasswd -b file user password`."""
    command = _HTPASSWD.match(data, start)
    words = command["words"].split() if command else []
    index = 1 if command and b"n" in command["flags"] else 2  # with -n there is no file
    if not command or len(words) <= index:
        return None
    first = data.index(words[index], command.start("words") + len(words[0]) + 1)
    return (first, first + len(words[index]), b"PASSWORD") if _is_password(words[index]) else None


def _follows_command(data: bytes, flag: int, commands: re.Pattern[bytes]) -> bool:
    """Return whether a command precedes a flag on its line. A backslash joins lines, and so does a comma in a list."""
    quoted = data[flag - 1 : flag] in (b'"', b"'")
    if not quoted and not data[flag - 1 : flag].isspace():
        return False
    low = max(0, flag - _MAX_LINE)
    line = data.rfind(b"\n", low, flag)
    while line >= 0 and data[line - 1 : line] in ((b"\\", b",") if quoted else (b"\\",)):
        line = data.rfind(b"\n", low, line)
    return bool(commands.search(data, max(low, line), flag))


def _find_pair(data: bytes, flag: int) -> Span | None:
    """Return the `user:password` behind a flag."""
    found = _PAIR.match(data, flag)
    if not found or b":" not in found["pair"] or not _follows_command(data, flag, _USER):
        return None
    user, _, password = found["pair"].translate(None, b"\"'\\").partition(b":")
    secret = (password or user).strip(b"<>")
    if secret[:1] == b"{" and secret[:2] != b"{{":
        secret = secret.strip(b"{}")
    odd = not secret.isalpha() or is_random(secret, min_length=12)
    if len(secret) < _MIN_PAIR or not odd or is_placeholder(secret):
        return None
    group = "inner" if found["inner"] and b":" in found["inner"] else "pair"
    return (*found.span(group), b"PASSWORD")


def _find_password(data: bytes, flag: int) -> Span | None:
    """Return the password behind `-p`, with or without a space between them."""
    glued = data[flag + 2 : flag + 3] not in _SPACE
    span = _match_value(_AFTER_GLUED if glued else _AFTER_SPACED, data, flag)
    if span and ((glued and _follows_command(data, flag, _GLUED)) or _follows_command(data, flag, _SPACED)):
        return span
    return None


def _match_value(pattern: re.Pattern[bytes], data: bytes, at: int) -> Span | None:
    """Return the value of an expression at `at`, or before it if the expression ends with $, if it is a password."""
    if pattern.pattern.endswith(b"$"):
        found = pattern.search(data, max(0, at - _MAX_LINE), at)
    else:
        found = pattern.match(data, at)
    return (*found.span("value"), b"PASSWORD") if found and _is_password(found["value"]) else None


def _is_password(value: bytes) -> bool:
    return not value.isdigit() and is_secret(value, Kind.PASSWORD, quoted=True, context=Context.DATA)
