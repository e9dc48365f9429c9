"""The history as pairs of a user turn and a reply, and the form of these pairs in a conversation document.

    {"user": {"content": {"Prompt": {"prompt": "…"}}, "timestamp": "…"},
     "assistant": {"ToolUse": {"message_id": "m2", "content": "…", "tool_uses": [{"id", "name", "args", …}]}},
     "request_metadata": {…}}

The pairs are read from the log and stored nowhere else. A user turn is a prompt, the results of the previous reply's
tool calls, or both. A document may leave out any field that can be empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec

from orihon.coerce import decode_json
from orihon.records import Call, Message, Part, Usage
from orihon.task.messages import message_of

CANCELLED = "Tool use was cancelled by the user"
EMPTY_PROMPT = "Empty prompt"
_USAGE_FIELDS = tuple(name for name in Usage.__struct_fields__ if name != "unknown")

Json = dict[str, Any]
_OneKey = msgspec.Meta(min_length=1, max_length=1)


class UserTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The user side of an entry: prompts and tool results."""

    prompts: tuple[Message, ...] = ()
    results: tuple[Message, ...] = ()

    @property
    def prompt(self) -> str:
        """The text of all prompts."""
        return "\n\n".join(message.text for message in self.prompts)

    @property
    def is_cancelled(self) -> bool:
        """Whether the user cancelled a tool call."""
        return any(message.is_error and message.text == CANCELLED for message in self.results)


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A user turn and the reply to it."""

    user: UserTurn
    assistant: Message

    @property
    def request_metadata(self) -> Json | None:
        """The model and the usage of the reply's request."""
        usage = self.assistant.usage
        if usage is None:
            return None
        counts = {name: getattr(usage, name) for name in _USAGE_FIELDS}
        return {"message_id": f"m{self.assistant.seq}", "model_id": self.assistant.model, **counts}


def pair_messages(messages: Iterable[Message]) -> Iterator[HistoryEntry | UserTurn]:
    """Group messages into entries. A user turn without a reply comes last."""
    prompts: list[Message] = []
    results: list[Message] = []
    for message in messages:
        if message.role == "user":
            prompts.append(message)
        elif message.role == "tool":
            results.append(message)
        elif message.role == "assistant":
            yield HistoryEntry(user=UserTurn(prompts=tuple(prompts), results=tuple(results)), assistant=message)
            prompts, results = [], []
    if prompts or results:
        yield UserTurn(prompts=tuple(prompts), results=tuple(results))


def format_message(message: Message) -> str:
    """Return the transcript entry of a message; empty for system messages and tool results."""
    if message.role == "user":
        return "\n".join(f"> {line}" for line in message.text.splitlines() or [""])
    if message.role != "assistant":
        return ""
    names = ", ".join(call.name for call in message.tool_calls)
    return "\n".join(part for part in (message.text, f"[Tool uses: {names}]" if names else "") if part)


# writing a document


def export_entry(entry: HistoryEntry) -> Json:
    """Return the document form of an entry."""
    message = entry.assistant
    reply: Json = {"message_id": f"m{message.seq}", "content": message.text}
    if message.tool_calls:
        reply["tool_uses"] = [_export_call(call) for call in message.tool_calls]
    value = {"user": export_turn(entry.user), "assistant": {"ToolUse" if message.tool_calls else "Response": reply}}
    return value | ({"request_metadata": entry.request_metadata} if entry.request_metadata else {})


def export_turn(turn: UserTurn) -> Json:
    """Return the document form of a user turn."""
    results = [_export_result(message) for message in turn.results]
    newest = (*turn.results, *turn.prompts)[-1:]
    context = ""
    content: Json = {"Prompt": {"prompt": turn.prompt}}
    if turn.is_cancelled:
        content = {"CancelledToolUses": {"prompt": turn.prompt or None, "tool_use_results": results}}
    elif results:
        context, content = turn.prompt, {"ToolUseResults": {"tool_use_results": results}}
    value = {"additional_context": context, "timestamp": newest[0].timestamp if newest else None, "content": content}
    pictures = [
        {"type": "image", "media_type": part.media_type, "data": part.data, "url": part.url}
        for message in turn.prompts
        for part in (message.content if isinstance(message.content, list) else ())
        if part.type == "image"
    ]
    return value | ({"images": pictures} if pictures else {})


def _export_call(call: Call) -> Json:
    try:
        args = decode_json(call.arguments or "{}")
    except ValueError:
        args = call.arguments
    return {"id": call.id, "name": call.name, "orig_name": call.name, "args": args, "orig_args": args}


def _export_result(message: Message) -> Json:
    texts = [message.content] if isinstance(message.content, str) else [part.text for part in message.content]
    return {
        "tool_use_id": message.tool_call_id,
        "content": [{"Text": text} for text in texts if text is not None],
        "status": "Error" if message.is_error else "Success",
    }


# reading a document


class _ToolUse(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    orig_name: str | None = None
    args: Any = None


class _Reply(msgspec.Struct):
    content: str | None = None
    tool_uses: list[_ToolUse] | None = None


class _ToolResult(msgspec.Struct):
    tool_use_id: str | None = None
    content: Any = None
    status: str | None = None


class _TurnContent(msgspec.Struct):
    prompt: str | None = None
    tool_use_results: list[_ToolResult] | None = None


class _Picture(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["image"]
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class DocumentTurn(msgspec.Struct):
    """A user turn in a document."""

    content: Annotated[dict[Literal["Prompt", "ToolUseResults", "CancelledToolUses"], _TurnContent], _OneKey]
    additional_context: str | None = None
    images: list[_Picture] | None = None

    def messages(self) -> Iterator[Message]:
        """Make the messages to append: the tool results, then the prompt."""
        (content,) = self.content.values()
        for result in content.tool_use_results or ():
            yield _import_result(result)
        prompt = "\n\n".join(text for text in (content.prompt, self.additional_context) if text)
        pictures = [Part(**msgspec.structs.asdict(picture)) for picture in self.images or ()]
        if pictures:
            yield message_of("user", [Part(type="text", text=prompt), *pictures] if prompt else pictures)
        elif prompt:
            yield message_of("user", prompt)


class DocumentEntry(msgspec.Struct):
    """An entry in a document."""

    user: DocumentTurn
    assistant: Annotated[dict[Literal["Response", "ToolUse"], _Reply], _OneKey]
    request_metadata: Json | None = None

    def messages(self) -> Iterator[Message]:
        """Make the messages to append: the user turn, then the reply."""
        yield from self.user.messages()
        (reply,) = self.assistant.values()
        metadata = self.request_metadata or {}
        calls = [_import_call(use) for use in reply.tool_uses or ()]
        counts = {name: metadata[name] for name in _USAGE_FIELDS if name in metadata}
        is_valid = counts and all(isinstance(count, int) and count >= 0 for count in counts.values())
        usage = Usage(**counts) if is_valid else None
        yield message_of("assistant", reply.content or "", tool_calls=calls, usage=usage)


def _import_call(use: _ToolUse) -> Call:
    args = use.args if isinstance(use.args, str) else msgspec.json.encode({} if use.args is None else use.args).decode()
    return Call(id=use.id or "", name=use.orig_name or use.name or "", arguments=args)


def _import_result(result: _ToolResult) -> Message:
    blocks = result.content if isinstance(result.content, list) else [result.content or ""]
    texts = []
    for block in blocks:
        kind, value = next(iter(block.items()), ("Text", "")) if isinstance(block, dict) else ("Text", block)
        texts.append(str(value) if kind == "Text" else msgspec.json.encode(value).decode())
    failed = (result.status or "").lower() == "error"
    return message_of("tool", "\n".join(texts), tool_call_id=result.tool_use_id or "", is_error=failed)
