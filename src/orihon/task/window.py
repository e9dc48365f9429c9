"""What the model gets: the messages of one request in any provider's format, the tools, and a report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orihon.context import wire
from orihon.context.frame import Report
from orihon.records import Blob, Message


class Window:
    """The messages to send now; valid, and inside the budget."""

    def __init__(
        self,
        messages: list[Message],
        report: Report,
        *,
        schemas: list[dict[str, Any]],
        model: str,
        load: Callable[[Blob], bytes],
        reserved_output: int = 0,
    ) -> None:
        self.messages = messages
        self.report = report
        self.reserved_output = reserved_output  # tokens that were left free for the reply
        self._schemas, self._model, self._load = schemas, model, load

    def openai(self) -> list[dict[str, Any]]:
        """The `messages` of a chat completion, for OpenAI and all that speak like it."""
        return wire.openai(self.messages, model=self._model, load=self._load)

    def responses(self) -> list[dict[str, Any]]:
        """The `input` of OpenAI's Responses."""
        return wire.responses(self.messages, model=self._model, load=self._load)

    def anthropic(self) -> dict[str, Any]:
        """`system` and `messages` of Anthropic's Messages, with cache marks."""
        return wire.anthropic(self.messages, model=self._model, load=self._load)

    def gemini(self) -> dict[str, Any]:
        """`systemInstruction` and `contents` of Gemini."""
        return wire.gemini(self.messages, model=self._model, load=self._load)

    def tools(self, api: str = "openai") -> list[dict[str, Any]]:
        """The caller's tools with `unfold` and `recall`, as the API wants them described."""
        return wire.tools(self._schemas, api)

    @property
    def tokens(self) -> int:
        """What the messages cost by the counter of the task."""
        return self.report.tokens
