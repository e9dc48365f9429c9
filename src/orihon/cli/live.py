"""What a run does, on standard error: one line that changes on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Self

from orihon.agent.loop import Step
from orihon.agent.tools.approval import escape_question
from orihon.cli.output import say, say_line
from orihon.cli.progress import Progress

MAX_CHARS = 160


class Live(Progress):
    """Watches a run."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__()
        self.quiet = quiet
        self._where, self._doing = "", ""
        self._lock = threading.RLock()

    def watch(self, step: Step) -> None:
        """Something happened."""
        if self.quiet or step.kind == "text":
            return
        with self._lock:
            if step.kind == "turn":
                self._where, self._doing = _turn(step), "the model answers"
            elif step.kind in {"call", "note"}:
                self._doing = _line(step.text)
            elif step.is_error:
                self._doing = f"failed: {_line(step.text)}"
            if self._wanted:
                if step.kind == "note" or step.is_error:
                    self._keep(self._doing)
                self._shown_at = 0.0  # at once
                self.show(" · ".join(filter(None, (self._where, self._doing))))
            elif step.kind == "turn":
                say_line(self._where, err=True)
            elif step.kind in {"call", "note"} or step.is_error:
                say_line(f"  {self._doing}" if step.kind != "note" else self._doing, err=True)

    def ask(self, question: str) -> bool:
        """A question about what the model wants to do."""
        return self._answer(f"{question}\nAllow this? [y/N] ").lower() in {"y", "yes"}

    def ask_user(self, questions: Sequence[str]) -> str | None:
        """Questions of the model's; None when there is no answer."""
        return self._answer("\n".join([*map(escape_question, questions), "> "])) or None

    @property
    def can_ask(self) -> bool:
        """Whether somebody is there."""
        return self._wanted and sys.stdin is not None and sys.stdin.isatty()

    def _answer(self, question: str) -> str:
        self.clear()
        say(question, err=True, nl=False)
        return sys.stdin.readline().strip()

    def _keep(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        say_line(text, err=True)

    def __enter__(self) -> Self:
        return self


def _turn(step: Step) -> str:
    """`execution · turn 3 · 4,500 of 128,000 tokens (system 300, messages 4,200) · 2 folded`."""
    sources = ", ".join(f"{name} {tokens:,}" for name, tokens in step.by_source.items() if tokens)
    size = f"{step.tokens:,} of {step.limit:,} tokens" + (f" ({sources})" if sources else "")
    folded = f"{step.folded:,} folded" if step.folded else ""
    return " · ".join(filter(None, (step.phase, f"turn {step.turn}", size, folded)))


def _line(text: str) -> str:
    shown = " ".join(escape_question(text).split())
    return shown if len(shown) <= MAX_CHARS else f"{shown[: MAX_CHARS - 1]}…"
