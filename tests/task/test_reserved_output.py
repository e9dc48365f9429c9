"""The room that is left for the reply."""

import pytest

import orihon
from orihon.task_key import TaskKey

KEY = TaskKey.local("t")


@pytest.mark.parametrize(
    ("context_length", "reserved"), [(4_000, 500), (8_192, 1_024), (32_768, 4_096), (1_000_000, 4_096)]
)
def test_it_is_at_most_an_eighth_of_the_window(engine, context_length, reserved):
    """A small window is not halved by a default that was made for a large one, and the report says what it is."""
    with engine.start(KEY, context_length=context_length) as task:
        task.add("user", "Go.")
        report = task.window().report
        assert report.reserved == reserved
        assert report.limit == context_length - reserved
    assert engine.read(task.uuid).config.reserved_output == reserved


def test_a_smaller_window_reserves_less(engine):
    """The default follows another model; what the caller chose stays."""
    with engine.start(KEY, context_length=128_000) as task:
        task.reconfigure(context_length=8_000)
        assert task.config.reserved_output == 1_000
        task.reconfigure(reserved_output=700)
        task.reconfigure(context_length=16_000)
        assert task.config.reserved_output == 700
        task.pause()
    with engine.resume(task.uuid) as task:
        assert task.config.reserved_output == 700


def test_the_setting_is_taken(tmp_path):
    """A number in the settings is used as it is."""
    settings = orihon.Settings(window=orihon.settings.schema.Window(reserved_output=2_000))
    with orihon.open(tmp_path / "store", settings=settings) as engine, engine.start(KEY, context_length=8_000) as task:
        assert task.config.reserved_output == 2_000
