"""The classes of document 002, used as its sections 6 and 11.1 use them."""

import json
import sqlite3
import time

import pytest

from orihon.compat import ContextCompressor, MessageStore, SummaryStore, TaskContextManager
from orihon.errors import SettingsError, UsageError

KEY = {"task_source": "github", "owner": "notfolder", "repo": "coding_agent", "task_type": "issue", "task_id": "27"}


@pytest.fixture
def config(tmp_path):
    return {
        "context_storage": {"base_dir": str(tmp_path / "contexts"), "max_memory_messages": 20},
        "llm": {"provider": "openai", "openai": {"model": "gpt-4o", "context_length": 4000}},
    }


@pytest.fixture
def manager(config):
    manager = TaskContextManager(KEY, config)
    yield manager
    manager.task.close()


def row_of(manager):
    with sqlite3.connect(manager.context_dir.parent.parent / "tasks.db") as database:
        database.row_factory = sqlite3.Row
        return dict(database.execute("SELECT * FROM tasks WHERE uuid = ?", [manager.uuid]).fetchone())


def fill(messages, count=12):
    messages.add_message("system", "You are an AI")
    messages.add_message("user", "Fix the bug")
    for number in range(count):
        messages.add_message("assistant", f"{number}: " + "I look at the basket. " * 50)


class Client:
    """An OpenAI client whose model answers with one text."""

    def __init__(self, text):
        self.chat = self.completions = self
        self.text, self.prompts = text, []

    def create(self, *, model, messages):
        assert model == "gpt-4o"
        self.prompts.append(messages[0]["content"])
        reply = type("Message", (), {"content": self.text})
        return type("Completion", (), {"choices": [type("Choice", (), {"message": reply})]})


def test_the_flow_of_section_6(manager, config):
    """6.1 to 6.4: start, model call, tool, end."""
    message_store = manager.get_message_store()
    summary_store = manager.get_summary_store()
    tool_store = manager.get_tool_store()
    compressor = ContextCompressor(message_store, summary_store, Client("Fixed auth bug..."), config)
    assert row_of(manager)["status"] == "running"
    assert (manager.context_dir / "metadata.json").exists()

    assert message_store.add_message("system", "You are an AI...") == 1
    assert message_store.add_message("user", "Fix the authentication bug") == 2
    messages = message_store.get_messages_for_llm(summary_store)
    assert [message["role"] for message in messages] == ["system", "user"]
    message_store.add_message("assistant", "I'll help you fix the bug...")
    manager.update_statistics(llm_calls=1, tokens=120)
    assert not compressor.should_compress()

    start_time = time.time()
    duration_ms = (time.time() - start_time) * 1000
    tool_store.add_tool_call(
        tool_name="github_get_file_contents", args={"path": "main.py"}, result="...", status="success",
        duration_ms=duration_ms,
    )  # fmt: skip
    manager.update_statistics(tool_calls=1)
    message_store.add_message("tool", json.dumps({"path": "main.py"}), tool_name="github_get_file_contents")
    assert tool_store.count_tool_calls() == 1

    manager.complete()
    row = row_of(manager)
    assert (row["status"], row["llm_call_count"], row["tool_call_count"], row["total_tokens"]) == (
        "completed",
        1,
        1,
        120,
    )
    assert row["completed_at"]
    assert (manager.context_dir.parent.parent / "completed" / manager.uuid / "tools.jsonl").exists()


def test_the_error_handling_of_section_11_1(config):
    with pytest.raises(ZeroDivisionError):
        try:
            context_manager = TaskContextManager(KEY, config)
            1 / 0  # noqa: B018
            context_manager.complete()
        except Exception as e:
            context_manager.fail(str(e))
            raise
    row = row_of(context_manager)
    assert (row["status"], row["error_message"]) == ("failed", "division by zero")
    assert (context_manager.context_dir.parent.parent / "completed" / context_manager.uuid).is_dir()


def test_tokens_are_a_quarter_of_the_characters(manager):
    messages = manager.get_message_store()
    messages.add_message("system", "x" * 400)
    messages.add_message("user", "x" * 80)
    assert messages.get_unsummarized_token_count() == 20
    assert messages.count_messages() == 2
    assert [message["tokens"] for message in messages.load_recent_messages(5)] == [100, 20]


def test_messages_for_the_model_fit_into_seventy_per_cent(manager):
    messages = manager.get_message_store()
    fill(messages, 20)
    window = messages.get_messages_for_llm()
    assert window[0] == {"role": "system", "content": "You are an AI"}
    assert 2000 < sum(len(message["content"]) // 4 for message in window) <= 2800
    assert window[-1]["content"].startswith("19: ")


def test_compression_covers_all_but_the_newest_five(manager, config):
    messages, summaries = manager.get_message_store(), manager.get_summary_store()
    client = Client("We fixed the authentication bug.")
    compressor = ContextCompressor(messages, summaries, client, config)
    fill(messages)
    assert compressor.should_compress()
    assert compressor.compress() == 1
    manager.update_statistics(compressions=1)
    assert row_of(manager)["compression_count"] == 1  # counted once
    latest = summaries.get_latest_summary()
    assert (latest["start_seq"], latest["end_seq"], latest["summary"]) == (2, 9, "We fixed the authentication bug.")
    assert latest["ratio"] == round(latest["summary_tokens"] / latest["original_tokens"], 3)
    prompt = client.prompts[0]
    assert prompt.startswith("以下の会話履歴を要約してください。\n[USER]: Fix the bug\n[ASSISTANT]: 0: I look")
    assert "6: I look" in prompt
    assert "7: I look" not in prompt
    assert "元の30-40%の長さを目標としてください。" in prompt
    window = messages.get_messages_for_llm(summaries)
    assert [message["role"] for message in window] == ["system", "user", *["assistant"] * 5]
    assert "We fixed the authentication bug." in window[1]["content"]
    assert not compressor.should_compress()
    assert summaries.count_summaries() == 1


def test_few_messages_are_not_compressed(manager, config):
    messages, summaries = manager.get_message_store(), manager.get_summary_store()
    for _ in range(9):
        messages.add_message("user", "x" * 4000)
    compressor = ContextCompressor(messages, summaries, lambda _: "short", config)
    assert not compressor.should_compress()
    messages.add_message("user", "x" * 4000)
    assert compressor.should_compress()


def test_an_empty_summary_changes_nothing(manager, config):
    messages, summaries = manager.get_message_store(), manager.get_summary_store()
    fill(messages)
    with pytest.raises(UsageError, match="empty summary"):
        ContextCompressor(messages, summaries, lambda _: " ", config).compress()
    assert summaries.get_latest_summary() is None


def test_marked_messages_no_longer_count(manager):
    messages = manager.get_message_store()
    fill(messages, 2)
    before = messages.get_unsummarized_token_count()
    messages.mark_as_summarized(2, 3)
    assert 0 < messages.get_unsummarized_token_count() < before


def test_the_status_can_be_set(config):
    for status in ("completed", "failed", "stopped", "paused"):
        manager = TaskContextManager(KEY, config)
        manager.update_status("running")
        manager.update_status(status, error_message="broken" if status == "failed" else None)
        assert row_of(manager)["status"] == status
        manager.task.close()
    with pytest.raises(UsageError, match="no status 'done'"):
        TaskContextManager(KEY, config).update_status("done")


def test_stores_open_the_directory_of_a_dead_process(manager):
    fill(manager.get_message_store(), 3)
    directory = manager.context_dir
    manager.task.pause()
    paused = directory.parent.parent / "paused" / manager.uuid
    del manager.task
    messages = MessageStore(paused)
    assert messages.count_messages() == 5
    assert SummaryStore(paused).get_latest_summary() is None
    manager.task = messages.task


def test_a_wrong_setting_is_named(tmp_path):
    with pytest.raises(SettingsError, match="base_dirs"):
        TaskContextManager(KEY, {"context_storage": {"base_dirs": str(tmp_path)}})
