"""mini-swe-agent's trajectories (`*.traj.json`): `{"info": …, "messages": […], "trajectory_format": …}`.

Commands stand in the text of the assistant, and their output in that of the user, as the model saw them; they stay so.
Newer versions have tool calls, which are calls here.
"""

from __future__ import annotations

from collections.abc import Iterator

from orihon.ops.formats.openai import conversation_said
from orihon.ops.formats.origin import Said
from orihon.ops.formats.source import SessionFile


def fits(file: SessionFile) -> bool:
    """Whether it is such a document."""
    value = file.document if file.is_document else None
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    info = value.get("info")
    named = str(value.get("trajectory_format", "")).startswith("mini-swe-agent")
    return named or (isinstance(info, dict) and ("mini_version" in info or "exit_status" in info))


def sessions(file: SessionFile) -> Iterator[Iterator[Said]]:
    """The one session of the document."""
    yield conversation_said([], file.document, "messages")
