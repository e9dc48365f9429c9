"""Checkpoints of files: saved files are restored exactly, and files that are not saved are never touched."""

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

from orihon.chat.workspace_checkpoints import (
    MAX_FILE_BYTES,
    FileChange,
    Restore,
    WorkspaceCheckpoints,
    check_workspace,
    lock_repository,
)
from orihon.chat.workspace_checkpoints.git import OLDEST
from orihon.chat.workspace_checkpoints.worktree import hash_blob
from orihon.errors import Conflict, NotFound, StoreUnavailable, UsageError
from support.faults import Child, in_child
from support.pages import blocks
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
    """Files are added, modified, deleted, or of another type; a changed executable bit is a modification."""
    for name in ("same", "modified", "deleted", "type", "mode"):
        put(here.files / "deep" / name, name)
    first = here.checkpoints.take("first")
    assert first.changes == ()
    put(here.files / "deep/modified", "other")
    (here.files / "deep/deleted").unlink()
    (here.files / "deep/type").unlink()
    (here.files / "deep/type").symlink_to("same")
    (here.files / "deep/mode").chmod(0o755)
    put(here.files / "new", "new")
    second = here.checkpoints.take("second")
    wanted = {"deep/modified": "M", "deep/deleted": "D", "deep/type": "T", "deep/mode": "M", "new": "A"}
    assert statuses(second.changes) == wanted
    assert statuses(here.checkpoints.changes(first.commit, second.commit)) == wanted
    assert statuses(here.checkpoints.changes(first.commit)) == wanted
    assert here.checkpoints.changes(second.commit) == ()
    assert here.checkpoints.take("third").changes == ()


def test_nothing_new_gives_the_last_checkpoint_again(here):
    """Every snapshot has a commit, also of an empty directory; touching a file is not a change."""
    empty = here.checkpoints.take("empty")
    assert here.checkpoints.take("again").commit == empty.commit
    put(here.files / "a", "1")
    taken = here.checkpoints.take("one file")
    assert taken.changes == (FileChange("A", "a"),)
    os.utime(here.files / "a", (1, 1))
    assert here.checkpoints.take("touched") == taken.__class__(commit=taken.commit)


def test_comparing_does_not_move_the_last_checkpoint(here):
    """Comparing the workspace does not affect what the next snapshot reports."""
    put(here.files / "a", "1")
    first = here.checkpoints.take("first")
    put(here.files / "a", "2")
    put(here.files / "b", "new")
    assert statuses(here.checkpoints.changes(first.commit)) == {"a": "M", "b": "A"}
    assert "+2" in here.checkpoints.diff(first.commit)
    assert statuses(here.checkpoints.take("second").changes) == {"a": "M", "b": "A"}


def test_any_name_is_saved_and_restored(here):
    """Spaces, quotes, newlines, dashes, pathspec magic, Japanese, bytes that are not UTF-8."""
    for name in STRANGE:
        put(here.files / name, f"bytes of {name!a}")
    before = picture(here.files)
    first = here.checkpoints.take("".join(STRANGE))
    for name in STRANGE:
        (here.files / name).unlink()
        assert here.checkpoints.read_file(first.commit, name) == f"bytes of {name!a}".encode()
    second = here.checkpoints.take("gone")
    assert statuses(second.changes) == dict.fromkeys(STRANGE, "D")
    restored = here.checkpoints.restore(first.commit)
    assert (set(restored.written), restored.skipped) == (set(STRANGE), ())
    assert picture(here.files) == before


def test_bytes_modes_and_links_are_restored_exactly(here):
    """Line ends, NUL, empty and large files, executable bits, links to files, to directories and to nothing."""
    put(here.files / "crlf", b"a\r\nb\nc\r")
    put(here.files / "binary", bytes(range(256)) * 1000)
    put(here.files / "empty")
    put(here.files / "run", "#!/bin/sh\n", program=True)
    put(here.files / "dir/inner", "x")
    (here.files / "to file").symlink_to("run")
    (here.files / "to directory").symlink_to("dir")
    (here.files / "to nowhere").symlink_to("/nowhere/at all")
    before = picture(here.files)
    taken = here.checkpoints.take()
    shutil.rmtree(here.files / "dir")
    for path in here.files.iterdir():
        path.unlink()
    put(here.files / "run", "no program")
    here.checkpoints.restore(taken.commit)
    assert picture(here.files) == before


def test_a_file_keeps_the_rest_of_its_permissions(here):
    """Only the executable bit is saved; the other permissions stay as they are."""
    put(here.files / "private", "1").chmod(0o600)
    taken = here.checkpoints.take()
    put(here.files / "private", "2").chmod(0o700)
    here.checkpoints.restore(taken.commit)
    assert stat.S_IMODE((here.files / "private").stat().st_mode) == 0o600


def test_newer_files_stay_or_go(here):
    """Newer files stay without `hard` and are removed with it; both can be undone."""
    put(here.files / "old", "1")
    taken = here.checkpoints.take()
    put(here.files / "old", "2")
    put(here.files / "made/since", "3")
    (here.files / "empty").mkdir()
    latest = picture(here.files)
    soft = here.checkpoints.restore(taken.commit)
    assert (soft.written, soft.removed, soft.kept) == (("old",), (), ("made/since",))
    assert picture(here.files) == {"old": ("file", b"1"), "made/since": ("file", b"3")}
    hard = here.checkpoints.restore(taken.commit, hard=True)
    assert (hard.written, hard.removed, hard.kept) == ((), ("made/since",), ())
    assert picture(here.files) == {"old": ("file", b"1")}
    assert not (here.files / "made").exists()
    assert (here.files / "empty").is_dir()
    undone = here.checkpoints.restore(soft.before, hard=True)
    assert undone.skipped == ()
    assert picture(here.files) == latest
    assert here.checkpoints.take().commit == undone.after


def test_files_and_directories_change_places(here):
    """Files, directories and links replace one another, in both directions."""
    for name in ("file to directory", "file to link", "link to file", "link to directory"):
        put(here.files / name, name) if name.startswith("file") else (here.files / name).symlink_to("target")
    for name in ("directory to file", "directory to link"):
        put(here.files / name / "deep/inside", name)
    first, before = here.checkpoints.take(), picture(here.files)
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
    second, after = here.checkpoints.take(), picture(here.files)
    for hard in (False, True):
        assert here.checkpoints.restore(first.commit, hard=hard).skipped == ()
        assert picture(here.files) == before
        assert here.checkpoints.restore(second.commit, hard=hard).skipped == ()
        assert picture(here.files) == after
    assert picture(outside) == {"deep/inside": ("file", b"not ours")}


def test_nothing_is_written_through_a_link(here):
    """A directory that became a link is restored as a directory, and the target of the link is not touched."""
    outside = here.place / "outside"
    put(outside / "a", "secret")
    put(here.files / "dir/a", "1")
    taken = here.checkpoints.take()
    shutil.rmtree(here.files / "dir")
    (here.files / "dir").symlink_to(outside)
    second = here.checkpoints.take()
    assert statuses(second.changes) == {"dir/a": "D", "dir": "A"}
    assert here.checkpoints.read_file(second.commit, "dir") == os.fsencode(outside)
    here.checkpoints.restore(taken.commit)
    assert picture(here.files) == {"dir/a": ("file", b"1")}
    assert picture(outside) == {"a": ("file", b"secret")}


def test_a_large_file_is_named_and_left_alone(tmp_path):
    """A large file is neither saved nor overwritten nor removed, and does not affect other files."""
    here = world(tmp_path, max_file_bytes=100)
    put(here.files / "grows", "small")
    put(here.files / "small", "1")
    first = here.checkpoints.take()
    put(here.files / "grows", "x" * 101)
    put(here.files / "large", "y" * 1000)
    put(here.files / "small", "2")
    second = here.checkpoints.take()
    assert reasons(second.skipped) == {
        "grows": "has 101 bytes; the limit is 100",
        "large": "has 1,000 bytes; the limit is 100",
    }
    assert statuses(second.changes) == {"small": "M"}
    assert here.checkpoints.take().commit == second.commit
    restored = here.checkpoints.restore(first.commit, hard=True)
    assert reasons(restored.skipped) == {"grows": "stays as it is: it has 101 bytes; the limit is 100"}
    assert (here.files / "grows").read_bytes() == b"x" * 101
    assert (here.files / "large").exists()
    assert (here.files / "small").read_bytes() == b"1"


def test_a_file_that_was_there_and_only_not_saved_is_not_removed(tmp_path):
    """A hard restore keeps a file that the checkpoint skipped, even if it could be saved by now."""
    here = world(tmp_path, max_file_bytes=100)
    put(here.files / "a", "1")
    here.checkpoints.take("without")
    put(here.files / "large", "y" * 1000)
    taken = here.checkpoints.take("beside a large file")
    put(here.files / "large", "small now")
    restored = here.checkpoints.restore(taken.commit, hard=True)
    assert (restored.removed, restored.kept) == ((), ("large",))
    assert (here.files / "large").read_bytes() == b"small now"


def test_ignored_files_are_left_alone(here):
    """Ignored files are neither saved nor restored nor removed, in any directory and by any kind of rule."""
    put(here.files / ".gitignore", "*.log\nbuild/\n/top\n!keep.log\n")
    put(here.files / "sub/.gitignore", "local\n")
    ignored = ("a.log", "sub/b.log", "build/x", "sub/build/y", "top", "sub/local")
    for name in ignored:
        put(here.files / name, "1")
    for name in ("keep.log", "sub/top", "local"):
        put(here.files / name, "1")
    first = here.checkpoints.take()
    assert all(here.checkpoints.read_file(first.commit, name) is None for name in ignored)
    assert all(here.checkpoints.read_file(first.commit, name) == b"1" for name in ("keep.log", "sub/top", "local"))
    for name in (*ignored, "keep.log", "sub/top", "local"):
        put(here.files / name, "2")
    put(here.files / "build/new", "made since, and ignored")
    here.checkpoints.restore(first.commit, hard=True)
    assert {name: (here.files / name).read_bytes() for name in ignored} == dict.fromkeys(ignored, b"2")
    assert (here.files / "build/new").exists()
    assert (here.files / "keep.log").read_bytes() == b"1"


def test_a_file_that_is_ignored_by_now_is_not_touched(here):
    """A file that was saved and is ignored by now is not overwritten or removed, and undo is exact."""
    put(here.files / "secret.env", "1")
    put(here.files / "a", "1")
    first = here.checkpoints.take()
    put(here.files / ".gitignore", "secret.env\n")
    put(here.files / "secret.env", "2")
    put(here.files / "a", "2")
    second = here.checkpoints.take()
    assert statuses(second.changes) == {".gitignore": "A", "a": "M"}
    assert here.checkpoints.read_file(second.commit, "secret.env") is None
    before = picture(here.files)
    restored = here.checkpoints.restore(first.commit, hard=True)
    assert list(reasons(restored.skipped)) == ["secret.env"]
    assert picture(here.files) == {"secret.env": ("file", b"2"), "a": ("file", b"1")}
    here.checkpoints.restore(restored.before, hard=True)
    assert picture(here.files) == before


def test_rules_that_hide_themselves_count_for_a_restore(here):
    """A `.gitignore` that ignores itself is not listed as a change; a restore applies the rules to every file."""
    put(here.files / "secret.env", "1")
    first = here.checkpoints.take()
    put(here.files / ".gitignore", "secret.env\n.gitignore\n")
    put(here.files / "secret.env", "2")
    before = picture(here.files)
    restored = here.checkpoints.restore(first.commit, hard=True)
    assert list(reasons(restored.skipped)) == ["secret.env"]
    assert picture(here.files) == before


def test_a_lost_index_does_not_let_ignored_files_in(here):
    """Without its index git lists every file, and the ignore rules still apply."""
    put(here.files / "a", "1")
    put(here.files / "b", "1")
    put(here.files / "ignored later", "1")
    here.checkpoints.take()
    put(here.files / ".gitignore", "ignored later\n")
    (here.files / "b").unlink()
    (index,) = here.checkpoints.repository.glob("index*")
    index.write_bytes(b"this is no index")
    taken = here.checkpoints.take()
    assert statuses(taken.changes) == {".gitignore": "A", "b": "D"}
    assert here.checkpoints.read_file(taken.commit, "ignored later") is None
    index.unlink()
    assert here.checkpoints.take() == taken.__class__(commit=taken.commit)


def test_a_broken_last_checkpoint_does_not_block_the_next(here):
    """If its tree is gone, the next one is taken from the files alone; others can be restored."""
    put(here.files / "a", "1")
    first = here.checkpoints.take()
    put(here.files / "a", "2")
    here.checkpoints.take()
    tree = subprocess.run(
        ["git", "rev-parse", "HEAD^{tree}"], cwd=here.checkpoints.repository, capture_output=True, text=True, check=True
    ).stdout.strip()
    (here.checkpoints.repository / "objects" / tree[:2] / tree[2:]).unlink()
    assert statuses(here.checkpoints.changes(first.commit)) == {"a": "M"}
    third = here.checkpoints.take()
    assert here.checkpoints.read_file(third.commit, "a") == b"2"
    here.checkpoints.restore(first.commit)
    assert (here.files / "a").read_bytes() == b"1"


def test_lost_bytes_are_reported(here):
    """A file that cannot be restored does not affect the others."""
    put(here.files / "a", "1")
    put(here.files / "b", "1 too")
    first = here.checkpoints.take()
    put(here.files / "a", "2")
    put(here.files / "b", "2 too")
    here.checkpoints.take()
    blob = hash_blob(b"1")
    (here.checkpoints.repository / "objects" / blob[:2] / blob[2:]).unlink()
    restored = here.checkpoints.restore(first.commit)
    assert reasons(restored.skipped) == {"a": "cannot be restored: its bytes are missing from the checkpoint"}
    assert picture(here.files) == {"a": ("file", b"2"), "b": ("file", b"1 too")}


def test_what_was_ignored_then_is_not_removed(here):
    """A hard restore keeps files that the checkpoint's own rules ignored, because they may have existed."""
    put(here.files / ".gitignore", "node_modules/\n")
    put(here.files / "node_modules/left-pad.js", "1")
    taken = here.checkpoints.take()
    put(here.files / ".gitignore", "")
    put(here.files / "node_modules/right-pad.js", "1")
    put(here.files / "new", "1")
    restored = here.checkpoints.restore(taken.commit, hard=True)
    assert restored.removed == ("new",)
    assert set(restored.kept) == {"node_modules/left-pad.js", "node_modules/right-pad.js"}
    assert (here.files / "node_modules/left-pad.js").exists()


def test_an_ignored_file_in_the_way_stays(here):
    """A file is not restored where a directory contains a file that is not saved."""
    put(here.files / "place", "file")
    first = here.checkpoints.take()
    (here.files / "place").unlink()
    put(here.files / ".gitignore", "*.log\n")
    put(here.files / "place/new", "saved")
    put(here.files / "place/a.log", "not saved")
    restored = here.checkpoints.restore(first.commit, hard=True)
    assert reasons(restored.skipped) == {"place": "cannot be restored: place/a.log is in its place and not saved"}
    assert (here.files / "place/a.log").read_bytes() == b"not saved"


def test_fifos_and_sockets_are_left_alone(here, monkeypatch):
    """FIFOs and sockets are not saved or removed and do not block, also in place of a file."""
    put(here.files / "a", "1")
    put(here.files / "dir/b", "1")
    first = here.checkpoints.take()
    for name in ("a", "dir/b"):
        (here.files / name).unlink()
    (here.files / "dir").rmdir()
    os.mkfifo(here.files / "a")
    os.mkfifo(here.files / "dir")
    os.mkfifo(here.files / "fifo")
    monkeypatch.chdir(here.files)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        second = here.checkpoints.take()
        assert reasons(second.skipped) == {"a": "is not a file, a link or a directory"}
        restored = here.checkpoints.restore(first.commit, hard=True)
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
    """Checkpoints work while a file is constantly rewritten, and the last one is exact."""
    put(here.files / "quiet", "1")
    with subprocess.Popen([sys.executable, "-c", CHANGING, str(here.files / "log")]) as writer:
        try:
            for number in range(5):
                put(here.files / "quiet", f"{number}")
                taken = here.checkpoints.take()
                assert taken.skipped == ()
                assert here.checkpoints.read_file(taken.commit, "quiet") == f"{number}".encode()
        finally:
            writer.kill()
    last = here.checkpoints.take()
    assert here.checkpoints.read_file(last.commit, "log") == (here.files / "log").read_bytes()


def test_what_changes_during_a_restore_is_not_overwritten(here, monkeypatch):
    """A file that changes after the snapshot that precedes a restore is kept and reported."""
    for name in ("edited", "replaced", "newer"):
        put(here.files / name, "1")
    (here.files / "newer").unlink()
    first = here.checkpoints.take()
    for name in ("edited", "replaced", "newer"):
        put(here.files / name, "2")
    clear = Restore.clear_the_way

    def meanwhile(self):
        put(here.files / "edited", "by another process")
        put(here.files / "newer", "by another process")
        clear(self)

    monkeypatch.setattr(Restore, "clear_the_way", meanwhile)
    restored = here.checkpoints.restore(first.commit, hard=True)
    assert (restored.written, set(reasons(restored.skipped))) == (("replaced",), {"edited", "newer"})
    assert picture(here.files) == {
        "edited": ("file", b"by another process"),
        "newer": ("file", b"by another process"),
        "replaced": ("file", b"1"),
    }


def test_unreadable_files_are_named_and_the_rest_is_saved():
    """As an unprivileged user: unreadable files and directories are reported, and the rest is saved."""
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
            first = here.checkpoints.take()
            (here.files / "unreadable").chmod(0)
            put(here.files / "new and closed", "1").chmod(0)
            (here.files / "closed").chmod(0)
            put(here.files / "a", "2")
            second = here.checkpoints.take()
            restored = here.checkpoints.restore(first.commit, hard=True)
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
    assert dict(skipped)["closed"] == "cannot be opened: Permission denied"
    assert changes == {"a": "M"}
    assert removed == ()
    assert set(last) == {"a", "closed/inside", "unreadable", "readable then", "new and closed"}
    assert set(last.values()) == {("file", b"1")}


def test_a_diff_is_for_reading_and_bounded(here):
    """Japanese is readable, binary and huge files are only named, and a long diff says that it is cut."""
    put(here.files / "日本.txt", "一\n二\n")
    put(here.files / "binary", b"\0\1")
    put(here.files / "huge", "line\n" * 500_000)
    first = here.checkpoints.take()
    put(here.files / "日本.txt", "一\n三\n")
    put(here.files / "binary", b"\0\2")
    put(here.files / "huge", "other\n" * 500_000)
    put(here.files / "new", "added\n")
    text = here.checkpoints.diff(first.commit)
    assert "+++ b/日本.txt" in text
    assert "-二\n+三" in text
    assert "Binary files a/huge and b/huge differ" in text
    assert "Binary files a/binary and b/binary differ" in text
    assert "+added" in text
    second = here.checkpoints.take()
    assert here.checkpoints.diff(first.commit, second.commit) == text
    assert here.checkpoints.diff(second.commit, first.commit) != text
    put(here.files / "long", "many\n" * 100_000)
    cut = here.checkpoints.diff(first.commit, max_bytes=1000)
    assert cut.endswith("(The rest is not shown: the limit is 1,000 bytes.)\n")
    assert len(cut.encode()) < 1100


def test_a_file_of_a_checkpoint_can_be_read(here):
    """`read_file` returns bytes, the target of a link, or None for directories and invalid paths."""
    put(here.files / "dir/a", "bytes")
    put(here.files / "empty")
    (here.files / "link").symlink_to("dir/a")
    commit = here.checkpoints.take().commit
    for path, wanted in (("dir/a", b"bytes"), ("empty", b""), ("link", b"dir/a")):
        assert here.checkpoints.read_file(commit, path) == wanted
    for path in (
        "dir",
        "dir/",
        "",
        ".",
        "..",
        "../repository/HEAD",
        "/etc/passwd",
        "no\0no",
        "\ud800",
        "-p",
        "dir/a/b",
    ):
        assert here.checkpoints.read_file(commit, path) is None


@pytest.mark.parametrize("wrong", ["", "HEAD", "0" * 40, "--all", "refs/heads/last", "a" * 39, "A" * 40, None, 7])
def test_an_unknown_checkpoint_is_refused(here, wrong):
    """An unknown id is refused before anything is changed."""
    put(here.files / "a", "1")
    here.checkpoints.take()
    put(here.files / "a", "2")
    for call in (
        here.checkpoints.restore,
        here.checkpoints.changes,
        here.checkpoints.diff,
        lambda one: here.checkpoints.keep_only([one]),
    ):
        with pytest.raises(NotFound, match="There is no checkpoint"):
            call(wrong)
    with pytest.raises(NotFound):
        here.checkpoints.read_file(wrong, "a")
    assert (here.files / "a").read_bytes() == b"2"


def test_deleting_checkpoints_frees_disk_space(here):
    """Only the kept checkpoints can be restored; the others use no disk space."""
    put(here.files / "a", "1")
    kept = here.checkpoints.take("kept")
    sizes = [size_of(here.checkpoints.repository)]
    others = []
    for _ in range(5):
        put(here.files / "a", os.urandom(200_000))
        others.append(here.checkpoints.take("other"))
    assert here.checkpoints.changes(others[0].commit) != ()
    sizes.append(size_of(here.checkpoints.repository))
    here.checkpoints.keep_only([kept.commit])
    sizes.append(size_of(here.checkpoints.repository))
    assert sizes[1] > sizes[0] + 1_000_000
    assert sizes[2] < sizes[0] + 20_000
    for other in others:
        with pytest.raises(NotFound):
            here.checkpoints.changes(other.commit)
    assert statuses(here.checkpoints.changes(kept.commit)) == {"a": "M"}
    here.checkpoints.restore(kept.commit)
    assert (here.files / "a").read_bytes() == b"1"
    here.checkpoints.keep_only([])
    with pytest.raises(NotFound):
        here.checkpoints.changes(kept.commit)
    assert here.checkpoints.take("from the start").changes == ()


def test_the_last_checkpoint_can_be_kept(here):
    """The next checkpoint is compared with it."""
    put(here.files / "a", "1")
    here.checkpoints.take("first")
    put(here.files / "a", "2")
    second = here.checkpoints.take("second")
    here.checkpoints.keep_only([second.commit])
    put(here.files / "b", "new")
    assert statuses(here.checkpoints.take("third").changes) == {"b": "A"}
    here.checkpoints.restore(second.commit, hard=True)
    assert picture(here.files) == {"a": ("file", b"2")}


def size_of(root):
    return sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())


def test_the_disk_grows_by_the_change_only(here):
    """A small change costs little, no change costs nothing, and the same bytes are stored once."""
    for number in range(300):
        put(here.files / f"d{number % 10}/f{number}", os.urandom(1000))
    here.checkpoints.take()
    full = size_of(here.checkpoints.repository)
    here.checkpoints.take()  # the index learns the times of the files
    before = size_of(here.checkpoints.repository)
    here.checkpoints.take()
    assert size_of(here.checkpoints.repository) == before
    assert full > 300_000
    put(here.files / "d3/f3", os.urandom(1000))
    here.checkpoints.take()
    assert size_of(here.checkpoints.repository) - before < 5000
    before = size_of(here.checkpoints.repository)
    put(here.files / "copy", (here.files / "d3/f3").read_bytes())
    here.checkpoints.take()
    assert size_of(here.checkpoints.repository) - before < 2000


def test_the_repository_can_be_moved_and_copied(here):
    """No absolute path is stored; the workspace can be moved too."""
    put(here.files / "a", "1")
    first = here.checkpoints.take()
    put(here.files / "a", "2")
    moved = here.place / "else" / "where"
    moved.parent.mkdir()
    shutil.move(here.checkpoints.repository, moved)
    shutil.move(here.files, here.place / "renamed")
    assert not any(os.fsencode(here.place) in path.read_bytes() for path in moved.rglob("*") if path.is_file())
    again = WorkspaceCheckpoints(moved, here.place / "renamed")
    assert statuses(again.take().changes) == {"a": "M"}
    again.restore(first.commit)
    assert picture(here.place / "renamed") == {"a": ("file", b"1")}
    shutil.copytree(moved, here.place / "copy")
    assert WorkspaceCheckpoints(here.place / "copy", here.place / "renamed").changes(first.commit) == ()


def test_other_users_cannot_read_the_repository(here):
    """The repository has modes 0700 and 0600 whatever the umask; restored files follow the umask."""
    put(here.files / "a", "1")
    old = os.umask(0)
    try:
        first = here.checkpoints.take()
        for number in range(150):
            put(here.files / f"many{number}", f"{number}")
        here.checkpoints.take()
        here.checkpoints.diff(first.commit)
        here.checkpoints.keep_only([first.commit])
        (here.files / "a").unlink()
        here.checkpoints.restore(first.commit)
        put(here.files / "b/c", "1")
        second = here.checkpoints.take()
        shutil.rmtree(here.files / "b")
        os.umask(0o027)
        here.checkpoints.restore(second.commit)
    finally:
        os.umask(old)
    for path in [here.checkpoints.repository, *here.checkpoints.repository.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert not mode & 0o077, f"{path} has {mode:o}"
    assert stat.S_IMODE((here.files / "a").stat().st_mode) == 0o666
    assert stat.S_IMODE((here.files / "b").stat().st_mode) == 0o750
    assert stat.S_IMODE((here.files / "b/c").stat().st_mode) == 0o640


def test_a_repository_inside_the_workspace_does_not_save_itself(tmp_path):
    """Excluded paths are neither saved nor restored, even if a rule of the user includes them."""
    files = tmp_path / "workspace"
    put(files / "a", "1")
    put(files / ".gitignore", "!logs\n!logs/**\n")
    put(files / "logs/other", "1")
    store = files / "logs" / "con[te]xts #1"
    checkpoints = WorkspaceCheckpoints(store / "task" / "repository", files, exclude=[store])
    put(store / "messages.jsonl", "1")
    first = checkpoints.take()
    put(store / "messages.jsonl", "2")
    put(files / "a", "2")
    second = checkpoints.take()
    assert statuses(second.changes) == {"a": "M"}
    assert checkpoints.read_file(second.commit, "logs/other") == b"1"
    assert checkpoints.read_file(second.commit, "logs/con[te]xts #1/messages.jsonl") is None
    put(store / "new", "1")
    checkpoints.restore(first.commit, hard=True)
    assert (store / "messages.jsonl").read_bytes() == b"2"
    assert (store / "new").exists()
    assert (files / "a").read_bytes() == b"1"


def test_a_workspace_inside_its_own_checkpoints_is_refused(tmp_path):
    """It could not be saved."""
    (tmp_path / "repository" / "inside").mkdir(parents=True)
    with pytest.raises(UsageError, match="cannot be inside its own checkpoints"):
        WorkspaceCheckpoints(tmp_path / "repository", tmp_path / "repository" / "inside")


def test_a_foreign_directory_is_refused(tmp_path):
    """A repository path that contains anything else, such as the user's `.git`, is refused."""
    here = world(tmp_path)
    git(here.files, "init", "--quiet", ".")
    before = fingerprint(here.files)
    for place in (here.files / ".git", put(tmp_path / "papers/letter", "dear").parent):
        with pytest.raises(UsageError, match="contains something other than checkpoints"):
            WorkspaceCheckpoints(place, here.files).take()
    assert fingerprint(here.files) == before
    assert picture(tmp_path / "papers") == {"letter": ("file", b"dear")}


def test_home_and_root_are_refused(tmp_path, monkeypatch):
    """By name, through links, above home, and without HOME in the environment."""
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
        WorkspaceCheckpoints(tmp_path / "repository", "/")


def test_a_path_that_is_not_a_directory_is_refused(tmp_path):
    """A file, a missing path, a circular link, and the inside of `.git`."""
    put(tmp_path / "file", "1")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "repo/.git/hooks").mkdir(parents=True)
    for path in ("file", "nothing", "circle", "repo/.git", "repo/.git/hooks"):
        with pytest.raises(UsageError):
            check_workspace(tmp_path / path)
    with pytest.raises(UsageError):
        check_workspace("nul\0")


def test_a_missing_or_old_git_is_reported(here, monkeypatch):
    """The error has a hint, and nothing is created."""
    tools = here.place / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(StoreUnavailable, match="it is not installed") as missing:
        here.checkpoints.take()
    assert "Install git" in missing.value.hint
    assert not missing.value.retryable
    put(tools / "git", "#!/bin/sh\necho git version 2.25.1\n", program=True)
    with pytest.raises(StoreUnavailable, match=r"need git 2\.32 or newer; .* is 2\.25") as old:
        here.checkpoints.take()
    assert "Install git" in old.value.hint


def test_a_missing_workspace_is_reported(here):
    shutil.rmtree(here.files)
    with pytest.raises(StoreUnavailable, match="workspace"):
        here.checkpoints.take()


def test_a_label_cannot_forge_the_data_of_a_restore(here):
    """A label is stored as one line."""
    put(here.files / "a", "1")
    taken = here.checkpoints.take('title\n\nskipped: "a"\0\nbelow: "x/"\n\ud800' + "x" * 1000)
    put(here.files / "b", "1")
    assert here.checkpoints.restore(taken.commit, hard=True).removed == ("b",)
    assert here.checkpoints.read_file(taken.commit, "a") == b"1"


def test_the_documentation_is_true(tmp_path, monkeypatch, root):
    """The example of docs/checkpoints.md runs, and its limits are those of the code."""
    monkeypatch.chdir(tmp_path)
    page = root / "docs/checkpoints.md"
    names = {}
    for block in blocks(page, "python"):
        exec(block.text, names)  # noqa: S102
    assert names["result"].before != names["snapshot"].commit
    assert (tmp_path / "shop/basket.py").read_text() == "total = 0\n"
    text = page.read_text(encoding="utf-8")
    assert f"git {'.'.join(map(str, OLDEST))} or newer" in text
    assert f"over {MAX_FILE_BYTES // 1_000_000} MB" in text


def test_processes_wait_for_each_other(here):
    """Several processes use the checkpoints at once; all succeed, and the repository stays valid."""
    for number in range(20):
        put(here.files / f"f{number}", f"{number}")
    first = here.checkpoints.take()

    def work(say):
        for number in range(4):
            put(here.files / f"{os.getpid()}", f"{number}")
            say(here.checkpoints.take().commit)
            here.checkpoints.changes(first.commit)

    children = [Child(work) for _ in range(3)]
    ended = [child.wait() for child in children]
    assert [one.code for one in ended] == [0, 0, 0]
    for commit in {commit for one in ended for commit in one.said}:
        assert here.checkpoints.read_file(commit, "f7") == b"7"
    assert len(here.checkpoints.changes(first.commit)) == 3
    subprocess.run(
        ["git", "fsck", "--strict", "--no-dangling"], cwd=here.checkpoints.repository, check=True, timeout=60
    )


def test_a_lock_that_is_never_released(here, monkeypatch):
    """Waiting for the lock ends with a retryable error."""
    here.checkpoints.take()
    with lock_repository(here.checkpoints.repository):
        monkeypatch.setattr("orihon.chat.workspace_checkpoints.LOCK_SECONDS", 0.1)
        with pytest.raises(Conflict, match="Another process has been using the checkpoints") as refused:
            here.checkpoints.take()
        assert refused.value.retryable
    here.checkpoints.take()
