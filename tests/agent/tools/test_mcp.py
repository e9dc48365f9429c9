"""MCP servers: real ones in processes of their own, over stdio and over HTTP."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import orihon
from agent.tools.conftest import Desk
from orihon.agent.tools.mcp import make_unique_name
from orihon.agent.tools.toolbox import Toolbox
from orihon.errors import OrihonError
from orihon.settings.schema import McpServer, Settings
from orihon.settings.section import Secret
from support import replies as rounds

SUPPORT = Path(__file__).parents[2] / "support"
SECONDS = 60.0
SERVER = str(SUPPORT / "mcp_server.py")

LIGHT_SERVER = str(SUPPORT / "light_mcp_server.py")  # starts in a moment, the other one in seconds


def stdio(name="test", server=LIGHT_SERVER, **options):
    return McpServer(mcp_server_name=name, command=(sys.executable, server), timeout_seconds=SECONDS, **options)


def until(condition, what):
    """Wait for a state, not for a time."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def gone(pid):
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


class Web:
    """A server over HTTP that can be ended and started again at the same address."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, SERVER, str(self.port)], stderr=subprocess.DEVNULL)
        until(self._answers, "the server did not start")

    def _answers(self):
        assert self.process.poll() is None
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def web():
    web = Web()
    yield web
    web.end()


@pytest.fixture(params=["stdio", "http"], scope="module")
def server(request):
    """The same server, over each of the two transports."""
    if request.param == "stdio":
        return stdio(server=SERVER)
    port = request.getfixturevalue("web").port
    return McpServer(mcp_server_name="test", url=f"http://127.0.0.1:{port}/mcp", timeout_seconds=SECONDS)


@pytest.fixture(scope="module")
def over(server, tmp_path_factory):
    """A desk with the tools of the server, for all tests of a transport."""
    root = tmp_path_factory.mktemp("work")
    with Toolbox(root, approve="all", servers=[server]) as box:
        yield Desk(box, root)


class TestBothTransports:
    def test_tools_are_listed_and_called(self, over):
        """Under the name of the server; text, numbers, pictures."""
        described = {schema["function"]["name"]: schema["function"] for schema in over.box.schemas}
        assert described["test_add"]["description"] == "Add two numbers."
        assert set(described["test_add"]["parameters"]["properties"]) == {"a", "b"}
        assert over.do("test_add", a=2, b=3) == "5"
        text, image = over.do("test_picture")
        assert (text.text, image.type, image.media_type) == ("a pixel", "image", "image/png")

    def test_an_error_of_a_tool_is_an_error(self, over):
        """And so are arguments that it does not take."""
        assert "Error executing tool fail" in over.refusal("test_fail")
        assert "a" in over.refusal("test_add", a="x", b=1)

    def test_the_session_stays_open(self, over):
        """Every call reaches the same process, and the list is read once."""
        assert len({over.do("test_pid") for _ in range(3)}) == 1
        connection = over.box.servers._connections["test"]
        before = connection._tools
        assert over.box.schemas == over.box.schemas
        assert connection._tools is before

    def test_names_that_no_provider_takes_are_made_plain(self, over):
        """Each is still the name of one tool."""
        name = next(name for name in (s["function"]["name"] for s in over.box.schemas) if "weird" in name)
        assert name.isascii()
        assert over.do(name) == "weird"

    def test_a_call_that_takes_too_long_is_cancelled(self, over, tmp_path, monkeypatch):
        """The server is told, and the session can be used again at once."""
        assert over.do("test_add", a=1, b=1) == "2"
        session = over.box.servers._connections["test"]._session._ready.result().session
        with monkeypatch.context() as patch:
            patch.setattr(session, "_session_read_timeout_seconds", 0.3)
            said = over.refusal("test_slow", marker=str(tmp_path / "slow"))
        assert "did not answer slow within" in said
        until((tmp_path / "slow.cancelled").exists, "the server was not told")
        assert over.do("test_add", a=1, b=2) == "3"

    def test_an_interrupted_call_is_cancelled(self, over, tmp_path):
        """Ctrl-C in the thread that waits is told to the server."""
        over.do("test_add", a=1, b=1)
        marker = tmp_path / "slow"

        def press():
            until((tmp_path / "slow.begun").exists, "the call did not begin")
            os.kill(os.getpid(), signal.SIGINT)

        presser = threading.Thread(target=press)
        presser.start()
        with pytest.raises(KeyboardInterrupt):
            over.do("test_slow", marker=str(marker))
        presser.join()
        until((tmp_path / "slow.cancelled").exists, "the server was not told")
        assert over.do("test_add", a=1, b=2) == "3"


@pytest.mark.parametrize("server", [SERVER, LIGHT_SERVER], ids=["2026", "2024"])
def test_a_tool_that_appears_can_be_called(make, server):
    """The server announces that its list has changed, to subscribers or on its own."""
    desk = make(servers=[stdio(server=server)])
    assert "no tool" in desk.refusal("test_grown")
    desk.do("test_grow")
    until(lambda: any(s["function"]["name"] == "test_grown" for s in desk.box.schemas), "the list was kept")
    assert desk.do("test_grown") in {"new", "grown"}


class TestCrashes:
    def test_a_server_that_ended_between_calls_is_started_again(self, make):
        """Nobody notices but the process list."""
        desk = make(servers=[stdio()])
        first = int(desk.do("test_pid"))
        os.kill(first, signal.SIGKILL)
        until(lambda: gone(first), "it lives")
        assert int(desk.do("test_pid")) != first

    def test_a_call_that_does_no_harm_is_made_again(self, make, tmp_path):
        """Once; the tool says that it only reads."""
        desk = make(servers=[stdio()])
        assert desk.do("test_crash_once", marker=str(tmp_path / "crashed")) == "here again"

    def test_a_call_that_may_have_done_something_is_not_repeated(self, make, tmp_path):
        """It is reported, and the next call finds the server again."""
        desk = make(servers=[stdio()])
        said = desk.refusal("test_count", file=str(tmp_path / "count"))
        assert "ended while it ran count" in said
        assert "How far it got is not known." in said
        assert (tmp_path / "count").read_text() == "x\n"
        assert desk.do("test_add", a=1, b=2) == "3"

    def test_the_last_words_of_a_server_are_told(self, make):
        """They often say why."""
        desk = make(servers=[stdio()])
        assert "goodbye, cruel world" in desk.refusal("test_crash")

    @pytest.mark.slow
    def test_a_web_server_that_was_started_again_is_found_again(self, make):
        """Away, it is reported; back, it is used."""
        web = Web()
        try:
            url = f"http://127.0.0.1:{web.port}/mcp"
            desk = make(servers=[McpServer(mcp_server_name="web", url=url, timeout_seconds=SECONDS)])
            assert desk.do("web_add", a=1, b=2) == "3"
            web.end()
            assert "The MCP server web could not be started" in desk.refusal("web_add", a=1, b=2)
            web.start()
            assert desk.do("web_add", a=1, b=2) == "3"
        finally:
            web.end()

    @pytest.mark.parametrize(
        "command",
        [
            ("/nonexistent/server",),
            (sys.executable, "-c", "import sys; sys.exit('no license')"),
            (sys.executable, "-c", "print('this is not the protocol')"),
        ],
    )
    def test_a_server_that_cannot_be_started_is_left_out(self, make, command, caplog):
        """With a warning; the others are there."""
        bad = McpServer(mcp_server_name="bad", command=command, timeout_seconds=SECONDS)
        desk = make(servers=[bad, stdio("good")])
        names = {schema["function"]["name"] for schema in desk.box.schemas}
        assert "good_add" in names
        assert not any(name.startswith("bad_") for name in names)
        assert "The MCP server bad could not be started" in caplog.text
        assert "no license" in caplog.text or "license" not in command[-1]
        assert desk.do("good_add", a=1, b=1) == "2"

    def test_a_server_that_says_nothing_is_given_up(self, make, caplog):
        """After its time."""
        silent = (sys.executable, "-c", "import time; time.sleep(600)")
        desk = make(servers=[McpServer(mcp_server_name="mute", command=silent, timeout_seconds=0.5)])
        assert len(desk.box.schemas) == 6
        assert "could not be started: no answer within 0.5 s" in caplog.text

    def test_closing_ends_the_servers(self, make):
        """And a closed box says so."""
        before = set(threading.enumerate())
        desk = make(servers=[stdio()])
        pid = int(desk.do("test_pid"))
        desk.box.close()
        assert gone(pid)
        desk.box.close()
        with pytest.raises(OrihonError, match="is closed"):
            desk.do("test_pid")
        assert set(threading.enumerate()) <= before


def test_a_server_sees_only_its_own_environment(make, monkeypatch):
    """What it was configured with, and a few variables that every program needs."""
    for name in ("OPENAI_API_KEY", "GITHUB_TOKEN", "HARMLESS"):
        monkeypatch.setenv(name, "of-the-parent")
    desk = make(servers=[stdio(env={"MY_TOKEN": Secret("of-the-server")})])
    seen = json.loads(desk.do("test_environment"))
    assert seen["MY_TOKEN"] == "of-the-server"
    assert set(seen) <= {"MY_TOKEN", "HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LC_CTYPE"}
    assert "of-the-parent" not in seen.values()


def test_a_web_server_is_sent_its_headers(make, web):
    """A bearer token, for example."""
    url = f"http://127.0.0.1:{web.port}/mcp"
    secret = {"Authorization": Secret("Bearer abc")}
    desk = make(servers=[McpServer(mcp_server_name="web", url=url, headers=secret, timeout_seconds=SECONDS)])
    assert desk.do("web_headers") == "Bearer abc"


def test_only_tools_that_read_need_no_approval(make):
    """By what the server says of them."""
    questions = []
    desk = make(approve="edits", ask=lambda question: bool(questions.append(question)), servers=[stdio()])
    assert desk.do("test_add", a=1, b=2) == "3"
    assert not questions
    assert desk.refusal("test_fail").startswith("The user did not allow test_fail")
    assert "Call test_fail?" in questions[0]


def test_two_servers_with_the_same_tools_are_told_apart(make):
    """Also when the names run into each other."""
    desk = make(servers=[stdio("one"), stdio("two")])
    assert desk.do("one_pid") != desk.do("two_pid")
    names = [schema["function"]["name"] for schema in desk.box.schemas]
    assert len(names) == len(set(names))
    assert make_unique_name("a_b", {"a_b"}) not in {"a_b", make_unique_name("a_b", set())}
    assert len(make_unique_name("x" * 200, ())) <= 64
    assert make_unique_name("read", {"read"}) != "read"


def test_nothing_is_started_before_it_is_needed(make):
    """Neither a thread nor a process, nor is the SDK imported."""
    desk = make(servers=[stdio()])
    assert desk.box.servers._connections == {}
    assert desk.do("list_files")
    assert desk.box.servers._connections == {}


def test_a_task_uses_a_server(over):
    """From the reply of a model to results in the log, pictures and errors included."""
    with orihon.open("memory:", settings=Settings()) as engine:
        with engine.start(rounds.KEY, tools=over.box.schemas) as task:
            task.add("user", "Add.")
            task.window()
            task.add_reply(rounds.calling(("test_add", {"a": 1, "b": 2}), ("test_picture", {}), ("test_fail", {})))
            for waiting in task.pending_calls():
                with task.tool(waiting) as run:
                    run.result = over.box.run(waiting)
            task.add_reply(rounds.saying("Done."))
            uuid = task.uuid
        results = [message for message in engine.read(uuid).messages() if message.role == "tool"]
    assert [message.is_error for message in results] == [False, False, True]
    assert results[0].text == "3"
    assert [part.type for part in results[1].content] == ["text", "image"]
