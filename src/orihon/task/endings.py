"""How a task ends, or waits: each outcome once, in an order that a crash cannot confuse (see `lifecycle`)."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import msgspec

from orihon import codec
from orihon.coerce import text_or_none
from orihon.errors import StoreError
from orihon.task import hooks as hooking
from orihon.task import lifecycle, summaries
from orihon.task.calls import Calls
from orihon.task.lifecycle import Ending


class Endings(Calls):
    """The last calls of a task."""

    def complete(self) -> None:
        """It is done: write the final summary and let go."""
        self._end(Ending("completed"))

    def fail(self, error: str, *, reason: str = "") -> None:
        """It cannot be done."""
        self._end(
            Ending("failed", error=codec.clean_text(codec.as_text(error)), reason=text_or_none(reason, "reason") or "")
        )

    def stop(self, reason: str = "") -> None:
        """Somebody does not want it done."""
        self._end(Ending("stopped", reason=text_or_none(reason, "reason") or ""))

    def pause(self, reason: str = "") -> None:
        """Leave it as it is; `engine.resume(uuid)` goes on."""
        with self.lock:
            lifecycle.check(self.row, "paused")
            reason = text_or_none(reason, "reason") or ""
            self.interrupt(list(self._running.values()))
            self.update(status="paused", activity="", last_activity="paused", reason=reason or None)
            self._let_go()
            self.log.info("Task paused%s", f": {reason}" if reason else "")
            hooking.call(self.hooks, "on_paused", self)

    def close(self) -> None:
        """Let go of the task; one that still runs is paused."""
        with self.lock:
            if not self._can_wait() or self.lease.lost:  # then it is another process's to pause
                self.lease.close()
                return
            try:
                self.pause()
            except BaseException:
                self._let_go()
                raise

    def _let_go(self) -> None:
        """Give the lease back after the task was paused or ended, or after an error; to fail now matters less."""
        try:
            self.lease.close()
        except StoreError as error:
            self.log.warning("%s", error)

    def _can_wait(self) -> bool:
        """Whether it runs, and nobody has begun to end it."""
        return self.row.status == "running" and lifecycle.ending_of(self.history.view.state.notes) is None

    def _end(self, ending: Ending) -> None:
        with self.lock:
            lifecycle.check(self.row, ending.status)
            self.check_running()
            self._begin_to(ending)

    def drop(self, reason: str = "") -> None:
        """Stop it without going on first: one that waits or is paused, by whoever took its lease."""
        with self.lock:
            lifecycle.check(self.row, "stopped")
            self._begin_to(Ending("stopped", reason=text_or_none(reason, "reason") or ""))

    def _begin_to(self, ending: Ending) -> None:
        self.interrupt(list(self._running.values()))
        while self.history.view.tangents:
            self.event("end", keep="none")
        self.update(activity="completing")  # by this those are found who died on the way
        self.event("note", ending=msgspec.to_builtins(ending))
        self.finish(ending)

    def finish(self, ending: Ending) -> None:
        """The rest of an ending that was begun, perhaps by somebody who died on the way."""
        self.update(activity="completing", last_activity="final_summary")
        from orihon.inheritance import make_outline  # noqa: PLC0415 - only a task that ends needs it

        text = summaries.final(self, self.summariser)
        self.lease.sync()
        self.update(
            status=ending.status,
            activity="",
            completed_at=codec.now(),
            final_summary=text or None,
            handoff=make_outline(self.lease.store, self.row, self.history.view.state.notes),
            error_message=ending.error or None,
            reason=ending.reason or None,
        )
        self._let_go()
        self.log.info(lifecycle.said(ending))
        hooking.call(self.hooks, f"on_{ending.status}", self)

    def _complete_or_pause(self) -> None:
        """Ctrl-C before the end has begun is a pause, also when it comes in the very last moment."""
        try:
            self.complete()
        except Exception:
            raise
        except BaseException:
            if self._can_wait():
                self.pause()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self.row.status != "running":
                return  # the block has ended it itself
            if error is None:
                self._complete_or_pause()
            elif isinstance(error, Exception):
                self.fail(f"{type(error).__name__}: {codec.as_text(error)}")
            else:  # Ctrl-C, an exit, a cancellation: nothing is wrong with the task
                self.pause()
        except StoreError as failure:
            if error is None:
                raise
            self.log.error("How the task ended could not be recorded: %s", failure)  # noqa: TRY400 - the first error matters
        finally:
            self._let_go()
