"""`orihon chat` at a real terminal and in real pipes, against servers with OpenAI's API."""

import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

import orihon
from orihon.chat import registry
from orihon.chat.i18n import Texts
from orihon.chat.terminal.ui_terminal import TerminalUI
from orihon.cli import main
from orihon.settings.schema import Settings
from orihon.testing import serve
from support.failing_server import SILENCE, Chaos, cut, says, stalls, status
from support.faults import in_child
from support.terminal import Terminal
from support.wire_rules import violations

ENVIRON = {name: value for name, value in os.environ.items() if not name.endswith(("_TOKEN", "_API_KEY"))}
PROMPT = "32k]\n>"
MAKE = {"say": "I make it.", "call": [{"name": "shell", "arguments": {"command": "echo hello > out.txt"}}]}


class Desk:
    """A directory with settings, and the command in it."""

    def __init__(self, place):
        self.place = place / "desk"
        self.place.mkdir()
        self.environ = ENVIRON | {"XDG_STATE_HOME": str(place / "state"), "LC_ALL": "C.UTF-8"}
        self._terminals = []

    def server(self, url, tries=2):
        text = f"llm:\n  tries: {tries}\n  openai: {{model: small, base_url: {url}, context_length: 32000}}\n"
        (self.place / "config.yaml").write_text(text)

    def script(self, *replies):
        (self.place / "script.json").write_text(json.dumps(replies), "utf-8")
        return ("--model", "scripted:script.json")

    def terminal(self, *arguments, **environ):
        made = Terminal(sys.executable, "-m", "orihon", "chat", *arguments, cwd=self.place, env=self.environ | environ)
        self._terminals.append(made)
        return made

    def call(self, *arguments, typed="", **environ):
        """Run the command in this process, which is faster than a pipe."""
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        code = None
        with CliRunner().isolation(typed.encode(), self.environ | environ) as (stdout, stderr, _):
            try:
                main(["chat", *arguments])
            except SystemExit as error:
                code = error.code
        for number, handler in handlers.items():
            signal.signal(number, handler)
        return SimpleNamespace(returncode=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())

    def __call__(self, *arguments, typed="", **environ):
        return subprocess.run(
            [sys.executable, "-m", "orihon", "chat", *arguments], cwd=self.place, env=self.environ | environ,
            input=typed.encode(), capture_output=True, check=False, timeout=60,
        )  # fmt: skip

    def listed(self):
        with orihon.open(self.place / "logs" / "contexts", settings=Settings()) as engine:
            return registry.list_conversations(engine)

    def log(self):
        """Return the messages of the only conversation, without the system prompt."""
        with orihon.open(self.place / "logs" / "contexts", settings=Settings()) as engine:
            (one,) = registry.list_conversations(engine)
            found = list(engine.read(one.uuid).messages())
        return [(message.role, message.text) for message in found if message.role != "system"]

    def close(self):
        for terminal in self._terminals:
            terminal.close()


@pytest.fixture
def desk(tmp_path, monkeypatch):
    desk = Desk(tmp_path)
    monkeypatch.chdir(desk.place)
    yield desk
    desk.close()


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# at a terminal


@pytest.mark.slow
def test_a_session(desk):
    """Streaming, approval of a tool, Tab, Japanese, several lines, a resize, and a clean end."""
    usage = {"prompt_tokens": 900, "completion_tokens": 9}
    evil = {"say": "端末を\x1b[2J壊す\x07文字 全角\u3000空白", "usage": usage}
    replies = [{"say": "こんにちは、世界。", "usage": usage}, MAKE, "It is there.", evil, "Two lines."]
    (desk.place / "かご.py").write_text("")
    with serve(replies, models=[{"id": "small", "max_model_len": 32_000}]) as server:
        desk.server(server.url)
        terminal = desk.terminal("--name", "店", "--prices", "1", "2")
        assert "Conversation 店 with openai:small." in terminal.until(PROMPT)
        terminal.type("日本語で挨拶\r")
        terminal.until("こんにちは、世界。\n[")
        terminal.until(PROMPT)
        terminal.type("make it\r")
        assert "echo hello > out.txt" in terminal.until("Allow this? [y/N]")
        terminal.type("y\r")
        terminal.until("It is there.\n")
        assert (desk.place / "out.txt").read_text() == "hello\n"
        terminal.until(PROMPT)
        terminal.type("break かご\t it\r")
        terminal.until("端末を\\x1b[2J壊す\\x07文字 全角\u3000空白\n")
        assert "\x07" not in terminal.raw
        terminal.until(PROMPT)
        terminal.resize(20, 50)
        terminal.type("/us\t\r")
        assert "1,800 tokens in, 18 out" in terminal.until("Cost: 0.0018")
        terminal.until(PROMPT)
        terminal.type("one\\\rtwo\x1b\rthree\r")
        terminal.until("Two lines.\n")
        terminal.until(PROMPT)
        terminal.type("\x04")
        terminal.until("Resume with `orihon chat --resume 店`.")
        assert terminal.ended() == 0
        asked = [request.messages[-1]["content"] for request in server.model.requests]
    assert asked[-2:] == ["break かご.py it", "one\ntwo\nthree"]
    assert {one.row.status for one in desk.listed()} == {"paused"}


@pytest.mark.slow
def test_failures_of_the_provider(desk):
    """Retries are shown, a broken stream starts again, and a permanent failure is shown as an error."""
    acts = [
        status(429, "Too fast.", headers={"Retry-After": "0"}), says("At last."),
        cut(0.7, "This reply will never be whole."), says("This one is."),
        status(500, "Out\x1b[2J of order."), status(500, "Out of order."),
        says("Mended."),
    ]  # fmt: skip
    with Chaos(acts) as server:
        desk.server(f"{server.root}/v1")
        terminal = desk.terminal()
        assert "does not report its window" in terminal.until(PROMPT)
        terminal.type("first\r")
        assert "Too fast. Trying again in 0.0 s (attempt 2)" in terminal.until("At last.")
        terminal.until(PROMPT)
        terminal.type("second\r")
        terminal.until("[interrupted; starting again]\nThis one is.")
        terminal.until(PROMPT)
        terminal.type("third\r")
        assert "Out\\x1b[2J of order." in terminal.until("It was tried 2 times.\n  ")
        terminal.until(PROMPT)
        terminal.type("/retry\r")
        terminal.until("Mended.")
        terminal.until(PROMPT)
        terminal.type("/transcript\r")
        assert re.search(r"\[6\] > third\n\[6\] .*Out of order", terminal.until("\n[7] Mended.\n"))
        terminal.until(PROMPT)
        terminal.type("/quit\r")
        assert terminal.ended() == 0
    assert [text for role, text in desk.log() if role == "assistant"] == ["At last.", "This one is.", "Mended."]


@pytest.mark.slow
def test_ctrl_c(desk):
    """During a reply, during a tool call, in a line, and at an empty prompt."""
    sleep = ("shell", json.dumps({"command": "touch began; sleep 60"}))
    with Chaos([stalls(3), says("", sleep), says("I am here.")]) as server:
        desk.server(f"{server.root}/v1")
        terminal = desk.terminal("--approve", "all")
        terminal.until(PROMPT)
        terminal.type("first\r")
        terminal.until("This takes")
        terminal.type("\x03")
        terminal.until("Cancelled.")
        terminal.until(PROMPT)
        terminal.type("second\r")
        until((desk.place / "began").exists)
        terminal.type("\x03")
        terminal.until("Cancelled.")
        terminal.until(PROMPT)
        terminal.type("never sent\x03")
        terminal.until(PROMPT)
        terminal.type("\x03")
        terminal.until("Press Ctrl-D or type /quit to leave")
        terminal.until(PROMPT)
        terminal.type("third\r")
        terminal.until("I am here.")
        terminal.until(PROMPT)
        terminal.type("\x04")
        assert terminal.ended() == 0
        sent = server.bodies[-1]["messages"]
    assert violations("openai", sent) == []
    said = [message.get("content") for message in sent if message["role"] in {"user", "assistant"}]
    assert said[0] == "first"
    assert said[1].startswith("This takes")
    assert said[1].endswith("[cancelled by the user]")
    assert said[-1] == "third"


@pytest.mark.slow
def test_kill_9_during_a_reply(desk):
    """The message is stored and can be retried; the arrow key finds it too."""
    with Chaos([says("One."), stalls(3), says("Two.")]) as server:
        desk.server(f"{server.root}/v1")
        terminal = desk.terminal()
        terminal.until(PROMPT)
        terminal.type("first\r")
        terminal.until("One.")
        terminal.until(PROMPT)
        terminal.type("二つ目\r")
        terminal.until("This takes")
        terminal.process.kill()
        assert terminal.ended() == -signal.SIGKILL
        assert desk.log() == [("user", "first"), ("assistant", "One."), ("user", "二つ目")]
        again = desk.terminal("--resume")
        shown = again.until(PROMPT)
        assert "[2] > first\n[3] One.\n[4] > 二つ目\nThe last message has no reply yet" in shown
        again.type("/retry\r")
        again.until("Two.")
        again.until(PROMPT)
        again.type("\x1b[A\x1b[A")
        again.until("二つ目")
        again.type("\x03")
        again.until(PROMPT)
        again.type("\x04")
        assert again.ended() == 0
    assert desk.log()[-1] == ("assistant", "Two.")


@pytest.mark.parametrize("error", [OSError, termios.error])
@pytest.mark.parametrize("call", [lambda ui: ui.read(""), lambda ui: ui.ask("Really?")], ids=["read", "ask"])
def test_a_terminal_that_is_gone(tmp_path, error, call):
    """The line editor may notice it before SIGHUP arrives."""

    def work(say):
        ui = TerminalUI(Texts("en"), tmp_path / "history")
        ui._session.prompt = ui._question.prompt = Mock(side_effect=error(5, "Input/output error"))
        try:
            call(ui)
        except SystemExit as ended:
            say(str(ended.code))

    assert in_child(work).said == [str(128 + signal.SIGHUP)]


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True], ids=["at the prompt", "during a reply"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals(desk, number, busy):
    """SIGTERM and a closed terminal pause the conversation."""
    with Chaos([says("One."), stalls(3)]) as server:
        desk.server(f"{server.root}/v1")
        terminal = desk.terminal()
        terminal.until(PROMPT)
        terminal.type("first\r")
        terminal.until("One.")
        terminal.until(PROMPT)
        if busy:
            terminal.type("second\r")
            terminal.until("This takes")
        if number == signal.SIGHUP:
            terminal.hang_up()
        else:
            terminal.process.send_signal(number)
        # Python loses a signal that arrives during a finaliser; then the server's timeout ends the process
        assert terminal.ended(2 * SILENCE) == 128 + number
    (one,) = desk.listed()
    assert one.row.status == "paused"
    assert desk.log()[:2] == [("user", "first"), ("assistant", "One.")]


def test_plain_at_a_terminal(desk):
    """The user can still approve tools."""
    terminal = desk.terminal("--plain", *desk.script(MAKE, "Done."))
    terminal.until("128k]\n> ")
    terminal.type("make it\n")
    terminal.until("Allow this? [y/N] ")
    terminal.type("n\n")
    terminal.until("Done.\n")
    terminal.type("\x04")
    assert terminal.ended() == 0
    assert not (desk.place / "out.txt").exists()
    assert "did not allow" in desk.log()[2][1]


# in pipes


def test_a_pipe(desk):
    """Lines in, replies out; everything else is on standard error."""
    shown = desk(*desk.script("Hello.", "二つ目"), typed="hi\n\none\\\ntwo\n/usage\n")
    assert shown.returncode == 0
    assert shown.stdout.decode().startswith("Hello.\n二つ目\nWindow: ")
    assert b"\x1b" not in shown.stdout + shown.stderr
    assert desk.log()[2] == ("user", "one\ntwo")
    shown = desk("--resume", *desk.script("Again."), typed="no newline at the end \xff")
    assert shown.stdout == b"Again.\n"


def test_a_pipe_that_fails(desk):
    """The exit code is that of the last error; the other lines are answered."""
    shown = desk.call(*desk.script({"status": 400, "error": "No."}, "Yes."), typed="a\nb\n")
    assert (shown.returncode, shown.stdout) == (5, b"Yes.\n")
    assert b"orihon: No.\n" in shown.stderr
    assert desk.call("--resume", *desk.script(), typed="/nope\n").returncode == 2


def test_in_japanese(desk):
    """The locale selects the language."""
    shown = desk.call(*desk.script("はい。"), typed="こんにちは\n/help\n", LC_ALL="", LANG="ja_JP.UTF-8")
    assert "はい。\n/help" in shown.stdout.decode()
    assert "コマンドの一覧または説明を表示" in shown.stdout.decode()
    assert "で再開できます" in shown.stderr.decode()


def test_the_conversations_of_a_directory(desk):
    """They are listed, searched and deleted."""
    for name in ("shop", "another one"):
        assert desk.call("--name", name, *desk.script("The apples are red."), typed=f"about {name}\n").returncode == 0
    lines = desk.call("--list").stdout.decode().splitlines()
    assert [line[2:].partition("  ")[0] for line in lines] == ["another one", "shop"]
    found = desk.call("--search", "APPLES").stdout.decode().splitlines()
    assert found == ["another one [3] assistant: The apples are red.", "shop [3] assistant: The apples are red."]
    assert desk.call("--delete", "shop").returncode == 0
    assert [one.name for one in desk.listed()] == ["another one"]
    assert desk.call("--delete", "shop").returncode == 3
    elsewhere = desk.place / "sub"
    elsewhere.mkdir()
    assert b"no conversations" in desk.call("--list", "--workspace", "sub").stdout


def test_a_conversation_is_continued_by_chat(desk):
    """`orihon` alone names that command, and `orihon resume`, which would plan and work, refuses."""
    assert desk.call(*desk.script("The apples are red."), typed="hello\n").returncode == 0
    (one,) = desk.listed()
    name = one.uuid[:8]
    alone = subprocess.run(
        [sys.executable, "-m", "orihon"], cwd=desk.place, env=desk.environ, capture_output=True, check=True
    )
    assert f"orihon chat --resume {name} ".encode() in alone.stdout
    command = [sys.executable, "-m", "orihon", "resume", name]
    refused = subprocess.run(command, cwd=desk.place, env=desk.environ, capture_output=True, check=False)
    assert refused.returncode == 2
    assert f"Task {name} is a conversation.\n  `orihon chat --resume {name}` continues it.".encode() in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--name", "a", "--resume", "b"), 2),
        (("--resume", "nothing"), 3),
        (("--resume",), 3),
        (("--name", "two\nlines", "--model", "scripted:script.json"), 2),
        (("--model", "scripted:nothing.json"), 2),
        (("--model", "scripted:script.json", "--context-length", "10"), 2),
        (("--workspace", "nowhere"), 2),
        (("--store", "nosuch://x"), 2),
    ],
)
def test_invalid_arguments(desk, arguments, code):
    """An error with a hint, and no conversation."""
    desk.script("Hello.")
    shown = desk.call(*arguments, typed="hi\n")
    assert (shown.returncode, shown.stdout) == (code, b"")
    assert shown.stderr.startswith(b"orihon: ")
    assert b"Traceback" not in shown.stderr
    assert not (desk.place / "logs").exists() or desk.listed() == []
