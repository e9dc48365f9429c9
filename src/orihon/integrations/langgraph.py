"""LangChain and LangGraph: middleware that folds the messages of every model call.

    middleware = OrihonMiddleware("logs/contexts", context_length=128_000)
    agent = create_agent(model, tools, middleware=[middleware], checkpointer=checkpointer)
    agent.invoke({"messages": [("user", "hello")]}, {"configurable": {"thread_id": "user:1"}})

The state of the graph is not changed. The window follows the messages that are about to be sent, so it is right after
edits and removals of the state, and it sends LangChain's own objects for all that it shows whole.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, SystemMessage, ToolMessage, convert_to_messages
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.config import get_config

from orihon.context import wire
from orihon.errors import UsageError
from orihon.integrations.sessions import Schema, Sessions, Store, counted_tools, fold
from orihon.records import Message
from orihon.task.task import Task

_ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "function": "tool", "system": "system"}


class OrihonMiddleware(AgentMiddleware):
    """The window of each thread. `options` are those of `engine.session`, such as `context_length` and `model`.

    The session has the id of the thread, or `id`. With `lookups` the agent gets the tools `unfold` and `recall`, and
    the model can look at what is folded.
    """

    def __init__(self, store: Store, *, id: str | None = None, lookups: bool = True, **options: Any) -> None:
        super().__init__()
        self._id, self._sessions = id, Sessions(store, **options)
        functions = self._sessions.lookups(self._session_id) if lookups else []
        self.tools: list[BaseTool] = [StructuredTool.from_function(function) for function in functions]

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Send the window instead of all messages."""
        shown = self._sessions.call(self._session_id(), lambda task: _fold(task, request), tools=_tools(request))
        return handler(request.override(messages=shown))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Send the window instead of all messages."""
        shown = await self._sessions.call_in_thread(
            self._session_id(), lambda task: _fold(task, request), tools=_tools(request)
        )
        return await handler(request.override(messages=shown))

    def close(self) -> None:
        """Close the store, if it was opened here."""
        self._sessions.close()

    def _session_id(self) -> str:
        thread = self._id or get_config().get("configurable", {}).get("thread_id")
        if not thread:
            raise UsageError(
                "The middleware does not know which conversation this is.",
                hint='Give `id`, or run the agent with {"configurable": {"thread_id": …}}.',
            )
        return str(thread)


def _fold(task: Task, request: ModelRequest[Any]) -> list[AnyMessage]:
    prompt = request.system_message or SystemMessage("")  # it is counted, and sent beside the messages
    own: list[Any] = [prompt, *request.messages]
    shown = fold(task, [_item(message) for message in own], own, api="openai", render=lambda made: _render(task, made))
    return [message for message in shown if message is not prompt]


def _item(message: BaseMessage) -> dict[str, Any]:
    """Return a message of LangChain's as one of a chat completion."""
    item: dict[str, Any] = {"role": _ROLES.get(message.type, "user"), "content": message.content}
    if isinstance(message, ToolMessage):
        item |= {"tool_call_id": message.tool_call_id, "name": message.name}
    elif isinstance(message, AIMessage):
        item |= {"content": str(message.text), "tool_calls": [_call(call) for call in message.tool_calls]}
        if thoughts := _thoughts(message):
            item["reasoning_content"] = thoughts
    return item


def _call(call: Any) -> dict[str, Any]:
    arguments = json.dumps(call["args"], ensure_ascii=False)
    return {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": arguments}}


def _thoughts(message: AIMessage) -> str:
    """Return the reasoning of a reply, which is counted."""
    blocks = message.content if isinstance(message.content, list) else []
    named = (block.get("thinking") or block.get("reasoning") for block in blocks if isinstance(block, dict))
    return "\n".join(text for text in named if isinstance(text, str))


def _render(task: Task, messages: list[Message]) -> list[Any]:
    return list(convert_to_messages(wire.openai(messages, load=task.log.load)))


def _tools(request: ModelRequest[Any]) -> list[Schema]:
    return counted_tools([convert_to_openai_tool(tool) for tool in request.tools])
