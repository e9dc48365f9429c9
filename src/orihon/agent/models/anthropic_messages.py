"""Anthropic's Messages API."""

from __future__ import annotations

from typing import Any, ClassVar

import anthropic

from orihon.agent.models.client import RemoteModel, Request
from orihon.agent.models.errors import make_missing_key_error
from orihon.context.streams import MessageAccumulator
from orihon.task.window import Window

MAX_TOKENS = 4096  # the API requires a limit


class AnthropicMessages(RemoteModel):
    """One model of Anthropic, or of a gateway with its API."""

    dialect = "anthropic"
    refusable: ClassVar = {"schema": ("output_config", "schema")}
    always: ClassVar = {"max_tokens": MAX_TOKENS}

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        try:
            self.client = client = anthropic.Anthropic(**self.client_options())
        except anthropic.AnthropicError:  # the environment names a profile that cannot be read
            raise make_missing_key_error(self.provider) from None
        if client.api_key is None and client.auth_token is None and client.credentials is None:
            client.close()
            raise make_missing_key_error(self.provider)
        self.provider = self.provider.with_keys(client.api_key, client.auth_token)

    def render(self, window: Window) -> Request:
        return window.anthropic()

    def render_schema(self, schema: dict[str, Any]) -> Request:
        return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}

    def send(self, body: Request) -> Any:
        return self.client.messages.create(stream=True, **body)

    def make_accumulator(self) -> MessageAccumulator:
        return MessageAccumulator()
