"""Checkpoints of files: what is saved comes back exactly, what is not saved is never touched."""

import ast
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from orihon.chat.shadow import MAX_FILE_BYTES, Change, Shadow, check_workspace
from orihon.chat.shadow.git import OLDEST
from orihon.chat.shadow.restoring import Restoring
from orihon.chat.shadow.saving import identity
from orihon.chat.shadow.turn import turn
from orihon.errors import Conflict, NotFound, StoreUnavailable, UsageError
from orihon.testing.faults import Child, in_child
from support.worktrees import fingerprint, git, picture, put, world

STRANGE = [
    "with space.txt",
    " leading and trailing ",
    "-rf",
    "--help",
    'quo"te',
    "apo'strophe",
    "back\\slash",
    "new\nline",
    "tab\tand\rreturn",
    ":(exclude)magic",
    ":!magic",
    "*?[a]",
    "日本語/ファイル.txt",
    "~user",
    "#comment",
    "!negated",
    "git~1",
    "nul",
    "$HOME",
    ".gitattributes.txt",
    os.fsdecode(b"not utf-8 \xff\xfe"),
    "\u00e9 composed",
    "e\u0301 decomposed",
    "x" * 200,
]


@pytest.fixture
def here(tmp_path):
    return world(tmp_path)


def statuses(changes):
    return {change.path: change.status for change in changes}


def reasons(skipped):
    return {one.path: one.reason for one in skipped}


def test_a_checkpoint_says_what_has_changed_since_the_last(here):
    """Added, modified, deleted, of another type; a file that can be run now is modified; the first one has none."""
    for name in ("same", "modified", "deleted", "type", "mode"):
        put(here.files / "deep" / name, name)
    first = here.shadow.take("first")
    assert first.changes == ()
    put(here.files / "deep/modified", "other")
    (here.files / "deep/deleted").unlink()
    (here.files / "deep/type").unlink()
    (here.files / "deep/type").symlink_to("same")
    (here.files / "deep/mode").chmod(0o755)
    put(here.files / "new", "new")
    second = here.shadow.take("second")
    wanted = {"deep/modified": "M", "deep/deleted": "D", "deep/type": "T", "deep/mode": "M", "new": "A"}
    assert statuses(second.changes) == wanted
    assert statuses(here.shadow.changes(first.commit, second.commit)) == wanted
    assert statuses(here.shadow.changes(first.commit)) == wanted
    assert here.shadow.changes(second.commit) == ()
    assert here.shadow.take("third").changes == ()


def test_nothing_new_gives_the_last_checkpoint_again(here):
    """A commit is always given, also for an empty directory, and a file that was only touched is no change."""
    empty = here.shadow.take("empty")
    assert here.shadow.take("again").commit == empty.commit
    put(here.files / "a", "1")
    taken = here.shadow.take("one file")
    assert taken.changes == (Change("A", "a"),)
    os.utime(here.files / "a", (1, 1))
    assert here.shadow.take("touched") == taken.__class__(commit=taken.commit)


def test_looking_does_not_move_the_last_checkpoint(here):
    """What differs from a checkpoint can be asked at any time; the next one still tells what changed since the last."""
    put(here.files / "a", "1")
    first = here.shadow.take("first")
    put(here.files / "a", "2")
    put(here.files / "b", "new")
    assert statuses(here.shadow.changes(first.commit)) == {"a": "M", "b": "A"}
    assert "+2" in here.shadow.diff(first.commit)
    assert statuses(here.shadow.take("second").changes) == {"a": "M", "b": "A"}


def test_any_name_is_saved_and_comes_back(here):
    """Spaces, quotes, newlines, dashes, magic of pathspecs, Japanese, bytes that are no UTF-8."""
    for name in STRANGE:
        put(here.files / name, f"bytes of {name!a}")
    before = picture(here.files)
    first = here.shadow.take("".join(STRANGE))
    for name in STRANGE:
        (here.files / name).unlink()
        assert here.shadow.text(first.commit, name) == f"bytes of {name!a}".encode()
    second = here.shadow.take("gone")
    assert statuses(second.changes) == dict.fromkeys(STRANGE, "D")
    restored = here.shadow.restore(first.commit)
    assert (set(restored.written), restored.skipped) == (set(STRANGE), ())
    assert picture(here.files) == before


def test_bytes_modes_and_links_come_back_exactly(here):
    """Line ends, NUL, empty files, large ones, the right to be run, links: to files, to directories, to nowhere."""
    put(here.files / "crlf", b"a\r\nb\nc\r")
    put(here.files / "binary", bytes(range(256)) * 1000)
    put(here.files / "empty")
    put(here.files / "run", "#!/bin/sh\n", program=True)
    put(here.files / "dir/inner", "x")
    (here.files / "to file").symlink_to("run")
    (here.files / "to directory").symlink_to("dir")
    (here.files / "to nowhere").symlink_to("/nowhere/at all")
    before = picture(here.files)
    taken = here.shadow.take()
    shutil.rmtree(here.files / "dir")
    for path in here.files.iterdir():
        path.unlink()
    put(here.files / "run", "no program")
    here.shadow.restore(taken.commit)
    assert picture(here.files) == before


def test_a_file_keeps_the_rest_of_its_permissions(here):
    """Only the right to be run is saved; what else a file allows it goes on to allow."""
    put(here.files / "private", "1").chmod(0o600)
    taken = here.shadow.take()
    put(here.files / "private", "2").chmod(0o700)
    here.shadow.restore(taken.commit)
    assert stat.S_IMODE((here.files / "private").stat().st_mode) == 0o600


def test_newer_files_stay_or_go(here):
    """Without `hard` what was made since stays; with it only what the checkpoint has is left; both can be undone."""
    put(here.files / "old", "1")
    taken = here.shadow.take()
    put(here.files / "old", "2")
    put(here.files / "made/since", "3")
    (here.files / "empty").mkdir()
    latest = picture(here.files)
    soft = here.shadow.restore(taken.commit)
    assert (soft.written, soft.removed, soft.kept) == (("old",), (), ("made/since",))
    assert picture(here.files) == {"old": ("file", b"1"), "made/since": ("file", b"3")}
    hard = here.shadow.restore(taken.commit, hard=True)
    assert (hard.written, hard.removed, hard.kept) == ((), ("made/since",), ())
    assert picture(here.files) == {"old": ("file", b"1")}
    assert not (here.files / "made").exists()
    assert (here.files / "empty").is_dir()
    undone = here.shadow.restore(soft.before, hard=True)
    assert undone.skipped == ()
    assert picture(here.files) == latest
    assert here.shadow.take().commit == undone.after


def test_files_and_directories_change_places(here):
    """A file where a directory was, a directory where a file was, a link where either was, and all back again."""
    for name in ("file to directory", "file to link", "link to file", "link to directory"):
        put(here.files / name, name) if name.startswith("file") else (here.files / name).symlink_to("target")
    for name in ("directory to file", "directory to link"):
        put(here.files / name / "deep/inside", name)
    first, before = here.shadow.take(), picture(here.files)
    for path in list(here.files.iterdir()):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    outside = here.place / "outside"
    put(outside / "deep/inside", "not ours")
    for name in ("file to directory", "link to directory"):
        put(here.files / name / "deep/inside", "new")
    for name in ("directory to file", "link to file"):
        put(here.files / name, "new")
    for name in ("directory to link", "file to link"):
        (here.files / name).symlink_to(outside)
    second, after = here.shadow.take(), picture(here.files)
    for hard in (False, True):
        assert here.shadow.restore(first.commit, hard=hard).skipped == ()
        assert picture(here.files) == before
        assert here.shadow.restore(second.commit, hard=hard).skipped == ()
        assert picture(here.files) == after
    assert picture(outside) == {"deep/inside": ("file", b"not ours")}


def test_nothing_is_written_through_a_link(here):
    """A directory that became a link to another place is replaced by a directory, and the other place is left alone."""
    outside = here.place / "outside"
    put(outside / "a", "secret")
    put(here.files / "dir/a", "1")
    taken = here.shadow.take()
    shutil.rmtree(here.files / "dir")
    (here.files / "dir").symlink_to(outside)
    second = here.shadow.take()
    assert statuses(second.changes) == {"dir/a": "D", "dir": "A"}
    assert here.shadow.text(second.commit, "dir") == os.fsencode(outside)
    here.shadow.restore(taken.commit)
    assert picture(here.files) == {"dir/a": ("file", b"1")}
    assert picture(outside) == {"a": ("file", b"secret")}


def test_a_large_file_is_named_and_left_alone(tmp_path):
    """It is not saved, not overwritten by what it once was, not removed, and the others are not held up."""
    here = world(tmp_path, max_file_bytes=100)
    put(here.files / "grows", "small")
    put(here.files / "small", "1")
    first = here.shadow.take()
    put(here.files / "grows", "x" * 101)
    put(here.files / "large", "y" * 1000)
    put(here.files / "small", "2")
    second = here.shadow.take()
    assert reasons(second.skipped) == {
        "grows": "has 101 bytes; up to 100 are saved",
        "large": "has 1,000 bytes; up to 100 are saved",
    }
    assert statuses(second.changes) == {"small": "M"}
    assert here.shadow.take().commit == second.commit
    restored = here.shadow.restore(first.commit, hard=True)
    assert reasons(restored.skipped) == {"grows": "stays as it is: it has 101 bytes; up to 100 are saved"}
    assert (here.files / "grows").read_bytes() == b"x" * 101
    assert (here.files / "large").exists()
    assert (here.files / "small").read_bytes() == b"1"


def test_a_file_that_was_there_and_only_not_saved_is_not_removed(tmp_path):
    """A checkpoint remembers what it skipped, so a hard restore leaves it, though it could be saved by now."""
    here = world(tmp_path, max_file_bytes=100)
    put(here.files / "a", "1")
    here.shadow.take("without")
    put(here.files / "large", "y" * 1000)
    taken = here.shadow.take("beside a large file")
    put(here.files / "large", "small now")
    restored = here.shadow.restore(taken.commit, hard=True)
    assert (restored.removed, restored.kept) == ((), ("large",))
    assert (here.files / "large").read_bytes() == b"small now"


def test_ignored_files_are_left_alone(here):
    """They are not saved, not restored and not removed, in any directory and by any kind of rule."""
    put(here.files / ".gitignore", "*.log\nbuild/\n/top\n!keep.log\n")
    put(here.files / "sub/.gitignore", "local\n")
    ignored = ("a.log", "sub/b.log", "build/x", "sub/build/y", "top", "sub/local")
    for name in ignored:
        put(here.files / name, "1")
    for name in ("keep.log", "sub/top", "local"):
        put(here.files / name, "1")
    first = here.shadow.take()
    assert all(here.shadow.text(first.commit, name) is None for name in ignored)
    assert all(here.shadow.text(first.commit, name) == b"1" for name in ("keep.log", "sub/top", "local"))
    for name in (*ignored, "keep.log", "sub/top", "local"):
        put(here.files / name, "2")
    put(here.files / "build/new", "made since, and ignored")
    here.shadow.restore(first.commit, hard=True)
    assert {name: (here.files / name).read_bytes() for name in ignored} == dict.fromkeys(ignored, b"2")
    assert (here.files / "build/new").exists()
    assert (here.files / "keep.log").read_bytes() == b"1"


def test_a_file_that_is_ignored_by_now_is_not_touched(here):
    """Saved once and left out by a rule since: neither saved nor overwritten nor removed, and undo is exact."""
    put(here.files / "secret.env", "1")
    put(here.files / "a", "1")
    first = here.shadow.take()
    put(here.files / ".gitignore", "secret.env\n")
    put(here.files / "secret.env", "2")
    put(here.files / "a", "2")
    second = here.shadow.take()
    assert statuses(second.changes) == {".gitignore": "A", "a": "M"}
    assert here.shadow.text(second.commit, "secret.env") is None
    before = picture(here.files)
    restored = here.shadow.restore(first.commit, hard=True)
    assert list(reasons(restored.skipped)) == ["secret.env"]
    assert picture(here.files) == {"secret.env": ("file", b"2"), "a": ("file", b"1")}
    here.shadow.restore(restored.before, hard=True)
    assert picture(here.files) == before


def test_rules_that_hide_themselves_count_for_a_restore(here):
    """A `.gitignore` that is ignored itself is not seen to come; a restore asks about every file and leaves them."""
    put(here.files / "secret.env", "1")
    first = here.shadow.take()
    put(here.files / ".gitignore", "secret.env\n.gitignore\n")
    put(here.files / "secret.env", "2")
    before = picture(here.files)
    restored = here.shadow.restore(first.commit, hard=True)
    assert list(reasons(restored.skipped)) == ["secret.env"]
    assert picture(here.files) == before


def test_a_lost_index_does_not_let_ignored_files_in(here):
    """What git remembers of the files can be lost or broken; then all is read again, and the rules still hold."""
    put(here.files / "a", "1")
    put(here.files / "b", "1")
    put(here.files / "ignored later", "1")
    here.shadow.take()
    put(here.files / ".gitignore", "ignored later\n")
    (here.files / "b").unlink()
    (index,) = here.shadow.repository.glob("index*")
    index.write_bytes(b"this is no index")
    taken = here.shadow.take()
    assert statuses(taken.changes) == {".gitignore": "A", "b": "D"}
    assert here.shadow.text(taken.commit, "ignored later") is None
    index.unlink()
    assert here.shadow.take() == taken.__class__(commit=taken.commit)


def test_a_last_checkpoint_that_is_broken_is_no_hindrance(here):
    """Where its tree is gone, the next one is taken from the files alone; others can be restored."""
    put(here.files / "a", "1")
    first = here.shadow.take()
    put(here.files / "a", "2")
    here.shadow.take()
    tree = subprocess.run(
        ["git", "rev-parse", "HEAD^{tree}"], cwd=here.shadow.repository, capture_output=True, text=True, check=True
    ).stdout.strip()
    (here.shadow.repository / "objects" / tree[:2] / tree[2:]).unlink()
    assert statuses(here.shadow.changes(first.commit)) == {"a": "M"}
    third = here.shadow.take()
    assert here.shadow.text(third.commit, "a") == b"2"
    here.shadow.restore(first.commit)
    assert (here.files / "a").read_bytes() == b"1"


def test_bytes_that_are_lost_are_named(here):
    """One file that cannot come back does not hold up the others."""
    put(here.files / "a", "1")
    put(here.files / "b", "1 too")
    first = here.shadow.take()
    put(here.files / "a", "2")
    put(here.files / "b", "2 too")
    here.shadow.take()
    blob = identity(b"1")
    (here.shadow.repository / "objects" / blob[:2] / blob[2:]).unlink()
    restored = here.shadow.restore(first.commit)
    assert reasons(restored.skipped) == {"a": "cannot come back: its bytes are missing from the checkpoint"}
    assert picture(here.files) == {"a": ("file", b"2"), "b": ("file", b"1 too")}


def test_what_was_ignored_then_is_not_removed(here):
    """A file that the rules of a checkpoint left out may have been there; a hard restore does not remove it."""
    put(here.files / ".gitignore", "node_modules/\n")
    put(here.files / "node_modules/left-pad.js", "1")
    taken = here.shadow.take()
    put(here.files / ".gitignore", "")
    put(here.files / "node_modules/right-pad.js", "1")
    put(here.files / "new", "1")
    restored = here.shadow.restore(taken.commit, hard=True)
    assert restored.removed == ("new",)
    assert set(restored.kept) == {"node_modules/left-pad.js", "node_modules/right-pad.js"}
    assert (here.files / "node_modules/left-pad.js").exists()


def test_an_ignored_file_in_the_way_stays(here):
    """A file cannot come back to a place where a directory holds something that is not saved."""
    put(here.files / "place", "file")
    first = here.shadow.take()
    (here.files / "place").unlink()
    put(here.files / ".gitignore", "*.log\n")
    put(here.files / "place/new", "saved")
    put(here.files / "place/a.log", "not saved")
    restored = here.shadow.restore(first.commit, hard=True)
    assert reasons(restored.skipped) == {"place": "cannot come back: place/a.log is in its place and not saved"}
    assert (here.files / "place/a.log").read_bytes() == b"not saved"


def test_fifos_and_sockets_are_left_alone(here, monkeypatch):
    """They are not saved, not waited for and not removed, also where a file was."""
    put(here.files / "a", "1")
    put(here.files / "dir/b", "1")
    first = here.shadow.take()
    for name in ("a", "dir/b"):
        (here.files / name).unlink()
    (here.files / "dir").rmdir()
    os.mkfifo(here.files / "a")
    os.mkfifo(here.files / "dir")
    os.mkfifo(here.files / "fifo")
    monkeypatch.chdir(here.files)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        second = here.shadow.take()
        assert reasons(second.skipped) == {"a": "is not a file, a link or a directory"}
        restored = here.shadow.restore(first.commit, hard=True)
    assert set(reasons(restored.skipped)) == {"a", "dir/b"}
    assert all(stat.S_ISFIFO((here.files / name).lstat().st_mode) for name in ("a", "dir", "fifo"))


CHANGING = """
import sys
path, number = sys.argv[1], 0
while True:
    number += 1
    with open(path, "w") as file:
        file.write(f"{number}\\n" * (number % 5000))
"""


def test_a_file_that_changes_while_it_is_saved(here):
    """Checkpoints go on beside a file that is truncated and written all the time, and the last one is exact."""
    put(here.files / "quiet", "1")
    with subprocess.Popen([sys.executable, "-c", CHANGING, str(here.files / "log")]) as writer:
        try:
            for number in range(5):
                put(here.files / "quiet", f"{number}")
                taken = here.shadow.take()
                assert taken.skipped == ()
                assert here.shadow.text(taken.commit, "quiet") == f"{number}".encode()
        finally:
            writer.kill()
    last = here.shadow.take()
    assert here.shadow.text(last.commit, "log") == (here.files / "log").read_bytes()


def test_what_changes_during_a_restore_is_not_overwritten(here, monkeypatch):
    """A file that somebody saved after the checkpoint that precedes a restore is kept and named."""
    for name in ("edited", "replaced", "newer"):
        put(here.files / name, "1")
    (here.files / "newer").unlink()
    first = here.shadow.take()
    for name in ("edited", "replaced", "newer"):
        put(here.files / name, "2")
    clear = Restoring.clear_the_way

    def meanwhile(self):
        put(here.files / "edited", "by somebody else")
        put(here.files / "newer", "by somebody else")
        clear(self)

    monkeypatch.setattr(Restoring, "clear_the_way", meanwhile)
    restored = here.shadow.restore(first.commit, hard=True)
    assert (restored.written, set(reasons(restored.skipped))) == (("replaced",), {"edited", "newer"})
    assert picture(here.files) == {
        "edited": ("file", b"by somebody else"),
        "newer": ("file", b"by somebody else"),
        "replaced": ("file", b"1"),
    }


def test_unreadable_files_are_named_and_the_rest_is_saved():
    """As somebody who is not root: files and directories that cannot be read are named; what can be is saved."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o777)

        def work(say):
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.environ.pop("HOME", None)
            here = world(place)
            for name in ("a", "closed/inside", "unreadable", "readable then"):
                put(here.files / name, "1")
            first = here.shadow.take()
            (here.files / "unreadable").chmod(0)
            put(here.files / "new and closed", "1").chmod(0)
            (here.files / "closed").chmod(0)
            put(here.files / "a", "2")
            second = here.shadow.take()
            restored = here.shadow.restore(first.commit, hard=True)
            (here.files / "closed").chmod(0o755)
            for name in ("unreadable", "new and closed"):
                (here.files / name).chmod(0o644)
            last = picture(here.files)
            say(repr((sorted(reasons(second.skipped).items()), statuses(second.changes))))
            say(repr((restored.removed, last)))

        ended = in_child(work)
        assert ended.code == 0
        (skipped, changes), (removed, last) = map(ast.literal_eval, ended.said)
    assert dict(skipped)["unreadable"] == dict(skipped)["new and closed"] == "cannot be saved: Permission denied"
    assert dict(skipped)["closed"] == "cannot be looked into: Permission denied"
    assert changes == {"a": "M"}
    assert removed == ()
    assert set(last) == {"a", "closed/inside", "unreadable", "readable then", "new and closed"}
    assert set(last.values()) == {("file", b"1")}


def test_a_diff_is_for_reading_and_bounded(here):
    """Lines with their signs, Japanese as it is; binary and huge files only differ; a long one says that it is cut."""
    put(here.files / "日本.txt", "一\n二\n")
    put(here.files / "binary", b"\0\1")
    put(here.files / "huge", "line\n" * 500_000)
    first = here.shadow.take()
    put(here.files / "日本.txt", "一\n三\n")
    put(here.files / "binary", b"\0\2")
    put(here.files / "huge", "other\n" * 500_000)
    put(here.files / "new", "added\n")
    text = here.shadow.diff(first.commit)
    assert "+++ b/日本.txt" in text
    assert "-二\n+三" in text
    assert "Binary files a/huge and b/huge differ" in text
    assert "Binary files a/binary and b/binary differ" in text
    assert "+added" in text
    second = here.shadow.take()
    assert here.shadow.diff(first.commit, second.commit) == text
    assert here.shadow.diff(second.commit, first.commit) != text
    put(here.files / "long", "many\n" * 100_000)
    cut = here.shadow.diff(first.commit, max_bytes=1000)
    assert cut.endswith("(The rest is not shown: there are more than 1,000 bytes.)\n")
    assert len(cut.encode()) < 1100


def test_a_file_of_a_checkpoint_can_be_read(here):
    """Its bytes, where a link led, or None: also for directories, for nothing, and for what cannot be a path."""
    put(here.files / "dir/a", "bytes")
    put(here.files / "empty")
    (here.files / "link").symlink_to("dir/a")
    commit = here.shadow.take().commit
    for path, wanted in (("dir/a", b"bytes"), ("empty", b""), ("link", b"dir/a")):
        assert here.shadow.text(commit, path) == wanted
    for path in ("dir", "dir/", "", ".", "..", "../shadow/HEAD", "/etc/passwd", "no\0no", "\ud800", "-p", "dir/a/b"):
        assert here.shadow.text(commit, path) is None


@pytest.mark.parametrize("wrong", ["", "HEAD", "0" * 40, "--all", "refs/heads/last", "a" * 39, "A" * 40, None, 7])
def test_an_unknown_checkpoint_is_refused(here, wrong):
    """Before anything is changed."""
    put(here.files / "a", "1")
    here.shadow.take()
    put(here.files / "a", "2")
    for call in (here.shadow.restore, here.shadow.changes, here.shadow.diff, lambda one: here.shadow.keep_only([one])):
        with pytest.raises(NotFound, match="There is no checkpoint"):
            call(wrong)
    with pytest.raises(NotFound):
        here.shadow.text(wrong, "a")
    assert (here.files / "a").read_bytes() == b"2"


def test_forgetting_gives_space_back(here):
    """Only the checkpoints that are kept can be restored; the disk is as if the others had never been."""
    put(here.files / "a", "1")
    kept = here.shadow.take("kept")
    sizes = [size_of(here.shadow.repository)]
    others = []
    for _ in range(5):
        put(here.files / "a", os.urandom(200_000))
        others.append(here.shadow.take("other"))
    assert here.shadow.changes(others[0].commit) != ()
    sizes.append(size_of(here.shadow.repository))
    here.shadow.keep_only([kept.commit])
    sizes.append(size_of(here.shadow.repository))
    assert sizes[1] > sizes[0] + 1_000_000
    assert sizes[2] < sizes[0] + 20_000
    for other in others:
        with pytest.raises(NotFound):
            here.shadow.changes(other.commit)
    assert statuses(here.shadow.changes(kept.commit)) == {"a": "M"}
    here.shadow.restore(kept.commit)
    assert (here.files / "a").read_bytes() == b"1"
    here.shadow.keep_only([])
    with pytest.raises(NotFound):
        here.shadow.changes(kept.commit)
    assert here.shadow.take("from the start").changes == ()


def test_forgetting_keeps_the_last_one_when_it_is_kept(here):
    """And the next checkpoint is compared with it."""
    put(here.files / "a", "1")
    here.shadow.take("first")
    put(here.files / "a", "2")
    second = here.shadow.take("second")
    here.shadow.keep_only([second.commit])
    put(here.files / "b", "new")
    assert statuses(here.shadow.take("third").changes) == {"b": "A"}
    here.shadow.restore(second.commit, hard=True)
    assert picture(here.files) == {"a": ("file", b"2")}


def size_of(root):
    return sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())


def test_the_disk_grows_by_the_change_only(here):
    """One small change among many files costs little; no change costs nothing; the same bytes are stored once."""
    for number in range(300):
        put(here.files / f"d{number % 10}/f{number}", os.urandom(1000))
    here.shadow.take()
    full = size_of(here.shadow.repository)
    here.shadow.take()  # the index learns the times of the files
    before = size_of(here.shadow.repository)
    here.shadow.take()
    assert size_of(here.shadow.repository) == before
    assert full > 300_000
    put(here.files / "d3/f3", os.urandom(1000))
    here.shadow.take()
    assert size_of(here.shadow.repository) - before < 5000
    before = size_of(here.shadow.repository)
    put(here.files / "copy", (here.files / "d3/f3").read_bytes())
    here.shadow.take()
    assert size_of(here.shadow.repository) - before < 2000


def test_the_repository_can_be_moved_and_copied(here):
    """No absolute path is stored; the workspace can be moved as well."""
    put(here.files / "a", "1")
    first = here.shadow.take()
    put(here.files / "a", "2")
    moved = here.place / "else" / "where"
    moved.parent.mkdir()
    shutil.move(here.shadow.repository, moved)
    shutil.move(here.files, here.place / "renamed")
    assert not any(os.fsencode(here.place) in path.read_bytes() for path in moved.rglob("*") if path.is_file())
    again = Shadow(moved, here.place / "renamed")
    assert statuses(again.take().changes) == {"a": "M"}
    again.restore(first.commit)
    assert picture(here.place / "renamed") == {"a": ("file", b"1")}
    shutil.copytree(moved, here.place / "copy")
    assert Shadow(here.place / "copy", here.place / "renamed").changes(first.commit) == ()


def test_nobody_else_can_read_a_shadow(here):
    """It holds files unmasked: 0700 and 0600 at most, whatever the umask, which those in the workspace follow."""
    put(here.files / "a", "1")
    old = os.umask(0)
    try:
        first = here.shadow.take()
        for number in range(150):
            put(here.files / f"many{number}", f"{number}")
        here.shadow.take()
        here.shadow.diff(first.commit)
        here.shadow.keep_only([first.commit])
        (here.files / "a").unlink()
        here.shadow.restore(first.commit)
        put(here.files / "b/c", "1")
        second = here.shadow.take()
        shutil.rmtree(here.files / "b")
        os.umask(0o027)
        here.shadow.restore(second.commit)
    finally:
        os.umask(old)
    for path in [here.shadow.repository, *here.shadow.repository.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert not mode & 0o077, f"{path} has {mode:o}"
    assert stat.S_IMODE((here.files / "a").stat().st_mode) == 0o666
    assert stat.S_IMODE((here.files / "b").stat().st_mode) == 0o750
    assert stat.S_IMODE((here.files / "b/c").stat().st_mode) == 0o640


def test_a_shadow_inside_the_workspace_does_not_save_itself(tmp_path):
    """Nor what it is told to leave apart, even when a rule of the user's shows it; a restore leaves both alone."""
    files = tmp_path / "workspace"
    put(files / "a", "1")
    put(files / ".gitignore", "!logs\n!logs/**\n")
    put(files / "logs/other", "1")
    store = files / "logs" / "con[te]xts #1"
    shadow = Shadow(store / "task" / "shadow", files, apart=[store])
    put(store / "messages.jsonl", "1")
    first = shadow.take()
    put(store / "messages.jsonl", "2")
    put(files / "a", "2")
    second = shadow.take()
    assert statuses(second.changes) == {"a": "M"}
    assert shadow.text(second.commit, "logs/other") == b"1"
    assert shadow.text(second.commit, "logs/con[te]xts #1/messages.jsonl") is None
    put(store / "new", "1")
    shadow.restore(first.commit, hard=True)
    assert (store / "messages.jsonl").read_bytes() == b"2"
    assert (store / "new").exists()
    assert (files / "a").read_bytes() == b"1"


def test_a_workspace_inside_its_own_checkpoints_is_refused(tmp_path):
    """It could not be saved."""
    (tmp_path / "shadow" / "inside").mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot be inside its own checkpoints"):
        Shadow(tmp_path / "shadow", tmp_path / "shadow" / "inside")


def test_a_directory_of_something_else_is_not_used(tmp_path):
    """Least of all the user's own repository."""
    here = world(tmp_path)
    git(here.files, "init", "--quiet", ".")
    before = fingerprint(here.files)
    for place in (here.files / ".git", put(tmp_path / "papers/letter", "dear").parent):
        with pytest.raises(UsageError, match="holds something else than checkpoints"):
            Shadow(place, here.files).take()
    assert fingerprint(here.files) == before
    assert picture(tmp_path / "papers") == {"letter": ("file", b"dear")}


def test_home_and_root_are_refused(tmp_path, monkeypatch):
    """By their names, through links, above home, and when nobody says where home is."""
    home = tmp_path / "people" / "me"
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    for path in ("/", "//", "/usr/..", home, home / "..", tmp_path, tmp_path / "link", f"{home}/"):
        with pytest.raises(UsageError, match="checkpoints") as refused:
            check_workspace(path)
        assert refused.value.hint
    monkeypatch.setenv("HOME", str(tmp_path / "link"))
    with pytest.raises(UsageError, match="home directory"):
        check_workspace(home)
    project = home / "project"
    project.mkdir()
    assert check_workspace(project) == project
    for value in ("", "relative", "/nowhere"):
        monkeypatch.setenv("HOME", value)
        assert check_workspace(home) == home
    monkeypatch.delenv("HOME")
    real = Path(pwd.getpwuid(os.geteuid()).pw_dir)
    if real.is_dir():
        with pytest.raises(UsageError):
            check_workspace(real)
    with pytest.raises(UsageError):
        Shadow(tmp_path / "shadow", "/")


def test_what_is_no_directory_is_refused(tmp_path):
    """A file, nothing at all, a link in circles, the inside of .git."""
    put(tmp_path / "file", "1")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "repo/.git/hooks").mkdir(parents=True)
    for path in ("file", "nothing", "circle", "repo/.git", "repo/.git/hooks"):
        with pytest.raises(UsageError):
            check_workspace(tmp_path / path)
    with pytest.raises(UsageError):
        check_workspace("nul\0")


def test_a_missing_or_old_git_is_said(here, monkeypatch):
    """With a hint what to do; nothing is made."""
    tools = here.place / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(StoreUnavailable, match="it is not installed") as missing:
        here.shadow.take()
    assert "Install git" in missing.value.hint
    assert not missing.value.retryable
    put(tools / "git", "#!/bin/sh\necho git version 2.25.1\n", program=True)
    with pytest.raises(StoreUnavailable, match=r"need git 2\.32 or newer; .* is 2\.25") as old:
        here.shadow.take()
    assert "newer git" in old.value.hint


def test_a_workspace_that_is_gone_is_said(here):
    """As a sentence."""
    shutil.rmtree(here.files)
    with pytest.raises(StoreUnavailable, match="workspace"):
        here.shadow.take()


def test_a_label_cannot_forge_what_a_restore_must_know(here):
    """It is one line, whatever is in it."""
    put(here.files / "a", "1")
    taken = here.shadow.take('title\n\nskipped: "a"\0\nbelow: "x/"\n\ud800' + "x" * 1000)
    put(here.files / "b", "1")
    assert here.shadow.restore(taken.commit, hard=True).removed == ("b",)
    assert here.shadow.text(taken.commit, "a") == b"1"


def test_the_page_about_checkpoints_is_true(here):
    """Its example is run; the oldest git and the largest file are those of the code."""
    page = (Path(__file__).parents[2] / "docs/checkpoints.md").read_text(encoding="utf-8")
    put(here.files / "a", "1")
    names = {"Shadow": Shadow, "repository": here.place / "one", "workspace": here.files, "store": here.place / "store"}
    exec("\n".join(line[4:] for line in page.splitlines() if line.startswith("    ")), names)  # noqa: S102
    assert names["restored"].before == names["taken"].commit
    assert f"git {'.'.join(map(str, OLDEST))} or newer" in page
    assert f"over {MAX_FILE_BYTES // 1_000_000} MB" in page


def test_two_processes_take_turns(here):
    """Checkpoints, looks and restores of several processes at once: all of them end well, and nothing is torn."""
    for number in range(20):
        put(here.files / f"f{number}", f"{number}")
    first = here.shadow.take()

    def work(say):
        for number in range(4):
            put(here.files / f"{os.getpid()}", f"{number}")
            say(here.shadow.take().commit)
            here.shadow.changes(first.commit)

    children = [Child(work) for _ in range(3)]
    ended = [child.wait() for child in children]
    assert [one.code for one in ended] == [0, 0, 0]
    for commit in {commit for one in ended for commit in one.said}:
        assert here.shadow.text(commit, "f7") == b"7"
    assert len(here.shadow.changes(first.commit)) == 3
    subprocess.run(["git", "fsck", "--strict", "--no-dangling"], cwd=here.shadow.repository, check=True, timeout=60)


def test_whoever_waits_too_long_is_told(here, monkeypatch):
    """Another process that does not let go is an error that a retry can help."""
    here.shadow.take()
    with turn(here.shadow.repository):
        monkeypatch.setattr("orihon.chat.shadow.turn.WAIT_SECONDS", 0.1)
        with pytest.raises(Conflict, match="Another process has been using the checkpoints") as refused:
            here.shadow.take()
        assert refused.value.retryable
    here.shadow.take()
