"""SIGKILL, and a full disk, anywhere in a checkpoint or a restore: the user's git is untouched, and all goes on.

A process is killed at its own calls to the disk, before and after each git command that it starts, and so are the git
commands, at their own system calls. Whatever is left, the next process finds every acknowledged checkpoint exact, and
a restore that was cut off is repeated and ends exact.
"""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from orihon.chat.shadow import Shadow
from orihon.errors import NotWritten, OrihonError
from orihon.testing.faults import DEEP, NO_STRACE, Child, Fault, Faults, fast_place, in_child, sampled
from support.worktrees import fingerprint, git, picture, put

LIMIT = 120  # seconds for one process
MANY = 20  # system calls of one name that a long run breaks
GIT = shutil.which("git")
# A git that counts how often it was started, and kills whoever started it before or after the n-th time.
COUNTING = """#!/bin/sh
echo "$@" >> "{count}"
test $(wc -l < "{count}") = {before} && kill -9 $PPID
{git} "$@"
code=$?
test $(wc -l < "{count}") = {after} && kill -9 $PPID
exit $code
"""
# A git that is slow to do its work, also when nobody waits for it any more.
SLOW = """#!/bin/sh
case "$*" in
*update-index*) touch "{began}"; sleep 2; {git} "$@"; touch "{ended}" ;;
*) exec {git} "$@" ;;
esac
"""
# A git that breaks at its n-th system call of one name when it runs one of its commands.
BREAKING = """#!/bin/sh
for word; do
    case "$word" in
    {command}) exec strace -f -qq -A -o {trace} -e trace={call} {inject} {git} "$@" ;;
    esac
done
exec {git} "$@"
"""
# What git does to the disk, by command; and of it, what a full disk can refuse.
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
RUN = "import sys; sys.path[:0] = sys.argv[2:]; import test_shadow_kills as t; t.{work}(t.Path(sys.argv[1]))(print)"


def shadow_of(place):
    return Shadow(place / "shadow", place / "workspace")


def old(files):
    """How the workspace is at the first checkpoint."""
    for name in ("a", "dir/b", "to be file/c", "gone"):
        put(files / name, f"old {name}")
    put(files / "program", "old", program=True)
    (files / "link").symlink_to("a")
    put(files / ".gitignore", "ignored\n")
    put(files / "ignored", "mine")


def new(files):
    """And how it is when the sitting begins."""
    shutil.rmtree(files / "to be file")
    for name in ("a", "to be file", "newer/d"):
        put(files / name, f"new {name}")
    (files / "gone").unlink()
    (files / "program").chmod(0o644)
    (files / "link").unlink()
    put(files / "link/e", "a directory now")


def sitting(place):
    """A checkpoint, a restore, its undo, and a clean; each is acknowledged when it has returned."""

    def work(say):
        shadow = shadow_of(place)
        say(f"taken {shadow.take('second').commit}")
        restored = shadow.restore((place / "first").read_text(), hard=True)
        say("restored")
        shadow.restore(restored.before, hard=True)
        say("undone")
        put(place / "workspace/a", "later")
        say("cleaning")
        shadow.keep_only([(place / "first").read_text(), shadow.take("third").commit])
        say("kept")

    return work


class World:
    """The sitting, undisturbed and disturbed; each time in a fresh copy."""

    def __init__(self, place):
        self.place, self.new = place, place / "new"
        files = self.new / "workspace"
        files.mkdir(parents=True)
        git(files, "init", "--quiet", "--initial-branch=main", ".")
        old(files)
        git(files, "add", ".")
        git(files, "commit", "--quiet", "--message=old")
        self.old = picture(files)
        (self.new / "first").write_text(shadow_of(self.new).take("first").commit)
        new(files)
        git(files, "add", "a")
        self.latest, self.own = picture(files), self.fingerprint(self.new)

    def fingerprint(self, place):
        """The user's repository; the times of a copy are its own."""
        root = place / "workspace/.git"
        return {Path(name).relative_to(root): (mode, sha) for name, (mode, _, sha) in fingerprint(root).items()}

    def copy(self):
        place = self.place / "copy"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.new, place, symlinks=True)
        return place

    def check(self, place, said):
        """What was acknowledged is there, and whatever was cut off can be done again."""
        assert self.fingerprint(place) == self.own
        shadow, files = shadow_of(place), place / "workspace"
        commits = {line.split()[1] for line in said if line.startswith("taken")}
        if "cleaning" not in said:
            for commit in commits:
                assert shadow.restore(commit, hard=True).skipped == ()
                assert picture(files) == self.latest
        restored = shadow.restore((place / "first").read_text(), hard=True)
        assert restored.skipped == ()
        assert picture(files) == self.old
        assert shadow.take("again").commit == restored.after
        assert picture(files, without=(".git",)) == self.old
        assert not [path for path in files.rglob("*") if path.name.startswith(".orihon")]
        assert not list(shadow.repository.rglob("*.lock"))
        assert self.fingerprint(place) == self.own
        run = subprocess.run(
            [GIT, "fsck", "--strict", "--no-dangling"], cwd=shadow.repository, capture_output=True, check=False
        )
        assert (run.returncode, run.stdout) == (0, b""), run.stderr


@pytest.fixture
def whole():
    with fast_place() as place:
        yield World(place)


def run(place, script, work="sitting", **values):
    """The sitting in a process of its own, with another git in its path; what it said, and how it ended."""
    tools = put(place / "tools/git", script.format(git=GIT, **values), program=True).parent
    path = {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    here = Path(__file__).parent
    command = [sys.executable, "-c", RUN.format(work=work), str(place), str(here), str(here.parent)]
    done = subprocess.run(command, env=os.environ | path, capture_output=True, text=True, timeout=LIMIT, check=False)
    return done.stdout.splitlines(), done


def test_undisturbed(whole):
    """So that the others know what they disturb."""
    place = whole.copy()
    ended = in_child(sitting(place))
    assert (ended.code, len(ended.said)) == (0, 5)
    whole.check(place, ended.said)


@pytest.mark.parametrize("how", ["kill before", "kill half", "kill after"])
def test_killed_at_its_own_calls(whole, how):
    """Each call through which our own process changes the disk: the lock, the files of the workspace, their removal."""
    place = whole.copy()
    with Faults() as faults:
        sitting(place)(lambda _: None)
    assert {"open", "write", "replace", "unlink", "rmdir", "mkdir", "pwrite", "ftruncate"} <= set(faults.calls)
    for at in sampled(list(range(1, len(faults.calls) + 1)), 4):
        place = whole.copy()
        ended = in_child(sitting(place), Fault(at=at, how=how))
        try:
            assert ended.signal == signal.SIGKILL
            whole.check(place, ended.said)
        except BaseException as error:
            error.add_note(f"{how} call {at} ({faults.calls[at - 1]})")
            raise


def test_half_a_file_is_cleared_away(whole):
    """What was being written beside its place when the process was killed does not stay in the workspace."""
    place = whole.copy()
    first = (place / "first").read_text()
    with Faults() as faults:
        shadow_of(place).restore(first)
    place = whole.copy()
    calls = list(pairwise(faults.calls))
    fault = Fault(at=calls.index(("write", "replace")) + 1, how="kill half")
    assert in_child(lambda _: shadow_of(place).restore(first), fault).signal == signal.SIGKILL
    assert [path.name for path in (place / "workspace").rglob(".orihon-*")]
    shadow_of(place).take("whatever comes next")
    assert not [path.name for path in (place / "workspace").rglob(".orihon-*")]
    whole.check(place, [])


@pytest.mark.slow
def test_a_command_that_outlives_its_process_is_waited_for(whole):
    """The lock is free when the last git command has ended, not when whoever started it was killed."""
    place = whole.copy()
    began, ended = place / "began", place / "ended"
    put(place / "tools/git", SLOW.format(git=GIT, began=began, ended=ended), program=True)

    def work(_):
        os.environ["PATH"] = f"{place / 'tools'}{os.pathsep}{os.environ['PATH']}"
        shadow_of(place).take("cut off")

    child = Child(work)
    deadline = time.monotonic() + LIMIT
    while not began.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    child.end()
    assert not ended.exists()
    shadow_of(place).take("next")
    assert ended.exists()
    whole.check(place, [])


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_every_git_command(whole, when):
    """The command goes on alone for a moment, and whoever comes next waits for its end."""
    count, never = whole.place / "count", {"before": 0, "after": 0}
    said, done = run(whole.copy(), COUNTING, count=count, **never)
    assert (len(said), done.returncode) == (5, 0), done.stderr
    commands = count.read_text().splitlines()
    for at in sampled(list(range(1, len(commands) + 1)), 3):
        count.unlink()
        place = whole.copy()
        said, done = run(place, COUNTING, count=count, **never | {when: at})
        try:
            assert done.returncode == -signal.SIGKILL
            whole.check(place, said)
        except BaseException as error:
            error.add_note(f"killed {when} command {at}: {commands[at - 1]}")
            raise


def first(place):
    """The first checkpoint of all, for which the repository is made."""

    def work(say):
        say(f"taken {shadow_of(place).take('first').commit}")

    return work


def check_first(whole, place, said):
    """Nothing is left that keeps the next one from beginning."""
    shadow, files = shadow_of(place), place / "workspace"
    taken = shadow.take("again")
    assert not said or said == [f"taken {taken.commit}"]
    put(files / "a", "changed")
    shadow.restore(taken.commit, hard=True)
    assert picture(files) == whole.latest
    assert whole.fingerprint(place) == whole.own


@pytest.mark.parametrize("how", ["kill before", "kill half", "kill after"])
def test_killed_at_the_very_first(whole, how):
    """While the repository is made."""
    shutil.rmtree(whole.new / "shadow")
    place = whole.copy()
    with Faults() as faults:
        first(place)(lambda _: None)
    for at in sampled(list(range(1, len(faults.calls) + 1)), 5):
        place = whole.copy()
        ended = in_child(first(place), Fault(at=at, how=how))
        try:
            assert ended.signal == signal.SIGKILL
            check_first(whole, place, ended.said)
        except BaseException as error:
            error.add_note(f"{how} call {at} ({faults.calls[at - 1]})")
            raise


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason=NO_STRACE)
def test_git_is_killed_while_it_makes_the_repository(whole):
    """At any file that it makes; also then the next one finishes it."""
    shutil.rmtree(whole.new / "shadow")
    values = {"command": "init", "call": "openat", "trace": os.devnull}
    for at in sampled([*range(2, 60)], 4):
        place = whole.copy()
        said, _ = run(place, BREAKING, inject=f"-e inject=openat:signal=SIGKILL:when={at}", work="first", **values)
        check_first(whole, place, said)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason=NO_STRACE)
@pytest.mark.parametrize(("command", "call", "effect"), BREAKS)
def test_a_git_command_breaks(whole, command, call, effect):
    """Killed or without space at a system call: an error in our words, or nothing to notice; then all goes on."""
    trace, struck = whole.place / "trace", 0
    run(whole.copy(), BREAKING, command=command, call=call, inject="", trace=trace)
    lines = trace.read_text(errors="replace").splitlines()
    most = max(Counter(line.split()[0] for line in lines if f" {call}(" in line).values(), default=0)  # of a process
    assert most
    for at in sampled([*range(1, most + 1, -(-most // MANY))], 1):
        place = whole.copy()
        trace.unlink()
        inject = f"-e inject={call}:{effect}:when={at}"
        said, done = run(place, BREAKING, command=command, call=call, inject=inject, trace=trace)
        struck += any(word in trace.read_text(errors="replace") for word in ("INJECTED", "SIGKILL"))
        try:
            assert done.returncode in {0, 1}
            assert done.returncode == 0 or "orihon.errors." in done.stderr.splitlines()[-1], done.stderr
            whole.check(place, said)
        except BaseException as error:
            error.add_note(f"{effect} at {call} {at} of {command}:\n{done.stderr}")
            raise
    assert struck


def test_a_full_disk_loses_nothing(whole):
    """While files are brought back: the error says so, nothing is torn, and the restore can be repeated."""
    place = whole.copy()
    shadow, first = shadow_of(place), (place / "first").read_text()
    with Faults() as faults:
        shadow.restore(first, hard=True)
    puts = [at for at, name in enumerate(faults.calls, start=1) if name in {"write", "pwrite", "open", "mkdir"}]
    refused = 0
    for at in sampled(puts, 5):
        place = whole.copy()
        files = place / "workspace"
        only = ("write", "pwrite", "open", "mkdir")  # a name can be taken or removed also on a full disk
        fault = Fault(at=at, how="fail half", errno=errno.ENOSPC, onwards=True, only=only)
        try:
            with Faults(fault):
                shadow_of(place).restore(first, hard=True)
        except OrihonError as error:
            refused += 1
            assert isinstance(error, NotWritten)
            assert "space" in error.hint
        contents = {*whole.old.values(), *whole.latest.values()}
        assert {*picture(files).values()} <= contents
        whole.check(place, [])
    assert refused
