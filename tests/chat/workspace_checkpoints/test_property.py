"""Random sequences of changes, checkpoints, restores and undos, compared with a model: a dict of paths."""

import os
import shutil
from pathlib import PurePosixPath

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings

from orihon.chat.workspace_checkpoints import WorkspaceCheckpoints
from support.faults import DEEP, fast_place
from support.worktrees import picture, put, world

RULES = {".gitignore": ("file", b"*.log\n")}
PATHS = ["a", "b", "a/x", "a/y", "b/deep/z", "b/deep", 'q"uote\n', "日本/語", os.fsdecode(b"\xff\xfe"), "-n"]
IGNORED = ["x.log", "a/x.log", "b/deep/y.log"]
CONTENTS = [b"", b"1\n", b"2\r\n", bytes(range(256)), b"same size A", b"same size B"]

paths = st.sampled_from(PATHS)
operations = st.one_of(
    st.tuples(st.just("file"), paths, st.sampled_from(CONTENTS)),
    st.tuples(st.just("program"), paths, st.sampled_from(CONTENTS)),
    st.tuples(st.just("link"), paths, st.sampled_from(["a", "../outside", "/nowhere", "b/deep"])),
    st.tuples(st.just("delete"), paths),
    st.tuples(st.just("ignored"), st.sampled_from(IGNORED), st.sampled_from(CONTENTS)),
    st.tuples(st.just("take")),
    st.tuples(st.just("restore"), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("undo")),
    st.tuples(st.just("keep"), st.integers(0, 9)),
    st.tuples(st.sampled_from(["lose index", "move repository"])),
)


def above(path):
    return [str(parent) for parent in PurePosixPath(path).parents if str(parent) != "."]


class Model:
    """The expected content of the workspace."""

    def __init__(self, place):
        self.here = world(place)
        self.outside = put(place / "outside" / "kept", b"kept")
        self.files, self.ignored, self.last = dict(RULES), {}, None
        self.taken, self.before = [], None
        put(self.here.files / ".gitignore", RULES[".gitignore"][1])

    def clear(self, path):
        """Remove what is in the way of a path."""
        place = self.here.files / path
        for parent in [path, *above(path)]:
            real = self.here.files / parent
            if parent in self.files:
                real.unlink()
                del self.files[parent]
        if place.is_dir():
            shutil.rmtree(place)
            for kept in (self.files, self.ignored):
                for below in [one for one in kept if path in above(one)]:
                    del kept[below]
        place.parent.mkdir(parents=True, exist_ok=True)

    def file(self, path, content, kind="file"):
        self.clear(path)
        put(self.here.files / path, content, program=kind == "program")
        self.files[path] = (kind, content)

    def program(self, path, content):
        self.file(path, content, "program")

    def link(self, path, target):
        self.clear(path)
        (self.here.files / path).symlink_to(target)
        self.files[path] = ("link", target)

    def delete(self, path):
        self.clear(path)

    def ignored_file(self, path, content):
        if not any(parent in self.files for parent in above(path)):
            put(self.here.files / path, content)
            self.ignored[path] = ("file", content)

    def take(self):
        taken = self.here.checkpoints.take("label")
        if self.last is not None:
            assert {change.path: change.status for change in taken.changes} == self.differences(self.last, self.files)
        assert taken.skipped == ()
        self.last = dict(self.files)
        self.taken.append((taken.commit, self.last))

    def differences(self, old, new):
        found = dict.fromkeys(new.keys() - old.keys(), "A") | dict.fromkeys(old.keys() - new.keys(), "D")
        for path in old.keys() & new.keys():
            if old[path] != new[path]:
                found[path] = "T" if (old[path][0] == "link") != (new[path][0] == "link") else "M"
        return found

    def restore(self, number, hard):
        if not self.taken:
            return
        commit, target = self.taken[number % len(self.taken)]
        assert {one.path: one.status for one in self.here.checkpoints.changes(commit)} == self.differences(
            target, self.files
        )
        before, blocked = dict(self.files), {path for path in target if any(path in above(one) for one in self.ignored)}
        restored = self.here.checkpoints.restore(commit, hard=hard)
        assert {one.path for one in restored.skipped} == blocked
        for path in target.keys() - blocked:
            for other in [one for one in self.files if one in above(path) or path in above(one)]:
                del self.files[other]
            self.files[path] = target[path]
        if hard:
            self.files = {path: content for path, content in self.files.items() if path in target}
        assert set(restored.removed) == before.keys() - self.files.keys()
        self.last, self.before = dict(self.files), (restored.before, before)

    def undo(self):
        """Undo the last restore, which must be exact."""
        if self.before is None:
            return
        (commit, files), self.before = self.before, None
        restored = self.here.checkpoints.restore(commit, hard=True)
        assert restored.skipped == ()
        self.files, self.last = dict(files), dict(files)

    def keep(self, number):
        self.taken = self.taken[number % len(self.taken) :] if self.taken else []
        kept = [commit for commit, _ in self.taken] + ([self.before[0]] if self.before else [])
        self.here.checkpoints.keep_only(kept)
        self.last = None  # it may have been deleted

    def lose_index(self):
        for index in self.here.checkpoints.repository.glob("index*"):
            index.unlink()

    def move_repository(self):
        if self.here.checkpoints.repository.exists():
            moved = self.here.checkpoints.repository.with_name(f"{self.here.checkpoints.repository.name}+")
            self.here.checkpoints.repository.rename(moved)
            self.here.checkpoints = WorkspaceCheckpoints(moved, self.here.files)


@pytest.mark.slow
@example([("file", "a/x", b""), ("take",), ("link", "a", "a"), ("take",)])  # a link that leads to itself
@example([("file", "b/deep/z", b"1\n"), ("take",), ("link", "b", "b/deep"), ("take",), ("restore", 0, True)])
@settings(max_examples=150 if DEEP else 12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(operations, min_size=4, max_size=14))
def test_the_workspace_is_what_the_model_says(steps):
    """After every step all files, modes and links equal those of the model, ignored files included."""
    with fast_place() as place:
        model = Model(place)
        for name, *arguments in [*steps, ("take",), ("restore", 0, True), ("undo",)]:
            if name in {"file", "program", "link", "delete", "ignored"}:
                model.before = None
            getattr(model, "ignored_file" if name == "ignored" else name.replace(" ", "_"))(*arguments)
            assert picture(model.here.files) == model.files | model.ignored
        assert picture(place / "outside") == {"kept": ("file", b"kept")}
