"""pydantic-ai: a capability that folds the messages of every model request.

    agent = Agent(model, capabilities=[OrihonWindow("logs/contexts", context_length=128_000)])
    result = await agent.run("hello", conversation_id="user:1")
    result = await agent.run("and?", message_history=result.all_messages())

The history of the run is not changed. The window follows the messages that are about to be sent, and sends the
framework's own objects for all that it shows whole: signed thinking is intact.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Literal

import pydantic_core
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.toolsets import AgentToolset, FunctionToolset

from orihon.integrations.sessions import Schema, Sessions, Store, counted_tools, fold
from orihon.records import Message
from orihon.task.task import Task

Block = dict[str, Any]


class OrihonWindow(AbstractCapability[Any]):
    """The window of each conversation. `options` are those of `engine.session`, such as `context_length` and `model`.

    The session has the `conversation_id` of the run, or `id`. With `lookups` the agent gets the tools `unfold` and
    `recall`, so that the model can look at what is folded.
    """

    def __init__(self, store: Store, *, id: str | None = None, lookups: bool = True, **options: Any) -> None:
        super().__init__()
        self._session, self._lookups, self._sessions = id, lookups, Sessions(store, **options)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send the window instead of all messages."""
        parameters = request_context.model_request_parameters
        instructions = "\n\n".join(part.content for part in parameters.instruction_parts or ())
        shown = await self._sessions.call_in_thread(
            self._session_id(ctx),
            lambda task: _fold(task, instructions, request_context.messages),
            tools=counted_tools([_schema(tool) for tool in parameters.function_tools]),
        )
        return replace(request_context, messages=shown)

    def get_toolset(self) -> AgentToolset[Any] | None:
        """Return the tools `unfold` and `recall`."""
        if not self._lookups:
            return None
        unfolding, recalling = self._sessions.lookups(lambda: "")

        def unfold(ctx: RunContext[Any], handle: str, lines: str = "") -> str:
            return self._sessions.lookups(lambda: self._session_id(ctx))[0](handle, lines)

        def recall(ctx: RunContext[Any], query: str, of: Literal["task", "previous"] = "task") -> str:
            return self._sessions.lookups(lambda: self._session_id(ctx))[1](query, of)

        unfold.__doc__, recall.__doc__ = unfolding.__doc__, recalling.__doc__
        return FunctionToolset([unfold, recall])

    def close(self) -> None:
        """Close the store, if it was opened here."""
        self._sessions.close()

    def _session_id(self, ctx: RunContext[Any]) -> str:
        return self._session or str(ctx.conversation_id)


def _fold(task: Task, instructions: str, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    prompt: Any = ModelRequest([])  # stands for the instructions, which are counted, and sent beside the messages
    items: list[Block] = [{"role": "system", "content": instructions}, *map(_item, messages)]
    shown = fold(task, items, [prompt, *messages], api="anthropic", render=_render)
    return [message for message in shown if message is not prompt]


# messages of the framework, as Anthropic has them: one message holds results and words


def _item(message: ModelMessage) -> Block:
    if isinstance(message, ModelResponse):
        return {"role": "assistant", "content": [_said(part) for part in message.parts]}
    return {"role": "user", "content": [block for part in message.parts for block in _asked(part)]}


def _said(part: Any) -> Block:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.content}
    if isinstance(part, ThinkingPart):
        return {"type": "thinking", "thinking": part.content, "signature": part.signature or ""}
    if isinstance(part, ToolCallPart):
        arguments = part.args if isinstance(part.args, str) and not _is_object(part.args) else part.args_as_dict()
        return {"type": "tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": arguments}
    return {"type": "opaque", "data": pydantic_core.to_jsonable_python(part)}


def _is_object(text: str) -> bool:
    try:
        return isinstance(pydantic_core.from_json(text), dict)
    except ValueError:
        return False


def _asked(part: Any) -> list[Block]:
    if isinstance(part, ToolReturnPart):
        return [{"type": "tool_result", "tool_use_id": part.tool_call_id, "content": part.model_response_str()}]
    if isinstance(part, RetryPromptPart) and part.tool_name:
        said = part.model_response()
        return [{"type": "tool_result", "tool_use_id": part.tool_call_id, "content": said, "is_error": True}]
    if isinstance(part, UserPromptPart) and not isinstance(part.content, str):
        return [_shown(content) for content in part.content]
    return [{"type": "text", "text": str(getattr(part, "content", part))}]


def _shown(content: Any) -> Block:
    if isinstance(content, BinaryContent):
        kind = "image" if content.is_image else "file"
        return {"type": kind, "media_type": content.media_type, "data": base64.b64encode(content.data).decode()}
    if isinstance(content, ImageUrl):
        return {"type": "image_url", "image_url": {"url": content.url}}
    return {"type": "text", "text": str(getattr(content, "content", getattr(content, "url", content)))}


# what the engine made, as messages of the framework


def _render(messages: list[Message]) -> list[ModelMessage]:
    rendered: list[ModelMessage] = []
    for is_reply, group in groupby(messages, key=lambda message: message.role == "assistant"):
        if is_reply:
            rendered += map(_reply, group)
        else:
            rendered.append(ModelRequest([_part(message) for message in group]))
    return rendered


def _reply(message: Message) -> ModelResponse:
    calls = [ToolCallPart(call.name, call.arguments, tool_call_id=call.id) for call in message.tool_calls]
    said = [TextPart(message.text)] if message.text else []
    return ModelResponse([*said, *calls], timestamp=_time(message))


def _part(message: Message) -> ModelRequestPart:
    if message.role == "tool":
        tool, call_id = message.tool_name or "tool", message.tool_call_id or ""
        return ToolReturnPart(tool, message.text, call_id, timestamp=_time(message))
    return UserPromptPart(message.text, timestamp=_time(message))


def _time(message: Message) -> datetime:
    """Return when a message was stored, so that what is made of it is equal in each request."""
    return datetime.fromisoformat(message.timestamp) if message.timestamp else datetime.fromtimestamp(0, UTC)


def _schema(tool: Any) -> Schema:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}
    return {"type": "function", "function": function}
