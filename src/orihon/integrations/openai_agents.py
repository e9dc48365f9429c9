"""OpenAI Agents SDK: a session that Orihon keeps, and a filter that folds the input of every model call.

    session = OrihonSession("user:1", "logs/contexts")
    window = OrihonWindow("user:1", "logs/contexts", context_length=128_000)
    await Runner.run(agent, "hello", session=session, run_config=RunConfig(call_model_input_filter=window))

The two do not need each other. The session stores items; what it returns is masked where the store masks. The window
follows the input that the SDK is about to send, so it is right under every limit, callback and handoff, and it sends
the SDK's own items for all that it shows whole.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

from agents import FunctionTool, Tool, function_tool
from agents.items import TResponseInputItem
from agents.memory import SessionABC, SessionSettings
from agents.memory.session_settings import coerce_session_settings
from agents.run_config import CallModelData, ModelInputData

from orihon.context import wire
from orihon.errors import UsageError
from orihon.integrations.sessions import Schema, Sessions, Store, counted_tools, fold
from orihon.records import Message
from orihon.task.task import Task

T = TypeVar("T")
Items = list[TResponseInputItem]


class OrihonSession(SessionABC):
    """The items of one conversation. `options` are those of `engine.session`, such as `wait` and `user`."""

    def __init__(
        self,
        session_id: str,
        store: Store,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.session_id = session_id
        self.session_settings = coerce_session_settings(
            SessionSettings() if session_settings is None else session_settings
        )
        self._sessions = Sessions(store, **options)

    async def get_items(self, limit: int | None = None) -> Items:
        """Return the newest items, the oldest of them first."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return await self._call(lambda task: _newest(task, limit))

    async def add_items(self, items: Items) -> None:
        """Store items. Each survives `kill -9` when this returns."""
        await self._call(lambda task: _add(task, items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Hide the newest item and return it. The log keeps it."""
        return await self._call(_pop)

    async def clear_session(self) -> None:
        """Hide all items. The log keeps them."""
        await self._call(lambda task: task.rewind(0, exact=True))

    def close(self) -> None:
        """Refuse further calls, and close the store if it was opened here."""
        self._sessions.close()

    async def _call(self, function: Callable[[Task], T]) -> T:
        if self._sessions.is_closed:
            raise RuntimeError(f"{type(self).__name__} is closed")
        return await self._sessions.call_in_thread(self.session_id, function)


class OrihonWindow:
    """A `call_model_input_filter`. `options` are those of `engine.session`, such as `context_length` and `model`.

    Give the agent `window.tools()` too, and the model can unfold what is folded and search in it.
    """

    def __init__(self, id: str, store: Store, **options: Any) -> None:
        self._id, self._sessions = f"{id} (window)", Sessions(store, **options)

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the input of a model call, folded so that it fits into the window."""
        given = data.model_data
        tools = counted_tools([schema for tool in data.agent.tools for schema in _schemas(tool)])
        shown = await self._sessions.call_in_thread(
            self._id, lambda task: _fold(task, given.instructions, given.input), tools=tools
        )
        return ModelInputData(input=shown, instructions=given.instructions)

    def tools(self) -> list[Tool]:
        """Return `unfold` and `recall` for the tools of an agent."""
        return [function_tool(function) for function in self._sessions.lookups(lambda: self._id)]

    def close(self) -> None:
        """Refuse further calls, and close the store if it was opened here."""
        self._sessions.close()


def _newest(task: Task, limit: int | None) -> Items:
    stored = task.log.backwards(task.log.view.state.ranges)
    return [task.log.raw(message) for message in islice(stored, None if limit is None else max(0, limit))][::-1]


def _add(task: Task, items: Items) -> None:
    for item in items:
        try:
            task.extend([item], api="responses", raw=True)  # one by one, so that each can be popped
        except UsageError:  # an item of a kind that is no message: it is only kept
            task.add("user", "", raw=item)


def _pop(task: Task) -> Any:
    newest = next(task.log.backwards(task.log.view.state.ranges), None)
    if newest is None:
        return None
    task.rewind(newest.seq - 1, exact=True)
    return task.log.raw(newest)


def _fold(task: Task, instructions: str | None, items: Items) -> Items:
    def render(messages: list[Message]) -> Items:
        return wire.responses(messages, load=task.log.load)  # type: ignore[return-value]

    prompt: Any = {"role": "system", "content": instructions or ""}  # it is counted, and sent beside the items
    own = [prompt, *items]
    shown = fold(task, [_plain(item) for item in own], own, api="responses", render=render)
    return [item for item in shown if item is not prompt]


def _plain(item: Any) -> Any:
    return item.model_dump(mode="json", exclude_none=True) if hasattr(item, "model_dump") else item


def _schemas(tool: Tool) -> list[Schema]:
    if not isinstance(tool, FunctionTool):
        return []  # the provider runs it
    function = {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
    return [{"type": "function", "function": function}]
