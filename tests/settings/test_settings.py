"""The settings themselves: their numbers, their page, and what they hide."""

from __future__ import annotations

import copy
import pickle
import runpy
from pathlib import Path

import msgspec
import pytest

from orihon.settings.schema import Settings
from orihon.settings.section import Secret, dec_hook, enc_hook, iter_settings

ROOT = Path(__file__).parents[2]
KEY = "sk-live-0123456789abcdef"


def test_the_numbers_are_those_of_the_specification():
    """The defaults that the specification prints are these."""
    settings = Settings()
    storage, inheritance = settings.context_storage, settings.context_inheritance
    assert (storage.max_memory_messages, storage.compression_threshold) == (20, 0.7)
    assert (storage.min_messages_to_summarize, storage.keep_recent_messages) == (10, 5)
    assert (inheritance.context_expiry_days, inheritance.max_inherited_tokens) == (90, 8000)
    assert (settings.llm.openai.context_length, settings.llm.ollama.context_length) == (128_000, 32_768)
    assert [s.value for s in iter_settings(settings.history)] == [24, 1000, 2000, 200, 2, 20, 200, 8]
    assert [s.value for s in iter_settings(settings.lease)] == [30, 60]
    monitor = settings.monitor
    assert (monitor.interval_seconds, monitor.long_running_hours, monitor.failure_rate) == (300, 6, 0.1)
    assert (monitor.disk_warning_gb, monitor.disk_critical_gb, monitor.backlog) == (10, 50, 100)
    assert [s.value for s in iter_settings(settings.retention)] == [7, 14, 30, 7]
    assert (settings.fold_at, settings.fold_to) == (0.97, 0.58)


def test_every_default_is_itself_allowed():
    """A file that states every default loads and changes nothing."""
    for setting in iter_settings(Settings()):
        assert msgspec.convert(setting.value, setting.type, dec_hook=dec_hook) == setting.value


def test_nobody_can_change_settings():
    """Settings, sections and secrets are config."""
    with pytest.raises(AttributeError):
        Settings().fold_at = 0.5
    with pytest.raises(AttributeError):
        Settings().lease.expiry_seconds = 1
    with pytest.raises(AttributeError):
        Secret(KEY)._value = "other"


def test_the_page_of_settings_is_up_to_date():
    """`docs/settings.md` is what `docs/generate.py` makes."""
    page = runpy.run_path(str(ROOT / "docs/generate.py"))["settings_page"]()
    assert page == (ROOT / "docs/settings.md").read_text(encoding="utf-8"), "run `make docs`"


def test_every_key_and_password_is_a_secret():
    """A setting with such a name has the type that hides it."""
    for setting in iter_settings(Settings()):
        assert setting.is_secret == setting.path.endswith(("key", "password", "secret", "token"))


def test_a_secret_shows_itself_only_when_asked():
    """repr, str, format and msgspec give no secret away; reveal() does."""
    secret = Secret(KEY)
    assert {repr(secret), str(secret), f"{secret}", f"{[secret]}"[1:-1]} == {"[hidden]"}
    assert secret.reveal() == KEY
    assert msgspec.json.encode(secret, enc_hook=enc_hook) == b'"[hidden]"'
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    assert not hasattr(secret, "__dict__")


def test_secrets_are_equal_by_value_and_travel_to_workers():
    """A copy, also through pickle, is equal and hashes alike."""
    secret = Secret(KEY)
    assert secret == pickle.loads(pickle.dumps(secret)) == copy.deepcopy(secret)  # noqa: S301 - our own bytes
    assert len({secret, Secret(KEY), Secret("other")}) == 2
    assert secret != KEY
