"""`orihon run`, `enqueue`, `worker`, `pause` and `unpause` as a person meets them: real processes, a scripted model."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from support.cli_process import run_cli
from support.failing_server import Chaos, says

ENVIRON = {name: value for name, value in os.environ.items() if not name.endswith(("_TOKEN", "_API_KEY"))}


def call(command):
    return {"say": "I look.", "call": [{"name": "shell", "arguments": {"command": command}}]}


@pytest.fixture
def desk(tmp_path):
    """A directory with a script, and the command in it."""

    class Desk:
        place = tmp_path

        def script(self, *replies):
            (tmp_path / "script.json").write_text(json.dumps(replies))

        def command(self, *arguments):
            return [sys.executable, "-m", "orihon", *arguments]

        def start(self, *arguments, **options):
            return subprocess.Popen(self.command(*arguments), cwd=tmp_path, env=ENVIRON, text=True, **options)

        def __call__(self, *arguments):
            return run_cli(arguments, tmp_path, ENVIRON)

    made = Desk()
    made.script(call("echo hello > out.txt"), "All is done.")
    return made


RUN = ("--model", "scripted:script.json", "--no-plan", "--approve", "all")


def until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def interrupted(desk, number, *arguments):
    """A run that got a signal while a tool ran."""
    desk.script(call("touch began; sleep 30"), "All is done.")
    process = desk.start("run", "Mend the shop", *RUN, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until((desk.place / "began").exists)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


# run


def test_a_pipe(desk):
    """The answer on standard output, plain lines about the rest on standard error, no colours, code 0."""
    shown = desk("run", "Mend the shop", *RUN)
    assert (shown.returncode, shown.stdout) == (0, "All is done.\n")
    lines = shown.stderr.splitlines()
    assert lines[0] == "processing"
    assert lines[1].startswith("turn 1 · ")
    assert " tokens (system " in lines[1]
    assert lines[2] == '  shell {"command": "echo hello > out.txt"}'
    assert lines[-1] == "done"
    assert "\x1b" not in shown.stderr
    assert (desk.place / "out.txt").read_text() == "hello\n"


def test_a_terminal(desk):
    """One line that changes; what was said stays, and the line is gone at the end."""
    ours, theirs = pty.openpty()
    process = desk.start("run", "Mend the shop", *RUN, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    seen = b""
    while process.poll() is None or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:
                break
    out, _ = process.communicate()
    os.close(ours)
    text = seen.decode()
    assert out == "All is done.\n"
    assert re.search(r"\r\x1b\[2K\S+ turn 1 · .*\r\x1b\[2K\S+ turn 2 · ", text, re.DOTALL), text
    assert "shell {" in text
    assert text.endswith(("done\r\n", "\x1b[2K"))


def test_a_terminal_is_asked(desk):
    """Without --approve a person decides."""
    ours, theirs = pty.openpty()
    process = desk.start(
        "run", "Mend the shop", *RUN[:3], stdin=theirs, stderr=theirs, stdout=subprocess.PIPE
    )  # fmt: skip
    os.close(theirs)
    seen, answered = b"", False
    while process.poll() is None:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:
                break
        if b"Allow this? [y/N]" in seen and not answered:
            os.write(ours, b"y\n")
            answered = True
    process.communicate()
    os.close(ours)
    assert (desk.place / "out.txt").exists()


def test_json(desk):
    """One object, also of what failed."""
    shown = desk("run", "Mend the shop", *RUN, "--json")
    row = json.loads(shown.stdout)
    assert (row["status"], row["answer"], row["llm_calls"], row["tool_calls"]) == ("completed", "All is done.", 2, 1)
    assert row["task_key"].startswith("local/issue/mend-the-shop-")
    shown = desk("run", "Mend the shop", *RUN, "--json", "--max-calls", "1")
    row = json.loads(shown.stdout)
    assert (row["status"], row["reason"], row["resumable"]) == ("failed", "limit: calls", False)
    assert shown.returncode == 5


@pytest.mark.parametrize(
    ("limit", "reason"),
    [(("--max-calls", "1"), "1 calls"), (("--budget", "10"), "10 tokens"), (("--seconds", "0.000001"), "seconds"),
     (("--cost", "0.0000001", "--prices", "1", "2"), "cost")],
    ids=["calls", "tokens", "seconds", "cost"],
)  # fmt: skip
def test_limits(desk, limit, reason):
    """A limit is a failure with its name, and code 5."""
    usage = {"usage": {"prompt_tokens": 90, "completion_tokens": 20}}
    desk.script(call("true") | usage, "All is done.")
    shown = desk("run", "Mend the shop", *RUN, *limit)
    assert (shown.returncode, shown.stdout) == (5, "")
    assert "failed: The run has reached its limit" in shown.stderr
    assert reason in shown.stderr
    assert "Traceback" not in shown.stderr


def test_a_file(desk):
    """A Markdown file is an issue; what became of it stands beside it."""
    (desk.place / "login.md").write_text("# The page is blank\n\nSince Monday.\n")
    assert desk("run", "login.md", *RUN).returncode == 0
    state = json.loads((desk.place / "login.orihon.json").read_text())
    assert state["status"] == "done"
    assert "All is done." in state["comments"][-1]["body"]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_and_a_resume(desk, number, code):
    """Ctrl-C pauses and says how to go on; the resume needs no options, and runs nothing twice."""
    returned, out, err = interrupted(desk, number)
    assert (returned, out) == (code, "")
    assert "Traceback" not in err
    command = err.splitlines()[-1].strip().partition("`orihon ")[2].partition("`")[0].split()
    assert command[:2] == ["run", "--resume"]
    assert len(command[2]) == 8
    (desk.place / "began").unlink()
    shown = desk(*command, "--json")
    row = json.loads(shown.stdout)
    assert (shown.returncode, row["status"], row["answer"]) == (0, "completed", "All is done.")
    assert not (desk.place / "began").exists()
    assert desk(*command).returncode == 3  # it has ended


def test_json_of_an_interrupt(desk):
    """A program learns what can be resumed."""
    code, out, _ = interrupted(desk, signal.SIGINT, "--json")
    row = json.loads(out)
    assert (code, row["status"], row["reason"], row["resumable"]) == (130, "paused", "interrupted", True)


@pytest.mark.slow
def test_killed(desk):
    """After kill -9 the same command goes on."""
    code, _, _ = interrupted(desk, signal.SIGKILL)
    assert code == -signal.SIGKILL
    uuid = os.listdir(desk.place / "logs" / "contexts" / "running")[0]
    shown = desk("run", "--resume", uuid[:8])
    assert (shown.returncode, shown.stdout) == (0, "All is done.\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("text and", "--resume", "abc"), 2),
        (("--resume", "abc"), 3),
        (("",), 2),
        (("nothing.md",), 2),
        ((".",), 2),
        (("https://example.com/acme/shop/issues/1",), 2),
        (("https://github.com/acme/shop",), 2),
        (("Mend it", "--workspace", "nowhere"), 2),
        (("Mend it", "--approve", "some"), 2),
        (("Mend it", "--cost", "1"), 2),
        (("Mend it", "--model", "scripted:nothing.json"), 2),
        (("Mend it", "--model", "scripted:script.json", "--context-length", "10"), 2),
        (("Mend it", "--store", "nosuch://x", "--model", "scripted:script.json"), 2),
    ],
)
def test_wrong_inputs(desk, arguments, code):
    """A sentence and a hint, the exit code of the branch, and no task."""
    shown = desk("run", *arguments)
    assert (shown.returncode, shown.stdout) == (code, "")
    assert shown.stderr.startswith("orihon: ")
    assert "Traceback" not in shown.stderr
    assert len(shown.stderr.splitlines()) == 2
    running = desk.place / "logs" / "contexts" / "running"
    assert not running.exists() or not os.listdir(running)


@pytest.mark.slow
def test_debug_shows_the_statistics(desk):
    """`Context stats: 10 messages, ~123 tokens` at every fifth turn."""
    desk.script(*[call("true")] * 5, "Done.")
    shown = desk("--debug", "run", "Mend the shop", *RUN)
    assert shown.stderr.count("Context stats: ") == 1
    assert "Context stats: " not in desk("run", "Mend the shop", *RUN).stderr


# the queue


@pytest.mark.slow
def test_the_queue(desk):
    """What is queued is done by a worker, and the health file says that it lives."""
    uuid = desk("enqueue", "Mend the shop", *RUN, "--priority", "3").stdout.strip()
    assert len(uuid) == 36
    shown = desk("worker", "--once", "--health", "health")
    assert shown.returncode == 0
    assert f"[uuid:{uuid[:8]}] Task completed successfully" in shown.stderr
    assert (desk.place / "health").read_text().endswith("Z\n")
    assert (desk.place / "out.txt").exists()


@pytest.mark.slow
def test_a_directory_is_a_source(desk):
    """`--source DIRECTORY` finds files that ask for work, and each is done once."""
    issues = desk.place / "issues"
    issues.mkdir()
    for name in ("a", "b"):
        (issues / f"{name}.md").write_text(f"# Mend {name}\n")
    for _ in range(2):
        assert desk("worker", "--once", "--jobs", "2", "--source", "issues", *RUN).returncode == 0
    done = os.listdir(desk.place / "logs" / "contexts" / "completed")
    assert len(done) == 2
    assert json.loads((issues / "a.orihon.json").read_text())["status"] == "done"


@pytest.mark.slow
def test_pause_and_unpause(desk):
    """A queued task that is to pause is not begun; one that runs is paused; then both go on."""
    uuid = desk("enqueue", "Mend the shop", *RUN).stdout.strip()
    said = desk("pause", uuid[:8]).stdout
    assert said.startswith(f"{uuid} is pending; no worker continues it until `orihon unpause {uuid[:8]}`.")
    assert f"(logs/contexts/pause_signal.{uuid})" in said
    assert "Task" not in desk("worker", "--once").stderr
    shown = desk("run", "--resume", uuid[:8])
    assert shown.returncode == 2
    assert "unpause" in shown.stderr
    assert desk("doctor").returncode == 0
    assert desk("unpause", uuid[:8]).returncode == 0
    assert "All tasks, now and later, pause" in desk("pause", "--all").stdout
    shown = desk("run", "Something else", *RUN)
    assert shown.returncode == 5
    assert "paused: logs/contexts/pause_signal is there" in shown.stderr
    assert desk("unpause", "--all").stdout == "Tasks are no longer asked to pause. (logs/contexts/pause_signal)\n"
    assert "are not asked" in desk("unpause", "--all").stdout
    assert "Task completed" in desk("worker", "--once").stderr
    assert desk("pause").returncode == 2


@pytest.mark.slow
def test_a_worker_is_drained(desk):
    """SIGTERM pauses what runs after its turn; the next worker ends it."""
    desk.script(call("touch began; sleep 1"), "All is done.")
    desk("enqueue", "Mend the shop", *RUN)
    worker = desk.start("worker", stderr=subprocess.PIPE)
    until((desk.place / "began").exists)
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=20)
    assert worker.returncode == 0
    assert "Task paused: drained" in err
    assert "Task completed" in desk("worker", "--once").stderr


def test_a_queue_in_memory(desk):
    """It would be seen by nobody."""
    assert desk("enqueue", "Mend the shop", "--store", "memory:").returncode == 2
    assert desk("worker", "--once", "--store", "memory:").returncode == 2


def test_replies_are_cached(desk):
    """000 §10.2: 「同じコンテキストで同じ応答を再利用」, by an option of the run and by the setting."""
    arguments = ("run", "Say hello.", "--no-plan", "--model", "openai:gpt-4o")
    configured = desk.place / "config.yaml"
    configured.write_text("context_storage:\n  summariser: extractive\n")
    with Chaos([says("Hello."), says("Hello again.")]) as server:
        environ = {"OPENAI_API_KEY": "k3y-9f7q2w8e", "OPENAI_BASE_URL": f"{server.root}/v1"}

        def answer(*options, store):
            shown = run_cli([*arguments, *options, "--store", store], desk.place, ENVIRON | environ)
            assert shown.returncode == 0, shown.stderr
            return shown.stdout

        cached = ("--reply-cache", "replies")
        assert [answer(*cached, store=name) for name in ("one", "two")] == ["Hello.\n"] * 2
        assert len(server.bodies) == 1
        assert answer(store="three") == "Hello again.\n"
        with configured.open("a") as file:
            file.write("llm:\n  reply_cache: replies\n")
        assert answer(store="four") == "Hello.\n"
        assert len(server.bodies) == 2
