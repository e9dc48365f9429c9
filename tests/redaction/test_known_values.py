"""A store masks the secrets of the process's environment and settings."""

from orihon.records import Message
from orihon.settings.load import load
from orihon.stores import open_store, store_options
from orihon.testing.samples import a_message, a_task

SECRET = "correct-horse-battery-9"


def test_the_environment_is_known_by_default(monkeypatch, tmp_path):
    """A variable whose name looks secret is masked literally, even where no pattern would find its value."""
    monkeypatch.setenv("SHOP_API_KEY", SECRET)
    task = a_task()
    with open_store(tmp_path / "contexts") as store, store.lease(task.uuid, create=task) as lease:
        lease.append(a_message(f"it is {SECRET} here"))
        assert [message.content for message in store.read(task.uuid, Message)] == ["it is [SECRET] here"]


def test_the_settings_set_the_options(tmp_path):
    """Durability, times and known secrets come from config.yaml."""
    file = tmp_path / "config.yaml"
    file.write_text("context_storage:\n  durability: message\nlease:\n  heartbeat_seconds: 1\n  expiry_seconds: 3\n"
                    "llm:\n  openai:\n    api_key: ${MY_KEY}\n")  # fmt: skip
    options = store_options(load(file, environ={"MY_KEY": SECRET}), environ={})
    assert (options.durability, options.heartbeat_seconds, options.expiry_seconds) == ("message", 1, 3)
    assert options.known
    assert SECRET.encode() in options.known.forms
