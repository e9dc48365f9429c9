"""The session files of other agents that can be imported. `session_file.SessionReader` is what a format implements."""

from __future__ import annotations

from orihon.errors import UsageError
from orihon.ops.formats import amazon_q, claude, codex, messages, openhands
from orihon.ops.formats.session_file import SessionFile, SessionReader

# the more specific ones first: a mini-swe-agent trajectory is also a document with messages
SESSIONS: dict[str, type[SessionReader]] = {
    "claude-code": claude.ClaudeReader,
    "codex": codex.CodexReader,
    "mini-swe-agent": messages.MiniSweAgentReader,
    "swe-agent": messages.SweAgentReader,
    "amazon-q": amazon_q.AmazonQReader,
    "openhands": openhands.OpenhandsReader,
    "openai": messages.OpenaiReader,
}


def detect_format(file: SessionFile) -> str:
    """Return the name of the format, recognised by the content of the file."""
    for name, reader in SESSIONS.items():
        if reader.matches(file):
            return name
    raise UsageError(
        f"{file.path} has no format that can be imported.",
        hint=f"These can: portable, {', '.join(SESSIONS)}. `--format` forces one of them.",
    )
