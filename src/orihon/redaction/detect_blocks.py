"""Find secrets that a line announces for the lines after it: PEM blocks, Kubernetes Secrets, and columns of tables.

The columns of an INSERT of SQL count as those of a table.
"""

from __future__ import annotations

import re

from orihon.redaction.detect_tokens import Span
from orihon.redaction.entropy import Context, is_odd_word, is_placeholder, is_secret
from orihon.redaction.key_names import Kind, classify_name

# Private keys and Secrets of Kubernetes

_PEM = re.compile(
    rb"-----BEGIN[ A-Z0-9_-]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rb"(?P<body>(?:(?!-----)[\s\S]){0,20000}(?=-----END)|[A-Za-z0-9+/=\s\\:,.-]{0,20000})"
    rb"(?:-----END[ A-Z0-9_-]{0,40}-----)?"
)
# The lines of a key, each behind what `grep -n`, `diff` or a listing puts before it.
_KEY_LINES = re.compile(rb"(?:\r?\n[^\n]{0,100}?[A-Za-z0-9+/]{16,200}={0,2}(?=[ \t]{0,8}(?:\r?\n|$)))+")
_KEY_LINE = re.compile(rb"[^\n]{0,100}?(?P<key>[A-Za-z0-9+/]{1,100}={0,2})[ \t\r]*")
_PUTTY = re.compile(
    rb"Private-Lines: \d{1,3}(?P<end>\r?\n|(?:\\r)?\\n)"
    rb"(?P<body>(?:[A-Za-z0-9+/]{1,80}={0,2}(?:(?P=end)|$|(?=[\"']))){1,200})"
)
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{24}")
_DATA_YAML = re.compile(rb"(?:^|\n)(?:data|stringData):[^\n]*\n(?P<body>(?:[ \t]+[^\n]*\n?|\n)+)")
_ENTRY_YAML = re.compile(
    rb"(?<=\s)(?P<value>[\w.-]+:[ \t]*(?:[|>]-?\n[ \t]*)?[\"']?[A-Za-z0-9+/_-]{10,}={0,2}[\"']?)[ \t]*(?:\n|$)"
)
_DATA_JSON = re.compile(rb"\\{0,3}[\"'](?:data|stringData)\\{0,3}[\"']\s{0,20}:\s{0,20}\{(?P<body>[^{}]{0,20000})\}")
_ENTRY_JSON = re.compile(rb"(?P<quote>\\{0,3}[\"'])\s{0,20}:\s{0,20}(?P=quote)(?P<value>[^\"'\\]{4,20000})(?P=quote)")
_KIND_YAML = re.compile(rb"kind: *[\"']?$")
_KIND_JSON = re.compile(rb"kind\\{0,3}[\"']\s{0,8}:\s{0,8}\\{0,3}[\"']$")
_MAX_PUTTY, _MAX_DOCUMENT = 6000, 20000
_MIN_KEY_LINE = 40  # bytes of each line of a key but the last


def find_blocks(data: bytes, stems: list[int]) -> list[Span]:
    """Return private keys and the entries of Kubernetes Secrets. No stretch of text is searched twice."""
    spans: list[Span] = []
    done = 0
    for stem in stems:
        if stem < done:
            continue
        if data[stem - 8 : stem + 3] == b"PRIVATE KEY":
            found, done = _find_pem(data, stem)
            spans += found
        elif data[stem - 11 : stem + 8] == b"PuTTY-User-Key-File":
            putty = _PUTTY.search(data, stem, stem + _MAX_PUTTY)
            spans += [(*putty.span("body"), b"PRIVATE_KEY")] if putty else []
            done = putty.end() if putty else stem
        elif data[stem - 2 : stem + 4] in (b"Secret", b"secret"):
            found, done = _find_kubernetes_secret(data, stem - 2)
            spans += found
    return spans


def _find_pem(data: bytes, stem: int) -> tuple[list[Span], int]:
    begin = data.rfind(b"-----BEGIN", max(0, stem - 60), stem)
    pem = _PEM.match(data, begin) if begin >= 0 else None
    if not pem:
        return _find_pem_tail(data, stem), stem
    end = pem.end()
    if lines := _KEY_LINES.match(data, data.find(b"-----\n", begin + 5, begin + 100) + 5):
        end = max(end, lines.end())
    if data[end : end + 1] in (b'"', b"'"):
        end = begin + len(data[begin:end].rstrip(b"\\"))  # the closing quote may be escaped
    real = _BASE64.search(data, pem.start("body"), end)  # documentation quotes the first line too
    return [(begin, end, b"PRIVATE_KEY")] if real else [], max(end, pem.end())


def _find_pem_tail(data: bytes, stem: int) -> list[Span]:
    """Return the lines of a key before its last line, if the first line was cut off."""
    last = data.rfind(b"-----END", max(0, stem - 60), stem)
    end = data.rfind(b"\n", max(0, last - 100), last) if last >= 0 else -1
    begin, at, low = end, end, max(0, end - _MAX_DOCUMENT)
    while at > low:
        line = max(data.rfind(b"\n", low, at) + 1, low)
        key = _KEY_LINE.fullmatch(data, line, at)
        if not key or (begin < end and len(key["key"]) < _MIN_KEY_LINE):
            break
        begin = key.start("key")
        at = line - 1
    real = end >= 0 and _BASE64.search(data, begin, end)
    return [(begin, end, b"PRIVATE_KEY")] if real else []


def _find_kubernetes_secret(data: bytes, word: int) -> tuple[list[Span], int]:
    """Return the entries of a Secret in YAML or JSON, if the word at `word` is its kind."""
    begin, end = max(0, word - _MAX_DOCUMENT), min(len(data), word + _MAX_DOCUMENT)
    if _KIND_YAML.search(data, max(0, word - 12), word):
        begin = max(data.rfind(b"\n---", begin, word), begin)
        next_document = data.find(b"\n---", word, end)
        end = end if next_document < 0 else next_document
        block_pattern, entry_pattern = _DATA_YAML, _ENTRY_YAML
    elif _KIND_JSON.search(data, max(0, word - 32), word):
        block_pattern, entry_pattern = _DATA_JSON, _ENTRY_JSON
    else:
        return [], word
    return [
        (*entry.span("value"), b"SECRET")
        for block in block_pattern.finditer(data, begin, end)
        for entry in entry_pattern.finditer(data, block.start("body") - 1, block.end("body"))
        if block_pattern is _DATA_YAML or not is_placeholder(entry["value"])
    ], end


# Tables: CSV with a header, and the tables of Markdown

_CELL_END = re.compile(rb"[\w.-]{0,40}+[ \t\"'`*]{0,3}?(?P<end>[,|;\t]|\r?\n|\\[rn])")
_CELL_START = re.compile(rb"(?P<before>^|[,|;\t]|\n|\\n)[ \t\"'`*]{0,3}[\w.-]{0,40}$")
_STRING_START = re.compile(rb"\\n|[:\[] ?\\{0,3}\"")
_LINE_END = re.compile(rb"\r?\n|(?:\\r)?\\n")
_TITLE = re.compile(rb"[\w .%/#\"'`*-]{1,60}")
_RULER = re.compile(rb"[\s|:+-]+")
_SIGNED = re.compile(rb"(?=.*\d)(?=.*[!@#$%^&*?]).{6,}")
_COLUMN = re.compile(rb"\w{0,40}[`\"\]]?\s{0,4}[,)]")
_INSERTED = re.compile(rb"(?i)\)\s{0,8}values\s{0,8}(?=\()")
_ROW = re.compile(rb"\s{0,8},?\s{0,8}\((?P<values>(?:'(?:[^'\\]|\\.){0,400}'|[^'()]){1,2000})\)")
_SQL_VALUE = re.compile(rb"\s*(?:N?'(?P<text>(?:[^'\\]|''|\\.)*)'|[^',]*)\s*,?")
_CELL_PADDING = b" \t\"'`*"
_MAX_HEADER, _MAX_ROW, _MAX_ROWS = 400, 2000, 1000


def find_columns(data: bytes, stems: list[int]) -> list[Span]:
    """Return the cells of the columns whose title names a password."""
    spans: list[Span] = []
    done = 0
    for stem in stems:
        if stem < done or data[stem] not in b"pP":
            continue
        end = _CELL_END.match(data, stem)
        before = _CELL_START.search(data, max(0, stem - 44), stem) if end else None
        if _COLUMN.match(data, stem):
            spans += _find_inserted(data, stem)
        if not end or not before:
            continue
        separators = {before["before"], end["end"]} & {b"|", b",", b";", b"\t"}
        if len(separators) == 1:
            cells, done = _find_cells(data, stem, separators.pop())
            spans += cells
    return spans


def _find_cells(data: bytes, stem: int, separator: bytes) -> tuple[list[Span], int]:
    """Return the secrets of a column, and the end of the rows that were examined."""
    low = max(0, stem - _MAX_HEADER)
    line = data.rfind(b"\n", low, stem)
    strings = [found.end() for found in _STRING_START.finditer(data, max(low, line), stem)]  # a table in JSON
    start = strings[-1] if strings else line + 1 if line >= 0 or low == 0 else -1
    header_end = _LINE_END.search(data, stem, start + _MAX_HEADER) if start >= 0 else None
    if not header_end:
        return [], stem
    header = data[start : header_end.start()]
    above = data[data.rfind(b"\n", 0, max(0, start - 1)) + 1 : start]
    if separator == b"\t" and above.count(b"\t") == header.count(b"\t"):
        return [], stem  # a line in the middle of a table
    titles = [title.strip(_CELL_PADDING) for title in header.split(separator)]
    column = header.count(separator, 0, stem - start)
    inner = titles[1:-1] if not titles[0] and not titles[-1] else titles  # Markdown has bars at both ends
    is_header = len(inner) > 1 and all(map(_TITLE.fullmatch, inner))
    kind = classify_name(titles[column].decode("ascii", "replace")) if is_header else Kind.NOTHING
    if kind is Kind.NOTHING:
        return [], stem
    spans, at = [], header_end.end()
    for _ in range(_MAX_ROWS):
        end = _LINE_END.search(data, at, at + _MAX_ROW)
        row = data[at : end.start() if end else at + _MAX_ROW]
        cells = row.split(separator)
        ruler = _RULER.fullmatch(row)
        if len(cells) != len(titles) and not ruler:
            break
        value = b"" if ruler else cells[column].strip(_CELL_PADDING)
        if value and _is_cell(value, kind):
            first = at + sum(len(cell) + 1 for cell in cells[:column]) + cells[column].index(value)
            spans.append((first, first + len(value), kind.mask))
        if not end:
            break
        at = end.end()
    return spans, at


def _find_inserted(data: bytes, stem: int) -> list[Span]:
    """Return the passwords of `INSERT INTO users (name, password) VALUES ('bob', '…')`."""
    start, close = data.rfind(b"(", max(0, stem - _MAX_HEADER), stem), data.find(b")", stem, stem + _MAX_HEADER)
    inserted = _INSERTED.match(data, close) if start >= 0 and close >= 0 else None
    if not inserted:
        return []
    titles = data[start + 1 : close].split(b",")
    column = data.count(b",", start, stem)
    kind = classify_name(titles[column].strip(b' \t\n`"[]').decode("ascii", "replace"))
    spans: list[Span] = []
    row = _ROW.match(data, inserted.end()) if kind is not Kind.NOTHING else None
    while row and len(spans) < _MAX_ROWS:
        values = [value for value in _SQL_VALUE.finditer(data, *row.span("values")) if value.group()]
        if len(values) == len(titles) and values[column]["text"] and _is_cell(values[column]["text"], kind):
            spans.append((*values[column].span("text"), kind.mask))
        row = _ROW.match(data, row.end())
    return spans


def _is_cell(value: bytes, kind: Kind) -> bool:
    odd = is_odd_word(value) or (kind is Kind.PASSWORD and b" " not in value and bool(_SIGNED.fullmatch(value)))
    return odd and is_secret(value, kind, quoted=True, context=Context.DATA)
