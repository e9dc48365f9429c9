"""Small questions that all four sets of rules ask."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def has_words(value: Any) -> bool:
    """Whether it is a text with something in it."""
    return isinstance(value, str) and bool(value.strip())


def is_picture_address(value: Any) -> bool:
    """Whether it is a web address, or base64 inside one."""
    if not isinstance(value, str):
        return False
    head, _, data = value.partition(";base64,")
    return value.startswith(("https://", "http://")) or (head.startswith("data:image/") and is_base64(data))


def is_base64(value: Any) -> bool:
    """Whether it is some bytes in base64."""
    try:
        return bool(base64.b64decode(value, validate=True))
    except (binascii.Error, TypeError, ValueError):
        return False
