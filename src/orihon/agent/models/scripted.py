"""`scripted:FILE`: a model that gives the replies of a JSON or YAML file, and reports unused and missing ones.

`orihon.testing.model` describes the file. A reply such as `{"status": 400, "error": "prompt is too long"}` is the
failure that a provider would report with this message.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orihon.agent.models import OnText
from orihon.agent.models.errors import is_overflow
from orihon.errors import ContextOverflow, ScriptError, UsageError
from orihon.task.window import Window
from orihon.testing.model import Refused, ScriptedModel


class ScriptedReplies:
    """A script as a model of the agent."""

    def __init__(self, path: str | Path) -> None:
        if not str(path):
            raise UsageError("No script is named.", hint="Use `scripted:FILE`.")
        self.name = f"scripted:{path}"
        self.script = ScriptedModel(Path(path))

    def reply(self, window: Window, *, on_text: OnText | None = None) -> dict[str, Any]:
        """Return the next reply of the script."""
        reply = self._take_reply(window.openai(), window.tools() or None)
        text = reply["choices"][0]["message"].get("content")
        if on_text is not None and text:
            on_text(text)
        return reply

    def ask(self, prompt: str, *, schema: dict[str, Any] | None = None) -> str:
        """Return the next reply as a text. Raise ScriptError if a schema is given and it is not JSON."""
        reply = self._take_reply([{"role": "user", "content": prompt}], None)
        text = str(reply["choices"][0]["message"].get("content") or "")
        if schema is not None:
            try:
                json.loads(text)
            except ValueError as error:
                message = f"Reply {self.script.used} of the script must be JSON, and is {text[:80]!a}."
                raise ScriptError(message) from error
        return text

    def begin_after(self, replies: int) -> None:
        """Skip the replies that an earlier process has used, and the failures among and after them."""
        for index, reply in enumerate(self.script.replies):
            is_failure = isinstance(reply, dict) and "error" in reply
            if not replies and not is_failure:
                self.script.used = index
                return
            replies -= not is_failure
        self.script.used = len(self.script.replies)

    def close(self) -> None:
        """Raise ScriptError for unused replies and for requests that got none."""
        self.script.close()

    def _take_reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> dict[str, Any]:
        try:
            return self.script(messages, tools=tools)
        except Refused as refused:
            if is_overflow(refused.message):
                raise ContextOverflow(refused.message) from refused
            raise
