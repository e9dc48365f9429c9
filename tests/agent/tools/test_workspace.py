"""No path leaves the workspace, whatever it looks like and whatever happens to it on the way."""

import os
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orihon.agent.tools.workspace import Workspace
from orihon.errors import ToolError, UsageError

OUTSIDE = "is outside of the workspace"


@pytest.fixture
def outside(desk):
    """A file beside the workspace that nobody may see."""
    secret = desk.root.parent / "secret.txt"
    secret.write_text("top secret")
    return secret


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "a/../../secret.txt",
        "./../secret.txt",
        "a/b/../../../secret.txt",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/cwd/x",
        "/proc/self/root/etc/passwd",
        "~/x",
        "..",
        "/",
    ],
)
@pytest.mark.parametrize("tool", ["read", "write", "edit", "search", "list_files"])
def test_paths_that_lead_out_are_refused(desk, outside, tool, path):
    """Every tool for files says the same of them."""
    (desk.root / "a" / "b").mkdir(parents=True)
    more = {"write": {"content": "x"}, "edit": {"old": "t", "new": "x"}, "search": {"pattern": "x"}}
    assert OUTSIDE in desk.refusal(tool, path=path, **more.get(tool, {}))
    assert outside.read_text() == "top secret"


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("", "The path is empty"),
        ("   ", "The path is empty"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("C:\\Windows\\win.ini", "is a Windows path"),
        ("C:/Windows", "is a Windows path"),
        ("..\\..\\secret.txt", "is a Windows path"),
        ("\ud800", "half a character"),
        ("x" * 300, "too long"),
        ("x/" * 3000, "the maximum is 4,096"),
        ("x" * 5000, "the maximum is 4,096"),
    ],
)
def test_names_that_are_none_are_refused_with_a_sentence(desk, path, sentence):
    """The sentence says what is wrong, and can be stored."""
    for tool, more in (("read", {}), ("write", {"content": "x"})):
        said = desk.refusal(tool, path=path, **more)
        assert sentence in said
        assert said.encode()
    assert os.listdir(desk.root) == []


def test_absolute_paths_inside_are_taken(desk):
    """The model may say the whole path, also through a link that leads to the workspace."""
    desk.put("a/x.txt", "hello")
    assert "hello" in desk.do("read", path=str(desk.root / "a/x.txt"))
    assert "hello" in desk.do("read", path=f"{desk.root}/a/../a/./x.txt")
    assert OUTSIDE in desk.refusal("read", path=f"{desk.root}-other/x.txt")
    assert OUTSIDE in desk.refusal("read", path=f"{desk.root}/../secret.txt")
    link = desk.root.parent / "link"
    link.symlink_to(desk.root)
    with Workspace(link) as workspace, workspace.open_file(f"{link}/a/x.txt") as (_, place):
        assert place.path == "a/x.txt"


def test_links_that_stay_inside_work(desk):
    """A file, a directory and an absolute target; a change goes to the file, not in the place of the link."""
    desk.put("docs/real.md", "old")
    (desk.root / "file.md").symlink_to("docs/real.md")
    (desk.root / "dir").symlink_to(desk.root / "docs")
    (desk.root / "docs" / "up.md").symlink_to("../file.md")
    for path in ("file.md", "dir/real.md", "dir/up.md", "dir/../docs/up.md"):
        assert "old" in desk.do("read", path=path)
    desk.do("edit", path="dir/up.md", old="old", new="new")
    assert (desk.root / "docs/real.md").read_text() == "new"
    assert (desk.root / "file.md").is_symlink()


@pytest.mark.parametrize("target", ["../secret.txt", "/etc/passwd", "sub/../../secret.txt", "/proc/self/cwd", "other"])
def test_links_that_lead_out_are_refused(desk, outside, target):
    """The last name, one on the way, and a link to a link."""
    (desk.root / "sub").mkdir()
    (desk.root / "other").symlink_to("..")
    (desk.root / "link").symlink_to(target)
    for path in ("link", "link/secret.txt", "sub/../link"):
        said = desk.refusal("read", path=path)
        assert OUTSIDE in said or "directory" in said
        assert "top secret" not in said
        said = desk.refusal("write", path=path, content="x")
        assert OUTSIDE in said or "directory" in said
    assert outside.read_text() == "top secret"
    assert sorted(path.name for path in desk.root.parent.iterdir()) == ["secret.txt", "work"]


def test_links_in_circles_end(desk):
    """Forty links are enough."""
    (desk.root / "a").symlink_to("b")
    (desk.root / "b").symlink_to("a")
    assert "has too many links" in desk.refusal("read", path="a")


def test_what_is_not_a_file_is_not_read(desk):
    """A FIFO does not make anybody wait."""
    os.mkfifo(desk.root / "pipe")
    (desk.root / "dir").mkdir()
    assert "not a regular file" in desk.refusal("read", path="pipe")
    assert "is a directory" in desk.refusal("read", path="dir")
    assert "is a directory" in desk.refusal("read", path=".")
    assert "not a regular file" in desk.refusal("write", path="pipe", content="x")
    assert "is a directory" in desk.refusal("write", path="dir", content="x")


@pytest.mark.parametrize(
    "path", [".git/hooks/post-commit", ".git/config", "sub/.GIT/x", ".git", "hooks/new/post-commit"]
)
def test_git_is_not_for_writing(desk, path):
    """Who may edit files must not make git run something, not even through a link."""
    (desk.root / ".git/hooks").mkdir(parents=True)
    (desk.root / "hooks").symlink_to(".git/hooks")
    assert "inside .git" in desk.refusal("write", path=path, content="#!/bin/sh")
    assert os.listdir(desk.root / ".git/hooks") == []


def test_the_workspace_must_be_a_directory(tmp_path):
    """The caller hears of it, not the model."""
    (tmp_path / "file").touch()
    for path in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(UsageError, match="cannot be the workspace"):
            Workspace(path)


def _swap(place: Path, targets: list[Path], stop: threading.Event) -> None:
    while not stop.is_set():
        for target in targets:
            fresh = place.with_name("fresh")
            fresh.symlink_to(target)
            os.replace(fresh, place)  # noqa: PTH105 - the one call that swaps


@pytest.mark.parametrize("swapped", ["directory", "file"])
def test_a_link_that_is_swapped_while_it_is_used_leads_nowhere(desk, swapped):
    """Between the check and the use the link turns to the outside, thousands of times."""
    inside, outside = desk.root / "inside", desk.root.parent / "outside"
    for directory, text in ((inside, "public"), (outside, "secret")):
        directory.mkdir()
        (directory / "x.txt").write_text(text)
    if swapped == "directory":
        targets, path = [inside, outside], "door/x.txt"
    else:
        targets, path = [inside / "x.txt", outside / "x.txt"], "door"
    stop = threading.Event()
    swapper = threading.Thread(target=_swap, args=(desk.root / "door", targets, stop))
    swapper.start()
    seen, written = set(), 0
    try:
        for number in range(600):
            try:
                seen.add(desk.do("read", path=path).strip())
                if number % 4 == 0:
                    desk.do("write", path=path, content=f"public {number}")
                    written += 1
            except ToolError:
                seen.add("refused")
    finally:
        stop.set()
        swapper.join()
    assert (outside / "x.txt").read_text() == "secret"
    assert not any("secret" in text for text in seen)
    assert os.listdir(outside) == ["x.txt"]


def test_a_directory_that_becomes_a_link_leads_nowhere(desk):
    """A real directory is moved away and a link to the outside put in its place."""
    outside = desk.root.parent / "outside"
    outside.mkdir()
    (outside / "x.txt").write_text("secret")
    desk.put("dir/x.txt", "public")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            (desk.root / "dir").rename(desk.root / "away")
            (desk.root / "dir").symlink_to(outside)
            (desk.root / "dir").unlink()
            (desk.root / "away").rename(desk.root / "dir")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for _ in range(600):
            try:
                assert "secret" not in desk.do("read", path="dir/x.txt")
                assert "secret" not in desk.do("list_files", path="dir", glob="*")
            except ToolError as error:
                assert "secret" not in str(error)
    finally:
        stop.set()
        swapper.join()


NAMES = st.sampled_from(["..", ".", "", "a", "b", "up", "out", "root", "loop", "~", "C:", "secret.txt", "\\..", "/"])


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is needed to see where a handle leads")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.one_of(st.lists(NAMES, max_size=8).map("/".join), st.text(max_size=20)))
def test_any_path_ends_inside_or_is_refused(tmp_path_factory, path):
    """Whatever is asked for, what is opened is below the workspace, and the rest is a sentence."""
    top = _tree(tmp_path_factory)
    with Workspace(top / "work") as workspace:
        try:
            with workspace.locate(path) as place:
                here = Path(f"/proc/self/fd/{place.dir_fd}").readlink()
                assert here.is_relative_to(top / "work")
                assert place.name not in {"..", "."}
        except ToolError as error:
            assert str(error).encode()


_trees: list[Path] = []


def _tree(factory) -> Path:
    """A workspace full of links, made once."""
    if not _trees:
        top = factory.mktemp("tree").resolve()
        (top / "work" / "a" / "b").mkdir(parents=True)
        (top / "secret.txt").write_text("secret")
        for name, target in {
            "up": "..",
            "out": str(top),
            "root": "/",
            "loop": "loop",
            "a/up": "../..",
            "b": "a/b",
        }.items():
            (top / "work" / name).symlink_to(target)
        _trees.append(top)
    return _trees[0]
