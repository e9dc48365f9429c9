"""A directory in which somebody planted something: refused or put right, never followed, never waited for."""

import os
import shutil
import signal
import stat

import pytest

from orihon.errors import OrihonError
from orihon.records import Event, Message
from orihon.stores import open_store
from orihon.stores.base import Options
from orihon.testing.samples import a_message, a_task, one_of_each
from support.faults import Faults, fast_place, in_child
from support.scenario import BIG, STORES, play, url_of

TASK = a_task()
NOBODY = 65534
SECONDS = 20  # a hang is a failure; nothing here takes a second

FILES = [
    "messages.jsonl",
    "events.jsonl",
    "messages.idx",
    "metadata.json",
    "state.json",
    ".lock",
    "planning/{uuid}.jsonl",
]
DIRECTORIES = ["blobs", "planning"]
INSIDE = [f"contexts/running/{{uuid}}/{name}" for name in (*FILES, *DIRECTORIES)]
PLACES = [*INSIDE, "contexts/running/{uuid}", "contexts/running", "contexts/completed", "contexts"]
DATABASES = ["contexts/tasks.db", "contexts/tasks.db-wal", "contexts/tasks.db-shm", "contexts.db", "contexts.db-wal"]


@pytest.fixture
def place():
    """A place with a store of each kind, one closed task in both."""
    with fast_place() as place:
        for kind in STORES:
            with open_store(url_of(kind, place)) as store, store.lease(TASK.uuid, create=TASK) as lease:
                for record in one_of_each():
                    lease.append(record)
                lease.append(a_message(BIG))
        yield place


def use(url, say):
    """Do everything that can be done with the task, one thing after another, and tell what was refused."""
    signal.alarm(SECONDS)
    problems = []

    def tried(name, work):
        try:
            work()
        except OrihonError as error:
            say(f"refused {name}: {type(error).__name__}: {error}")
        else:
            say(f"done {name}")

    def everything():
        with open_store(url, Options(report=problems.append)) as store:
            tried("find", lambda: list(store.find()))
            for kind in (Message, Event):
                tried(f"read {kind.__name__}", lambda kind=kind: list(store.read(TASK.uuid, kind)))
            tried("write", lambda: write(store))
            tried("delete", lambda: store.delete(TASK.uuid))

    def write(store):
        with store.lease(TASK.uuid) as lease:
            for record in one_of_each():
                lease.append(record)
            lease.append(a_message(f"{BIG}!"))
            lease.update(status="paused")
            lease.sync()

    tried("open", everything)
    for problem in problems:
        say(f"reported {problem}")


def outside(place):
    """What must not change: a file and a directory of somebody else."""
    target = place / "outside"
    target.mkdir(mode=0o755)
    (target / "file").write_bytes(b"precious\n")
    (target / "file").chmod(0o644)
    return target


def snapshot(target):
    return sorted(
        (path.name, oct(path.lstat().st_mode), path.read_bytes() if path.is_file() else b"")
        for path in (target, *target.rglob("*"))
    )


def plant(place, name, thing):
    path = place / name.format(uuid=TASK.uuid)
    away = place / "away"
    if os.path.lexists(path):
        path.rename(away)
    thing(path)


LINKS = [
    (name, target)
    for target in ("file", "directory", "original", "nothing")
    for name in (*PLACES, *DATABASES)
    if target != "original" or not name.endswith(("-wal", "-shm", ".lock"))  # of these there is no original to point to
]


@pytest.mark.parametrize(("name", "target"), LINKS)
def test_planted_links(place, name, target):
    """A link in place of any file or directory of ours leads nowhere: what it points to is neither read nor changed."""
    foreign = outside(place)
    before = snapshot(foreign)
    away = place / "away"
    goal = {"file": foreign / "file", "directory": foreign, "original": away, "nothing": foreign / "new"}[target]
    plant(place, name, lambda path: path.symlink_to(goal))
    untouched = snapshot(away) if away.exists() else None
    url = url_of("sqlite" if name.startswith("contexts.db") else "jsonl", place)
    ended = in_child(lambda say: use(url, say))
    assert (ended.signal, ended.code) == (0, 0)
    assert snapshot(foreign) == before
    assert (snapshot(away) if away.exists() else None) == untouched
    said = "\n".join(ended.said)
    assert "refused" in said or "reported" in said or name.endswith(("tasks.db-wal", "tasks.db-shm", "contexts.db-wal"))


@pytest.mark.parametrize("name", [*INSIDE[: len(FILES)], *DATABASES])
@pytest.mark.parametrize("thing", ["fifo", "directory"])
def test_things_that_are_not_files(place, name, thing):
    """A FIFO or a directory in place of a file is refused at once; nobody waits for its other end."""
    plant(place, name, os.mkfifo if thing == "fifo" else os.mkdir)
    url = url_of("sqlite" if name.startswith("contexts.db") else "jsonl", place)
    ended = in_child(lambda say: use(url, say))
    assert (ended.signal, ended.code) == (0, 0)
    assert [line for line in ended.said if line.startswith(("refused", "reported"))]
    assert [line for line in ended.said if "regular file" in line], ended.said


def test_one_odd_task_leaves_the_others_alone(place):
    """Whatever is wrong with one task, the store opens and the next task can be used."""
    other = a_task(2)
    for name in FILES[:-1]:
        directory = place / "contexts" / "running" / TASK.uuid
        saved = place / "saved"
        shutil.copytree(directory, saved)
        plant(place, f"contexts/running/{TASK.uuid}/{name}", os.mkfifo)

        def work(say):
            signal.alarm(SECONDS)
            with open_store(url_of("jsonl", place), Options(report=lambda problem: say(str(problem)))) as store:
                with store.lease(other.uuid, create=other) as lease:
                    lease.append(a_message())
                store.delete(other.uuid)

        ended = in_child(work)
        assert (ended.signal, ended.code) == (0, 0), name
        shutil.rmtree(directory)
        saved.rename(directory)
        (place / "away").unlink(missing_ok=True)


def wrong_modes(place):
    return [
        f"{path} {oct(mode)}"
        for path in place.rglob("*")
        for mode in [stat.S_IMODE(path.lstat().st_mode)]
        if mode != (0o700 if path.is_dir() else 0o600)
    ]


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("umask", [0o000, 0o077, 0o022])
def test_private_at_every_moment(kind, umask):
    """Directories are 0700 and files 0600 after every single call, whatever the umask, SQLite's own files included."""
    wrong = set()

    def work(say):
        os.umask(umask)
        with fast_place() as place:
            looked = Faults(
                watch=lambda *_: wrong.update(wrong_modes(place)), done=lambda *_: wrong.update(wrong_modes(place))
            )
            with looked, open_store(url_of(kind, place / "new" / "deep")) as store:
                play(store, TASK.uuid, lambda _: wrong.update(wrong_modes(place)))
            wrong.update(wrong_modes(place))
        for line in sorted(wrong):
            say(line)

    ended = in_child(work)
    assert (ended.code, ended.said) == (0, [])


@pytest.mark.parametrize("kind", STORES)
def test_modes_of_what_is_there_are_left(kind):
    """A store that was copied with modes 755 and 644 keeps them when it is used; what is made in it is private."""
    new = a_task(2)
    with fast_place() as place:
        url = url_of(kind, place)
        with open_store(url) as store:
            play(store, TASK.uuid, lambda _: None)
        for path in place.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        before = {path: (path.stat().st_ino, path.stat().st_mode) for path in place.rglob("*")}
        with open_store(url) as store:
            store.lease(TASK.uuid).close()
            for message in store.read(TASK.uuid, Message):
                if message.blob:
                    store.blob(TASK.uuid, message.blob.sha256)
            with store.lease(new.uuid, create=new) as lease:
                lease.append(a_message())
        for path in place.rglob("*"):
            if (inode := path.stat().st_ino) == before.get(path, (0, 0))[0]:
                assert (inode, path.stat().st_mode) == before[path]
            else:
                assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("name", [*PLACES, "contexts/tasks.db", "contexts.db"])
@pytest.mark.parametrize("mode", [0o777, 0o000])
def test_what_belongs_to_somebody_else(place, name, mode):
    """A user who finds another's file or directory in his store is told so; he neither uses nor changes it."""
    place.chmod(0o711)
    for path in place.rglob("*"):
        os.lchown(path, NOBODY, NOBODY)
    os.lchown(place, NOBODY, NOBODY)
    foreign = place / name.format(uuid=TASK.uuid)
    if not os.path.lexists(foreign):
        foreign.touch()
    os.chown(foreign, 0, 0)
    foreign.chmod(mode if not foreign.is_dir() else mode & 0o755)

    def work(say):
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        use(url_of("sqlite" if name == "contexts.db" else "jsonl", place), say)

    ended = in_child(work)
    assert (ended.signal, ended.code) == (0, 0)
    said = [line for line in ended.said if line.startswith(("refused", "reported"))]
    if name.endswith("messages.idx") and mode == 0:
        return  # nobody can read it; the store does without an index
    assert [line for line in said if "another user" in line or "ermission" in line or "not permitted" in line], (
        ended.said
    )
    if foreign.exists():
        assert foreign.stat().st_uid == 0
        assert stat.S_IMODE(foreign.stat().st_mode) == (mode if not foreign.is_dir() else mode & 0o755)
