"""The snapshot: goal, completed actions, current phase and key observations. It is small and shown next to the summary.

The caller updates parts of it, and tools that ran update it automatically. Lists are capped: the newest eight actions
are named, the others are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from orihon.terminal import shorten

MAX_ACTIONS = 8
MAX_OBSERVATIONS = 8
MAX_CHARS = 500


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a task is."""

    goal: str = ""
    completed_actions: tuple[str, ...] = ()
    current_phase: str = ""
    key_observations: tuple[str, ...] = ()
    earlier_actions: int = 0
    earlier_observations: int = 0

    def __bool__(self) -> bool:
        return self != Snapshot()


def from_data(data: dict[str, Any]) -> Snapshot:
    """Return the snapshot in a view, without fields of a wrong type."""
    known = {name: data[name] for name in Snapshot.__struct_fields__ if name in data}
    try:
        return msgspec.convert(known, Snapshot)
    except msgspec.ValidationError:
        return Snapshot()


def merge_snapshot(
    snapshot: Snapshot,
    *,
    goal: str | None = None,
    completed_actions: list[str] | None = None,
    current_phase: str | None = None,
    key_observations: list[str] | None = None,
    max_actions: int = MAX_ACTIONS,
) -> Snapshot:
    """Return the snapshot with some fields replaced."""
    if isinstance(completed_actions, str) or isinstance(key_observations, str):
        raise TypeError("actions and observations are lists of texts")
    if isinstance(goal, Mapping) or isinstance(current_phase, Mapping):  # since Python 3.12 a slice can be a key
        raise TypeError("the goal and the phase are texts")
    if completed_actions is not None:
        snapshot = msgspec.structs.replace(snapshot, completed_actions=(), earlier_actions=0)
    if key_observations is not None:
        snapshot = msgspec.structs.replace(snapshot, key_observations=(), earlier_observations=0)
    for action in completed_actions or ():
        snapshot = acted(snapshot, action, max_actions=max_actions)
    for observation in key_observations or ():
        snapshot = observed(snapshot, observation)
    return msgspec.structs.replace(
        snapshot,
        goal=shorten(snapshot.goal if goal is None else goal, MAX_CHARS),
        current_phase=shorten(snapshot.current_phase if current_phase is None else current_phase, MAX_CHARS),
    )


def acted(snapshot: Snapshot, action: str, *, max_actions: int = MAX_ACTIONS) -> Snapshot:
    """Return the snapshot with one more completed action."""
    actions = (*snapshot.completed_actions, shorten(action, MAX_CHARS))
    dropped = max(0, len(actions) - max_actions)
    return msgspec.structs.replace(
        snapshot, completed_actions=actions[dropped:], earlier_actions=snapshot.earlier_actions + dropped
    )


def observed(snapshot: Snapshot, observation: str) -> Snapshot:
    """Return the snapshot with one more observation."""
    observations = (*snapshot.key_observations, shorten(observation, MAX_CHARS))
    dropped = max(0, len(observations) - MAX_OBSERVATIONS)
    return msgspec.structs.replace(
        snapshot,
        key_observations=observations[dropped:],
        earlier_observations=snapshot.earlier_observations + dropped,
    )


def render_snapshot(snapshot: Snapshot, language: str = "en") -> str:
    """Return the snapshot as the model reads it; an empty text if it is empty."""
    if not snapshot:
        return ""
    words = _WORDS[language]
    lines = [words["title"]]
    lines += [f"- {words[name]}: {value}" for name in ("goal", "current_phase") if (value := getattr(snapshot, name))]
    for name, earlier in (
        ("completed_actions", snapshot.earlier_actions),
        ("key_observations", snapshot.earlier_observations),
    ):
        if values := getattr(snapshot, name):
            more = f" ({words['earlier'].format(earlier)})" if earlier else ""
            lines.append(f"- {words[name]}{more}: {'; '.join(values)}")
    return "\n".join(lines)


_WORDS = {
    "en": {
        "title": "State of the task:",
        "goal": "Goal",
        "current_phase": "Current phase",
        "completed_actions": "Completed actions",
        "key_observations": "Key observations",
        "earlier": "and {:,} earlier",
    },
    "ja": {
        "title": "タスクの状況:",
        "goal": "目標",
        "current_phase": "現在のフェーズ",
        "completed_actions": "完了したアクション",
        "key_observations": "重要な観察事項",
        "earlier": "以前に {:,} 件",
    },
}
