"""`scripted:FILE`: a model that gives the replies of a JSON or YAML file, and complains of what was unused or missing.

What may stand in the file is said in `orihon.testing.model`. A reply such as `{"status": 400, "error": "prompt is too
long"}` is the failure that a provider would have reported with these words.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orihon.agent.models.base import Tell
from orihon.agent.models.overflow import is_overflow
from orihon.errors import ContextOverflow, ScriptError, UsageError
from orihon.task.window import Window
from orihon.testing.model import Refused, ScriptedModel


class ScriptedReplies:
    """A script as a model of the agent's."""

    def __init__(self, path: str | Path) -> None:
        if not str(path):
            raise UsageError("No script is named.", hint="Say `scripted:FILE`.")
        self.name = f"scripted:{path}"
        self.script = ScriptedModel(Path(path))

    def reply(self, window: Window, *, on_text: Tell | None = None) -> dict[str, Any]:
        """The next reply of the script."""
        reply = self._next(window.openai(), window.tools() or None)
        text = reply["choices"][0]["message"].get("content")
        if on_text is not None and text:
            on_text(text)
        return reply

    def ask(self, prompt: str, *, schema: dict[str, Any] | None = None) -> str:
        """The next reply as a text; with a schema it has to be JSON."""
        text = str(
            self._next([{"role": "user", "content": prompt}], None)["choices"][0]["message"].get("content") or ""
        )
        if schema is not None:
            try:
                json.loads(text)
            except ValueError as error:
                sentence = f"Reply {self.script.used} of the script is asked for as JSON, and is {text[:80]!a}."
                raise ScriptError(sentence) from error
        return text

    def begin_after(self, calls: int) -> None:
        """Go on where an earlier process ended: after so many replies, and the failures among and behind them."""
        for place, reply in enumerate(self.script.replies):
            is_failure = isinstance(reply, dict) and "error" in reply
            if not calls and not is_failure:
                self.script.used = place
                return
            calls -= not is_failure
        self.script.used = len(self.script.replies)

    def close(self) -> None:
        """Complain of replies that were not used, and of requests that got none."""
        self.script.close()

    def _next(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> dict[str, Any]:
        try:
            return self.script(messages, tools=tools)
        except Refused as refused:
            if is_overflow(refused.message):
                raise ContextOverflow(refused.message) from refused
            raise
