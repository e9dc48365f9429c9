"""The session files of other agents. A format is a pair of functions: one recognises a file, the other parses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from orihon.errors import UsageError
from orihon.ops.formats import claude, codex, openai, openhands, swe_agent
from orihon.ops.formats._common import Parsed
from orihon.ops.formats.session_file import SessionFile


class SessionFormat(NamedTuple):
    """One format of session files."""

    matches: Callable[[SessionFile], bool]
    parse: Callable[[SessionFile], Iterator[Iterator[Parsed]]]  # the records of each session


# the more specific ones first: a mini-swe-agent trajectory is also a document with messages
SESSIONS = {
    "claude-code": SessionFormat(claude.matches, claude.parse),
    "codex": SessionFormat(codex.matches, codex.parse),
    "mini-swe-agent": SessionFormat(swe_agent.matches_mini, swe_agent.parse_mini),
    "swe-agent": SessionFormat(swe_agent.matches, swe_agent.parse),
    "openhands": SessionFormat(openhands.matches, openhands.parse),
    "openai": SessionFormat(openai.matches, openai.parse),
}


def detect_format(file: SessionFile) -> str:
    """Return the name of the format, recognised by the content of the file."""
    for name, session_format in SESSIONS.items():
        if session_format.matches(file):
            return name
    raise UsageError(
        f"{file.path} has no format that can be imported.",
        hint=f"These can: portable, {', '.join(SESSIONS)}. `--format` forces one of them.",
    )
