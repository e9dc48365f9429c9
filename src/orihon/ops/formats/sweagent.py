"""SWE-agent's trajectories (`*.traj`): `{"trajectory": [step…], "history": [message…], "info": …}`.

The history is the conversation, as the model saw it. The steps say the same again with times and states; they are
kept. A file without a history has its replies and observations taken from the steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orihon.ops.formats.openai import chat_said
from orihon.ops.formats.origin import At, Said
from orihon.ops.formats.saying import saying, text_in
from orihon.ops.formats.source import SessionFile

_LISTS = ("history", "trajectory")


def fits(file: SessionFile) -> bool:
    """Whether it is such a document."""
    value = file.document if file.is_document else None
    return (
        isinstance(value, dict) and isinstance(value.get("trajectory"), list) and bool({"info", "history"} & set(value))
    )


def sessions(file: SessionFile) -> Iterator[Iterator[Said]]:
    """The one session of the document."""
    yield _said(file.document if isinstance(file.document, dict) else {})


def _said(document: dict[str, Any]) -> Iterator[Said]:
    if not document:
        return
    lists = {name: document[name] for name in _LISTS if isinstance(document.get(name), list)}
    yield Said([([], document | {name: [] for name in lists})])
    yield from chat_said([(["history", place], item) for place, item in enumerate(lists.get("history", []))])
    for place, step in enumerate(lists.get("trajectory", [])):
        yield _step(["trajectory", place], step, shown=not lists.get("history"))


def _step(at: At, step: Any, *, shown: bool) -> Said:
    texts = [("assistant", text_in(step, "response", "thought", "action")), ("user", text_in(step, "observation"))]
    return Said([(at, step)], [saying(role, text) for role, text in texts if text and shown])  # type: ignore[arg-type]
