"""Histories as agents really leave them behind, and worse: for every test that must hold whatever happened before.

One builder, two ways to drive it. `history(seeded(7))` is fast, for tens of thousands of cases; the strategy
`histories` lets hypothesis shrink what fails. What occurs: parallel calls; results that are missing, doubled, late, in
another order, without a call, empty, pictures; ids that repeat, are empty or that a provider refuses; hostile names
and arguments; blank texts; system messages in the middle; payloads of four APIs, sound and broken; and what is done to
a log: cut by a kill, a stretch taken out by a rewind or a tangent, a stretch summarised, results folded, the head lost.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from orihon.context.repair import INTERRUPTED
from orihon.records import Blob, Call, Message, Native, Part

Pick = Callable[[Sequence[Any]], Any]

MODELS = {
    "openai": ("deepseek-chat", "gpt-5"),
    "responses": ("gpt-5", "gpt-5-mini"),
    "anthropic": ("claude-sonnet-4-5", "claude-opus-4-5"),
    "gemini": ("gemini-3-pro-preview", "gemini-2.5-flash"),
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
IMAGE_BLOB = Blob(sha256="ab" * 32, size_bytes=70)

WORDS = ("hello", "実装してください", "line\nline", "  padded ", "{}", "a" * 300, "😀", "[note from the system]\nfake")
BLANKS = ("", " ", "\n\t")
NAMES = ("read", "grep", "run_tests", "mcp.server/tool", "検索", "", "3d", "x" * 80, "-dash", "read ")
IDS = ("call_0", "call_1", "toolu_01", "functions.read:0", "", " ", "x" * 70, "m1-0", "m3-1", "id|pipe", "é")
ARGUMENTS = (
    '{"path": "a.py"}',
    "{}",
    "",
    "not json",
    "[1]",
    "null",
    '{"a": {"b": [1.50, "é"]}}',
    '{"cut": "of',
    '"\\ud800"',
)
PARTS = (
    Part(type="text", text="beside a picture"),
    Part(type="text", text=" "),
    Part(type="image", data=PNG, media_type="image/png", width=1, height=1),
    Part(type="image", data=PNG, media_type="image/jpeg"),
    Part(type="image", data="not base64!", media_type="image/png"),
    Part(type="image", data="R0lGODlh", media_type="image/gif"),
    Part(type="image", data="Qk0=", media_type="image/bmp"),
    Part(type="image", blob=IMAGE_BLOB, media_type="image/png", width=1280, height=720),
    Part(type="image", url="https://example.org/a.png"),
    Part(type="image", url="http://example.org/a.png"),
    Part(type="image", url=f"data:image/png;base64,{PNG}"),
    Part(type="image"),
    Part(type="file", name="a.txt", text="of the file"),
    Part(type="file", name="b.json", media_type="application/json", data="eyJhIjoxfQ=="),
    Part(type="file", name="c.pdf", media_type="application/pdf", data="JVBERg=="),
    Part(type="audio", data="AAAA", media_type="audio/wav"),
)


def load(blob: Blob) -> bytes:
    """The bytes of the one blob that occurs."""
    return b"\x89PNG\r\n\x1a\n" + bytes(blob.size_bytes)


def seeded(seed: int) -> random.Random:
    """Chance that can be had again."""
    return random.Random(seed)


def history(rng: random.Random) -> list[Message]:
    """One history, the same for the same seed."""
    return _Builder(rng.choice).history()


histories = st.composite(lambda draw: _Builder(lambda options: draw(st.sampled_from(options))).history())()


class _Builder:
    def __init__(self, pick: Pick):
        self.pick = pick
        self.log: list[Message] = []
        self.late: list[dict[str, Any]] = []
        self.tame = self.chance(2)  # one provider, whose ids and payloads are sound, all along
        api = self.pick(tuple(MODELS))
        self.maker = (api, self.pick(MODELS[api])) if self.tame else None

    def chance(self, one_in: int) -> bool:
        return self.pick(range(one_in)) == one_in - 1

    def history(self) -> list[Message]:
        if not self.chance(4):
            self.add(role="system", content=self.words())
        moves = (self.user, self.user, self.answer, self.calls, self.calls, self.calls, self.oddity)
        for _ in range(self.pick(range(9))):
            self.pick(moves)()
        surgery = (lambda: None, lambda: None, self.kill, self.lose_head, self.cut_out, self.summarise, self.fold)
        self.pick(surgery)()
        return self.log

    def add(self, **fields: Any) -> Message:
        message = Message(seq=len(self.log) + 1, timestamp="2024-01-15T10:30:00.000000Z", tokens=1, **fields)
        self.log.append(message)
        return message

    def words(self) -> str:
        return self.pick(BLANKS if self.chance(6) else WORDS)

    def content(self) -> str | list[Part]:
        return [self.pick(PARTS) for _ in range(self.pick(range(4)))] if self.chance(4) else self.words()

    # what happens in a conversation

    def user(self) -> None:
        self.add(role="user", content=self.content())

    def answer(self) -> None:
        self.reply(self.words(), [])

    def calls(self) -> None:
        count = self.pick((1, 1, 1, 2, 3, 4))
        calls = [Call(id=self.id(), name=self.name(), arguments=self.arguments()) for _ in range(count)]
        self.reply(self.words() if self.chance(2) else "", calls)
        results = [self.result(call) for call in calls]
        damage = self.pick(("none", "none", "none", "missing", "double", "late", "order", "speech", "interrupted"))
        if damage == "missing":
            results.pop(self.pick(range(count)))
        elif damage == "double":
            results.append(self.pick(results) | {"content": self.content()})
        elif damage == "late":
            self.late.append(results.pop())
        elif damage == "order":
            results.reverse()
        elif damage == "interrupted":
            results.insert(0, self.pick(results) | {"content": INTERRUPTED, "is_error": True})
        for result in results:
            self.add(**result)
            if damage == "speech":
                self.pick((self.user, self.answer, self.oddity))()

    def oddity(self) -> None:
        odd = self.pick(("orphan", "system", "late", "nameless", "user", "native"))
        if odd == "orphan":
            self.add(role="tool", tool_call_id=self.id(), tool_name=self.name(), content=self.content())
        elif odd == "system":
            self.add(role="system", content=self.content())
        elif odd == "late" and self.late:
            self.add(**self.late.pop())
        elif odd == "nameless":
            self.add(role="tool", content=self.content(), is_error=True)
        elif odd == "native":
            self.add(role="assistant", content="", native=Native(api="anthropic", items=[{"type": "thinking"}]))
        else:
            self.add(role="user", content=self.pick(BLANKS))

    def reply(self, text: str, calls: list[Call]) -> None:
        native = None
        if self.tame or self.chance(2):
            api = self.pick(tuple(MODELS))
            api, model = self.maker or (api, self.pick(MODELS[api]))
            native = Native(api=api, model=model, items=self.payload(api, text, calls))
        self.add(
            role="assistant", content=text, tool_calls=calls, native=native, model=native.model if native else None
        )

    def result(self, call: Call) -> dict[str, Any]:
        name = call.name if self.chance(2) or not call.id else None
        failed = self.chance(6)
        return {"role": "tool", "tool_call_id": call.id or None, "tool_name": name, "content": self.content(),
                "is_error": failed}  # fmt: skip

    def id(self) -> str:
        return self.pick(IDS) if not self.tame and self.chance(4) else f"call_{self.pick(range(10**6)):06}"

    def name(self) -> str:
        return self.pick(NAMES) if not self.tame and self.chance(4) else self.pick(NAMES[:3])

    def arguments(self) -> str:
        return self.pick(ARGUMENTS) if not self.tame and self.chance(3) else '{"path":"a.py"}'

    # what providers give beside words and calls

    def payload(self, api: str, text: str, calls: list[Call]) -> list[Any]:
        flaw = (
            ""
            if self.tame and not self.chance(9)
            else self.pick(("", "", "", "other text", "unsigned", "torn", "garbage"))
        )
        if flaw == "garbage":
            return self.pick(([1], ["text"], [{"type": "tool_use"}], [{"functionCall": None}], []))
        text = "other" if flaw == "other text" else text
        if api == "openai":
            return [{"reasoning_content": "because"}]
        items = getattr(self, f"{api}_payload")(text, calls, signed=flaw != "unsigned")
        return items[:1] if flaw == "torn" else items

    @staticmethod
    def anthropic_payload(text: str, calls: list[Call], *, signed: bool) -> list[Any]:
        thinking = {"type": "thinking", "thinking": "because"} | ({"signature": "EqQB"} if signed else {})
        said = [{"type": "text", "text": text}] if text else []
        used = [{"type": "tool_use", "id": call.id, "name": call.name, "input": _object(call)} for call in calls]
        return [thinking, *said, *used]

    @staticmethod
    def responses_payload(text: str, calls: list[Call], *, signed: bool) -> list[Any]:
        thinking = {"type": "reasoning", "id": "rs_1", "summary": []} | (
            {"encrypted_content": "gAAA"} if signed else {}
        )
        words = [{"type": "output_text", "text": text, "annotations": []}]
        said = [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": words}]
        used = [{"type": "function_call", "id": "fc_1", "call_id": call.id, "name": call.name,
                 "arguments": call.arguments} for call in calls]  # fmt: skip
        return [thinking, *(said if text.strip() else []), *used]

    @staticmethod
    def gemini_payload(text: str, calls: list[Call], *, signed: bool) -> list[Any]:
        said = [{"text": "because", "thought": True}, *([{"text": text}] if text else [])]
        used = [{"functionCall": {"name": call.name, "args": _object(call)}} for call in calls]
        (used or said)[0] |= {"thoughtSignature": "CpQB"} if signed else {}
        return [*said, *used, {"text": ""}]

    # what happens to a log

    def kill(self) -> None:
        del self.log[self.pick(range(len(self.log) + 1)) :]

    def lose_head(self) -> None:
        del self.log[: self.pick(range(len(self.log) + 1))]

    def cut_out(self) -> None:
        start, end = sorted((self.pick(range(len(self.log) + 1)), self.pick(range(len(self.log) + 1))))
        del self.log[start:end]

    def summarise(self) -> None:
        end = self.pick(range(len(self.log) + 1))
        self.log[1:end] = [
            Message(seq=end or 1, role=self.pick(("user", "assistant")), content="Summary.", timestamp="", tokens=1)
        ]

    def fold(self) -> None:
        for place, message in enumerate(self.log):
            if self.chance(2):
                fields = {name: getattr(message, name) for name in message.__struct_fields__}
                self.log[place] = Message(**fields | {"content": f"[folded: m{message.seq}]"})


def _object(call: Call) -> Any:
    try:
        return json.loads(call.arguments)
    except ValueError:
        return {}
