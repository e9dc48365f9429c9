"""What the model may do without a question: nothing that changes something, only edits, or everything."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal

from orihon.agent.tools.diff import render_full_lines
from orihon.agent.tools.files import Change
from orihon.errors import ToolError, UsageError
from orihon.terminal import escape

Approve = Literal["ask", "edits", "all"]
Kind = Literal["edit", "run"]
Ask = Callable[[str], bool]

MAX_CHARS = 4000
HINT = "Start it with --approve edits or --approve all, or from a terminal where the question can be answered."


class Approval:
    """Asks the user about actions that are not allowed in general."""

    def __init__(self, approve: Approve, ask: Ask | None = None) -> None:
        if approve not in {"ask", "edits", "all"}:
            raise UsageError(f"approve cannot be {approve!a}.", hint="It is `ask`, `edits` or `all`.")
        self.approve: Approve = approve
        self._ask = ask

    def check(self, kind: Kind, name: str, question: str) -> None:
        """Return if the action is allowed. Raise ToolError for the model if it is not."""
        if self.approve == "all" or (self.approve == "edits" and kind == "edit"):
            return
        is_terminal = sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()
        ask = self._ask or (_ask_terminal if is_terminal else None)
        if ask is None:
            raise ToolError(f"There is no one to allow {name}, so it was not done.", hint=HINT)
        if not ask(escape_question(question)):
            raise ToolError(f"The user did not allow {name}. Do not try it again; ask what to do instead.", hint=HINT)

    def check_change(self, name: str, change: Change) -> None:
        """Check the change of a file; the question shows the difference."""
        verb = "Create" if change.old is None else "Change"
        question = f"{verb} {change.path}?\n{render_full_lines(change.old or b'', change.new)}"
        self.check("edit", f"{name} of {change.path}", question)


def escape_question(text: str) -> str:
    """Return a question that cannot move the cursor, reverse the text or hide a part of itself."""
    omitted = f"\n… and {len(text) - MAX_CHARS:,} more characters" if len(text) > MAX_CHARS else ""
    return escape(text[:MAX_CHARS]) + omitted


def _ask_terminal(question: str) -> bool:
    sys.stderr.write(f"{question}\nAllow this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
