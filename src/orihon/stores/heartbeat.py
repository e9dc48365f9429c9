"""A thread that says every 30 seconds that the holder of a lease is alive, also while a model call takes an hour."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("orihon")


class Heartbeat:
    """Calls `beat` at every interval until it is stopped; a beat that fails is logged and the next one tried."""

    def __init__(self, beat: Callable[[], None], interval_seconds: float) -> None:
        self._beat = beat
        self._interval_seconds = interval_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="orihon-heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_seconds):
            try:
                self._beat()
            except Exception as error:  # noqa: BLE001 - a full disk must not end the thread that outlives it
                log.warning("The heartbeat failed: %s", error)

    def stop(self) -> None:
        """End the thread; returns when no beat is running any more."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
