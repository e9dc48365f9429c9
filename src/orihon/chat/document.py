"""A conversation as one JSON document, which can be loaded as a new conversation.

It has the fields of the specification's conversation state except `tool_manager` and `agents`, which are rebuilt at run
time. `model`, which older documents have instead of `model_info`, is only written if it was read. Unknown fields are
kept, and any field that can be empty may be missing. The document contains pictures; it does not contain hidden
messages. An entry of its history is a pair of a user turn and a reply:

    {"user": {"content": {"Prompt": {"prompt": "…"}}, "timestamp": "…"},
     "assistant": {"ToolUse": {"message_id": "m2", "content": "…", "tool_uses": [{"id", "name", "args", …}]}},
     "request_metadata": {…}}
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal
from uuid import UUID

import msgspec

from orihon import codec
from orihon.chat import file_tracker, registry
from orihon.chat.conversation import (
    LOADED,
    NEXT,
    STEPS,
    TURN,
    USAGE_FIELDS,
    Conversation,
    HistoryEntry,
    Notify,
    UserTurn,
    format_message,
    loaded_fields,
)
from orihon.coerce import decode_json
from orihon.context.ranges import upto
from orihon.context.view import State
from orihon.engine import Engine
from orihon.errors import NotFound, StoreError, UsageError
from orihon.records import Call, Message, Part, Raw, Usage
from orihon.stores.files import open_file
from orihon.task.messages import parse_message

Json = dict[str, Any]
_OneKey = msgspec.Meta(min_length=1, max_length=1)

FORMAT, VERSION = "orihon-conversation", 1
UNKNOWN = "document"  # the note with fields that this version does not know
MODEL_INFO = "model_info"  # the note with what a loaded document said of its model
MAX_BYTES = 512 * 1024 * 1024
MAX_UNKNOWN_BYTES = 64 * 1024
NO_TOOLS = "\n[Tool uses: none]"  # behind an answer in the transcripts of Amazon Q CLI
LOOK_AHEAD = 100  # transcript entries among which the next message is searched
_NOT_READ = (
    *("format", "name", "agents", "tool_manager", "tools", "conversation_id", "context_message_length"),
    "checkpoint_manager",
)


# writing


def write(conversation: Conversation, path: Path, parts: Json | None = None) -> int:
    """Write the document atomically, for its owner only, and return the number of entries.

    `parts` are fields that the conversation does not know, from `ConversationFiles.export`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        fd = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(fd, "wb") as file:
            count = _write(conversation, file, parts or {})
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"The conversation cannot be saved: {error}.", hint="Choose another path.") from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    return count


def _write(conversation: Conversation, file: BinaryIO, parts: Json) -> int:
    state, config = conversation.state, conversation.task.config
    count = covered = 0
    waiting: UserTurn | None = None
    last_covered = state.summary.ranges[-1][1] if state.summary else 0
    file.write(b'{"format":"%s","version":%d,"history":[' % (FORMAT.encode(), VERSION))
    for entry in conversation.entries(with_blobs=True):
        if isinstance(entry, UserTurn):
            waiting = entry
            continue
        file.write((b",\n" if count else b"\n") + msgspec.json.encode(_export_entry(entry)))
        count += 1
        covered += entry.assistant.seq <= last_covered
    fields = {
        "conversation_id": conversation.conversation_id,
        "name": conversation.name,
        "next_message": _export_next(conversation.next_message) or (_export_turn(waiting) if waiting else None),
        "valid_history_range": (covered, count),
        "transcript": conversation.transcript,
        "latest_summary": _export_summary(conversation, state),
        "tangent_state": _export_tangents(conversation),
        "model_info": conversation.notes.get(MODEL_INFO, {})
        | {
            "model_id": config.model,
            "provider": config.llm_provider,
            "context_window_tokens": config.context_length,
            "max_output_tokens": config.reserved_output,
        },
        "mcp_enabled": conversation.mcp_enabled,
        **parts,
        **conversation.notes.get(UNKNOWN, {}),
    }
    fields = msgspec.to_builtins({name: value for name, value in fields.items() if value is not None})
    file.write(b"],\n" + msgspec.json.encode(conversation.task.writer.sanitiser.value(fields))[1:])
    return count


def _export_next(text: str | None) -> Json | None:
    return {"content": {"Prompt": {"prompt": text}}} if text is not None else None


def _export_summary(conversation: Conversation, state: State) -> tuple[str, Json] | None:
    summary = conversation.find_summary(state)
    if summary is None:
        return None
    counts = {"original_tokens": summary.original_tokens, "summary_tokens": summary.summary_tokens}
    return summary.summary, counts | {"model_id": summary.model, "timestamp": summary.timestamp}


def _count_covered(entries: Iterable[HistoryEntry], state: State) -> int:
    """Return how many of the entries the summary of a state stands for."""
    last = state.summary.ranges[-1][1] if state.summary else 0
    return sum(entry.assistant.seq <= last for entry in entries)


def _export_tangents(conversation: Conversation) -> Json | None:
    """Return the main conversation as it was when the innermost tangent began, which contains the outer ones."""
    value: Json | None = None
    for tangent in conversation.tangents:
        ranges = upto(tangent.state.ranges, tangent.after)
        waiting = tangent.state.notes.get(NEXT)
        entries = list(conversation.pairs(ranges, with_blobs=True))
        value = {
            "main_history": [_export_entry(entry) for entry in entries],
            "main_valid_history_range": (_count_covered(entries, tangent.state), len(entries)),
            "main_next_message": _export_next(waiting["text"] if waiting else None),
            "main_transcript": [text for _, text in conversation.read_transcript(ranges=ranges)],
            "main_latest_summary": _export_summary(conversation, tangent.state),
            "tangent_start_time": tangent.timestamp,
        } | ({"tangent_state": value} if value else {})
    return value


def _export_entry(entry: HistoryEntry) -> Json:
    """Return the document form of an entry."""
    message = entry.assistant
    reply: Json = {"message_id": loaded_fields(message).get("message_id", f"m{message.seq}"), "content": message.text}
    if message.tool_calls:
        reply["tool_uses"] = [_export_call(call) for call in message.tool_calls]
    value = {"user": _export_turn(entry.user), "assistant": {"ToolUse" if message.tool_calls else "Response": reply}}
    return value | ({"request_metadata": entry.request_metadata} if entry.request_metadata else {})


def _export_turn(turn: UserTurn) -> Json:
    """Return the document form of a user turn."""
    results = [_export_result(message) for message in turn.results]
    newest = (*turn.results, *turn.prompts)[-1:]
    context = ""
    content: Json = {"Prompt": {"prompt": turn.prompt}}
    if turn.is_cancelled:
        content = {"CancelledToolUses": {"prompt": turn.prompt or None, "tool_use_results": results}}
    elif results:
        context, content = turn.prompt, {"ToolUseResults": {"tool_use_results": results}}
    timestamp = loaded_fields(newest[0]).get("timestamp", newest[0].timestamp) if newest else None
    value = {"additional_context": context, "timestamp": timestamp, "content": content}
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


# reading


class _ToolUse(msgspec.Struct):
    id: str | None = None
    name: str | None = None
    orig_name: str | None = None
    args: Any = None


class _Reply(msgspec.Struct):
    message_id: str | None = None
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


class _Turn(msgspec.Struct):
    """A user turn in a document."""

    content: Annotated[dict[Literal["Prompt", "ToolUseResults", "CancelledToolUses"], _TurnContent], _OneKey]
    additional_context: str | None = None
    timestamp: str | None = None
    images: list[_Picture] | None = None

    @property
    def text(self) -> str | None:
        """The prompt, if the turn has nothing else."""
        content = self.content.get("Prompt")
        return None if content is None or self.images or self.additional_context else content.prompt

    def messages(self) -> Iterator[Message]:
        """Make the messages to append: the tool results, then the prompt. The last one has the time of the turn."""
        messages = list(self._messages())
        yield from messages[:-1]
        if messages:
            yield _keep(messages[-1], timestamp=self.timestamp)

    def _messages(self) -> Iterator[Message]:
        (content,) = self.content.values()
        for result in content.tool_use_results or ():
            yield _import_result(result)
        prompt = "\n\n".join(text for text in (content.prompt, self.additional_context) if text)
        pictures = [Part(**msgspec.structs.asdict(picture)) for picture in self.images or ()]
        if pictures:
            yield parse_message("user", [Part(type="text", text=prompt), *pictures] if prompt else pictures)
        elif prompt:
            yield parse_message("user", prompt)


class _Entry(msgspec.Struct):
    """An entry in a document."""

    user: _Turn
    assistant: Annotated[dict[Literal["Response", "ToolUse"], _Reply], _OneKey]
    request_metadata: Json | None = None

    def messages(self) -> Iterator[Message]:
        """Make the messages to append: the user turn, then the reply."""
        yield from self.user.messages()
        (reply,) = self.assistant.values()
        metadata = self.request_metadata or {}
        calls = [_import_call(use) for use in reply.tool_uses or ()]
        counts = {name: metadata[name] for name in USAGE_FIELDS if name in metadata}
        is_valid = counts and all(isinstance(count, int) and count >= 0 for count in counts.values())
        usage = Usage(**counts) if is_valid else None
        message = parse_message("assistant", reply.content or "", tool_calls=calls, usage=usage)
        yield _keep(message, message_id=reply.message_id, request_metadata=self.request_metadata)


def _keep(message: Message, **fields: Any) -> Message:
    """Return a message with fields of the document that it has no place for."""
    known = {name: value for name, value in fields.items() if value is not None}
    return msgspec.structs.replace(message, raw=Raw(value={LOADED: known}) if known else None)


class _Tangent(msgspec.Struct):
    main_history: list[_Entry]
    main_valid_history_range: tuple[int, int] | None = None
    main_next_message: _Turn | None = None
    main_latest_summary: tuple[str, Any] | None = None
    tangent_start_time: str = ""
    tangent_state: _Tangent | None = None


class _ModelInfo(msgspec.Struct):
    model_id: str | None = None
    provider: str | None = None
    context_window_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None

    @property
    def options(self) -> Json:
        """The options of a task for this model."""
        options = {
            "model": self.model_id,
            "llm_provider": self.provider,
            "context_length": self.context_window_tokens,
            "reserved_output": self.max_output_tokens,
        }
        return {name: value for name, value in options.items() if value is not None}


class _ContextManager(msgspec.Struct):
    paths: list[str] = []


class _Document(msgspec.Struct):
    history: list[_Entry]
    conversation_id: str = ""
    version: int = VERSION
    next_message: _Turn | None = None
    valid_history_range: tuple[int, int] | None = None
    transcript: list[str] | None = None
    latest_summary: tuple[str, Any] | None = None
    model: str | None = None
    model_info: _ModelInfo | None = None
    mcp_enabled: bool = True
    context_manager: _ContextManager | None = None
    file_line_tracker: Json | None = None
    tangent_state: _Tangent | None = None


def read(
    engine: Engine, path: Path, directory: Path, *, name: str = "", notify: Notify | None = None, **options: Any
) -> Conversation:
    """Start a new conversation that continues where the document ends."""
    value = _read_json(path)
    try:
        document = msgspec.convert(value, _Document)
    except msgspec.ValidationError as error:
        raise _make_error(path, f"is not a conversation: {error}") from error
    if document.version > VERSION:
        raise _make_error(path, f"has version {document.version}; this Orihon reads up to {VERSION}")
    model = {"model": document.model} if document.model else {}
    options = (document.model_info.options if document.model_info else model) | options
    if _is_free(engine, document.conversation_id):
        options |= {"uuid": document.conversation_id}
    conversation = registry.start(
        engine, directory, name=name, mcp_enabled=document.mcp_enabled, notify=notify, **options
    )
    try:
        _fill(conversation, document)
        known = {*_Document.__struct_fields__, *_NOT_READ}
        unknown = {field: value[field] for field in value if field not in known or (field == "model" and value[field])}
        if document.model_info and len(msgspec.json.encode(value["model_info"])) <= MAX_UNKNOWN_BYTES:
            conversation.set_notes(**{MODEL_INFO: value["model_info"]})
        if unknown and len(msgspec.json.encode(unknown)) <= MAX_UNKNOWN_BYTES:
            conversation.set_notes(**{UNKNOWN: unknown})
    except BaseException:
        conversation.task.writer.lease.close()
        with suppress(StoreError):  # a failed load leaves nothing behind
            engine.store.delete(conversation.conversation_id)
        raise
    return conversation


def _is_free(engine: Engine, conversation_id: str) -> bool:
    """Return whether a loaded conversation can keep its id: it is a UUID, and no task of this store has it."""
    try:
        return str(UUID(conversation_id)) == conversation_id and not engine.store.row(conversation_id)
    except ValueError:
        return False
    except NotFound:
        return True


def _read_json(path: Path) -> Json:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise _make_error(path, f"is larger than {MAX_BYTES:,} bytes")
        value = decode_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _make_error(path, f"cannot be read: {error}") from error
    if not codec.depth_fits(value):
        raise _make_error(path, "is nested too deeply")
    if not isinstance(value, dict):
        raise _make_error(path, "is not a conversation")
    return value


def _make_error(path: Path, problem: str) -> UsageError:
    return UsageError(f"{path.name!a} {problem}.", hint="Give a file that `/save` wrote.")


def _fill(conversation: Conversation, document: _Document) -> None:
    loader = _Loader(conversation, document.transcript or [])
    tangents: list[_Tangent] = []  # the outermost first
    tangent = document.tangent_state
    while tangent is not None:
        tangents.insert(0, tangent)
        tangent = tangent.tangent_state
    previous: list[_Entry] = []
    for tangent in tangents:
        loader.replace_history(previous, tangent.main_history)
        previous = tangent.main_history
        _add_summary(conversation, tangent.main_latest_summary, tangent.main_valid_history_range)
        loader.add_next(tangent.main_next_message)
        conversation.enter_tangent(began=tangent.tangent_start_time)
        conversation.drop_next()  # it waits in the main conversation
    loader.replace_history(previous, document.history)
    _add_summary(conversation, document.latest_summary, document.valid_history_range)
    loader.add_next(document.next_message)
    loader.add_remaining_errors()
    if document.context_manager and document.context_manager.paths:
        conversation.task.sticky({}, declared=document.context_manager.paths)
    if document.file_line_tracker:
        file_tracker.save(conversation, document.file_line_tracker)
    conversation.set_notes(**{TURN: sum(message.role == "user" for message in conversation.messages()), STEPS: 0})


def _add_summary(conversation: Conversation, summary: tuple[str, Any] | None, valid: tuple[int, int] | None) -> None:
    """Let the summary stand for the entries before the valid range; if there are none, append it as a message."""
    text = summary[0] if summary else ""
    current = conversation.find_summary(conversation.state)
    if not text.strip() or (current is not None and current.summary == text):
        return
    start = valid[0] if valid else 0
    last = max((entry.assistant.seq for entry in islice(conversation.pairs(), max(0, start))), default=0)
    if last:
        conversation.add_summary(text, last, summary[1] if summary and isinstance(summary[1], dict) else None)
    else:
        conversation.task.add("user", text)


class _Loader:
    """Appends the messages of a document, and the errors of its transcript between them."""

    def __init__(self, conversation: Conversation, transcript: list[str]) -> None:
        self.conversation, self.task = conversation, conversation.task
        self._transcript = [text.removesuffix(NO_TOOLS) for text in transcript]
        self._index = 0
        self._tools: dict[str, str] = {}  # the names of the last tool calls, by id

    def replace_history(self, old: list[_Entry], new: list[_Entry]) -> None:
        """Rewind to the last entry that both histories share, and append the rest of the new one."""
        shared = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        if shared < len(old):
            kept = list(islice(self.conversation.pairs(), shared))
            self.task.rewind(kept[-1].assistant.seq if kept else 0)
        for entry in new[shared:]:
            self.append(entry.messages())

    def append(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._add_errors_before(format_message(message))
            self._tools = {call.id: call.name for call in message.tool_calls} or self._tools
            self.task.add(
                message.role,
                message.content,
                tool_calls=message.tool_calls or None,
                tool_call_id=message.tool_call_id,
                tool_name=self._tools.get(message.tool_call_id or ""),
                is_error=message.is_error,
                usage=message.usage,
                raw=message.raw.value if message.raw is not None else None,
            )

    def add_next(self, turn: _Turn | None) -> None:
        """Keep a message that was not sent. One with results or pictures is sent, because only a text can wait."""
        if turn is not None and turn.text is not None:
            self.conversation.set_next(turn.text)
        elif turn is not None:
            self.append(turn.messages())

    def _add_errors_before(self, text: str) -> None:
        """Add the transcript entries before this one, which are errors."""
        ahead = self._transcript[self._index : self._index + LOOK_AHEAD]
        if text in ahead:
            self._add_errors(ahead[: ahead.index(text)])
            self._index += 1

    def add_remaining_errors(self) -> None:
        self._add_errors(self._transcript[self._index :])

    def _add_errors(self, messages: list[str]) -> None:
        for message in messages:
            self.conversation.add_error(message)
        self._index += len(messages)


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
    return parse_message("tool", "\n".join(texts), tool_call_id=result.tool_use_id or "", is_error=failed)
