"""Small questions that all four sets of rules ask."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterator
from typing import Any

PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_LEVELS = 100  # of nested values; the parsers of some providers go no deeper

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def has_words(value: Any) -> bool:
    """Whether it is a text with something in it."""
    return isinstance(value, str) and bool(value.strip())


def is_picture_address(value: Any) -> bool:
    """Whether it is a web address, or base64 inside one."""
    if not isinstance(value, str):
        return False
    head, _, data = value.partition(";base64,")
    return value.startswith(("https://", "http://")) or (head.removeprefix("data:") in PICTURES and is_base64(data))


def is_base64(value: Any) -> bool:
    """Whether it is some bytes in base64."""
    try:
        return bool(base64.b64decode(value, validate=True))
    except (binascii.Error, TypeError, ValueError):
        return False


def is_object(value: Any) -> bool:
    """Whether it is the text of a JSON object, by the letter of the standard; servers parse what a call was given."""
    if not isinstance(value, str):
        return False
    try:
        return isinstance(json.loads(value, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def unsendable(value: Any) -> Iterator[str]:
    """What no JSON in UTF-8 can hold, wherever it stands: halves of characters, NaN, keys that are no text."""
    layer: list[tuple[str, Any]] = [("request", value)]
    for _ in range(MAX_LEVELS):
        for here, item in layer:
            yield from _wrong_leaf(here, item)
        layer = [inner for here, item in layer for inner in _inside(here, item)]
        if not layer:
            return
    yield f"request: nested deeper than {MAX_LEVELS} levels"


def _inside(here: str, item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, dict):
        for key, inner in item.items():
            yield f"{here}, a key", key
            yield f"{here}.{key!a:.40}", inner
    elif isinstance(item, list):
        yield from ((f"{here}[{place}]", inner) for place, inner in enumerate(item))


def _wrong_leaf(here: str, item: Any) -> Iterator[str]:
    if isinstance(item, float) and not math.isfinite(item):
        yield f"{here}: {item} is no number of JSON"
    elif isinstance(item, str) and not item.isascii():
        try:
            item.encode()
        except UnicodeEncodeError:
            yield f"{here}: a text holds half of a character"
    elif not isinstance(item, str | int | float | dict | list | None):
        yield f"{here}: a {type(item).__name__} is no value of JSON"


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
