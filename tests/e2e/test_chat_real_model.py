"""A session with a real model; opt-in, as in `test_real_model`."""

import os
import sys

import pytest

import orihon
from orihon.chat import registry
from orihon.chat.conversation import STOPPED
from orihon.settings.schema import Settings
from support.terminal import Terminal
from support.wire_rules import violations

NAME, URL = os.environ.get("ORIHON_TEST_MODEL", ""), os.environ.get("ORIHON_TEST_MODEL_URL", "")
KEY = os.environ.get("ORIHON_TEST_MODEL_KEY", "none")
SECONDS = 240  # for one answer of a small model on a busy machine

pytestmark = pytest.mark.skipif(
    not NAME,
    reason="asks a real model: ORIHON_TEST_MODEL=ollama:qwen3:4b [ORIHON_TEST_MODEL_URL=http://…/v1] make test "
    "ARGS=tests/e2e/test_chat_real_model.py",
)


def test_a_sitting_with_a_real_model(tmp_path):
    """Whatever it says, answers come, one is cancelled half-way, and the log is valid and whole."""
    provider, _, model = NAME.partition(":")
    address = f"base_url: {URL}, " if URL else ""
    section = f"{{model: '{model}', {address}api_key: '{KEY}', context_length: 8192}}"
    (tmp_path / "config.yaml").write_text(
        f"llm:\n  provider: {provider}\n  tries: 2\n  {provider}: {section}\nwindow: {{reserved_output: 512}}\n"
    )
    environ = dict(os.environ) | {"XDG_STATE_HOME": str(tmp_path / "state"), "LC_ALL": "C.UTF-8"}
    terminal = Terminal(sys.executable, "-m", "orihon", "chat", "--name", "real", cwd=tmp_path, env=environ)
    try:
        terminal.until("8192]\n>")
        terminal.type("Answer with one word: what colour is the sky?\r")
        terminal.until("?\n", SECONDS)
        answer = terminal.until("8192]\n>", SECONDS)
        terminal.type("Count from one to a thousand, in words.\r")
        terminal.until("words.\n", SECONDS)
        while not terminal.text[terminal.seen :].strip():
            terminal.wait(SECONDS)
        terminal.type("\x03")
        terminal.until("8192]\n>", SECONDS)
        terminal.type("/usage\r")
        terminal.until("tokens in", SECONDS)
        terminal.type("\x04")
        assert terminal.ended() == 0
    finally:
        terminal.close()
    with orihon.open(tmp_path / "logs" / "contexts", settings=Settings()) as engine:
        (one,) = registry.list_conversations(engine)
        reader = engine.read(one.uuid)
        messages = list(reader.messages())
        window = reader.window()
    shown = "\n".join(f"{message.seq} {message.role}: {message.text}" for message in messages)
    assert one.status == "paused"
    assert violations("openai", window.openai()) == []
    assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
    assert [message.role for message in messages[:2]] == ["system", "user"]
    first = next((message for message in messages if message.role == "assistant"), None)
    assert first is not None, f"{answer}\n{shown}"
    assert first.text.strip() or first.tool_calls, shown
    stopped = [message for message in messages if message.role == "assistant" and message.text.endswith(STOPPED)]
    assert len(stopped) <= 1, shown
