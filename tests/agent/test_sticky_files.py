"""Sticky files of a conversation: which files are meant, what fits, and why others are left out.

| specification 004 | row | test |
|---|---|---|
| §3.2 | `CONTEXT_ENTRY_START_HEADER`, `CONTEXT_ENTRY_END_HEADER` | test_context_entry_markers |
| §7.1 | initialised from the agent's settings | test_context_manager_starts_from_the_settings |
| §7.1 | the maximum size follows the model's window | test_context_manager_size_follows_the_window |
| §7.1 | adding and removing files | test_context_manager_adds_and_removes |
| §7.1 | tracking the size of the context | test_context_manager_tracks_sizes |
| §7.1 | generating the context message | test_context_manager_makes_the_message |
| §7.2 | `context_message_length` | test_context_message_length_is_remembered |
"""

import os
import socket
import subprocess

import pytest

import orihon
from orihon.agent import sticky_files
from orihon.agent.sticky_files import StickyFiles
from orihon.agent.tools.workspace import Workspace
from orihon.errors import UsageError
from orihon.settings.schema import Settings

KEY = orihon.TaskKey.parse("local/issue/1")
BEGIN, END = "--- CONTEXT ENTRY BEGIN ---\n", "--- CONTEXT ENTRY END ---\n\n"
TOKEN = "ghp_" + "a1B2c3D4" * 4 + "e5F6"


@pytest.fixture
def place(tmp_path):
    """A workspace."""
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def task(tmp_path):
    with orihon.open(str(tmp_path / "contexts"), settings=Settings()) as engine:
        made = engine.start(KEY, context_length=20_000, reserved_output=0, tokens="bytes4", inherit=False)
        made.add("system", "You help.")
        yield made


@pytest.fixture
def sticky(task, place):
    with Workspace(place) as workspace:
        yield StickyFiles(task, workspace)


def write(place, files):
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        settle(path)


def settle(path, age=3600):
    """Make a file look old; the clock of the file system is too coarse for the edits of a test."""
    found = path.stat()
    os.utime(path, ns=(found.st_mtime_ns - age * 10**9,) * 2)


def git(place, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=place, check=True, capture_output=True, timeout=60)


def shown(sticky):
    return [row.path for row in sticky.list_files().rows if row.shown]


def notes(sticky):
    return {row.path: row.note for row in sticky.list_files().left_out}


def head(task):
    return task.window().openai()[1]["content"]


# specification 004, row by row


def test_context_entry_markers(sticky, task, place):
    """Each file stands between the two markers, with its path in brackets."""
    write(place, {"a.md": "one\n"})
    sticky.add("a.md")
    task.add("user", "Hello.")
    assert f"{BEGIN}[a.md]\none\n{END}" in head(task)


def test_context_manager_starts_from_the_settings(sticky, place):
    """Files of the settings are declared at once; a missing one is named, and shown when it exists."""
    write(place, {"a.md": "one"})
    sticky.add("a.md", "later.md", force=True)
    assert sticky.declared == ("a.md", "later.md")
    assert (shown(sticky), notes(sticky)) == (["a.md"], {"later.md": "matches no file"})
    write(place, {"later.md": "two"})
    assert sticky.refresh().added == ("later.md",)


@pytest.mark.parametrize(("share", "fit"), [(0.25, 1), (0.5, 2), (0.75, 3)])
def test_context_manager_size_follows_the_window(task, place, share, fit):
    """A quarter of the window by default, and three quarters at most."""
    write(place, {f"{name}.md": name * 18_000 for name in "abcd"})
    with Workspace(place) as workspace:
        sticky = StickyFiles(task, workspace, share=share)
        listing = sticky.add("*.md").listing
    assert (listing.max_tokens, listing.window_tokens) == (int(share * task.log.limit), task.log.limit)
    assert [row.shown for row in listing.rows] == [True] * fit + [False] * (4 - fit)


@pytest.mark.parametrize("share", [0, -1, 0.76, 2])
def test_a_share_that_is_not_allowed_is_refused(task, place, share):
    """More than three quarters would leave no room for messages."""
    with Workspace(place) as workspace, pytest.raises(UsageError, match="of the window"):
        StickyFiles(task, workspace, share=share)


def test_context_manager_adds_and_removes(sticky, task, place):
    """Files are shown in declared order, each once."""
    write(place, {"b.md": "two", "a.md": "one", "docs/c.md": "three"})
    assert sticky.add("b.md").added == ("b.md",)
    assert sticky.add("docs", "./a.md").added == ("docs/c.md", "a.md")
    assert sticky.declared == ("b.md", "docs", "a.md")
    assert shown(sticky) == ["b.md", "docs/c.md", "a.md"]
    assert sticky.remove("docs/").removed == ("docs/c.md",)
    assert [file.path for file in task.sticky_files.files] == ["b.md", "a.md"]


def test_context_manager_tracks_sizes(sticky, place):
    """Tokens and share of each file, and of all together."""
    write(place, {"a.md": "x" * 4_000, "b.md": "y" * 400})
    listing = sticky.add("a.md", "b.md").listing
    large, small = listing.rows
    assert 1_000 < large.tokens < 1_100
    assert large.share == pytest.approx(large.tokens / listing.window_tokens)
    assert listing.tokens == large.tokens + small.tokens <= listing.max_tokens


def test_context_manager_makes_the_message(sticky, task, place):
    """One user message, right after the system prompt."""
    write(place, {"a.md": "one", "b.md": "two"})
    sticky.add("*.md")
    task.add("user", "Hello.")
    roles = [message["role"] for message in task.window().openai()]
    assert roles == ["system", "user", "user"]
    assert head(task).count(BEGIN) == 2
    assert task.window().report.by_source["sticky files"] > 20


def test_context_message_length_is_remembered(sticky, task, place, monkeypatch):
    """It is the length of that message, cached until the files change."""
    write(place, {"a.md": "one"})
    sticky.add("a.md")
    task.add("user", "Hello.")
    assert sticky.length == len(head(task))
    monkeypatch.setattr(task.log._sticky, "list_at", None)  # rendering would fail
    assert sticky.length == len(head(task))


# matching


def test_patterns_directories_and_paths(sticky, place):
    """A pattern without a slash matches anywhere, ** matches directories, {} alternatives; a directory all below."""
    write(place, {name: name for name in ("a.py", "src/b.py", "src/deep/c.py", "src/d.ts", "src/e.js", "x/f.txt")})
    for given, meant in {
        "*.py": ["a.py", "src/b.py", "src/deep/c.py"],
        "src/*.py": ["src/b.py"],
        "src/**/*.py": ["src/b.py", "src/deep/c.py"],
        "src/*.{ts,js}": ["src/d.ts", "src/e.js"],
        "src": ["src/b.py", "src/d.ts", "src/deep/c.py", "src/e.js"],
        "./x/f.txt": ["x/f.txt"],
        f"{place}/x": ["x/f.txt"],
        "[ax].py": ["a.py"],
    }.items():
        sticky.add(given)
        assert shown(sticky) == meant, given
        sticky.remove(given)


def test_odd_names_are_paths_before_they_are_patterns(sticky, place):
    """A file whose name looks like a pattern can be declared by its name."""
    write(place, {"a[1].md": "one", "a1.md": "other", "b *.md": "two", 'c "d" 日本.md': "three"})
    sticky.add("a[1].md", "b *.md", 'c "d" 日本.md')
    assert shown(sticky) == ["a[1].md", "b *.md", 'c "d" 日本.md']


@pytest.mark.parametrize("repository", [True, False])
def test_gitignore_is_respected(sticky, place, repository):
    """With and without git; an ignored file can be declared by its exact path."""
    write(place, {".gitignore": "*.log\nbuild/\n", "a.md": "a", "b.log": "b", "build/c.md": "c", "sub/d.log": "d"})
    if repository:
        git(place, "init", "-q")
    sticky.add("**/*.md", "sub/..".removesuffix("/.."), "*.log", force=True)
    assert shown(sticky) == ["a.md"]
    sticky.add("b.log")
    assert shown(sticky) == ["a.md", "b.log"]


def test_a_file_is_counted_once(sticky, place):
    """Even if several entries match it, or a link inside the workspace."""
    write(place, {"a.md": "one", "b.md": "two"})
    (place / "link.md").symlink_to("a.md")
    sticky.add("b.md", "link.md", "*.md", ".")
    assert shown(sticky) == ["b.md", "a.md"]


def test_files_outside_need_their_absolute_path(sticky, place, tmp_path):
    """Patterns, directories and links do not match them, and a note says that they are outside."""
    write(tmp_path, {"outside/style.md": "rules", "outside/key.md": "secret"})
    (place / "link.md").symlink_to(tmp_path / "outside" / "key.md")
    (place / "linked").symlink_to(tmp_path / "outside")
    write(place, {"a.md": "one"})
    with pytest.raises(UsageError, match="is a directory outside the workspace"):
        sticky.add(str(tmp_path / "outside"))
    with pytest.raises(UsageError, match="matches no file"):
        sticky.add(f"{tmp_path}/outside/*.md")
    with pytest.raises(UsageError, match=r"contains `\.\.`"):
        sticky.add("../outside/style.md")
    sticky.add(".", "link.md", f"{tmp_path}/outside/style.md")
    rows = {row.path: row for row in sticky.list_files().rows}
    assert shown(sticky) == ["a.md", f"{tmp_path}/outside/style.md"]
    assert rows[f"{tmp_path}/outside/style.md"].note == "outside the workspace"
    assert "outside of the workspace; it goes through a link" in rows["link.md"].note
    assert not any("secret" in str(row) for row in rows.values())


def test_home_directory(sticky, place, monkeypatch, tmp_path):
    """`~/x` is an absolute path, and `~` is a directory outside the workspace."""
    write(tmp_path, {"home/notes.md": "mine"})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    sticky.add("~/notes.md")
    assert shown(sticky) == [f"{tmp_path}/home/notes.md"]
    with pytest.raises(UsageError, match="is a directory outside"):
        sticky.add("~")
    monkeypatch.setenv("HOME", str(place))
    with pytest.raises(UsageError, match="matches no file"):
        sticky.add("~/none.md")


@pytest.mark.parametrize("given", ["", "  ", "a\0b", "a\nb", "x" * 5000, "/", "C:\\a", "../x", "a/../../x", "\ud800"])
def test_invalid_paths_are_refused(sticky, given):
    """With a hint, and without any change."""
    with pytest.raises(UsageError) as caught:
        sticky.add(given, force=True)
    assert caught.value.hint
    assert sticky.declared == ()


def test_a_missing_path_is_refused_unless_forced(sticky, place):
    """The hint mentions the workspace and `force`."""
    with pytest.raises(UsageError, match=r"none\.md matches no file") as caught:
        sticky.add("none.md")
    assert str(place) in caught.value.hint
    assert "force" in caught.value.hint
    sticky.add("none.md", force=True)
    assert notes(sticky) == {"none.md": "matches no file"}


def test_errors_of_add_and_remove(sticky, place):
    """Duplicates, entries that were never declared, and files that a pattern matches."""
    write(place, {"a.md": "one", "b.md": "two"})
    sticky.add("*.md")
    with pytest.raises(UsageError, match="is sticky already"):
        sticky.add("./*.md")
    with pytest.raises(UsageError, match=r"a\.md is sticky because of \*\.md"):
        sticky.remove("a.md")
    with pytest.raises(UsageError, match=r"c\.md is not sticky") as caught:
        sticky.remove("c.md")
    assert "*.md" in caught.value.hint
    with pytest.raises(UsageError, match="looks like a secret"):
        sticky.add(f"{TOKEN}.md", force=True)


# fitting


def test_what_does_not_fit_is_named_and_smaller_ones_still_do(sticky, place):
    """Declared order decides, not size."""
    write(place, {"1.md": "a" * 8_000, "2.md": "b" * 16_000, "3.md": "c" * 4_000, "4.md": "d" * 7_000})
    sticky.add("1.md", "2.md", "3.md", "4.md")
    assert shown(sticky) == ["1.md", "3.md", "4.md"]
    assert notes(sticky) == {"2.md": notes(sticky)["2.md"]}
    assert "needs 4,0" in notes(sticky)["2.md"]
    assert "are left" in notes(sticky)["2.md"]


def test_one_bad_file_never_drops_the_others(sticky, task, place, monkeypatch):
    """Binary, not UTF-8, missing, too large, a FIFO, a socket, circular links, unreadable."""
    write(place, {"1.md": "one", "z.md": "last", "bin.md": b"a\0b", "latin.md": "caf\xe9".encode("latin-1")})
    write(place, {"huge.md": "x" * 9_000_000, "gone.md": "x", "many.md": "x" * 100_000})
    os.mkfifo(place / "pipe.md")
    (place / "circle.md").symlink_to("circle.md")
    (place / "dangling.md").symlink_to("nothing.md")
    listening = socket.socket(socket.AF_UNIX)
    with listening:
        monkeypatch.chdir(place)
        listening.bind("sock.md")  # the absolute path may be too long for a socket
        sticky.add("*.md", "/proc/self/mem")
        (place / "gone.md").unlink()
        sticky.add("gone.md", force=True)
        sticky.refresh()
        assert shown(sticky) == ["1.md", "z.md"]
        found = notes(sticky)
    assert found["bin.md"] == "is binary"
    assert found["latin.md"] == "is not UTF-8 at byte 3"
    assert "9,000,000 bytes, more than can fit" in found["huge.md"]
    assert "bytes, more than can fit" in found["many.md"]
    assert found["pipe.md"] == found["sock.md"] == "is not a regular file"
    assert "too many links" in found["circle.md"]
    assert "no file" in found["dangling.md"]
    assert found["gone.md"] == "matches no file"
    assert "Input/output error" in found["/proc/self/mem"]
    task.add("user", "Hello.")
    assert head(task).count(BEGIN) == 2


def test_hostile_names_are_shown_in_one_line(sticky, task, place):
    """In the list and for the model."""
    write(place, {"a\x1b[31m.md": "x", "b.md": "y"})
    (place / os.fsdecode(b"bad\xff.md")).write_text("z")
    sticky.add(".")
    assert all(row.path.isprintable() for row in sticky.list_files().rows)
    assert "control character" in notes(sticky)["a\\x1b[31m.md"]
    task.add("user", "Hello.")
    assert "[bad�.md]" in head(task)


def test_a_large_directory_is_bounded(sticky, place, monkeypatch):
    """A limited number of files is checked, and the rest is counted."""
    monkeypatch.setattr(sticky_files, "MAX_FILES", 20)
    write(place, {f"docs/{number:03}.md": "x" for number in range(50)})
    sticky.add("docs")
    assert len(shown(sticky)) == 20
    assert notes(sticky) == {"…": "30 more files; the limit is 20"}


def test_too_many_entries_are_refused(sticky, monkeypatch):
    """The number of entries is limited."""
    monkeypatch.setattr(sticky_files, "MAX_ENTRIES", 3)
    with pytest.raises(UsageError, match="No more than 3"):
        sticky.add("a", "b", "c", "d", force=True)


# changes


def test_only_changes_write_an_event(sticky, task, place):
    """Touching a file, or writing the same text again, is not a change."""
    write(place, {"a.md": "one", "b.md": "two"})
    assert sticky.add("*.md")
    events = task.log.view.last_event
    assert not sticky.refresh()
    write(place, {"a.md": "one"})
    os.utime(place / "b.md")
    assert not sticky.refresh()
    assert task.log.view.last_event == events
    write(place, {"a.md": "ONE"})
    (place / "b.md").unlink()
    write(place, {"c.md": "three"})
    changes = sticky.refresh()
    assert (changes.changed, changes.removed, changes.added) == (("a.md",), ("b.md",), ("c.md",))
    assert task.log.view.last_event == events + 1


def test_an_edit_of_equal_length_at_the_same_time_is_found(sticky, place):
    """The change time of the inode reveals it."""
    write(place, {"a.md": "one"})
    before = (place / "a.md").stat()
    sticky.add("a.md")
    with (place / "a.md").open("r+") as file:
        file.write("two")
    os.utime(place / "a.md", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert sticky.refresh().changed == ("a.md",)


@pytest.mark.parametrize("resumed", [False, True])
def test_a_file_that_looks_the_same_is_not_read_again(sticky, task, place, monkeypatch, resumed):
    """The event has its mark, so a resume does not read it either."""
    monkeypatch.setattr("orihon.agent.workspace_files.RECENT_NS", 0)
    write(place, {"a.md": "one", "large.md": "x" * 50_000})
    sticky.add("*.md")
    if resumed:
        sticky = StickyFiles(task, sticky.workspace)
        sticky.list_files()  # files that do not fit are not in the event
    read = []
    fitting = sticky_files._Fitting
    read_text = fitting._read_text
    monkeypatch.setattr(fitting, "_read_text", lambda self, file: read.append(file.path) or read_text(self, file))
    assert not sticky.refresh()
    assert read == []
    write(place, {"a.md": "two"})
    assert sticky.refresh().changed == ("a.md",)
    assert read == ["a.md"]


def test_room_that_becomes_free_is_used(sticky, place):
    """A file that did not fit is shown as soon as it fits."""
    write(place, {"a.md": "x" * 12_000, "b.md": "y" * 12_000})
    sticky.add("a.md", "b.md")
    assert shown(sticky) == ["a.md"]
    write(place, {"a.md": "x"})
    changes = sticky.refresh()
    assert (changes.changed, changes.added) == (("a.md",), ("b.md",))


def test_a_resume_keeps_the_declared_entries(tmp_path, place):
    """The list, its order and its texts; later changes are reported."""
    write(place, {"a.md": "one", "docs/b.md": "two"})
    with orihon.open(str(tmp_path / "contexts"), settings=Settings()) as engine, Workspace(place) as workspace:
        task = engine.start(KEY, inherit=False)
        StickyFiles(task, workspace).add("docs", "a.md", "later", force=True)
        task.add("user", "Hello.")
        before = task.window().openai()
        task.close()
        write(place, {"a.md": "ONE"})
        task = engine.resume(task.uuid)
        sticky = StickyFiles(task, workspace)
        assert sticky.declared == ("docs", "a.md", "later")
        assert task.window().openai() == before
        assert sticky.refresh().changed == ("a.md",)
        assert task.window().openai()[: len(before)] == before
        assert "[a.md]\nONE" in task.window().openai()[-1]["content"]
        task.close()


def test_a_tangent_and_a_checkpoint_restore_the_list(sticky, task, place):
    """Entries of the tangent are gone outside; the files are shown as they are on disk."""
    write(place, {"a.md": "one", "b.md": "two"})
    sticky.add("a.md")
    task.add("user", "Hello.")
    mark = task.checkpoint()
    with task.tangent("Why?"):
        sticky.add("b.md")
        assert shown(sticky) == ["a.md", "b.md"]
    assert sticky.declared == ("a.md",)
    sticky.remove("a.md")
    task.restore(mark)
    assert sticky.declared == ("a.md",)
    write(place, {"a.md": "ONE"})
    assert sticky.refresh().changed == ("a.md",)


def test_a_clear_keeps_the_list(sticky, task, place):
    """The files are still sticky."""
    write(place, {"a.md": "one"})
    sticky.add("a.md")
    task.add("user", "Hello.")
    task.window()
    task.reset()
    task.add("user", "Again.")
    assert sticky.declared == ("a.md",)
    assert "[a.md]\none" in head(task)


def test_no_secret_of_a_file_reaches_the_disk(sticky, task, place, tmp_path):
    """Not even from a file that a pattern matched."""
    write(place, {"env.md": f"TOKEN={TOKEN}\n", "b.md": "two"})
    sticky.add("*.md")
    assert not sticky.refresh()
    task.add("user", "Hello.")
    assert "[GITHUB_TOKEN]" in head(task)
    for path in (tmp_path / "contexts").rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes()
