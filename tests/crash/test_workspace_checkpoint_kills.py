"""SIGKILL or a full disk at any point of a checkpoint or restore: the user's git is untouched, and the next call works.

Processes are killed at their own disk operations and before and after each git command that they start. The git
commands are killed at their system calls. Afterwards every acknowledged checkpoint is exact, and an interrupted restore
can be repeated.
"""

import errno
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from orihon.chat.workspace_checkpoints import WorkspaceCheckpoints
from orihon.errors import NotWritten, OrihonError
from support.faults import DEEP, NO_STRACE, Child, Fault, Faults, fast_place, in_child, sampled
from support.worktrees import fingerprint, git, picture, put

WAIT_SECONDS = 120
MANY = 20  # system calls of one name that a deep run breaks
GIT = shutil.which("git")
# A git that counts its calls, and kills its parent before or after the n-th one.
COUNTING = """#!/bin/sh
echo "$@" >> "{count}"
test $(wc -l < "{count}") = {before} && kill -9 $PPID
{git} "$@"
code=$?
test $(wc -l < "{count}") = {after} && kill -9 $PPID
exit $code
"""
# A git that is slow, also after its parent was killed.
SLOW = """#!/bin/sh
case "$*" in
*update-index*) touch "{began}"; sleep 0.5; {git} "$@"; touch "{ended}" ;;
*) exec {git} "$@" ;;
esac
"""
# A git that fails at the n-th system call of one name in one of its commands.
BREAKING = """#!/bin/sh
for word; do
    case "$word" in
    {command}) exec strace -f -qq -A -o {trace} -e trace={call} {inject} {git} "$@" ;;
    esac
done
exec {git} "$@"
"""
# The system calls that change the disk, by command; and those of them that fail on a full disk.
KILLED = {
    "fast-import": ["write", "rename", "link", "unlink", "openat", "fsync"],
    "update-index": ["write", "rename", "openat"],
    "status": ["write", "rename"],
    "repack": ["write", "rename", "unlink"],
    "update-ref": ["unlink"],
    "pack-refs": ["rename", "unlink"],
    "prune": ["unlink"],
}
FULL = {
    "fast-import": ["write", "rename", "link", "mkdir", "fsync"],
    "update-index": ["write", "rename"],
    "status": ["write"],
    "repack": ["write", "rename"],
    "pack-refs": ["write", "rename"],
}
BREAKS = [
    (command, call, effect)
    for effect, calls in (("signal=SIGKILL", KILLED), ("error=ENOSPC", FULL))
    for command in calls
    for call in calls[command]
    if DEEP or (command, call) in {("fast-import", "write"), ("fast-import", "rename"), ("update-index", "rename")}
]


def open_checkpoints(place):
    return WorkspaceCheckpoints(place / "repository", place / "workspace")


def old(files):
    """Create the workspace of the first checkpoint."""
    for name in ("a", "dir/b", "to be file/c", "gone"):
        put(files / name, f"old {name}")
    put(files / "program", "old", program=True)
    (files / "link").symlink_to("a")
    put(files / ".gitignore", "ignored\n")
    put(files / "ignored", "mine")


def new(files):
    """Change the workspace to its state before the session."""
    shutil.rmtree(files / "to be file")
    for name in ("a", "to be file", "newer/d"):
        put(files / name, f"new {name}")
    (files / "gone").unlink()
    (files / "program").chmod(0o644)
    (files / "link").unlink()
    put(files / "link/e", "a directory now")


def use_checkpoints(place):
    """Take, restore, undo and delete checkpoints; each call is acknowledged by a line."""

    def work(say):
        checkpoints = open_checkpoints(place)
        say(f"taken {checkpoints.take('second').commit}")
        restored = checkpoints.restore((place / "first").read_text(), hard=True)
        say("restored")
        checkpoints.restore(restored.before, hard=True)
        say("undone")
        put(place / "workspace/a", "later")
        say("cleaning")
        checkpoints.keep_only([(place / "first").read_text(), checkpoints.take("third").commit])
        say("kept")

    return work


class World:
    """A workspace with one checkpoint. Each run uses a fresh copy."""

    def __init__(self, place):
        self.place, self.new = place, place / "new"
        files = self.new / "workspace"
        files.mkdir(parents=True)
        git(files, "init", "--quiet", "--initial-branch=main", ".")
        old(files)
        git(files, "add", ".")
        git(files, "commit", "--quiet", "--message=old")
        self.old = picture(files)
        (self.new / "first").write_text(open_checkpoints(self.new).take("first").commit)
        new(files)
        git(files, "add", "a")
        self.latest, self.own = picture(files), self.fingerprint(self.new)

    def fingerprint(self, place):
        """Return the user's repository without file times, which differ between copies."""
        root = place / "workspace/.git"
        return {Path(name).relative_to(root): (mode, sha) for name, (mode, _, sha) in fingerprint(root).items()}

    def copy(self, *, with_checkpoints=True):
        place = self.place / "copy"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.new, place, symlinks=True)
        if not with_checkpoints:
            shutil.rmtree(place / "repository")
        return place

    def check(self, place, said):
        """Check that acknowledged calls had their effect, and that everything can be repeated."""
        assert self.fingerprint(place) == self.own
        checkpoints, files = open_checkpoints(place), place / "workspace"
        commits = {line.split()[1] for line in said if line.startswith("taken")}
        if "cleaning" not in said:
            for commit in commits:
                assert checkpoints.restore(commit, hard=True).skipped == ()
                assert picture(files) == self.latest
        restored = checkpoints.restore((place / "first").read_text(), hard=True)
        assert restored.skipped == ()
        assert picture(files) == self.old
        assert checkpoints.take("again").commit == restored.after
        assert picture(files, without=(".git",)) == self.old
        assert not [path for path in files.rglob("*") if path.name.startswith(".orihon")]
        assert not list(checkpoints.repository.rglob("*.lock"))
        assert self.fingerprint(place) == self.own
        run = subprocess.run(
            [GIT, "fsck", "--strict", "--no-dangling"], cwd=checkpoints.repository, capture_output=True, check=False
        )
        assert (run.returncode, run.stdout) == (0, b""), run.stderr


@pytest.fixture(scope="module")
def whole():
    with fast_place() as place:
        yield World(place)


def run(place, script, work=use_checkpoints, **values):
    """Run the work in a child process with another git in its PATH; an OrihonError becomes a line `refused: …`."""
    tools = put(place / "tools/git", script.format(git=GIT, **values), program=True).parent

    def run_with_tools(say):
        os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"
        try:
            work(place)(say)
        except OrihonError as error:
            say(f"refused: {error!r}")

    return in_child(run_with_tools)


def test_undisturbed(whole):
    """Without faults everything succeeds."""
    place = whole.copy()
    ended = in_child(use_checkpoints(place))
    assert (ended.code, len(ended.said)) == (0, 5)
    whole.check(place, ended.said)


@pytest.mark.parametrize("how", ["kill before", "kill half", "kill after"])
def test_killed_at_its_own_calls(whole, how):
    """Every disk operation of our own process: on the lock, and on files of the workspace."""
    place = whole.copy()
    with Faults() as faults:
        use_checkpoints(place)(lambda _: None)
    assert {"open", "write", "replace", "unlink", "rmdir", "mkdir", "pwrite", "ftruncate"} <= set(faults.calls)
    for at in sampled(list(range(1, len(faults.calls) + 1)), 4):
        place = whole.copy()
        ended = in_child(use_checkpoints(place), Fault(at=at, how=how))
        try:
            assert ended.signal == signal.SIGKILL
            whole.check(place, ended.said)
        except BaseException as error:
            error.add_note(f"{how} call {at} ({faults.calls[at - 1]})")
            raise


def test_a_half_written_file_is_removed(whole):
    """The temporary file of a killed process does not stay in the workspace."""
    place = whole.copy()
    first = (place / "first").read_text()
    with Faults() as faults:
        open_checkpoints(place).restore(first)
    place = whole.copy()
    calls = list(pairwise(faults.calls))
    fault = Fault(at=calls.index(("write", "replace")) + 1, how="kill half")
    assert in_child(lambda _: open_checkpoints(place).restore(first), fault).signal == signal.SIGKILL
    assert [path.name for path in (place / "workspace").rglob(".orihon-*")]
    open_checkpoints(place).take("whatever comes next")
    assert not [path.name for path in (place / "workspace").rglob(".orihon-*")]
    whole.check(place, [])


@pytest.mark.slow
def test_a_git_command_that_outlives_its_process_keeps_the_lock(whole):
    """The lock is free when the last git command has ended, not when its parent was killed."""
    place = whole.copy()
    began, ended = place / "began", place / "ended"
    put(place / "tools/git", SLOW.format(git=GIT, began=began, ended=ended), program=True)

    def work(_):
        os.environ["PATH"] = f"{place / 'tools'}{os.pathsep}{os.environ['PATH']}"
        open_checkpoints(place).take("cut off")

    child = Child(work)
    deadline = time.monotonic() + WAIT_SECONDS
    while not began.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    child.end()
    assert not ended.exists()
    open_checkpoints(place).take("next")
    assert ended.exists()
    whole.check(place, [])


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_every_git_command(whole, when):
    """The git command goes on alone, and the next process waits for its end."""
    count, never = whole.place / "count", {"before": 0, "after": 0}
    count.unlink(missing_ok=True)
    ended = run(whole.copy(), COUNTING, count=count, **never)
    assert (len(ended.said), ended.code) == (5, 0)
    commands = count.read_text().splitlines()
    for at in sampled(list(range(1, len(commands) + 1)), 3):
        count.unlink(missing_ok=True)
        place = whole.copy()
        ended = run(place, COUNTING, count=count, **never | {when: at})
        try:
            assert ended.signal == signal.SIGKILL
            whole.check(place, ended.said)
        except BaseException as error:
            error.add_note(f"killed {when} command {at}: {commands[at - 1]}")
            raise


def take_first(place):
    """Take the first checkpoint, which creates the repository."""

    def work(say):
        say(f"taken {open_checkpoints(place).take('first').commit}")

    return work


def check_first(whole, place, said):
    """Check that the next process can take the first checkpoint."""
    checkpoints, files = open_checkpoints(place), place / "workspace"
    taken = checkpoints.take("again")
    assert not said or said == [f"taken {taken.commit}"]
    put(files / "a", "changed")
    checkpoints.restore(taken.commit, hard=True)
    assert picture(files) == whole.latest
    assert whole.fingerprint(place) == whole.own


@pytest.mark.parametrize("how", ["kill before", "kill half", "kill after"])
def test_killed_while_the_repository_is_created(whole, how):
    place = whole.copy(with_checkpoints=False)
    with Faults() as faults:
        take_first(place)(lambda _: None)
    for at in sampled(list(range(1, len(faults.calls) + 1)), 5):
        place = whole.copy(with_checkpoints=False)
        ended = in_child(take_first(place), Fault(at=at, how=how))
        try:
            assert ended.signal == signal.SIGKILL
            check_first(whole, place, ended.said)
        except BaseException as error:
            error.add_note(f"{how} call {at} ({faults.calls[at - 1]})")
            raise


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason=NO_STRACE)
def test_git_is_killed_while_it_creates_the_repository(whole):
    """An interrupted `git init` is finished by the next process."""
    values = {"command": "init", "call": "openat", "trace": os.devnull}
    for at in sampled([*range(2, 60)], 4):
        place = whole.copy(with_checkpoints=False)
        inject = f"-e inject=openat:signal=SIGKILL:when={at}"
        ended = run(place, BREAKING, take_first, inject=inject, **values)
        check_first(whole, place, [line for line in ended.said if not line.startswith("refused")])


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason=NO_STRACE)
@pytest.mark.parametrize(("command", "call", "effect"), BREAKS)
def test_a_git_command_breaks(whole, command, call, effect):
    """Git is killed, or the disk is full, at a system call: every call succeeds or raises, and can be repeated."""
    trace, struck = whole.place / "trace", 0
    run(whole.copy(), BREAKING, command=command, call=call, inject="", trace=trace)
    lines = trace.read_text(errors="replace").splitlines()
    most = max(Counter(line.split()[0] for line in lines if f" {call}(" in line).values(), default=0)  # of one process
    assert most
    for at in sampled([*range(1, most + 1, -(-most // MANY))], 1):
        place = whole.copy()
        trace.unlink(missing_ok=True)
        inject = f"-e inject={call}:{effect}:when={at}"
        ended = run(place, BREAKING, command=command, call=call, inject=inject, trace=trace)
        struck += any(word in trace.read_text(errors="replace") for word in ("INJECTED", "SIGKILL"))
        try:
            assert ended.code == 0
            whole.check(place, ended.said)
        except BaseException as error:
            error.add_note(f"{effect} at {call} {at} of {command}: {ended.said}")
            raise
    assert struck


def test_a_full_disk_loses_nothing(whole):
    """The disk is full during a restore: the error says so, no file is torn, and the restore can be repeated."""
    place = whole.copy()
    checkpoints, first = open_checkpoints(place), (place / "first").read_text()
    with Faults() as faults:
        checkpoints.restore(first, hard=True)
    puts = [at for at, name in enumerate(faults.calls, start=1) if name in {"write", "pwrite", "open", "mkdir"}]
    refused = 0
    for at in sampled(puts, 5):
        place = whole.copy()
        files = place / "workspace"
        only = ("write", "pwrite", "open", "mkdir")  # names can be changed and removed on a full disk
        fault = Fault(at=at, how="fail half", errno=errno.ENOSPC, onwards=True, only=only)
        try:
            with Faults(fault):
                open_checkpoints(place).restore(first, hard=True)
        except OrihonError as error:
            refused += 1
            assert isinstance(error, NotWritten)
            assert "space" in error.hint
        contents = {*whole.old.values(), *whole.latest.values()}
        assert {*picture(files).values()} <= contents
        whole.check(place, [])
    assert refused
