"""The next fold, made while the model thinks.

A fold of a large window takes a fifth of a second, a turn a few milliseconds. So when a window is handed out that is
nearly full, a thread folds it at once and lays out the window that follows. The stand-ins are stored, and mean nothing
yet; the next window only says that they count from now on. Until then nothing looks different: whoever asks for the
same window again, also after a crash, gets the same one. A fold that was not made ahead is made when it must be.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from orihon import heap
from orihon.context.frame import Report
from orihon.task import summaries
from orihon.task.config import Summariser
from orihon.task.endings import Endings
from orihon.task.history import History

AHEAD = 0.03  # of the limit, before `fold_at`: a few turns
LEAST_TOKENS = 20_000  # a smaller window is folded in no time
HAND_OVER_SECONDS = 0.1
HEAD_START_SECONDS = 0.005

MADE_FOR = ("ranges", "folds", "summaries", "pins", "sticky")  # of a view: what a batch of folds depends on


class Prepared(NamedTuple):
    """A batch of folds that is stored and does not count yet."""

    last: int  # message that was the newest one then
    made_for: tuple[Any, ...]
    event: dict[str, Any]
    reasons: tuple[str, ...]
    then: History  # when it counts


class FoldAhead(Endings):
    """A task that folds before it must."""

    summariser: Summariser | None
    _prepared: Prepared | None = None

    def fold_ahead(self, report: Report) -> None:
        """Let a thread make the next fold, if there will be one soon; whoever needs the task next waits for it."""
        nearly = (self.frozen.fold_at - AHEAD) * report.limit
        if self._prepared is None and report.limit >= LEAST_TOKENS and report.tokens > nearly:
            begun: SimpleQueue[None] = SimpleQueue()
            threading.Thread(target=self._fold_now, args=(begun,), name="orihon-fold", daemon=True).start()
            with suppress(Empty):  # when somebody else has the lock, it is made after him
                begun.get(timeout=HAND_OVER_SECONDS)

    def _fold_now(self, begun: SimpleQueue[None]) -> None:
        with self.lock:
            begun.put(None)
            time.sleep(HEAD_START_SECONDS)  # whoever got the window sends it first, and does not wait for us
            try:
                self._prepared = self._made_ahead()
            except Exception as error:  # noqa: BLE001 - it is made, or fails, when it must be
                self.log.warning("The next fold could not be made ahead: %s", error)
        heap.clear_up()

    def _made_ahead(self) -> Prepared | None:
        made = self._laid_by() if self.row.status == "running" else None
        if made is None:
            return None
        event, reasons = made
        history = self.history
        return Prepared(history.last, _made_for(history), event, reasons, history.once_folded(event))

    def _laid_by(self) -> tuple[dict[str, Any], tuple[str, ...]] | None:
        """Store the next batch of folds: the event that will make it count, and why it was made."""
        composed = self.history.composed(ahead=AHEAD)
        if composed.batch is None:
            return None
        if self.summariser is not None and summaries.kept_by(self, composed.batch.hidden) is not None:
            return None  # a summary should stand for what it leaves out
        event = self.lay_by(composed.batch)
        self.lease.sync()  # now, and not when somebody waits for the next window
        return event, composed.report.reasons

    def use_prepared(self) -> tuple[str, ...]:
        """Let what was made ahead count from here on, if it still fits; why it was made."""
        prepared = self._prepared
        if prepared is None or prepared.last == self.history.last:
            return ()  # nothing was said since: it is the same window as before
        self._prepared = None
        if prepared.made_for != _made_for(self.history):
            return ()
        self.event("folds", **prepared.event)
        self.history.lay_out(prepared.then)
        return prepared.reasons


def _made_for(history: History) -> tuple[Any, ...]:
    view = history.view
    return (history.frozen, view.tangents, *(getattr(view.state, name) for name in MADE_FOR))
