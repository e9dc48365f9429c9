"""Checkpoints of files and conversation in a real git repository."""

import shutil
import subprocess

import pytest

import orihon
from orihon.chat import registry
from orihon.chat.checkpoints import ENABLED, open_checkpoints
from orihon.errors import NotFound, UsageError
from orihon.settings.schema import Settings
from support.replies import TOOLS, calling, saying

each_store = pytest.mark.parametrize("engine", ["jsonl", "sqlite"], indirect=True)


@pytest.fixture(scope="module")
def empty_repository(tmp_path_factory):
    place = tmp_path_factory.mktemp("empty")
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    return place


@pytest.fixture
def work(tmp_path, empty_repository):
    """A git repository."""
    place = tmp_path / "work"
    shutil.copytree(empty_repository, place)
    (place / "basket.py").write_text("total = 0\n")
    return place


@pytest.fixture
def engine(request, work):
    """The store is in the workspace, as by default."""
    is_jsonl = getattr(request, "param", "jsonl") == "jsonl"
    url = work / "logs" / "contexts" if is_jsonl else f"sqlite:///{work / 'contexts.db'}"
    with orihon.open(url, settings=Settings()) as engine:
        yield engine


@pytest.fixture
def talk(engine, work):
    with registry.start(
        engine, work, name="shop", tools=[*TOOLS, *_tools("shell", "read")], system="You help."
    ) as talk:
        yield talk


def _tools(*names):
    return [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in names]


def turn(talk, checkpoints, prompt, *changes):
    """Run one turn in which tools write files."""
    talk.say(prompt)
    for name, text in changes:
        talk.task.add_reply(calling(("shell", {"command": f"write {name}"})))
        (call,) = talk.task.pending_calls()
        with talk.task.tool(call) as run:
            path = talk.workspace / name
            path.unlink() if text is None else path.write_text(text)
            run.result = "done"
    talk.task.add_reply(saying(f"Answer to {prompt}"))
    return checkpoints.end_turn(prompt)


def files(work):
    return {
        str(path.relative_to(work)): path.read_text()
        for path in work.rglob("*")
        if path.is_file() and ".git/" not in str(path) and "contexts" not in str(path)
    }


def texts(talk):
    return [message.text for message in talk.messages() if message.role == "user"]


@each_store
class TestTaking:
    def test_each_turn_and_each_tool_that_changed_files(self, talk):
        checkpoints = open_checkpoints(talk)
        turn(talk, checkpoints, "Mend it", ("basket.py", "total = 1\n"), ("new.py", "x"), ("new.py", "x"))
        turn(talk, checkpoints, "Explain it")
        assert [(one.tag, one.files) for one in checkpoints.list_checkpoints()] == [("0", 0), ("1", 2), ("2", 0)]
        assert [one.tag for one in checkpoints.list_checkpoints("1")] == ["1.1", "1.2", "1"], (
            "the third write changed nothing"
        )
        assert checkpoints.find("1").label == "Mend it"
        assert checkpoints.find("1.1").label.startswith("shell")

    def test_by_the_user(self, talk):
        checkpoints = open_checkpoints(talk)
        turn(talk, checkpoints, "Hello")
        assert checkpoints.take("before the refactor").tag == "1.1"
        assert checkpoints.find("1.1").label == "before the refactor"

    def test_a_tool_that_only_reads_takes_none(self, talk):
        checkpoints = open_checkpoints(talk)
        talk.say("Read it.")
        talk.task.add_reply(calling(("read", {"path": "basket.py"})))
        (call,) = talk.task.pending_calls()
        with talk.task.tool(call) as run:
            (talk.workspace / "basket.py").write_text("another process")
            run.result = "done"
        assert [one.tag for one in checkpoints.list_checkpoints("1")] == []

    def test_the_log_is_not_saved(self, engine, talk):
        checkpoints = open_checkpoints(talk)
        turn(talk, checkpoints, "Mend it", ("basket.py", "total = 1\n"))
        assert [one.path for one in checkpoints.files.changes(checkpoints.find("0").commit)] == ["basket.py"]
        checkpoints.restore("0", hard=True)
        assert texts(talk) == []
        assert [m.text for m in engine.read(talk.conversation_id).messages()][1] == "Mend it", "the log keeps all"

    def test_large_files_are_reported_once(self, talk):
        notices = []
        talk.notify = notices.append
        checkpoints = open_checkpoints(talk)
        checkpoints.files._max_file_bytes = 100
        turn(talk, checkpoints, "Make it", ("large.bin", "x" * 200))
        turn(talk, checkpoints, "Again", ("large.bin", "y" * 200))
        assert [text for text in notices if "large.bin" in text] == notices
        assert len(notices) == 1


@each_store
class TestEnabling:
    def test_enabled_by_default_only_in_a_repository(self, engine, tmp_path):
        other = tmp_path / "other"
        other.mkdir()
        with registry.start(engine, other, name="shop") as talk:
            assert open_checkpoints(talk) is None
            talk.set_notes(**{ENABLED: True})
            assert open_checkpoints(talk) is not None
        with registry.resume(engine, talk.conversation_id) as again:
            assert open_checkpoints(again) is not None, "the decision of the user is kept"
            again.set_notes(**{ENABLED: False})
            assert open_checkpoints(again) is None

    def test_refused_for_a_home_directory(self, engine, tmp_path, monkeypatch):
        home = tmp_path / "home"
        (home / ".git").mkdir(parents=True)
        monkeypatch.setenv("HOME", str(home))
        with registry.start(engine, home, name="shop") as talk, pytest.raises(UsageError, match="home directory"):
            open_checkpoints(talk)

    def test_after_a_resume(self, engine, talk):
        turn(talk, open_checkpoints(talk), "Mend it", ("basket.py", "total = 1\n"))
        talk.close()
        with registry.resume(engine, talk.conversation_id) as again:
            checkpoints = open_checkpoints(again)
            turn(again, checkpoints, "More", ("basket.py", "total = 2\n"))
            assert [one.tag for one in checkpoints.list_checkpoints()] == ["0", "1", "2"]
            checkpoints.restore("0")
            assert (again.workspace / "basket.py").read_text() == "total = 0\n"

    def test_without_the_repository_they_start_over(self, engine, talk):
        """As in a copy of the store, which has only the log."""
        turn(talk, open_checkpoints(talk), "Mend it", ("basket.py", "total = 1\n"))
        talk.close()
        shutil.rmtree(registry.find_checkpoint_directory(engine.store, talk.conversation_id))
        with registry.resume(engine, talk.conversation_id) as again:
            checkpoints = open_checkpoints(again)
            turn(again, checkpoints, "More", ("basket.py", "total = 2\n"))
            assert [one.tag for one in checkpoints.list_checkpoints()] == ["1", "2"]
            checkpoints.restore("1")
            assert (again.workspace / "basket.py").read_text() == "total = 1\n"


class TestRestoring:
    @pytest.fixture
    def checkpoints(self, talk):
        checkpoints = open_checkpoints(talk)
        turn(talk, checkpoints, "One", ("basket.py", "total = 1\n"))
        turn(talk, checkpoints, "Two", ("basket.py", "total = 2\n"), ("new.py", "x"))
        return checkpoints

    def test_files_and_conversation(self, talk, checkpoints, work):
        restored = checkpoints.restore("1")
        assert files(work) == {"basket.py": "total = 1\n", "new.py": "x"}, "newer files stay"
        assert restored.kept == ("new.py",)
        assert (texts(talk), talk.turn) == (["One"], 1)

    @each_store
    def test_hard(self, checkpoints, work):
        checkpoints.restore("1", hard=True)
        assert files(work) == {"basket.py": "total = 1\n"}

    def test_to_the_middle_of_a_turn(self, talk, checkpoints, work):
        checkpoints.restore("2.1", hard=True)
        assert files(work) == {"basket.py": "total = 2\n"}
        assert texts(talk) == ["One", "Two"]

    def test_undone(self, talk, checkpoints, work):
        before = files(work)
        checkpoints.restore("0", hard=True)
        (work / "later.py").write_text("y")
        event = talk.task.log.view.undoable[-1].event
        checkpoints.undo(event)
        talk.task.undo()
        assert files(work) == before
        assert (texts(talk), talk.turn) == (["One", "Two"], 2)

    def test_summary_counters_and_sticky_list(self, talk, checkpoints):
        for number in range(12):
            talk.say(f"{number} " + "long words " * 100)
            talk.task.add_reply(saying(f"Answer {number}"))
        tag = checkpoints.take("before").tag
        state = talk.task.log.view.state
        talk.task.compact()
        talk.task.sticky({"a.md": "text"})
        turn(talk, checkpoints, "Later")
        checkpoints.restore(tag)
        now = talk.task.log.view.state
        assert (now.summaries, now.sticky, now.notes["turn"]) == (state.summaries, state.sticky, state.notes["turn"])

    def test_a_number_used_twice_means_the_newer_one(self, talk, checkpoints, work):
        first = checkpoints.find("2")
        checkpoints.restore("1", hard=True)
        turn(talk, checkpoints, "Two, otherwise", ("basket.py", "total = 22\n"))
        assert checkpoints.find("2").label == "Two, otherwise"
        checkpoints.restore(f"#{first.event}", hard=True)
        assert files(work) == {"basket.py": "total = 2\n", "new.py": "x"}
        assert texts(talk) == ["One", "Two"]

    def test_inside_a_tangent(self, talk, checkpoints):
        talk.enter_tangent(commit=checkpoints.save_files())
        turn(talk, checkpoints, "Aside", ("basket.py", "aside\n"))
        talk.leave_tangent()
        assert not talk.is_in_tangent
        checkpoints.restore("3")
        assert talk.is_in_tangent, "it was taken in the tangent"
        assert texts(talk)[-1] == "Aside"

    def test_not_found(self, checkpoints):
        with pytest.raises(NotFound, match="'9'"):
            checkpoints.restore("9")

    @each_store
    def test_an_interrupted_restore_is_finished(self, engine, talk, checkpoints, work, monkeypatch):
        monkeypatch.setattr(type(checkpoints.files), "restore", _killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.restore("1", hard=True)
        monkeypatch.undo()
        talk.task.writer.lease.close()
        with registry.resume(engine, talk.conversation_id) as again:
            found = open_checkpoints(again)
            assert files(work) == {"basket.py": "total = 1\n"}
            assert texts(again) == ["One"]
            found.undo(again.task.log.view.undoable[-1].event)
            again.task.undo()
            assert files(work) == {"basket.py": "total = 2\n", "new.py": "x"}
        talk.task.writer.row = again.task.row  # another process has the lease

    @pytest.mark.parametrize("says", [True, False])
    def test_an_interrupted_restore_is_given_up_if_the_user_went_on(self, engine, checkpoints, monkeypatch, says):
        """By a message or a checkpoint."""
        talk = checkpoints.conversation
        monkeypatch.setattr(type(checkpoints.files), "restore", _killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.restore("1", hard=True)
        monkeypatch.undo()
        if says:
            talk.say("Three")
        else:
            checkpoints.take()
        before = files(talk.workspace)
        talk.task.writer.lease.close()
        with registry.resume(engine, talk.conversation_id) as again:
            open_checkpoints(again)
            assert files(talk.workspace) == before
            assert texts(again)[:2] == ["One", "Two"]
        talk.task.writer.row = again.task.row  # another process has the lease

    def test_diff(self, checkpoints):
        assert "-total = 1\n+total = 2" in checkpoints.diff("1")
        assert "+total = 1" in checkpoints.diff("0", "1")
        (checkpoints.conversation.workspace / "basket.py").write_text("edited\n")
        assert "+edited" in checkpoints.diff("2"), "compared with the current files"

    def test_clean(self, checkpoints, talk):
        assert checkpoints.clean() == 6
        assert checkpoints.list_checkpoints() == []
        turn(talk, checkpoints, "Three", ("basket.py", "total = 3\n"))
        assert [one.tag for one in checkpoints.list_checkpoints()] == ["3"]


class TestTangents:
    def test_changes_in_a_tangent_are_listed_and_restored(self, talk, work):
        checkpoints = open_checkpoints(talk)
        turn(talk, checkpoints, "One")
        talk.enter_tangent(commit=checkpoints.save_files())
        (inside,) = talk.tangents
        turn(talk, checkpoints, "Aside", ("basket.py", "aside\n"), ("new.py", "x"))
        talk.leave_tangent()
        commit, changes = checkpoints.find_tangent_changes(inside.event, inside.after)
        assert [(one.status, one.path) for one in changes] == [("M", "basket.py"), ("A", "new.py")]
        checkpoints.restore_files(commit)
        assert files(work) == {"basket.py": "total = 0\n"}

    def test_a_tangent_started_in_the_past(self, talk, work):
        checkpoints = open_checkpoints(talk)
        turn(talk, checkpoints, "One", ("basket.py", "one\n"))
        place = talk.task.log.last
        turn(talk, checkpoints, "Aside", ("basket.py", "aside\n"))
        talk.enter_tangent(after=place)
        (inside,) = talk.tangents
        talk.leave_tangent()
        commit, changes = checkpoints.find_tangent_changes(inside.event, inside.after)
        assert [one.path for one in changes] == ["basket.py"]
        checkpoints.restore_files(commit)
        assert files(work) == {"basket.py": "one\n"}


def _killed(*_, **__):
    raise KeyboardInterrupt
