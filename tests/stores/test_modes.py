"""Who can read what: Engine sets the mode of what it creates, and of nothing else."""

import logging
import os
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import orihon
from orihon.agent.control import write_signal_file
from orihon.agent.models.cache import ReplyCache
from orihon.chat.terminal.ui_terminal import InputHistory
from orihon.ingest import Sanitiser
from orihon.ops.access import open_authorized_store
from orihon.ops.backup import backup
from orihon.ops.task_file import write_task_file
from orihon.settings.schema import Settings
from orihon.stores import open_store
from orihon.stores.files import create_file, open_file
from orihon.testing.samples import a_message, a_task
from support.faults import fast_place, in_child
from support.scenario import STORES, play, url_of

TASK = a_task()
COMMANDS = [
    ["ls"],
    ["stats"],
    ["stats", "--disk"],
    ["search", "hello"],
    ["audit"],
    ["doctor"],
    ["show", TASK.uuid],
    ["export", TASK.uuid],
    ["inherit", str(TASK.task_key)],
]


def mode_of(path):
    return stat.S_IMODE(path.lstat().st_mode)


def modes(place):
    return {path: mode_of(path) for path in (place, *place.rglob("*"))}


def orihon_command(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "orihon", *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )


def warnings_in(text):
    return [line for line in text.splitlines() if "Other users have access" in line]


@pytest.fixture(params=STORES)
def wide(request, tmp_path):
    """A store in a directory that all users share, with files that all of them can read."""
    shared = tmp_path / "shared"
    shared.mkdir()
    url = url_of(request.param, shared)
    with open_store(url) as store, store.lease(TASK.uuid, create=TASK) as lease:
        lease.append(a_message("hello"))
        lease.update(status="completed", final_summary="done")
    for path in shared.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    shared.chmod(0o1777)
    return url, shared


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_looking_changes_no_mode(wide, command):
    """A command that reads leaves the modes of all that it finds, and says once which command closes the place."""
    url, shared = wide
    before = modes(shared)
    ended = orihon_command(*command, "--store", url, cwd=shared.parent)
    assert "Traceback" not in ended.stderr
    assert {path: mode for path, mode in modes(shared).items() if path in before} == before
    assert {path: oct(mode) for path, mode in modes(shared).items() if path not in before and mode & 0o077} == {}
    assert len(warnings_in(ended.stderr)) == (command != ["doctor"]), ended.stderr  # which has a finding for it


def test_a_private_file_in_a_shared_directory(tmp_path):
    """The directory of a SQLite file is not Orihon's; a file that its owner alone can read needs no warning."""
    shared = tmp_path / "shared"
    with open_store(f"sqlite:///{tmp_path}/c.db"):
        pass
    shared.mkdir()
    shared.chmod(0o1777)
    shutil.copy(tmp_path / "c.db", shared / "x.db")
    ended = orihon_command("ls", "--store", f"sqlite:///{shared}/x.db")
    assert (ended.returncode, warnings_in(ended.stderr)) == (0, [])
    assert mode_of(shared) == 0o1777
    assert mode_of(shared / "x.db.audit.jsonl") == 0o600


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_directory_of_another_user():
    """Looks at a SQLite file in a directory of root's, such as `/tmp`, are written down."""

    def work(say):
        become_nobody()
        open_store(f"sqlite:///{place}/x.db").close()
        with open_authorized_store(Settings(), f"sqlite:///{place}/x.db", command="test") as authorized:
            authorized.record_access("task", ["row"], uuid="1")
        say((place / "x.db.audit.jsonl").read_text())

    with fast_place() as place:
        place.chmod(0o1777)
        ended = in_child(work)
    assert ended.code == 0
    assert '"uuid":"1"' in ended.said[0]


def become_nobody():
    with fast_place() as elsewhere:
        make_everything(elsewhere)  # modules are loaded while they can be read: the interpreter may be root's
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def test_the_present_directory(tmp_path, monkeypatch, caplog):
    """`orihon.open(".")` leaves a directory of the user's, and the files in it, as they are."""
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    (tmp_path / "README.md").touch(mode=0o644)
    (tmp_path / "completed").mkdir(mode=0o755)
    before = modes(tmp_path)
    for _ in range(2):
        with orihon.open(".", settings=Settings()) as engine, engine.start("local/issue/1") as task:
            task.add("user", "hello")
    assert {path: mode_of(path) for path in before} == before
    assert {path.name: mode for path, mode in modes(tmp_path).items() if path not in before and mode & 0o077} == {}
    (warning,) = warnings_in(caplog.text)
    assert warning.endswith(f"{tmp_path} (mode 0755). To close it, run: chmod 700 {tmp_path}")


def test_the_doctor_leaves_the_users_files_alone(tmp_path):
    """`doctor --fix` closes the store, because it was asked to, and nothing that only lies beside it."""
    with open_store(tmp_path):
        pass
    for name in ("README.md", ".notes.new"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
    (tmp_path / "tasks.db").chmod(0o644)
    tmp_path.chmod(0o755)
    ended = orihon_command("doctor", "--fix", "--store", str(tmp_path))
    assert ended.returncode == 0, ended.stdout
    assert (mode_of(tmp_path), mode_of(tmp_path / "tasks.db")) == (0o700, 0o600)
    assert (mode_of(tmp_path / "README.md"), mode_of(tmp_path / ".notes.new")) == (0o644, 0o644)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize(
    "name", ['it\'s a "place"', "$(touch x)", "a b", "-rf", "日本", "new\nline", "it's\x1b[31m\\n"]
)
def test_the_command_closes_it(kind, name, tmp_path):
    """The command of the warning works in a shell as it stands, and there is no warning after it."""
    place = tmp_path / name
    url = url_of(kind, place)
    with open_store(url):
        pass
    (place / "contexts" if kind == "jsonl" else place / "contexts.db").chmod(0o750 if kind == "jsonl" else 0o640)

    def look(say):
        logging.getLogger("orihon").addHandler(Saying(say))
        for _ in range(2):
            open_store(url).close()

    (said,) = "\n".join(in_child(look).said).split("WARNING ")[1:]
    command = said.partition("run: ")[2]
    assert shlex.split(command)[:2] == ["chmod", "700" if kind == "jsonl" else "600"]
    subprocess.run(["/bin/sh", "-ec", command], check=True, cwd="/")
    assert in_child(look).said == []
    assert {path: mode for path, mode in modes(place).items() if mode & 0o077} == {}


class Saying(logging.Handler):
    """Sends what is logged to the parent."""

    def __init__(self, say):
        super().__init__()
        self.say = say

    def emit(self, record):
        self.say(f"{record.levelname} {record.getMessage()}")


def test_each_place_has_its_own_warning(tmp_path, caplog):
    """One warning for each place, also where the same process opens several, and none for those that are closed."""
    places = [tmp_path / f"{number}" for number in range(3)]
    for place in places:
        place.mkdir()
        place.chmod(0o700 if place == places[1] else 0o701)
    for place in places * 2:
        open_store(place).close()
    assert [line.rpartition(" ")[2] for line in warnings_in(caplog.text)] == [str(places[0]), str(places[2])]


def test_a_log_that_is_left_is_named_as_well(tmp_path, caplog):
    """SQLite's log holds the same texts; where it is there, the command closes it too."""
    path = tmp_path / "contexts.db"

    def die(_say):
        lease = open_store(f"sqlite:///{path}").lease(TASK.uuid, create=TASK)
        lease.append(a_message())
        for file in tmp_path.glob("contexts.db*"):
            file.chmod(0o644)
        os._exit(0)

    in_child(die)
    with open_store(f"sqlite:///{path}"):
        pass
    (warning,) = warnings_in(caplog.text)
    assert warning.partition("chmod ")[2] == f"600 {path} {path}-wal {path}-shm"


def make_everything(place: Path) -> None:
    """One file of each kind."""
    settings = Settings()
    for kind in STORES:
        with open_store(url_of(kind, place / kind)) as store:
            play(store, TASK.uuid, lambda _: None)
            if store.archives:
                store.archive(TASK.uuid, fence=store.row(TASK.uuid).fence)
        with open_authorized_store(settings, url_of(kind, place / kind), command="test") as authorized:
            authorized.record_access("task", ["row"], uuid=TASK.uuid)
            backup(authorized, place / "backups" / kind)
            write_task_file(authorized.store, authorized.row(TASK.uuid), place / f"{kind}.export")
    ReplyCache(place / "cache", Sanitiser()).put("model", {"messages": []}, {"text": "hello"})
    InputHistory(place / "state" / "chat" / "typed.jsonl").store_string("hello")
    write_signal_file(place / "signals" / "deep" / "stop_signal", "enough")
    os.close(create_file(place / "created"))
    os.close(open_file(place / "opened", os.O_WRONLY | os.O_CREAT))


@pytest.mark.slow
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o177, 0o777])
def test_whatever_the_umask(umask, tmp_path):
    """New files are 0600 and new directories 0700, also where the umask would take them from their owner."""
    place = tmp_path / "new"

    def work(say):
        place.mkdir()
        os.umask(umask)
        make_everything(place)
        say("made")

    ended = in_child(work)
    assert (ended.code, ended.said) == (0, ["made"])
    found = {path: mode for path, mode in modes(place).items() if path != place}
    assert len(found) > 40
    assert {str(path): oct(mode) for path, mode in found.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_odd_umask_of_an_ordinary_user():
    """A umask of 0177 makes directories that not even their owner could enter; a store works with it all the same."""

    def work(say):
        become_nobody()
        os.umask(0o177)
        make_everything(place)
        say("made")

    with fast_place() as place:
        os.chown(place, 65534, 65534)
        ended = in_child(work)
    assert (ended.code, ended.said) == (0, ["made"])
