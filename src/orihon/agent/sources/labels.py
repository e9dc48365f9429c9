"""Which labels come and go with an outcome.

| outcome                       | added           | removed                                        |
|---|---|---|
| queued                        | the bot's label | every other label of ours                      |
| processing                    | processing      | every other label of ours, the bot's included  |
| done, failed, paused, stopped | its own         | every other label of ours, but not the bot's   |

The bot's label stays at the end because somebody put it there while the task ran: it asks for another run. It is never
there otherwise, since `processing` takes it away.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from orihon.agent.sources.base import Outcome
from orihon.settings.schema import Forge


class Change(NamedTuple):
    """Labels to add and to remove, as they are spelled."""

    add: tuple[str, ...]
    remove: tuple[str, ...]


def label_of(forge: Forge, outcome: Outcome) -> str:
    """The label that stands for an outcome."""
    label: str = forge.bot_label if outcome == "queued" else getattr(forge, f"{outcome}_label")
    return label


def change(forge: Forge, present: Iterable[str], outcome: Outcome) -> Change:
    """What has to change so that the present labels say this; nothing if they do."""
    spelled = {label.casefold(): label for label in present}
    ours = {label_of(forge, one).casefold() for one in _ALL}
    wanted = label_of(forge, outcome)
    if outcome not in {"queued", "processing"}:
        ours.discard(forge.bot_label.casefold())
    ours.discard(wanted.casefold())
    return Change(
        add=() if wanted.casefold() in spelled else (wanted,),
        remove=tuple(label for folded, label in spelled.items() if folded in ours),
    )


_ALL: tuple[Outcome, ...] = ("queued", "processing", "done", "failed", "paused", "stopped")
