"""Freed memory goes back where that matters."""

import weakref
from pathlib import Path

import pytest

from orihon import heap


@pytest.fixture
def asked(monkeypatch):
    """What was asked of Python and of the C library, in a process that counts as small."""
    asked = []
    monkeypatch.setattr(heap, "SMALL_BYTES", 2**60)
    monkeypatch.setattr(heap, "_trim", lambda: asked.append)
    monkeypatch.setattr("gc.collect", lambda: asked.append("garbage"))
    return asked


def test_garbage_is_looked_for_and_given_back(asked):
    """In this order."""
    heap.clear_up()
    assert asked == ["garbage", 0]


def test_a_program_that_looks_for_garbage_itself_is_left_to_it(asked, monkeypatch):
    """Whoever has turned the collector off has his reasons."""
    monkeypatch.setattr("gc.isenabled", lambda: False)
    heap.clear_up()
    assert asked == [0]


def test_a_large_process_lets_it_be(asked, monkeypatch):
    """And so does one that cannot tell how large it is."""
    monkeypatch.setattr(heap, "SMALL_BYTES", 1)
    heap.clear_up()
    monkeypatch.setattr(heap, "SMALL_BYTES", 2**60)
    monkeypatch.setattr(heap, "STATUS", Path("/proc/nowhere"))
    heap.clear_up()
    assert asked == []


def test_a_c_library_without_a_way_to_is_no_error(monkeypatch):
    """The call is glibc's own."""
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    heap._trim.cache_clear()
    heap.give_back()
    assert heap._trim() is None
    heap._trim.cache_clear()


def test_garbage_is_gone(monkeypatch):
    """The real thing, with what only the collector finds."""

    class Ring:
        def __init__(self):
            self.itself = self

    monkeypatch.setattr(heap, "SMALL_BYTES", 2**60)
    monkeypatch.setattr(heap, "_resident_bytes", lambda: 0)
    known = weakref.ref(Ring())
    heap.clear_up()
    assert known() is None
