"""Recognise lines that report an error, in English and Japanese, and not those that report that there was none."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ERROR = re.compile(
    r"\b(?:\w*(?:Error|Exception)|[Ee]rror|ERROR|FAILED|FAIL|FATAL|[Ff]atal|[Pp]anicked|panic|Traceback|failed)\b"
    r"|エラー|失敗|例外"
)
_NONE = re.compile(
    r"(?i)\b(?:no|0|zero|without)(?: \w+)? (?:error|exception|failure)s?\b|\b0 failed\b"
    r"|\b(?:errors?|failed|failures?) *[:=] *(?:0|none)\b"
    r"|エラーは?(?:なし|あり?ません|無し|0)|失敗は?(?:なし|ありません|\W*0)"
)


def reports_error(line: str) -> bool:
    """Return whether a line reports an error."""
    return _ERROR.search(line) is not None and _NONE.search(line) is None


def error_lines(text: str) -> Iterator[int]:
    """Return the offsets of the lines that report an error."""
    at = 0
    while (match := _ERROR.search(text, at)) is not None:
        start = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end())
        end = len(text) if end < 0 else end
        if _NONE.search(text, start, end) is None:
            yield start
        at = end
