"""Who allows what: everything that changes something is asked for, or only what is not an edit, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal

from orihon.agent.tools.diff import whole_lines
from orihon.agent.tools.edit import Change
from orihon.errors import ToolError, UsageError
from orihon.terminal import printable

Approve = Literal["ask", "edits", "all"]
Kind = Literal["edit", "run"]
Ask = Callable[[str], bool]

MAX_CHARS = 4000
HINT = "Start it with --approve edits or --approve all, or where somebody can answer."


class Approval:
    """What may happen without a question, and whom to ask about the rest."""

    def __init__(self, approve: Approve, ask: Ask | None = None) -> None:
        if approve not in {"ask", "edits", "all"}:
            raise UsageError(f"approve cannot be {approve!a}.", hint="It is `ask`, `edits` or `all`.")
        self.approve: Approve = approve
        self._ask = ask

    def check(self, kind: Kind, name: str, what: str) -> None:
        """Go on when it is allowed; a ToolError says to the model that it is not."""
        if self.approve == "all" or (self.approve == "edits" and kind == "edit"):
            return
        ask = self._ask or _at_the_terminal()
        if ask is None:
            raise ToolError(f"Nobody is there to allow {name}, so it was not done.", hint=HINT)
        if not ask(escape_question(what)):
            raise ToolError(f"The user did not allow {name}. Do not try it again; ask what to do instead.", hint=HINT)

    def check_change(self, name: str, change: Change) -> None:
        """As above, for a change of a file; what is shown is the difference."""
        verb = "Make" if change.old is None else "Change"
        self.check(
            "edit", f"{name} of {change.path}", f"{verb} {change.path}?\n{whole_lines(change.old or b'', change.new)}"
        )


def escape_question(text: str) -> str:
    """A question that cannot move the cursor, turn the writing round or hide a part of itself."""
    more = f"\n… and {len(text) - MAX_CHARS:,} more characters" if len(text) > MAX_CHARS else ""
    return printable(text[:MAX_CHARS]) + more


def _at_the_terminal() -> Ask | None:
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr and sys.stderr.isatty()):
        return None

    def ask(question: str) -> bool:
        sys.stderr.write(f"{question}\nAllow this? [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    return ask
