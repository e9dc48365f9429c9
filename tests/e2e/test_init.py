"""`orihon init` writes a config.yaml and tries it; `orihon doctor` without a store looks at the installation."""

import json
import os
import subprocess
import sys

import orihon
from orihon.settings.load import load
from support.failing_server import Chaos, says
from support.terminal import Terminal

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ORIHON_STORE")


def run(*arguments, cwd, **environ):
    """Run a command without a terminal and without keys."""
    env = {name: value for name, value in os.environ.items() if name not in KEYS} | environ
    return subprocess.run(
        [sys.executable, "-m", "orihon", *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False,
        timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_it_tries_the_model_and_writes_a_task(tmp_path):
    """The model of config.yaml is asked once, with the key of the environment, and the task is in the store."""
    with Chaos([says("ready")]) as server:
        given = ("--model", "gpt-4o", "--base-url", f"{server.root}/v1", "--store", "here")
        done = run("init", *given, cwd=tmp_path, OPENAI_API_KEY="sk-of-the-environment")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert server.keys == ["Bearer sk-of-the-environment"]
    assert "sk-of" not in (tmp_path / "config.yaml").read_text()
    settings = load(tmp_path / "config.yaml", environ={})
    assert (settings.llm.openai.base_url, settings.store_url) == (f"{server.root}/v1", "here")
    with orihon.open(tmp_path / "here", settings=settings) as engine:
        (row,) = engine.tasks()
        assert row.status == "completed"
        assert [message.text for message in engine.read(row.uuid).messages()][-1] == "ready"
    assert f"Task {row.uuid[:8]} is written and completed." in done.stdout
    assert run("doctor", cwd=tmp_path).stdout.endswith("All is well.\n")


def test_a_model_that_cannot_be_reached_is_a_problem(tmp_path):
    """The file and the task are written; the exit code and the sentence say what is missing."""
    done = run("init", "--json", cwd=tmp_path)
    assert done.returncode == 5
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    (problem,) = [finding for finding in findings if finding["level"] == "problem"]
    assert "OPENAI_API_KEY" in problem["sentence"]
    assert load(tmp_path / "config.yaml", environ={}).llm.openai.model == "gpt-4o"
    with Chaos([]) as server:
        again = tmp_path / "again"
        again.mkdir()
        refused = run("init", "--provider", "ollama", "--base-url", f"{server.root}/v1", cwd=again)
    assert refused.returncode == 5
    assert "418" in refused.stdout
    assert "is written and failed" in refused.stdout


def test_a_config_is_never_changed(tmp_path):
    """What stands there stays."""
    (tmp_path / "config.yaml").write_text("fold_at: 0.9\n")
    done = run("init", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "config.yaml exists." in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    assert (tmp_path / "config.yaml").read_text() == "fold_at: 0.9\n"


def test_a_terminal_is_asked_three_questions(tmp_path):
    """An empty answer takes the default, and an unknown provider is asked for again."""
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    terminal = Terminal(sys.executable, "-m", "orihon", "init", "--no-check", cwd=tmp_path, env=env)
    try:
        terminal.until("[openai]: ")
        terminal.type("claude\r")
        terminal.until("[openai]: ")
        terminal.type("anthropic\r")
        terminal.until("Model [claude-sonnet-5]: ")
        terminal.type("\r")
        terminal.until("Store [logs/contexts]: ")
        terminal.type('a "b" 折本\r')
        assert terminal.ended() == 0, terminal.text
    finally:
        terminal.close()
    settings = load(tmp_path / "config.yaml", environ={"ANTHROPIC_API_KEY": "sk-ant-1"})
    assert (settings.llm.provider, settings.llm.chosen.model) == ("anthropic", "claude-sonnet-5")
    assert settings.llm.chosen.api_key.reveal() == "sk-ant-1"
    assert settings.context_storage.base_dir == 'a "b" 折本'


def test_doctor_without_a_store_looks_at_the_installation(tmp_path):
    """A missing key and a place that cannot be written are problems, and nothing is created."""
    sick = run("doctor", cwd=tmp_path)
    assert sick.returncode == 1
    assert "its key is missing. Set OPENAI_API_KEY." in sick.stdout
    well = run("doctor", cwd=tmp_path, OPENAI_API_KEY="sk-1")
    assert well.returncode == 0, well.stdout
    assert "There is no store yet." in well.stdout
    assert not list(tmp_path.iterdir())
    (tmp_path / "logs").write_text("a file where the store should be")
    blocked = run("doctor", cwd=tmp_path, OPENAI_API_KEY="sk-1")
    assert blocked.returncode == 1
    assert "is not a directory that can be written" in blocked.stdout
    assert run("doctor", "--store", "nothing", cwd=tmp_path).returncode == 3


def test_doctor_notes_what_the_model_lacks_after_init(tmp_path):
    """The store is well, so the exit code is 0. A store that is named, or without a config.yaml, has no model."""
    missing = "note     llm.openai: The model is gpt-4o, and its key is missing. Set OPENAI_API_KEY."
    run("init", cwd=tmp_path)
    noted = run("doctor", cwd=tmp_path)
    assert noted.returncode == 0
    assert missing in noted.stdout
    assert noted.stdout.endswith("All is well.\n")
    assert missing not in run("doctor", cwd=tmp_path, OPENAI_API_KEY="sk-1").stdout
    assert missing not in run("doctor", "--store", "logs/contexts", cwd=tmp_path).stdout
    (tmp_path / "config.yaml").unlink()
    assert missing not in run("doctor", cwd=tmp_path).stdout
