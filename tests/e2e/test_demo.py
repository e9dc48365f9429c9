"""`orihon demo`: what it shows is so, wherever the agent is killed, and it fails when something is not so."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from orihon.demo import play as demo

from orihon.records import Message

EDIT_RUNS = 47  # lines of the agent after which its edit has begun


def play(*arguments, cwd):
    command = [sys.executable, "-m", "orihon", "demo", *arguments]
    temporary = cwd.parent / f"{cwd.name}-temporary"
    temporary.mkdir(exist_ok=True)
    env = os.environ | {"TMPDIR": str(temporary)}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=100)


def counted(output, name):
    """The number of a figure."""
    (found,) = re.findall(rf"{name} +([\d,]+)", output)
    return int(found.replace(",", ""))


def sent_as_a_list(store):
    """The tokens of the first task, if each of its calls had got all messages before it."""
    (log,) = [log for log in store.glob("completed/*/messages.jsonl") if "orihon:handoff" not in log.read_text()]
    sent = before = 0
    for message in map(json.loads, log.read_text(encoding="utf-8").splitlines()):
        sent += before * (message["role"] == "assistant")
        before += message["tokens"]
    return f"{sent:,}"


def failed(done):
    return [line.split(maxsplit=1)[1] for line in done.stdout.splitlines() if line.lstrip().startswith("FAILED  ")]


def without_figures(text):
    return re.sub(r"\s+", " ", re.sub(r"\d[\d,]*", "#", text))


def broken_sample(folder, old, new):
    """The sample, where the model of the first run says something else."""
    shutil.copytree(demo.SAMPLE, folder)
    script = folder / "first.yaml"
    text = script.read_text(encoding="utf-8")
    assert old in text
    script.write_text(text.replace(old, new), encoding="utf-8")
    return str(folder)


@pytest.mark.slow
def test_it_ends_well_and_says_what_happened(tmp_path, root):
    """Exit code 0, the figures, the lines that the README shows, and files that can be looked at as it says."""
    done = play("--keep", "kept", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    for words in (
        "FAILED (failures=3)",
        "messages were acknowledged",
        "  folded",
        'unfold("m6")',
        "<previous_run>",
        "folded or summarised",
        "lost to the kill",
        "first turn that does not fit          3   of 19",
        "messages left after kill -9           0   with Orihon 25",
        "Checked:",
    ):
        assert words in done.stdout
    assert len(done.stdout.splitlines()) < 95
    (example,) = re.findall(r"```text\n(  turn .*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    for line in filter(None, example.replace("\n     …\n", "\n").splitlines()):
        assert without_figures(line) in without_figures(done.stdout), "update the example in README.md"
    assert "lines=()" in (tmp_path / "kept" / "shop" / "shop" / "basket.py").read_text(encoding="utf-8")
    assert max(map(len, done.stdout.partition("\nThe first task as a page")[0].splitlines())) <= 80
    page = (tmp_path / "kept" / "task.html").read_text(encoding="utf-8")
    assert f"{(tmp_path / 'kept' / 'task.html').as_uri()}\n" in done.stdout
    assert "<html" in page
    assert "orders.log" in page
    assert sent_as_a_list(tmp_path / "kept" / "contexts") == f"{counted(done.stdout, 'tokens sent, if all fitted'):,}"
    logs = sorted((tmp_path / "kept" / "contexts" / "completed").glob("*/messages.jsonl"), key=os.path.getsize)
    told = [json.loads(line) for line in logs[0].read_text(encoding="utf-8").splitlines()]
    assert "previous run" in next(message["content"] for message in told if message.get("key") == "orihon:handoff")
    assert play("--keep", "kept", cwd=tmp_path).returncode == 2  # what is there is not mixed with a new run


@pytest.mark.slow
@pytest.mark.parametrize("lines", [0, 1, 2, 17, 34, 36, EDIT_RUNS, 48, 50])
def test_it_goes_on_wherever_it_was_killed(tmp_path, lines):
    """Before it began, between two messages, while a tool runs, after the edit."""
    done = play("--kill-after", str(lines), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.iterdir())  # what it made is gone


@pytest.mark.slow
def test_a_fix_that_does_not_fix_fails_it(tmp_path):
    """The checks are real: the tests of the shop still fail, and so does the command."""
    sample = broken_sample(tmp_path / "sample", "self.lines = list(lines)", "self.lines = lines  # all is well")
    done = play("--sample", sample, cwd=tmp_path)
    assert done.returncode == 1
    assert "they pass now" in failed(done)


@pytest.mark.slow
def test_a_model_that_ends_too_early_fails_it(tmp_path):
    """A task that is not completed is told, too."""
    sample = broken_sample(tmp_path / "sample", "- Fixed.", "- {status: 500, error: out of order}\n- Fixed.")
    done = play("--sample", sample, cwd=tmp_path)
    assert done.returncode == 1
    assert "both tasks are completed" in failed(done)


@pytest.mark.slow
def test_an_agent_that_was_not_killed_fails_it(tmp_path):
    """What is shown must have happened."""
    done = play("--kill-after", "1000", cwd=tmp_path)
    assert done.returncode == 1
    assert failed(done) == ["the agent was killed with kill -9"]


@pytest.mark.parametrize("change", ["lost", "lost since", "changed", "twice", "none"])
def test_a_message_that_is_lost_fails_it(change):
    """The log is compared with what was acknowledged, and with what was there after the kill."""
    log = [Message(seq=seq, role="user", content=f"{seq}", timestamp="", tokens=1) for seq in range(1, 9)]
    survived, now, told = log[:5], list(log), 5
    if change == "lost":
        told = 6
    elif change == "lost since":
        now = log[:7]
    elif change == "changed":
        now[2] = Message(seq=3, role="user", content="other", timestamp="", tokens=1)
    elif change == "twice":
        now.insert(6, log[6])
    assert demo.is_intact(survived, now, told, 8) == (change == "none")


def test_it_needs_no_sdk():
    """The demo runs with the core dependencies alone."""
    unwanted = {"openai", "anthropic", "mcp", "httpx2", "pytest"}
    code = f"import sys, orihon.demo.play; print(sorted({unwanted} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
