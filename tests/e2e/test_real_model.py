"""A task with a model that really runs, on this machine or elsewhere; only for those who ask for it."""

import os
from collections import Counter

import pytest

import orihon
from orihon.agent.handler import TaskHandler, Work
from orihon.agent.loop import Limits
from orihon.agent.models import open_model
from orihon.agent.tools.toolbox import Toolbox
from orihon.errors import UsageError
from orihon.settings.schema import Llm, Provider, Settings
from orihon.settings.section import Secret
from support.wire_rules import violations

NAME, URL = os.environ.get("ORIHON_TEST_MODEL", ""), os.environ.get("ORIHON_TEST_MODEL_URL", "")
KEY = os.environ.get("ORIHON_TEST_MODEL_KEY", "none")
LINE = "The basket holds seven apples."
REQUEST = f"Write a file named basket.txt that holds exactly this line, and then say that it is done:\n{LINE}"
CALLS, TOKENS, TRIES = 12, 8192, 2

pytestmark = pytest.mark.skipif(
    not NAME,
    reason="asks a real model: ORIHON_TEST_MODEL=ollama:qwen3:4b [ORIHON_TEST_MODEL_URL=http://…/v1] make test "
    "ARGS=tests/e2e/test_real_model.py",
)


class Watched:
    """The model, and what it was sent."""

    def __init__(self, model):
        self.model, self.sent = model, []

    def reply(self, window, *, on_text=None):
        wrong = violations("openai", window.openai()) + violations("anthropic", window.anthropic())
        self.sent.append(wrong)
        return self.model.reply(window, on_text=on_text)


@pytest.fixture
def settings():
    provider = NAME.partition(":")[0]
    if provider not in {"openai", "ollama", "lmstudio", "anthropic"}:
        raise UsageError(f"ORIHON_TEST_MODEL is {NAME!a}.", hint="Say openai:NAME, ollama:NAME, lmstudio:NAME …")
    section = getattr(Llm(), provider)
    values = {"base_url": URL or section.base_url, "context_length": TOKENS, "api_key": Secret(KEY)}
    return Settings(llm=Llm(provider=provider, tries=TRIES, **{provider: Provider(model="", **values)}))


def test_a_small_task_with_a_real_model(settings, tmp_path):
    """Whatever it says, the task ends in a status that is true, and the log holds what happened, in order and whole."""
    (tmp_path / "work").mkdir()
    model = open_model(NAME, settings)
    watched = Watched(model)
    with (
        orihon.open(tmp_path / "contexts", settings=settings) as engine,
        Toolbox(tmp_path / "work", approve="all") as tools,
    ):
        handler = TaskHandler(engine, watched, tools, limits=Limits(calls=CALLS))
        row = handler.handle(Work(key=orihon.TaskKey.github("acme", "shop", issue=27), request=REQUEST))
        messages = list(engine.read(row.uuid).messages())
        runs = list(engine.read(row.uuid).tools())
    model.close()
    shown = "\n".join(f"{one.seq} {one.role}: {one.text} {[call.name for call in one.tool_calls]}" for one in messages)
    replies = [message for message in messages if message.role == "assistant"]
    calls = [call for message in replies for call in message.tool_calls]
    assert replies, f"{row.status}: {row.error_message or row.reason}"
    assert not any(watched.sent), watched.sent
    assert [message.role for message in messages[:3]] == ["system", "user", "assistant"]
    assert [message.seq for message in messages] == list(range(1, len(messages) + 1))
    assert row.llm_call_count == len(replies)
    assert row.tool_call_count == len(runs), shown
    answered = [one.tool_call_id for one in messages if one.role == "tool"]
    assert not Counter(answered) - Counter(call.id for call in calls), shown
    assert all(message.usage for message in replies), "the server reports no usage"
    assert row.total_tokens > 0
    assert row.status in {"completed", "failed", "paused"}, shown
    if row.status == "completed":
        assert len(answered) == len(calls), shown
        assert not replies[-1].tool_calls
    else:
        assert row.error_message or row.reason
    wrote = [run for run in runs if run.tool == "write" and run.status == "success"]
    assert all((tmp_path / "work" / run.args["path"]).exists() for run in wrote), shown
