"""SWE-agent trajectories (`*.traj`) and mini-swe-agent trajectories (`*.traj.json`), each one JSON document.

SWE-agent: `{"trajectory": [step…], "history": [message…], "info": …}`. The history is the conversation; the steps
repeat it with times and states and are kept. Without a history, replies and observations are taken from the steps.

mini-swe-agent: `{"info": …, "messages": […], "trajectory_format": …}`. Commands stay in the text of the assistant and
their output in that of the user, as the model saw them. The tool calls of newer versions become calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orihon.ops.formats._common import Parsed, RecordPath, first_text, make_message
from orihon.ops.formats.openai import parse_conversation, parse_messages
from orihon.ops.formats.session_file import SessionFile

_LISTS = ("history", "trajectory")


def matches(file: SessionFile) -> bool:
    """Return whether the file is a SWE-agent trajectory."""
    value = file.document if file.is_document else None
    if not isinstance(value, dict) or not isinstance(value.get("trajectory"), list):
        return False
    return "info" in value or "history" in value


def matches_mini(file: SessionFile) -> bool:
    """Return whether the file is a mini-swe-agent trajectory."""
    value = file.document if file.is_document else None
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    info = value.get("info")
    is_named = str(value.get("trajectory_format", "")).startswith("mini-swe-agent")
    return is_named or (isinstance(info, dict) and ("mini_version" in info or "exit_status" in info))


def parse(file: SessionFile) -> Iterator[Iterator[Parsed]]:
    """Yield the one session of a SWE-agent trajectory."""
    yield _parse_trajectory(file.document if isinstance(file.document, dict) else {})


def parse_mini(file: SessionFile) -> Iterator[Iterator[Parsed]]:
    """Yield the one session of a mini-swe-agent trajectory."""
    yield parse_conversation([], file.document, "messages")


def _parse_trajectory(document: dict[str, Any]) -> Iterator[Parsed]:
    if not document:
        return
    lists = {name: document[name] for name in _LISTS if isinstance(document.get(name), list)}
    yield Parsed([([], document | {name: [] for name in lists})])
    yield from parse_messages([(["history", index], item) for index, item in enumerate(lists.get("history", []))])
    for index, step in enumerate(lists.get("trajectory", [])):
        yield _parse_step(["trajectory", index], step, is_shown=not lists.get("history"))


def _parse_step(path: RecordPath, step: Any, *, is_shown: bool) -> Parsed:
    reply, observation = first_text(step, "response", "thought", "action"), first_text(step, "observation")
    messages = [make_message("assistant", reply)] if reply else []
    messages += [make_message("user", observation)] if observation else []
    return Parsed([(path, step)], messages if is_shown else [])
