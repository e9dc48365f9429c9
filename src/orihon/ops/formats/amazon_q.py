"""Amazon Q CLI: one JSON document with a `history` of user turns and replies, as `/save` writes it.

A turn of the user is a prompt, results of tools, or results that were cancelled. A reply is a text, or a text with
calls. Older versions have each entry as a list of the two. The transcript is not read: it repeats the history, with a
line such as `[Tool uses: none]` behind each answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from orihon.codec import clean_value
from orihon.ops.formats.session_file import (
    Parsed,
    SessionFile,
    SessionReader,
    first_text,
    get_dict,
    make_call,
    make_message,
    parse_time,
)
from orihon.records import Message

_TURNS = ("Prompt", "ToolUseResults", "CancelledToolUses")


class AmazonQReader(SessionReader):
    """Reads the entries of a conversation."""

    @classmethod
    def matches(cls, file: SessionFile) -> bool:
        history = file.document.get("history") if file.is_document and isinstance(file.document, dict) else None
        if not isinstance(history, list) or not history or "format" in file.document:
            return False  # a document with a format was saved by Orihon
        user, reply = _split(history[0])
        return any(name in get_dict(user, "content") for name in _TURNS) and bool(
            {"Response", "ToolUse"} & reply.keys()
        )

    def read(self, file: SessionFile) -> Iterator[Parsed]:
        """Yield the document without its history, then each entry."""
        document = file.document
        if not isinstance(document, dict) or not isinstance(document.get("history"), list):
            return
        yield Parsed([([], document | {"history": []})])
        for index, entry in enumerate(document["history"]):
            user, reply = _split(entry)
            metadata = get_dict(entry, "request_metadata")
            messages = [*self._parse_turn(user), *self._parse_reply(reply, user.get("timestamp"), metadata)]
            yield Parsed([(["history", index], entry)], messages)

    def _parse_turn(self, user: dict[str, Any]) -> Iterator[Message]:
        content, time = get_dict(user, "content"), user.get("timestamp")
        name = next((name for name in _TURNS if name in content), "")
        turn = get_dict(content, name)
        results = turn.get("tool_use_results")
        for result in results if isinstance(results, list) else ():
            if isinstance(result, dict):
                failed = name == "CancelledToolUses" or str(result.get("status", "")).lower() == "error"
                call_id, text = result.get("tool_use_id"), _parse_blocks(result.get("content"))
                yield self.make_result(call_id, text, is_error=failed, time=time)
        prompt = "\n\n".join(filter(None, (first_text(turn, "prompt"), first_text(user, "additional_context"))))
        if prompt:
            yield make_message("user", prompt, timestamp=parse_time(time))

    def _parse_reply(self, reply: dict[str, Any], time: Any, metadata: dict[str, Any]) -> Iterator[Message]:
        value = get_dict(reply, "ToolUse") or get_dict(reply, "Response")
        uses = value.get("tool_uses")
        calls = [
            make_call(use.get("id"), first_text(use, "orig_name", "name"), use.get("orig_args", use.get("args")))
            for use in (uses if isinstance(uses, list) else ())
            if isinstance(use, dict)
        ]
        text, model = first_text(value, "content"), first_text(metadata, "model_id") or None
        if text or calls:
            fields = {"tool_calls": self.add_calls(calls), "model": model, "timestamp": parse_time(time)}
            yield make_message("assistant", text, **fields)


def _split(entry: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the turn and the reply of an entry; of what is none, two empty ones."""
    if isinstance(entry, list) and len(entry) == 2 and all(isinstance(part, dict) for part in entry):  # noqa: PLR2004
        return entry[0], entry[1]
    return get_dict(entry, "user"), get_dict(entry, "assistant")


def _parse_blocks(blocks: Any) -> str:
    """Return the texts of a result; a JSON block as JSON."""
    texts = []
    for block in blocks if isinstance(blocks, list) else [blocks]:
        if isinstance(block, dict) and isinstance(block.get("Text"), str):
            texts.append(block["Text"])
        elif isinstance(block, dict) and "Json" in block:
            texts.append(msgspec.json.encode(clean_value(block["Json"])).decode())
        elif isinstance(block, str):
            texts.append(block)
    return "\n".join(texts)
