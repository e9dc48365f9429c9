"""The shell: bounded while it runs, ended with everything it started, and told no secrets."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from orihon.agent.tools.shell import HEAD_BYTES, TAIL_BYTES, Output, clean_output, filter_environ
from orihon.errors import ToolError

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc is needed to find who left the group")
# Leaves the group and the session, as daemons do, and says who it is.
DAEMON = "setsid sh -c 'echo $$ > daemon.pid; exec sleep 600' >/dev/null 2>&1 &"


def until(condition, what):
    """Wait for a state, not for a time."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def pid_of(place):
    until(lambda: place.exists() and place.read_text().strip(), f"{place.name} was not written")
    return int(place.read_text())


class TestResults:
    @pytest.mark.parametrize(
        ("command", "said"),
        [
            ("echo out; echo err >&2; echo again", "out\nerr\nagain\n(exit code 0)"),
            ("exit 7", "(exit code 7, no output)"),
            ("echo x; kill -9 $$", "x\n(ended by signal 9)"),
            ("cat; echo done", "done\n(exit code 0)"),
            ("printf '\\033[31mred\\033[0m 10%%\\r 100%%\\n'", " 100%\n(exit code 0)"),
            ("printf 'caf\\351'", "caf\ufffd\n(exit code 0)"),
            ("echo $TERM $PAGER", "dumb cat\n(exit code 0)"),
            ("pwd -P | xargs basename", "work\n(exit code 0)"),
            ("if", None),
        ],
    )
    def test_output_and_exit_code_are_told(self, desk, command, said):
        """Both streams in their order, without colours, with no input to wait for."""
        result = desk.do("shell", command=command)
        assert result == said if said else "exit code 2" in result

    def test_empty_and_impossible_commands_are_refused(self, desk):
        """With a sentence."""
        assert "is empty" in desk.refusal("shell", command="  ")
        assert "NUL" in desk.refusal("shell", command="echo \0")

    def test_a_workspace_that_is_gone_is_said(self, desk):
        """Nothing is started then."""
        desk.root.rmdir()
        assert "could not be started" in desk.refusal("shell", command="true")

    def test_what_it_says_can_be_heard_at_once(self, desk):
        """`tell` gets every character once, also those that are cut in two by a pipe."""
        heard = []
        desk.do("shell", on_output=heard.append, command="for i in 1 2 3; do printf 'é%s\\n' $i; done")
        assert "".join(heard) == "é1\né2\né3\n"


class TestBounds:
    def test_a_long_output_keeps_its_ends(self, desk):
        """And says what is missing."""
        text = desk.do("shell", command="seq 1 100000")
        assert text.startswith("1\n2\n3\n")
        assert text.endswith("99999\n100000\n(exit code 0)")
        assert "lines, are left out here …]" in text
        assert len(text) < HEAD_BYTES + TAIL_BYTES + 200

    def test_the_count_of_what_is_missing_is_right(self):
        """However the output is cut into pieces."""
        data = b"".join(b"line %d\n" % number for number in range(30_000))
        for size in (1000, 65_536, len(data)):
            output = Output()
            for at in range(0, len(data), size):
                output.add(data[at : at + size])
            output.text()
            assert len(output.head) + len(output.tail) + output.dropped == len(data)
            assert bytes(output.head + output.tail).count(b"\n") + output.dropped_lines == 30_000
            assert (bytes(output.head), bytes(output.tail)) == (data[:HEAD_BYTES], data[-TAIL_BYTES:])

    @LINUX
    def test_a_large_output_takes_a_few_mb_of_memory(self, tmp_path):
        """Measured in a process of its own, at its highest."""
        script = textwrap.dedent("""
            import json, resource, sys
            from orihon.agent.tools.toolbox import Toolbox
            from orihon.task.tool_run import PendingCall
            def peak():
                return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            def run(command):
                return box.run(PendingCall(id="1", name="shell", arguments={"command": command}))
            with Toolbox(sys.argv[1], approve="all") as box:
                run("head -c 1000000 /dev/zero | tr '\\\\0' x")
                before = peak()
                text = run("head -c 60000000 /dev/zero | tr '\\\\0' x")
                print(json.dumps([peak() - before, len(text), "left out" in text]))
        """)
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
        )
        grown, length, told = json.loads(done.stdout)
        assert grown < 5
        assert length < HEAD_BYTES + TAIL_BYTES + 200
        assert told

    def test_lines_that_are_written_over_are_shown_once(self):
        """A progress bar is its last state."""
        assert clean_output(b"1%\r50%\r100%\nok\r\n") == "100%\nok\n"
        assert clean_output(b"\x1b]0;title\x07a\x1b[1;32mb\x1b[0m") == "ab"


class TestTime:
    @LINUX
    def test_a_command_without_end_is_ended_with_its_children(self, desk):
        """Those in the group, those that left it, and those that left the session."""
        command = f"sleep 600 & echo $! > child.pid; {DAEMON} echo begun; sleep 600"
        said = desk.refusal("shell", command=command, timeout=0.5)
        assert "ran longer than 0.5 s and was ended with all it started" in said
        assert said.endswith("begun")
        for name in ("child.pid", "daemon.pid"):
            place = desk.root / name
            assert not place.exists() or not alive(int(place.read_text() or 0))

    @LINUX
    def test_who_ignores_the_request_is_ended_all_the_same(self, desk):
        """SIGKILL follows SIGTERM."""
        desk.refusal("shell", command="echo $$ > pid; trap '' TERM HUP INT; while :; do sleep 0.1; done", timeout=0.5)
        assert not alive(int((desk.root / "pid").read_text()))

    @pytest.mark.slow
    @LINUX
    def test_who_multiplies_is_caught(self, desk):
        """Processes that replace themselves again and again, each in a session of its own."""
        script = """
            import os, time
            for _ in range(3):
                os.fork()
            while True:
                if os.fork():
                    os._exit(0)
                os.setsid()
                open("made", "a").close()
                time.sleep(0.005)
        """
        desk.put("many.py", textwrap.dedent(script))
        desk.refusal("shell", command=f"{sys.executable} many.py; sleep 600", timeout=1)
        assert (desk.root / "made").exists()
        for _ in range(50):  # one look may come too late for somebody who is another one every few milliseconds
            assert not working_in(desk.root)
            time.sleep(0.01)

    def test_the_box_has_a_usual_time(self, make):
        """Which the model can change for one command."""
        desk = make(shell_timeout=0.3)
        assert "longer than 0.3 s" in desk.refusal("shell", command="sleep 600")
        assert desk.do("shell", command="sleep 0.5; echo done", timeout=60) == "done\n(exit code 0)"


def working_in(root):
    """Who has the workspace as its directory."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdecimal() and Path(f"/proc/{name}/cwd").readlink() == root and alive(name):
                found.append(name)
    return found


@LINUX
class TestBackground:
    def test_a_server_in_the_background_keeps_nobody_waiting(self, make):
        """It runs on, may go on talking, and ends with the box."""
        desk = make()
        talk = "(echo $BASHPID > server.pid; while :; do echo talking; sleep 0.01; done) & echo started"
        assert "started" in desk.do("shell", command=talk, timeout=60)
        pid = pid_of(desk.root / "server.pid")
        desk.do("shell", command="sleep 0.3")
        assert alive(pid)
        desk.box.close()
        assert not alive(pid)

    def test_a_daemon_ends_with_the_box(self, make):
        """Although it is in nobody's group."""
        desk = make()
        desk.do("shell", command=DAEMON)
        pid = pid_of(desk.root / "daemon.pid")
        assert alive(pid)
        desk.box.close()
        assert not alive(pid)
        desk.box.close()

    def test_another_box_is_left_alone(self, make):
        """Closing ends what one's own commands started, and nothing else."""
        mine, other = make(), make()
        other.do("shell", command=DAEMON)
        pid = pid_of(other.root / "daemon.pid")
        mine.do("shell", command="true")
        mine.box.close()
        assert alive(pid)

    def test_a_time_limit_leaves_earlier_servers_alone(self, desk):
        """Only what the command itself started is ended with it."""
        desk.do("shell", command=DAEMON)
        pid = pid_of(desk.root / "daemon.pid")
        desk.refusal("shell", command="sleep 600", timeout=0.2)
        assert alive(pid)


@LINUX
class TestInterruption:
    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
    def test_an_exception_ends_the_command(self, desk, error):
        """Whatever it is, and wherever it comes from."""

        def tell(_):
            raise error

        command = f"{DAEMON} while [ ! -s daemon.pid ]; do sleep 0.01; done; echo now; sleep 600"
        with pytest.raises(error):
            desk.do("shell", on_output=tell, command=command)
        assert not alive(pid_of(desk.root / "daemon.pid"))

    def test_ctrl_c_at_the_start_ends_the_command_too(self, desk, monkeypatch):
        """The process is there already, but nobody has learnt its number yet."""
        started = []

        class Interrupted(subprocess.Popen):
            def __init__(self, *arguments, **options):
                super().__init__(*arguments, **options)
                started.append(self)
                pid_of(desk.root / "pid")
                raise KeyboardInterrupt

        monkeypatch.setattr("orihon.agent.tools.shell.subprocess.Popen", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            desk.do("shell", command="echo $$ > pid; sleep 600")
        assert started[0].wait() < 0
        assert not working_in(desk.root)

    def test_ctrl_c_ends_the_command(self, tmp_path):
        """A real signal, in a process that waits for a quiet command."""
        script = textwrap.dedent("""
            import sys
            from orihon.agent.tools.toolbox import Toolbox
            from orihon.task.tool_run import PendingCall
            box = Toolbox(sys.argv[1], approve="all")
            try:
                box.run(PendingCall(id="1", name="shell", arguments={"command": "echo $$ > pid; sleep 600"}))
            except KeyboardInterrupt:
                print("interrupted")
        """)
        child = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        pid = pid_of(tmp_path / "pid")
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0] == "interrupted\n"
        assert not alive(pid)

    def test_closing_the_box_ends_a_command_in_another_thread(self, make):
        """Who waits for it learns how it ended."""
        desk = make()
        said = []
        thread = threading.Thread(target=lambda: said.append(desk.do("shell", command="echo $$ > pid; sleep 600")))
        thread.start()
        pid_of(desk.root / "pid")
        desk.box.close()
        thread.join()
        assert "ended by signal" in said[0]


class TestEnvironment:
    SECRETS = {  # noqa: RUF012 - not of a class that anybody makes
        "OPENAI_API_KEY": "whatever",
        "GITHUB_TOKEN": "x",
        "DB_PASSWORD": "hunter2",
        "AWS_SECRET_ACCESS_KEY": "abc",
        "DEPLOY": "ghp_0123456789abcdef0123456789abcdef0123",
        "STORE": "postgresql://bob:hunter22@db/contexts",
    }
    HARMLESS = {  # noqa: RUF012
        "HOME": "/home/bob",
        "LANG": "C.UTF-8",
        "GIT_AUTHOR_EMAIL": "bob@example.com",
        "MAX_TOKENS": "4096",
        "VIRTUAL_ENV": "/work/.venv",
        "SSH_AUTH_SOCK": "/tmp/agent",  # noqa: S108
    }

    def test_secrets_are_left_out(self):
        """By their names or by their looks; the rest stays as it is."""
        kept = filter_environ(self.SECRETS | self.HARMLESS)
        assert not kept.keys() & self.SECRETS.keys()
        assert {name: kept[name] for name in self.HARMLESS} == self.HARMLESS

    def test_a_command_does_not_see_them(self, make, monkeypatch):
        """Not even those of the process that the box is in."""
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-REDACTED")
        desk = make(environ={**self.SECRETS, "PATH": os.environ["PATH"], "COLOUR": "blue"})
        seen = desk.do("shell", command="env; cat /proc/$$/environ 2>/dev/null | tr '\\0' '\\n'")
        assert "COLOUR=blue" in seen
        for value in ("sk-ant", "hunter2", "ghp_", "OPENAI_API_KEY", "whatever"):
            assert value not in seen

    def test_the_command_cannot_be_given_more(self, desk):
        """There is no argument for it."""
        with pytest.raises(ToolError, match="unknown field `env`"):
            desk.do("shell", command="env", env={"A": "b"})
