"""What a command of the shell sees of our environment: all but the secrets.

A variable is left out when its name says that it holds a secret (`OPENAI_API_KEY`, `DB_PASSWORD`), or when its value
looks like one (a token of a known shape, a URL with a password). Mail addresses stay, because git needs them.
"""

from __future__ import annotations

from collections.abc import Mapping

from orihon.redaction import looks_secret, mask, masks_in

# No pager, no colours, no questions: nobody sits at this terminal.
QUIET = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


def reduced(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command."""
    return {name: value for name, value in environ.items() if not _is_secret(name, value)} | QUIET


def _is_secret(name: str, value: str) -> bool:
    if looks_secret(name):
        return True
    line = f"{name}={value}"
    return bool(masks_in(mask(line)) - masks_in(line) - {"[EMAIL]"})
