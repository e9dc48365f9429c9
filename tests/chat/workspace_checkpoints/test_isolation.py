"""Checkpoints and the user's own git do not affect each other, whatever the settings or the repository contain."""

import os
import subprocess

import pytest

from orihon.chat.workspace_checkpoints import WorkspaceCheckpoints
from support.worktrees import IDENTITY, fingerprint, git, picture, put, world

LOUD = "#!/bin/sh\ntouch {mark}\ncat\n"


@pytest.fixture
def here(tmp_path):
    """A repository of the user with history, a branch, a tag, a stash, staged work, a hook and a worktree."""
    here = world(tmp_path)
    here.mark = tmp_path / "a program ran"
    files = here.files
    git(files, "init", "--quiet", "--initial-branch=main", ".")
    for name in ("a", "b", "sub/c"):
        put(files / name, f"{name}\n")
    git(files, "add", ".")
    git(files, "commit", "--quiet", "--message=first")
    git(files, "tag", "v1")
    git(files, "branch", "other")
    git(files, "worktree", "add", "--quiet", tmp_path / "worktree", "other")
    put(files / "a", "stashed\n")
    git(files, "stash")
    put(files / "b", "staged\n")
    git(files, "add", "b")
    put(files / "b", "and changed\n")
    for hook in ("pre-commit", "post-commit", "post-checkout", "reference-transaction", "post-index-change"):
        put(files / ".git/hooks" / hook, LOUD.format(mark=here.mark), program=True)
    return here


def use(checkpoints, files):
    """Call every method of the checkpoints; return the first snapshot, which is restored at the end."""
    first = checkpoints.take("first")
    for name in ("a", "sub/c", "new/file"):
        put(files / name, "changed\n")
    (files / "b").unlink()
    second = checkpoints.take("second")
    assert {change.path for change in second.changes} == {"a", "b", "sub/c", "new/file"}
    checkpoints.changes(first.commit)
    checkpoints.diff(first.commit)
    checkpoints.diff(first.commit, second.commit)
    checkpoints.read_file(first.commit, "a")
    restored = checkpoints.restore(first.commit, hard=True)
    assert restored.skipped == ()
    checkpoints.restore(restored.before, hard=True)
    checkpoints.restore(first.commit, hard=True)
    checkpoints.keep_only([first.commit])
    return first


def test_the_users_repository_is_byte_identical(here):
    """References, index, config, hooks, worktrees, logs and objects stay the same, and no hook runs."""
    before, files = fingerprint(here.files / ".git"), picture(here.files)
    use(here.checkpoints, here.files)
    assert fingerprint(here.files / ".git") == before
    assert picture(here.files) == files
    assert not here.mark.exists()
    assert git(here.files, "status", "--porcelain") == "MM b"


def test_settings_hooks_and_signing_of_the_user_are_ignored(here, tmp_path, monkeypatch):
    """Signing, templates, hooks, filters, monitors and drivers of the user, the system and the environment."""
    loud = put(tmp_path / "loud", LOUD.format(mark=here.mark), program=True)
    put(tmp_path / "template/hooks/post-commit", LOUD.format(mark=here.mark), program=True)
    put(tmp_path / "attributes", "* filter=loud diff=loud merge=loud text eol=crlf\n")
    settings = f"""
[commit]
    gpgSign = true
[tag]
    gpgSign = true
    forceSignAnnotated = true
[gpg]
    program = {loud}
[user]
    useConfigOnly = true
[init]
    templateDir = {tmp_path}/template
    defaultObjectFormat = sha256
[core]
    hooksPath = {tmp_path}/template/hooks
    fsmonitor = {loud}
    autocrlf = true
    attributesFile = {tmp_path}/attributes
    excludesFile = {tmp_path}/excludes
    pager = {loud}
    editor = {loud}
    sshCommand = {loud}
    fileMode = false
    symlinks = false
[diff]
    external = {loud}
[diff "loud"]
    textconv = {loud}
    command = {loud}
[filter "loud"]
    clean = {loud}
    smudge = {loud}
    process = {loud}
    required = true
[credential]
    helper = {loud}
[status]
    showUntrackedFiles = no
[gc]
    auto = 1
"""
    home = tmp_path / "home"
    put(home / ".gitconfig", settings)
    put(home / ".config/git/config", settings)
    put(home / ".config/git/attributes", "* text eol=crlf\n")
    for name, value in {
        "HOME": home,
        "XDG_CONFIG_HOME": home / ".config",
        "GIT_CONFIG_SYSTEM": home / ".gitconfig",
        "GIT_CONFIG_GLOBAL": home / ".gitconfig",
        "GIT_CONFIG_PARAMETERS": "'commit.gpgsign'='true'",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": loud,
        "GIT_TEMPLATE_DIR": tmp_path / "template",
        "GIT_EXTERNAL_DIFF": loud,
        "GIT_PAGER": loud,
        "GIT_EDITOR": loud,
        "GIT_ASKPASS": loud,
        "GIT_TRACE": "1",
        "GIT_DIR": here.files / ".git",
        "GIT_WORK_TREE": tmp_path / "worktree",
        "GIT_INDEX_FILE": here.files / ".git/index",
        "GIT_OBJECT_DIRECTORY": here.files / ".git/objects",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": here.files / ".git/objects",
        "GIT_COMMON_DIR": here.files / ".git",
        "GIT_NAMESPACE": "other",
        "GIT_CEILING_DIRECTORIES": "/",
        "GIT_LITERAL_PATHSPECS": "0",
        "GIT_ICASE_PATHSPECS": "1",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_AUTHOR_DATE": "nonsense",
        "GIT_COMMITTER_DATE": "nonsense",
        "GIT_EXEC_PATH": "",
    }.items():
        monkeypatch.setenv(name, str(value))
    before, files, elsewhere = fingerprint(here.files / ".git"), picture(here.files), fingerprint(tmp_path / "worktree")
    first = use(here.checkpoints, here.files)
    assert not here.mark.exists()
    assert fingerprint(here.files / ".git") == before
    assert fingerprint(tmp_path / "worktree") == elsewhere
    assert picture(here.files) == files
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    message = subprocess.run(
        ["git", "cat-file", "commit", first.commit], cwd=here.checkpoints.repository, capture_output=True, check=True
    ).stdout
    assert b"committer Orihon <orihon@localhost>" in message
    assert b"gpgsig" not in message
    assert not (here.checkpoints.repository / "hooks").exists()


def test_attributes_change_no_byte_and_run_no_program(here):
    """Filters, line ends, $Id$, encodings and drivers of a hostile repository do not affect saving and restoring."""
    attributes = (
        "* text=auto eol=crlf ident filter=loud diff=loud merge=loud export-subst\n"
        "utf16 working-tree-encoding=UTF-16LE\nwrong working-tree-encoding=true\n[attr]binary text ident\n"
        "crlf text eol=lf\nnodiff -diff\n"
    )
    loud = put(here.place / "loud", LOUD.format(mark=here.mark), program=True)
    for name in ("clean", "smudge", "process"):
        git(here.files, "config", f"filter.loud.{name}", loud)
    git(here.files, "config", "diff.loud.textconv", loud)
    git(here.files, "config", "diff.loud.command", loud)
    put(here.files / ".gitattributes", attributes)
    put(here.files / "deep/.gitattributes", attributes)
    contents = {
        "crlf": b"a\r\nb\r\n",
        "mixed": b"a\r\nb\nc\r",
        "utf16": "text\n".encode("utf-16-le"),
        "wrong": b"\xff\xfe\xff",
        "nodiff": b"1\n",
        "id": b"$Id$ $Id: something $ $Format:%H$\n",
        "deep/crlf": b"a\r\nb\r\n",
        "lfs": b"version https://git-lfs.github.com/spec/v1\n",
    }
    for name, content in contents.items():
        put(here.files / name, content)
    before, own = picture(here.files), fingerprint(here.files / ".git")
    first = here.checkpoints.take()
    assert {name: here.checkpoints.read_file(first.commit, name) for name in contents} == contents
    assert here.checkpoints.take().commit == first.commit
    for name in contents:
        put(here.files / name, b"x\n")
    text = here.checkpoints.diff(first.commit)
    assert "-1\n+x" in text
    here.checkpoints.restore(first.commit)
    assert picture(here.files) == before
    assert here.checkpoints.take().changes == ()
    assert here.checkpoints.changes(first.commit) == ()
    assert not here.mark.exists()
    assert fingerprint(here.files / ".git") == own


def test_a_worktree_and_a_submodule_can_be_workspaces(here, tmp_path):
    """A `.git` file is not touched, and the rules of its repository apply."""
    put(here.files / ".git/info/exclude", "excluded\n")
    git(here.files, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", here.files, "module")
    put(here.files / ".git/modules/module/info/exclude", "also excluded\n")
    for where, rule in ((tmp_path / "worktree", "excluded"), (here.files / "module", "also excluded")):
        own, pointer = fingerprint(here.files / ".git"), (where / ".git").read_bytes()
        put(where / rule, "mine")
        checkpoints = WorkspaceCheckpoints(tmp_path / f"checkpoints of {where.name}", where)
        before = picture(where)
        first = use(checkpoints, where)
        assert checkpoints.read_file(first.commit, rule) is None
        assert picture(where) == before
        assert (where / ".git").read_bytes() == pointer
        assert fingerprint(here.files / ".git") == own


def test_a_subdirectory_follows_the_rules_of_the_repository(here):
    """Rules above it and in `info/exclude` apply; files outside it are not part of its checkpoints."""
    files = here.files
    put(files / ".gitignore", "*.log\n/sub/anchored\n/anchored\n")
    put(files / ".git/info/exclude", "/sub/excluded\n")
    for name in ("a.log", "anchored", "excluded", "deep/anchored", "deep/b.log"):
        put(files / "sub" / name, "1")
    checkpoints = WorkspaceCheckpoints(here.place / "sub", files / "sub")
    first = checkpoints.take()
    saved = {name for name in picture(files / "sub") if checkpoints.read_file(first.commit, name) is not None}
    assert saved == {"c", "deep/anchored"}
    outside = {name: content for name, content in picture(files).items() if not name.startswith("sub/")}
    put(files / "sub/new", "1")
    put(files / "sub/c", "2")
    second = checkpoints.take()
    assert {change.path: change.status for change in second.changes} == {"new": "A", "c": "M"}
    assert "+++ b/c" in checkpoints.diff(first.commit)
    checkpoints.restore(first.commit, hard=True)
    assert checkpoints.read_file(first.commit, "c") == b"sub/c\n"
    assert {name: content for name, content in picture(files).items() if not name.startswith("sub/")} == outside
    (files / "sub/c").unlink()
    (files / "sub/deep/anchored").unlink()
    empty = checkpoints.take()
    assert {change.status for change in empty.changes} == {"D"}
    checkpoints.restore(first.commit)
    checkpoints.restore(empty.commit, hard=True)
    assert set(picture(files / "sub")) == {"a.log", "anchored", "excluded", "deep/b.log"}


def test_rules_outside_that_change_are_noticed(here):
    """A new rule in `info/exclude`, or above the workspace, excludes a saved file."""
    checkpoints = WorkspaceCheckpoints(here.place / "sub", here.files / "sub")
    put(here.files / "sub/x", "1")
    put(here.files / "sub/y", "1")
    checkpoints.take()
    put(here.files / ".git/info/exclude", "x\n")
    second = checkpoints.take()
    assert checkpoints.read_file(second.commit, "x") is None
    put(here.files / ".gitignore", "y\n")
    third = checkpoints.take()
    assert checkpoints.read_file(third.commit, "y") is None
    assert checkpoints.read_file(third.commit, "c") == b"sub/c\n"


def test_a_workspace_that_is_ignored_is_saved(here):
    """Rules that ignore the whole workspace do not apply."""
    put(here.files / ".gitignore", "*\n")
    put(here.files / "sub/x", "1")
    checkpoints = WorkspaceCheckpoints(here.place / "sub", here.files / "sub")
    first = checkpoints.take()
    assert checkpoints.read_file(first.commit, "x") == b"1"


def test_a_repository_is_created_or_removed_around_the_workspace(tmp_path):
    """After `git init` above or in the workspace, older checkpoints can still be compared and restored."""
    here = world(tmp_path)
    put(here.files / "a", "1")
    first = here.checkpoints.take()
    git(tmp_path, "init", "--quiet", ".")
    put(here.files / "a", "2")
    second = here.checkpoints.take()
    assert [change.path for change in second.changes] == ["a"]
    git(here.files, "init", "--quiet", ".")
    put(here.files / "b", "3")
    third = here.checkpoints.take()
    assert [change.path for change in third.changes] == ["b"]
    here.checkpoints.restore(first.commit, hard=True)
    assert picture(here.files) == {"a": ("file", b"1")}
    here.checkpoints.restore(second.commit, hard=True)
    assert picture(here.files) == {"a": ("file", b"2")}
    here.checkpoints.restore(third.commit, hard=True)
    assert picture(here.files) == {"a": ("file", b"2"), "b": ("file", b"3")}


def test_repositories_inside_the_workspace_are_saved_like_other_files(here):
    """Nested, unborn and empty repositories are saved, and their `.git` is never touched."""
    files = here.files
    for name in ("nested", "nested/deep", "unborn", "empty"):
        (files / name).mkdir(parents=True)
        git(files / name, "init", "--quiet", ".")
    put(files / "nested/f", "1")
    git(files / "nested", "add", "f")
    git(files / "nested", "commit", "--quiet", "--message=x")
    put(files / "nested/.gitignore", "*.log\n")
    for name in ("nested/deep/g", "unborn/h", "nested/x.log"):
        put(files / name, "1")
    own = {name: fingerprint(files / name / ".git") for name in ("nested", "nested/deep", "unborn", "empty")}
    first = here.checkpoints.take()
    assert first.skipped == ()
    for name in ("nested/f", "nested/deep/g", "unborn/h"):
        assert here.checkpoints.read_file(first.commit, name) == b"1"
        put(files / name, "2")
    assert here.checkpoints.read_file(first.commit, "nested/x.log") is None
    assert here.checkpoints.read_file(first.commit, "nested/.git/HEAD") is None
    put(files / "nested/new", "1")
    second = here.checkpoints.take()
    wanted = {"nested/f": "M", "nested/deep/g": "M", "unborn/h": "M", "nested/new": "A"}
    assert {change.path: change.status for change in second.changes} == wanted
    here.checkpoints.restore(first.commit, hard=True)
    assert (files / "nested/f").read_bytes() == (files / "unborn/h").read_bytes() == b"1"
    assert not (files / "nested/new").exists()
    assert own == {name: fingerprint(files / name / ".git") for name in own}


def test_a_repository_in_the_place_of_a_file_stays(here):
    """A repository is not removed, even if it is empty."""
    put(here.files / "place", "file")
    first = here.checkpoints.take()
    (here.files / "place").unlink()
    (here.files / "place/.git").mkdir(parents=True)
    restored = here.checkpoints.restore(first.commit, hard=True)
    assert [one.path for one in restored.skipped] == ["place"]
    assert (here.files / "place/.git").is_dir()


def test_names_that_git_does_not_allow_are_reported(here):
    """A directory named .GIT is not a repository here and cannot be saved."""
    put(here.files / "x/.GIT/config", "1")
    taken = here.checkpoints.take()
    assert [(one.path, one.reason) for one in taken.skipped] == [
        ("x/.GIT/config", "cannot be saved: git does not allow this name")
    ]


def test_a_forged_checkpoint_cannot_reach_outside(here):
    """A forged tree with `..`, `.git` and a submodule changes nothing but files of the workspace."""
    put(here.files / "a", "1")
    first = here.checkpoints.take()
    checkpoints = {"GIT_DIR": str(here.checkpoints.repository), "PATH": os.environ["PATH"], **IDENTITY}

    def run(*arguments, given=b""):
        command = ["git", *arguments]
        return (
            subprocess.run(command, env=checkpoints, input=given, capture_output=True, check=True)
            .stdout.strip()
            .decode()
        )

    blob = run("hash-object", "-w", "--stdin", given=b"evil")
    inner = run("hash-object", "-t", "tree", "-w", "--literally", "--stdin", given=entry("100644", "hooks", blob))
    outer = entry("040000", "..", inner) + entry("040000", ".git", inner) + entry("160000", "module", blob)
    outer += entry("100644", "/etc/passwd", blob) + entry("100644", "good", blob)
    tree = run("hash-object", "-t", "tree", "-w", "--literally", "--stdin", given=outer)
    commit = run("commit-tree", tree, given=b'forged\n\nbelow: "../"\n')
    own = fingerprint(here.files / ".git")
    for forged in (commit, run("commit-tree", tree, given=b"forged\n\nskipped: no JSON\nbelow: 7\nskipped: []\n")):
        here.checkpoints.restore(forged, hard=True)
        assert fingerprint(here.files / ".git") == own
        assert not (here.place / "hooks").exists()
        here.checkpoints.restore(first.commit, hard=True)


def entry(mode, name, blob):
    return f"{mode.lstrip('0')} {name}\0".encode() + bytes.fromhex(blob)
