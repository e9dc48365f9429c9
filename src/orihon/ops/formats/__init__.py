"""The session files of other agents, in, and the forms that a task can be read in, out.

A format of session files is a module with two functions: `fits(file)`, which knows it by its content, and
`sessions(file)`, which gives the records of each session with the messages that they make.
"""

from __future__ import annotations

from types import ModuleType

from orihon.errors import UsageError
from orihon.ops.formats import claude, codex, miniswe, openai, openhands, sweagent
from orihon.ops.formats.source import SessionFile

# the more peculiar ones first: a trajectory of mini-swe-agent is also a document with messages in it
SESSIONS: dict[str, ModuleType] = {
    "claude-code": claude,
    "codex": codex,
    "mini-swe-agent": miniswe,
    "swe-agent": sweagent,
    "openhands": openhands,
    "openai": openai,
}


def format_of(file: SessionFile) -> str:
    """The name of the format, by the content of the file."""
    for name, module in SESSIONS.items():
        if module.fits(file):
            return name
    sentence = f"{file.path} is none of the files that can be imported."
    raise UsageError(sentence, hint=f"These can: portable, {', '.join(SESSIONS)}. `--format` forces one of them.")
