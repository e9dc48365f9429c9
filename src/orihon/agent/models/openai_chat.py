"""OpenAI's chat completions, and every server with that API: Ollama, LM Studio, vLLM, llama.cpp, gateways.

Servers differ in the name of the reply's limit, and in whether they know usage in streams and answers by a schema; the
client learns this from their refusals.
"""

from __future__ import annotations

from typing import Any, ClassVar

import openai

from orihon.agent.models.client import NO_KEY, RemoteModel, Request
from orihon.agent.models.errors import make_missing_key_error
from orihon.context.streams import ChatAccumulator
from orihon.task.window import Window


class OpenAIChat(RemoteModel):
    """One model of one server."""

    dialect = "openai"
    refusable: ClassVar = {
        "max_tokens": ("max_completion_tokens",),
        "stream_options": ("stream_options",),
        "schema": ("response_format", "json_schema"),
    }
    renamed: ClassVar = {"max_tokens": "max_completion_tokens"}
    always: ClassVar = {"stream_options": {"include_usage": True}}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        options = self.client_options()
        try:
            self.client = openai.OpenAI(**options)
        except openai.OpenAIError:
            if not self.section.base_url:
                raise make_missing_key_error(self.provider) from None
            self.client = openai.OpenAI(**options | {"api_key": NO_KEY})
        self.provider = self.provider.with_keys(self.client.api_key)
        if not self.section.base_url:  # newer models of OpenAI refuse it; other servers do not know the new name
            self.refused.add("max_tokens")

    def render(self, window: Window) -> Request:
        return {"messages": window.openai()}

    def render_schema(self, schema: dict[str, Any]) -> Request:
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}

    def send(self, body: Request) -> Any:
        return self.client.chat.completions.create(stream=True, **body)

    def make_accumulator(self) -> ChatAccumulator:
        return ChatAccumulator()
