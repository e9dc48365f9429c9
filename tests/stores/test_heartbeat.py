"""The thread that renews a lease: a signal at any moment must not keep its holder from giving the lease back."""

import sys
import threading

from orihon.stores.heartbeat import Heartbeat


class Interrupted(BaseException):
    pass


def interrupted(work, moment):
    """Do some work, with an exception out of nowhere at its nth step; whether it came so far."""
    steps = 0

    def trace(_frame, _event, _argument):
        nonlocal steps
        steps += 1
        if steps == moment:
            raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        work()
    except Interrupted:
        return True
    finally:
        sys.settrace(None)
    return False


def test_interrupted_at_any_step_it_can_be_stopped_again():
    moment = 1
    while True:
        heartbeat = Heartbeat(lambda: None, 60)
        was_interrupted = interrupted(heartbeat.stop, moment)
        again = threading.Thread(target=heartbeat.stop, daemon=True)
        again.start()
        again.join(10)
        assert not again.is_alive(), f"interrupted at step {moment}, it hangs"
        assert not heartbeat._thread.is_alive()
        if not was_interrupted:
            break
        moment += 1
    assert moment > 5


def test_it_beats_until_it_is_stopped():
    beats = threading.Semaphore(0)
    heartbeat = Heartbeat(beats.release, 0.001)
    assert all(beats.acquire(timeout=10) for _ in range(3))
    heartbeat.stop()
    assert not heartbeat._thread.is_alive()
