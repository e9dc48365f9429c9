"""Sticky files of a task: stored once, masked, told where they change, and the same after a resume."""

import json
import subprocess
import sys

import pytest

import orihon
from orihon.context.sticky import BEGIN, END
from orihon.errors import UsageError
from orihon.records import Event
from orihon.settings.schema import Settings
from support.replies import KEY, TOOLS, calling, saying, turn

TOKEN = "ghp_" + "a1B2c3D4" * 4 + "e5F6"


def begun(engine, **options):
    task = engine.start(KEY, tools=TOOLS, inherit=False, **options)
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


def shown(task):
    return [message["content"] for message in task.window().openai()]


def events(engine, task):
    return [event for event in engine.read(task.uuid).events() if event.type == "sticky"]


def test_they_stand_after_the_system_prompt(engine):
    """In their order, with their names, between the seed's marks; the report counts them as a source of its own."""
    with begun(engine) as task:
        task.sticky({"b.md": "Second letter first.", "a.md": "First letter second.\n"})
        window = task.window()
        assert window.openai()[1] == {
            "role": "user",
            "content": "The user keeps these files in view:\n"
            f"{BEGIN}[b.md]\nSecond letter first.\n{END}{BEGIN}[a.md]\nFirst letter second.\n{END}",
        }
        assert window.report.by_source["sticky files"] == window.messages[1].tokens > 20


def test_what_is_new_is_told_at_the_end_and_moves_to_the_head_with_a_summary(engine):
    """Nothing before the end changes meanwhile."""
    with begun(engine, summariser=lambda _: "They talked.") as task:
        task.sticky({"a.md": "one", "b.md": "two"})
        for number in range(12):
            task.add("user", f"question {number} " * 20)
            turn(task, saying(f"answer {number} " * 30))
        before = shown(task)
        task.sticky({"a.md": "one", "b.md": "TWO", "c.md": "three"})
        after = shown(task)
        assert after[:-1] == before
        assert "[b.md]\nTWO" in after[-1]
        assert "[c.md]\nthree" in after[-1]
        assert "[a.md]" not in after[-1]
        turn(task, saying("I see."))
        task.sticky({"c.md": "three"})
        assert shown(task)[: len(after) + 1] == [*after, "I see."]
        assert "No longer kept in view: a.md, b.md\n" in shown(task)[-1]
        assert task.compact() is not None
        assert shown(task)[1].count(BEGIN) == 1
        assert "".join(map(str, shown(task)[2:])).count(BEGIN) == 0


def test_a_fold_brings_the_head_up_to_date(engine):
    """From then on the files stand there as they are, and nothing is told twice."""
    with begun(engine, context_length=4000, reserved_output=0, tokens="bytes4") as task:
        task.sticky({"a.md": "one"})
        task.window()
        task.sticky({"a.md": "two"})
        folded = False
        while not folded:
            folded = bool(turn(task, calling(("read_file", {"path": "x.py"})), ["line of it\n" * 90]).report.reasons)
        text = "".join(map(str, shown(task)))
        assert text.count("[a.md]") == 1
        assert "[a.md]\ntwo" in shown(task)[1]


def test_a_list_that_is_the_same_is_no_event(engine):
    """Neither the same texts nor the same files again are stored twice; another order is."""
    with begun(engine) as task:
        assert task.sticky({"a.md": "one", "b.md": "two"}) is not None
        assert task.sticky({"a.md": "one", "b.md": "two"}) is None
        assert task.sticky(task.sticky_files.files) is None
        assert task.sticky(task.sticky_files.files[::-1]) is not None
        assert task.sticky(task.sticky_files.files, declared=["*.md"]) is not None
        assert task.sticky_files.declared == ("*.md",)
        assert len(events(engine, task)) == 3
        task.sticky({})
        assert BEGIN not in "".join(shown(task))


def test_what_is_told_is_bounded(engine):
    """A file that is too long to be told again is named, and so is one for which the others left no room."""
    with begun(engine, context_length=4000, reserved_output=0, tokens="bytes4") as task:
        task.sticky({"a.md": "one"})
        task.window()
        task.sticky({"a.md": "one", "large.md": "x" * 5000})
        assert "too long to be shown here; read them when you need them: large.md" in shown(task)[-1]
        told = 0
        for number in range(9):
            task.sticky({"a.md": f"{number} " * 700})
            told += "[a.md]" in shown(task)[-1]
            assert task.window().report.tokens < 3500
        assert told == 2


def test_too_much_is_refused_with_figures(engine):
    """More than three quarters of the window cannot be sticky, and nothing is changed by trying."""
    with begun(engine, context_length=4000, reserved_output=0, tokens="bytes4") as task:
        task.sticky({"a.md": "one"})
        with pytest.raises(UsageError, match=r"would take 3,\d\d\d tokens; 2,\d\d\d are allowed"):
            task.sticky({"a.md": "x" * 13_000})
        assert [file.path for file in task.sticky_files.files] == ["a.md"]
        assert len(events(engine, task)) == 1


def test_a_window_that_shrinks_leaves_files_out(engine):
    """Where the provider counts more than we do, what no longer fits is named, and the window is still inside."""
    with begun(engine, context_length=6000, reserved_output=0, tokens="bytes4") as task:
        task.sticky({"a.md": "a " * 2000, "b.md": "b " * 4000})
        turn(task, saying("Hm."))
        task.add("user", "Go on.")
        for _ in range(3):
            task.shrink_budget()
        window = task.window()
        assert window.report.tokens <= window.report.limit
        assert "read them when you need them: b.md" in window.openai()[1]["content"]
        assert window.openai() == task.window().openai()


def test_no_secret_of_a_file_reaches_the_disk(tmp_path):
    """Neither its text nor its name; the window shows the masked text, before and after a resume."""
    with orihon.open(str(tmp_path / "contexts"), settings=Settings()) as engine:
        task = begun(engine)
        task.sticky({f"keys/{TOKEN}/a.md": f"token = {TOKEN}\n", "plain.md": "alice@example.com"})
        before = task.window().openai()
        task.close()
        assert "[GITHUB_TOKEN]" in before[1]["content"]
        assert "[EMAIL]" in before[1]["content"]
        for path in (tmp_path / "contexts").rglob("*"):
            assert not path.is_file() or TOKEN.encode() not in path.read_bytes()
        task = engine.resume(task.uuid)
        assert task.window().openai() == before
        assert task.sticky({f"keys/{TOKEN}/a.md": f"token = {TOKEN}\n", "plain.md": "alice@example.com"}) is None
        task.close()


def test_another_process_shows_the_same(disk_url):
    """Byte for byte, with what was told since the last fold, and after the files themselves are long gone."""
    with orihon.open(disk_url, settings=Settings()) as engine:
        task = begun(engine)
        task.sticky({"日本語 a.md": "一行目\r\n二行目\n", "b.md": "x" * 300_000 + "\ufeff\u2028"}, declared=["*.md"])
        task.window()
        task.sticky({"日本語 a.md": "三行目\n"}, declared=["*.md"])
        before = task.window().openai()
        task.close()
        script = (
            "import json, sys, orihon\nfrom orihon.settings.schema import Settings\n"
            "with orihon.open(sys.argv[1], settings=Settings()) as engine, engine.resume(sys.argv[2]) as task:\n"
            "    print(json.dumps([task.window().openai(), task.sticky_files.declared]))\n    task.pause()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, disk_url, task.uuid], capture_output=True, text=True, check=True, timeout=60
        )
    assert json.loads(done.stdout.splitlines()[-1]) == [before, ["*.md"]]


def test_a_version_is_stored_once(tmp_path):
    """The same text, however often it comes and goes, is one blob."""
    with orihon.open(str(tmp_path / "contexts"), settings=Settings()) as engine, begun(engine) as task:
        for text in ("one", "two") * 5:
            task.sticky({"a.md": text, "same.md": "one"})
        assert len(list((tmp_path / "contexts").rglob("blobs/*"))) == 2


def test_a_lost_text_is_said_and_drops_nothing_else(tmp_path):
    """One blob that is gone leaves the other files and the task alone."""
    with orihon.open(str(tmp_path / "contexts"), settings=Settings()) as engine:
        task = begun(engine)
        task.sticky({"a.md": "one", "b.md": "two"})
        task.close()
        for blob in (tmp_path / "contexts").rglob("blobs/*"):
            if blob.read_text() == "one":
                blob.unlink()
        head = engine.read(task.uuid).window().openai()[1]["content"]
        assert "[a.md]\n(the text of this file cannot be read any more)" in head
        assert "[b.md]\ntwo" in head


def test_the_state_of_a_task_does_not_grow_with_its_files(engine):
    """Checkpoints, tangents and records of the view name a list by its number."""
    with begun(engine) as task:
        task.sticky({f"file_{number}.md": f"text {number}" for number in range(200)})
        mark = task.checkpoint()
        (event,) = engine.store.read(task.uuid, Event, first=mark, last=mark)
        assert len(str(event.data)) < 500


@pytest.mark.parametrize("policy", ["importance", "plain"])
def test_the_other_policies_show_them_too(engine, policy):
    """They choose anew each time, so the files are shown as they are now."""
    with begun(engine, window=policy) as task:
        task.sticky({"a.md": "one"})
        task.window()
        task.sticky({"a.md": "two"})
        text = "".join(shown(task))
        assert "[a.md]\ntwo" in text
        assert "one" not in text


@pytest.mark.parametrize("files", [{"": "x"}, {" ": "x"}, {"a": None}, {"a": b"x"}])
def test_what_cannot_be_a_sticky_file_is_refused(engine, files):
    """A sentence, and nothing is changed."""
    with begun(engine) as task:
        with pytest.raises(UsageError, match="cannot be a sticky file"):
            task.sticky(files)
        assert task.sticky_files.files == ()
