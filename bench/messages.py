"""Messages that look like an agent's: a pure function of their number, mean 3.7 kB.

Of 21 messages one is the user's, ten are the assistant's (about 1.8 kB) and ten are tool results (log-normal between
0.5 and 60 kB). The texts are cut out of Python's own library, made-up log lines and Japanese sentences.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import random
import typing
from typing import Any

JAPANESE = (
    "認証処理の不具合を修正しました。空の入力に対してもテストが通ることを確認し、設定ファイルの既定値を見直します。"
)
TURN = 21


@functools.cache
def _sources() -> str:
    logs = "\n".join(
        f"2024-01-15 10:{n // 60 % 60:02}:{n % 60:02} INFO worker-{n % 7} request {n * 7919} took {n % 311} ms"
        for n in range(2000)
    )
    code = "".join(inspect.getsource(module) for module in (argparse, inspect, random, typing))
    return code + logs + JAPANESE * 200 + (argparse.__doc__ or "") * 20


def text(number: int) -> tuple[str, str]:
    """Role and content of a message."""
    chance = random.Random(number)  # noqa: S311 - repeatable, not secret
    if number % TURN == 0:
        role, size = "user", 700
    elif number % 2:
        role, size = "assistant", int(chance.uniform(600, 3000))
    else:
        role, size = "tool", int(min(60_000, max(500, chance.lognormvariate(8.05, 1.05))))
    return role, passage(number, size)


def passage(number: int, size: int) -> str:
    """A text of so many characters; another number gives another one."""
    chance = random.Random(-number)  # noqa: S311 - repeatable, not secret
    source = _sources()
    parts = []
    while size > 0:
        start = chance.randrange(len(source))
        parts.append(source[start : start + size])
        size -= len(parts[-1])
    return "".join(parts)


def reply(number: int, size: int = 300, *, path: str = "") -> dict[str, Any]:
    """What a model answers, in OpenAI's format: a few words, and a file that it wants to read."""
    arguments = json.dumps({"path": path or f"src/part_{number % 50}.py"})
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
    message = {"role": "assistant", "content": passage(number, size), "tool_calls": [call]}
    return {"model": "gpt-4o", "choices": [{"message": message}]}
