"""Issues on this machine: files that belong to people, and what stands beside them."""

import json
import threading
from functools import partial

import pytest

from orihon import TaskKey
from orihon.agent.sources import SeenComments, local, open_source
from orihon.errors import SourceError, UsageError
from orihon.ingest import Sanitiser
from orihon.settings.schema import Settings

Local = partial(local.Local, sanitiser=Sanitiser())

ISSUE = """---
labels: [bug, urgent]
author: alice
---

# The login page is blank

Since Monday.
"""


@pytest.fixture
def issue(tmp_path):
    path = tmp_path / "login.md"
    path.write_text(ISSUE, encoding="utf-8")
    return path


def beside(path):
    return json.loads(path.with_name(f"{path.stem}.orihon.json").read_text(encoding="utf-8"))


class TestPages:
    def test_front_matter_and_heading(self, issue):
        """The heading is the title, the rest the body; labels and author stand at the top."""
        [item] = Local(issue).find()
        assert (item.title, item.body, item.author) == ("The login page is blank", "Since Monday.", "alice")
        assert item.labels == ("bug", "urgent", "coding agent")
        assert item.key.task_id == "login"
        assert item.url == str(issue)

    @pytest.mark.parametrize(
        ("text", "title", "body"),
        [
            ("just one line", "just one line", "just one line"),
            ("intro\n\n# Late heading\n\nrest", "Late heading", "intro\n\n# Late heading\n\nrest"),
            ("---\nno: [yaml\n---\n# T", "T", "---\nno: [yaml\n---\n# T"),
            ("---\n\ntext\n\n---\n", "---", "---\n\ntext\n\n---"),
            ("\ufeff# BOM\r\n\r\nline\r\nnext", "BOM", "line\nnext"),
            ("#nospace is no heading", "#nospace is no heading", "#nospace is no heading"),
            ("# Only a title", "Only a title", ""),
            ("", "page", ""),
            ("---\n---\n# T\nx", "T", "x"),
        ],
    )
    def test_pages_of_all_kinds(self, tmp_path, text, title, body):
        """Whatever people write has a title and a body."""
        path = tmp_path / "page.md"
        path.write_bytes(text.encode())
        [item] = Local(path).find()
        assert (item.title, item.body) == (title, body)

    def test_bytes_that_are_no_text(self, tmp_path):
        """Are shown as what they are, and NUL is seen."""
        (tmp_path / "x.md").write_bytes(b"# a\0b\n\xff\xfe")
        [item] = Local(tmp_path / "x.md").find()
        assert item.title == "a\u2400b"
        assert item.body == "\ufffd\ufffd"

    def test_a_huge_file_is_refused(self, tmp_path):
        """With its size."""
        (tmp_path / "x.md").write_bytes(b"x" * 1_000_001)
        with pytest.raises(SourceError, match="larger than"):
            list(Local(tmp_path / "x.md").find())


class TestWhatIsMeant:
    def test_a_text(self):
        """A text is a task too; the same text has the same key."""
        source = Local("Fix the login page.\nIt is blank.")
        [item] = source.find()
        assert item.title == "Fix the login page."
        assert item.key == next(Local("Fix the login page.\nIt is blank.").find()).key
        assert item.key != next(Local("Fix the login page.\nIt is red.").find()).key
        source.mark(item.key, "processing")
        made = source.add_comment(item.key, "On it.")
        source.edit_comment(item.key, made, "Done.")
        assert list(source.find()) == []

    @pytest.mark.parametrize("text", ["missing.md", "./missing", "/no/such/file", "notes.txt", ""])
    def test_a_path_that_is_not_there(self, text):
        """A mistyped path is not taken for a task."""
        with pytest.raises(UsageError):
            Local(text)

    def test_a_directory(self, tmp_path):
        """Each Markdown file in it is an issue, in the order of their names; others are not."""
        for name in ("b.md", "a.md", ".hidden.md", "c.txt"):
            (tmp_path / name).write_text(f"# {name}", encoding="utf-8")
        (tmp_path / "d.md").mkdir()
        source = Local(tmp_path)
        assert [item.title for item in source.find()] == ["a.md", "b.md"]
        source.mark(next(source.find()).key, "done")
        assert [item.title for item in source.find()] == ["b.md"]

    def test_by_name(self, issue):
        """`open_source` gives it, and asks for what is missing."""
        assert next(open_source("local", Settings(), what=issue).find()).title == "The login page is blank"
        with pytest.raises(UsageError, match="needs a file"):
            open_source("local", Settings())

    def test_names_that_keys_cannot_hold(self, tmp_path):
        """Every file has a key of its own that stays the same, in each directory another."""
        names = ["バグ", "バグ2", "a b", "a-b", "x" * 200, "x..", "-", "ünder", "A", "a.b"]
        (tmp_path / "one").mkdir()
        (tmp_path / "two").mkdir()
        for place in ("one", "two"):
            for name in names:
                (tmp_path / place / f"{name}.md").write_text("# T", encoding="utf-8")
        keys = [item.key for place in ("one", "two") for item in Local(tmp_path / place).find()]
        assert len({str(key) for key in keys}) == len(keys) == 2 * (len(names))
        assert keys == [item.key for place in ("one", "two") for item in Local(str(tmp_path / place)).find()]
        assert all(TaskKey.parse(str(key)) == key for key in keys)

    def test_closed_or_done_by_the_front_matter(self, tmp_path):
        """A status at the top counts as long as Orihon has said nothing."""
        (tmp_path / "a.md").write_text("---\nstatus: closed\n---\n# A", encoding="utf-8")
        (tmp_path / "b.md").write_text("---\nstatus: Done\n---\n# B", encoding="utf-8")
        (tmp_path / "c.md").write_text("---\nstatus: queued\n---\n# C", encoding="utf-8")
        assert [item.title for item in Local(tmp_path).find()] == ["C"]


class TestBeside:
    def test_the_users_file_is_never_touched(self, issue):
        """Labels, status and comments stand in a file of their own, which people can read."""
        source = Local(issue)
        key = next(source.find()).key
        source.mark(key, "processing")
        made = source.add_comment(key, "Working.")
        source.edit_comment(key, made, "Finished.")
        source.mark(key, "done")
        assert issue.read_text(encoding="utf-8") == ISSUE
        assert beside(issue)["status"] == "done"
        assert [(one["id"], one["author"], one["body"]) for one in beside(issue)["comments"]] == [
            ("1", "orihon", "Finished.")
        ]
        assert sorted(path.name for path in issue.parent.iterdir()) == ["login.md", "login.orihon.json"]
        assert source.get(key).labels == ("bug", "urgent", "coding agent done")
        assert list(source.find()) == []

    def test_people_comment_by_hand(self, issue):
        """An author and a body are enough, and what else they write stays."""
        source = Local(issue)
        key = next(source.find()).key
        made = source.add_comment(key, "Which browser?")
        seen = SeenComments()
        state = beside(issue)
        state["comments"].append({"author": "alice", "body": "Firefox.", "mood": "sad"})
        state["note"] = "mine"
        issue.with_name("login.orihon.json").write_text(json.dumps(state), encoding="utf-8")
        fresh = seen.take_new(source.list_comments(key, seen.since))
        assert [(one.author, one.body) for one in fresh] == [("alice", "Firefox.")]
        source.edit_comment(key, made, "Thanks.")
        assert seen.take_new(source.list_comments(key, seen.since)) == []
        assert beside(issue)["note"] == "mine"
        assert beside(issue)["comments"][1]["mood"] == "sad"
        assert "> Firefox." in source.render_prompt(source.get(key))

    def test_broken_json_is_left_alone(self, issue):
        """What somebody is about to mend is not overwritten."""
        source = Local(issue)
        key = next(source.find()).key
        issue.with_name("login.orihon.json").write_text('{"status": "done",', encoding="utf-8")
        with pytest.raises(SourceError, match="is not a state file") as caught:
            source.mark(key, "failed")
        assert "Repair the JSON" in caught.value.hint
        assert issue.with_name("login.orihon.json").read_text(encoding="utf-8") == '{"status": "done",'

    def test_one_broken_issue_does_not_hide_the_others(self, issue):
        """In a directory it is left out with a warning."""
        (issue.parent / "other.md").write_text("# Other", encoding="utf-8")
        issue.with_name("login.orihon.json").write_text("{", encoding="utf-8")
        assert [item.title for item in Local(issue.parent).find()] == ["Other"]
        with pytest.raises(SourceError):
            list(Local(issue).find())

    def test_many_writers_lose_nothing(self, issue):
        """Comments of several sources at once are all there."""
        key = next(Local(issue).find()).key
        writers = [
            threading.Thread(target=lambda: [Local(issue).add_comment(key, "x") for _ in range(10)], daemon=True)
            for _ in range(4)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [one["id"] for one in beside(issue)["comments"]] == [str(number) for number in range(1, 41)]

    def test_a_directory_that_cannot_be_written(self, issue, monkeypatch):
        """Is one sentence with a way out."""
        source = Local(issue)
        key = next(source.find()).key
        monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(SourceError, match="No space left"):
            source.add_comment(key, "x")

    def test_a_secret_is_masked(self, issue):
        """As everywhere."""
        source = Local(issue)
        source.add_comment(next(source.find()).key, "key AKIAIOSFODNN7EXAMPLX")
        assert "AKIAIOSFODNN7EXAMPLX" not in beside(issue)["comments"][0]["body"]

    def test_a_comment_that_is_gone(self, issue):
        """Has status 404, like on a forge."""
        source = Local(issue)
        with pytest.raises(SourceError) as caught:
            source.edit_comment(next(source.find()).key, "7", "x")
        assert caught.value.status == 404


class TestStops:
    def test_a_status_at_the_top_stops(self, issue):
        """Who writes `status: stopped` into the issue stops the run; a file that is away stops nothing."""
        source = Local(issue)
        key = next(source.find()).key
        assert source.is_wanted(key)
        issue.write_text(ISSUE.replace("author:", "status: stopped\nauthor:"), encoding="utf-8")
        assert not source.is_wanted(key)
        issue.unlink()
        assert source.is_wanted(key)

    def test_assignees_count_where_there_are_some(self, issue):
        """Taking the bot off its assignees stops it too."""
        source = Local(issue)
        key = next(source.find()).key
        issue.write_text(ISSUE.replace("author:", "assignees: orihon, alice\nauthor:"), encoding="utf-8")
        assert source.get(key).assignees == ("orihon", "alice")
        assert source.is_wanted(key)
        issue.write_text(ISSUE, encoding="utf-8")
        assert not source.is_wanted(key)
        assert Local(issue).is_wanted(key)
        assert not Local(issue).is_wanted(key, was_assigned=True)

    def test_who_asked(self, issue):
        """The author of the file; files do not become others."""
        source = Local(issue)
        [item] = source.find()
        assert source.find_user(item) == "alice"
        assert source.find_linked(item) is None
        source.close()
