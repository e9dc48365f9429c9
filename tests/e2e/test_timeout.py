"""000 §3.2: the status `timeout` is reached, by `orihon run` in a process of its own."""

import json
import os

import pytest

from support.cli_process import run_cli
from support.failing_server import Chaos, says, stalls

ENVIRON = {name: value for name, value in os.environ.items() if not name.endswith(("_TOKEN", "_API_KEY"))}
SLEEP = {"say": "I wait.", "call": [{"name": "shell", "arguments": {"command": "touch began; sleep 60"}}]}


@pytest.fixture
def desk(tmp_path):
    """Run a command in a directory with a script; return the process."""

    class Desk:
        place = tmp_path

        def script(self, *replies):
            (tmp_path / "script.json").write_text(json.dumps(replies))

        def __call__(self, *arguments, **environ):
            return run_cli(arguments, tmp_path, ENVIRON | environ)

        def state(self):
            [path] = (tmp_path / "logs/contexts/completed").glob("*/state.json")
            return json.loads(path.read_text())

    return Desk()


RUN = ("run", "Mend the shop", "--no-plan", "--approve", "all", "--json")
SCRIPTED = ("--model", "scripted:script.json")


def assert_timeout(desk, shown):
    assert shown.returncode == 5, shown.stderr
    row = json.loads(shown.stdout)
    assert (row["status"], row["reason"], row["resumable"]) == ("failed", "timeout", True)
    assert desk.state()["status"] == "timeout"


def test_state_json_3_2_timeout_a_tool(desk):
    """`--seconds` ends a tool that runs on, and everything that it started."""
    desk.script(SLEEP, "All is done.")
    assert_timeout(desk, desk(*RUN, *SCRIPTED, "--seconds", "2"))
    assert (desk.place / "began").exists()
    assert desk.state()["error"] == "The run has reached its limit of 2 seconds."


def test_state_json_3_2_timeout_a_model_until_the_seconds_have_passed(desk):
    """`--seconds` ends a request that is not answered."""
    with Chaos([stalls()]) as server:
        options = ("--model", "openai:gpt-4o", "--seconds", "2")
        environ = {"OPENAI_API_KEY": "k3y-9f7q2w8e", "OPENAI_BASE_URL": f"{server.root}/v1"}
        assert_timeout(desk, desk(*RUN, *options, **environ))
        assert len(server.bodies) == 1


def test_state_json_3_2_timeout_a_model_that_does_not_answer(desk):
    """Without `--seconds` too, when no attempt was answered. Afterwards the task can be resumed."""
    (desk.place / "config.yaml").write_text("llm:\n  stall_seconds: 0.3\n  tries: 1\n")
    with Chaos([stalls()]) as server:
        environ = {"OPENAI_API_KEY": "k3y-9f7q2w8e", "OPENAI_BASE_URL": f"{server.root}/v1"}
        assert_timeout(desk, desk(*RUN, "--model", "openai:gpt-4o", **environ))
        assert desk.state()["error"].startswith("openai:gpt-4o did not answer in time.")
        server.acts = [says("All is done.")]
        resumed = desk("resume", json.loads(desk("ls", "--json").stdout)["tasks"][0]["uuid"], "--json", **environ)
    assert (resumed.returncode, json.loads(resumed.stdout)["answer"]) == (0, "All is done.")
    assert desk.state()["status"] == "completed"


def test_a_run_in_time_is_not_ended(desk):
    """The alarm is off when the run has ended."""
    desk.script("All is done.")
    assert desk(*RUN, *SCRIPTED, "--seconds", "60").returncode == 0
    assert desk.state()["status"] == "completed"
