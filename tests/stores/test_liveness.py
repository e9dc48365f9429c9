"""The thread that renews a lease: a signal at any moment must not keep its holder from giving the lease back."""

import itertools
import threading

from orihon.stores.liveness import Heartbeat
from support.interrupts import interrupted


def test_interrupted_at_any_step_it_can_be_stopped_again():
    for step in itertools.count(1):
        heartbeat = Heartbeat(lambda: None, 60)
        trouble = interrupted(heartbeat.stop, step)
        again = threading.Thread(target=heartbeat.stop, daemon=True)
        again.start()
        again.join(10)
        assert not again.is_alive(), f"interrupted at step {step}, it hangs"
        assert not heartbeat._thread.is_alive()
        if trouble is None:
            break
    assert step > 5


def test_it_beats_until_it_is_stopped():
    beats = threading.Semaphore(0)
    heartbeat = Heartbeat(beats.release, 0.001)
    assert all(beats.acquire(timeout=10) for _ in range(3))
    heartbeat.stop()
    assert not heartbeat._thread.is_alive()
