"""What goes wrong around a task: threads, a store that is closed, a record that cannot be written."""

import errno
import sys
import threading

import pytest

import orihon
from orihon.errors import LeaseLost
from orihon.settings.schema import Settings
from support.faults import Fault, Faults
from support.replies import KEY, TOOLS, calling


def begun(engine, **options):
    task = engine.start(KEY, tools=TOOLS, inherit=False, **options)
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


def test_looking_while_another_thread_writes(engine):
    """`unfold` and `recall` see a whole history, never half a change."""
    failed = []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with begun(engine) as task:
            done = threading.Event()

            def look():
                while not done.is_set():
                    try:
                        assert task.unfold("m2") == "Fix the basket."
                        task.recall("basket")
                    except Exception as error:  # noqa: BLE001
                        failed.append(error)
                        return

            threads = [threading.Thread(target=look) for _ in range(3)]
            for thread in threads:
                thread.start()
            for number in range(300):
                task.add("user", f"{number}")
            done.set()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failed == []


def test_an_event_counts_although_the_view_could_not_be_recorded(tmp_path, caplog):
    """Only the record that makes reading faster is missing."""
    with orihon.open(tmp_path, settings=Settings()) as engine, begun(engine) as task:
        task.add("user", "Wrong.")
        for number in range(255):
            task.snapshot(current_phase=f"{number}")
        with Faults(Fault(at=2, how="fail", errno=errno.ENOSPC, onwards=True, only=("write",))):
            assert task.rewind(2) == 256
        assert "could not be recorded" in caplog.text
        assert len(task.window().openai()) == 2
        task.snapshot(goal="more")
        assert task.window().openai() == engine.read(task.uuid).window().openai()


def test_a_store_that_was_closed(url):
    """Whoever still holds a task is told so, and closing it does no harm."""
    engine = orihon.open(url, settings=Settings())
    task = begun(engine)
    engine.store.close()
    with pytest.raises(LeaseLost):
        task.add("user", "More.")
    with pytest.raises(LeaseLost):
        task.close()
    engine.close()


def test_an_engine_that_is_closed_pauses_its_tasks(disk_url):
    """Nothing looks like a crash, and the calls that wait still wait."""
    with orihon.open(disk_url, settings=Settings()) as engine:
        task = begun(engine)
        task.add_reply(calling(("read_file", {"path": "a.py"})))
        with begun(engine) as done:
            pass
    with orihon.open(disk_url, settings=Settings()) as engine:
        assert engine.row(done.uuid).status == "completed"
        assert engine.row(task.uuid).status == "paused"
        assert len(engine.resume(task.uuid).pending_calls()) == 1
