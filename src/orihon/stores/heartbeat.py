"""A thread that says every 30 seconds that the holder of a lease is alive, also while a model call takes an hour."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

log = logging.getLogger("orihon")


class Heartbeat:
    """Calls `beat` at every interval until it is stopped; a beat that fails is logged and the next one tried."""

    def __init__(self, beat: Callable[[], None], interval_seconds: float) -> None:
        self._beat = beat
        self._interval_seconds = interval_seconds
        # not an Event: a signal can leave its lock held for ever, and the holder could then never give its lease back
        self._stopped: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="orihon-heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopped():
            try:
                self._beat()
            except Exception as error:  # noqa: BLE001 - a full disk must not end the thread that outlives it
                log.warning("The heartbeat failed: %s", error)

    def _is_stopped(self) -> bool:
        """Wait for one interval; whether somebody ended it meanwhile."""
        try:
            self._stopped.get(timeout=self._interval_seconds)
        except Empty:
            return False
        return True

    def stop(self) -> None:
        """End the thread; returns when no beat is running any more."""
        self._stopped.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()
