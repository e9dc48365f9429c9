"""Made-up histories of an agent, for the tests of what the model sees."""

import json
import random

import msgspec
from hypothesis import strategies as st

from orihon.context.pick import apply
from orihon.records import Call, Message


class BytesCounter:
    """Four bytes a token, four tokens a message."""

    name = "bytes4"

    def text(self, text):
        return (len(text.encode("utf-8", "replace")) + 3) // 4

    def message(self, message):
        size = len(message.text.encode("utf-8", "replace"))
        for call in message.tool_calls:
            size += len(call.name) + len(call.arguments.encode("utf-8", "replace"))
        return (size + 3) // 4 + 4

    def tools(self, schemas):
        return len(schemas)


COUNTER = BytesCounter()


class History:
    """Builds a list of messages, counted and numbered."""

    def __init__(self):
        self.messages = []

    def add(self, role, content, **fields):
        message = Message(
            seq=len(self.messages) + 1, role=role, content=content, timestamp="2026-01-01T00:00:00Z", tokens=0, **fields
        )
        self.messages.append(_counted(message))
        return self

    def unit(self, words, *calls):
        """An assistant message; each call is (tool, arguments, result)."""
        start = len(self.messages) + 1
        made = [
            Call(
                id=f"c{start}_{n}",
                name=tool,
                arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
            )
            for n, (tool, arguments, _) in enumerate(calls)
        ]
        self.add("assistant", words, tool_calls=made)
        for call, (_, _, result) in zip(made, calls, strict=True):
            self.add("tool", result, tool_call_id=call.id, tool_name=call.name)
        return self


def _counted(message):
    return msgspec.structs.replace(message, tokens=COUNTER.message(message))


def window(messages, stand_ins):
    """What the model would be sent."""
    shown = []
    for message in messages:
        stand_in = stand_ins.get(message.seq)
        if stand_in is None:
            shown.append(message)
        elif stand_in.text is not None:
            shown.append(apply(message, stand_in))
    return shown


def total(messages):
    return sum(message.tokens for message in messages)


WORDS = [
    *("src/app/parser.py", "tests/test_parser.py::test_empty", "max_retries", "self.max_retries", "HttpServer"),
    *("crate::io::read", "3f2a9bc41d", "https://example.org/api/v2", "ParseError:", "error", "failed", "0", "errors"),
    *("the", "file", "was", "read", "and", "then", "{", "}", "(", ")", "==", "value", "\t\\n", "", ""),
    *("設定", "「設定画面」", "エラー", "が\u3099", "👩\u200d👩\u200d👧", "e\u0301", "\udc80"),
]


class Chance:
    """Texts and histories out of one number: much quicker than drawing each word."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def line(self):
        return " ".join(self.random.choices(WORDS, k=self.random.randrange(12)))

    def text(self):
        lines = [self.line() for _ in range(self.random.choice([1, 1, 3, 20]))]
        return self.random.choice(["\n", "\n", " "]).join(lines * self.random.choice([1, 1, 4, 12]))

    def arguments(self):
        return self.random.choice(
            [
                {"path": self.line()},
                {"path": self.line(), "content": self.text()},
                {"edits": [{"new": self.text(), "line": 3}], "flags": [self.line() for _ in range(20)]},
                self.random.choice(["", "{", "not json " * 80, "[1, 2, 3]", '"text"']),
            ]
        )

    def history(self):
        history = History()
        if self.random.random() < 0.5:
            history.add("system", self.line())
        history.add("user", self.text())
        for _ in range(self.random.randrange(15)):
            if self.random.random() < 0.2:
                history.add("user", self.text())
            else:
                calls = [("read", self.arguments(), self.text()) for _ in range(self.random.choice([0, 1, 1, 3]))]
                history.unit(self.text(), *calls)
        return history.messages


def histories():
    """Any history: parallel calls, broken arguments, long lines, scripts without spaces, half characters."""
    return st.integers(0, 2**32).map(lambda seed: Chance(seed).history())
