"""`scripted:FILE`: a model of the agent's that needs no provider."""

import json

import pytest

import orihon
from orihon.agent.models import open_model
from orihon.errors import ContextOverflow, ModelError, ScriptError, UsageError
from orihon.settings.schema import Settings
from support.replies import KEY, TOOLS

REPLIES = [
    {"say": "I look.", "call": [{"name": "read_file", "arguments": {"path": "a.py"}}]},
    {"call": {"name": "run_tests"}},
    {"choices": [{"message": {"role": "assistant", "content": "Done."}}], "usage": {"prompt_tokens": 9}},
]
YAML = """
- say: I look.
  call:
    - name: read_file
      arguments: {path: a.py}
- call: {name: run_tests}
- choices: [{message: {role: assistant, content: Done.}}]
  usage: {prompt_tokens: 9}
"""


@pytest.fixture
def task():
    with orihon.open("memory:", settings=Settings()) as engine, engine.start(KEY, tools=TOOLS) as task:
        task.add("user", "Fix the basket.")
        yield task


def opened(tmp_path, replies):
    file = tmp_path / "replies.json"
    file.write_text(json.dumps(replies), encoding="utf-8")
    return open_model(f"scripted:{file}", Settings())


@pytest.mark.parametrize("name", ["replies.json", "replies.yaml"])
def test_a_task_by_a_script(task, tmp_path, name):
    """Short forms and whole replies, from JSON and from YAML; the text is told."""
    file = tmp_path / name
    file.write_text(json.dumps(REPLIES) if name.endswith("json") else YAML, encoding="utf-8")
    model, told = open_model(f"scripted:{file}", Settings()), []
    assert model.name == f"scripted:{file}"
    asked = []
    while task.wants_reply():
        task.add_reply(model.reply(task.window(), on_text=told.append))
        for call in task.pending_calls():
            with task.tool(call) as run:
                asked.append((call.name, call.arguments))
                run.result = "ok"
    assert asked == [("read_file", {"path": "a.py"}), ("run_tests", {})]
    assert told == ["I look.", "Done."]
    model.close()


def test_what_was_not_used_is_complained_of(task, tmp_path):
    """And what was asked for beyond the end."""
    model = opened(tmp_path, ["One.", "Two."])
    model.reply(task.window())
    with pytest.raises(ScriptError, match="1 of 2 replies were not used"):
        model.close()
    model.reply(task.window())
    with pytest.raises(ScriptError, match="Reply 3 was requested"):
        model.reply(task.window())
    with pytest.raises(ScriptError, match="after the end"):
        model.close()


def test_questions_are_answered_from_the_same_script(tmp_path):
    """With a schema the reply has to be JSON."""
    model = opened(tmp_path, ["A summary.", '{"goal": "x"}', "no JSON"])
    assert model.ask("Summarise this.") == "A summary."
    assert model.ask("Plan.", schema={"type": "object"}) == '{"goal": "x"}'
    with pytest.raises(ScriptError, match="must be JSON"):
        model.ask("Plan.", schema={"type": "object"})
    model.close()


def test_a_script_can_fail_as_providers_do(task, tmp_path):
    """An overflow is told apart by its words, so that folding harder can be tried offline."""
    model = opened(tmp_path, [{"status": 400, "error": "prompt is too long: 9 > 8"}, {"status": 503, "error": "Away."}])
    with pytest.raises(ContextOverflow, match="too long"):
        model.reply(task.window())
    with pytest.raises(ModelError, match="Away") as caught:
        model.reply(task.window())
    assert caught.value.retryable
    model.close()


def test_what_is_no_script_is_refused_at_once(tmp_path):
    """Before a task is begun with it."""
    with pytest.raises(UsageError, match="Reply 1 of the script is not a reply"):
        opened(tmp_path, [{"says": "x"}])
