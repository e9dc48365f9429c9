"""Files and conversation at one moment, in a real git repository of the person's, and the way back."""

import shutil
import subprocess

import pytest

import orihon
from orihon.chat import book
from orihon.chat.checkpoints import attached, wish
from orihon.errors import NotFound, UsageError
from orihon.settings.schema import Settings
from support.replies import TOOLS, calling, saying


@pytest.fixture
def work(tmp_path):
    """A repository of somebody's."""
    place = tmp_path / "work"
    place.mkdir()
    subprocess.run(["git", "init", "-q", str(place)], check=True)
    (place / "basket.py").write_text("total = 0\n")
    return place


@pytest.fixture(params=["jsonl", "sqlite"])
def engine(request, work):
    """The store is in the workspace, as it is by default."""
    url = work / "logs" / "contexts" if request.param == "jsonl" else f"sqlite:///{work / 'contexts.db'}"
    with orihon.open(url, settings=Settings()) as engine:
        yield engine


@pytest.fixture
def talk(engine, work):
    with book.start(engine, work, name="shop", tools=[*TOOLS, *_shell()], system="You help.") as talk:
        yield talk


def _shell():
    return [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]


def turn(talk, checkpoints, prompt, *changes):
    """One turn of a conversation in which tools write files."""
    talk.say(prompt)
    for name, text in changes:
        talk.task.add_reply(calling(("shell", {"command": f"write {name}"})))
        (call,) = talk.task.pending_calls()
        with talk.task.tool(call) as run:
            path = talk.workspace / name
            path.unlink() if text is None else path.write_text(text)
            run.result = "done"
    talk.task.add_reply(saying(f"Answer to {prompt}"))
    return checkpoints.end_of_turn(prompt)


def files(work):
    return {
        str(path.relative_to(work)): path.read_text()
        for path in work.rglob("*")
        if path.is_file() and ".git/" not in str(path) and "contexts" not in str(path)
    }


def texts(talk):
    return [message.text for message in talk.messages() if message.role == "user"]


class TestTaking:
    def test_each_turn_and_each_tool_that_changed_files(self, talk):
        checkpoints = attached(talk)
        turn(talk, checkpoints, "Mend it", ("basket.py", "total = 1\n"), ("new.py", "x"), ("new.py", "x"))
        turn(talk, checkpoints, "Explain it")
        assert [(one.tag, one.files) for one in checkpoints.listing()] == [("0", 0), ("1", 2), ("2", 0)]
        assert [one.tag for one in checkpoints.listing("1")] == ["1.1", "1.2", "1"], "the third write changed nothing"
        assert checkpoints.find("1").label == "Mend it"
        assert checkpoints.find("1.1").label.startswith("shell")

    def test_one_by_hand(self, talk):
        checkpoints = attached(talk)
        turn(talk, checkpoints, "Hello")
        assert checkpoints.take("before the refactor").tag == "1.1"
        assert checkpoints.find("1.1").label == "before the refactor"

    def test_a_tool_that_only_reads_takes_none(self, talk):
        checkpoints = attached(talk)
        talk.say("Read it.")
        talk.task.add_reply(calling(("read", {"path": "basket.py"})))
        (call,) = talk.task.pending_calls()
        with talk.task.tool(call) as run:
            (talk.workspace / "basket.py").write_text("somebody else")
            run.result = "done"
        assert [one.tag for one in checkpoints.listing("1")] == []

    def test_the_log_is_in_none_of_them(self, engine, talk):
        checkpoints = attached(talk)
        turn(talk, checkpoints, "Mend it", ("basket.py", "total = 1\n"))
        assert [one.path for one in checkpoints.shadow.changes(checkpoints.find("0").commit)] == ["basket.py"]
        checkpoints.restore("0", hard=True)
        assert texts(talk) == []
        assert [m.text for m in engine.read(talk.conversation_id).messages()][1] == "Mend it", "the log keeps all"

    def test_large_files_are_named_once(self, talk):
        told = []
        talk.tell = told.append
        checkpoints = attached(talk)
        checkpoints.shadow._max_file_bytes = 100
        turn(talk, checkpoints, "Make it", ("large.bin", "x" * 200))
        turn(talk, checkpoints, "Again", ("large.bin", "y" * 200))
        assert [text for text in told if "large.bin" in text] == told
        assert len(told) == 1


class TestWhereTheyAre:
    def test_by_themselves_only_in_a_repository(self, engine, tmp_path):
        other = tmp_path / "other"
        other.mkdir()
        with book.start(engine, other, name="shop") as talk:
            assert attached(talk) is None
            wish(talk, wanted=True)
            assert attached(talk) is not None
        with book.resume(engine, talk.conversation_id) as again:
            assert attached(again) is not None, "what the person decided is kept"
            wish(again, wanted=False)
            assert attached(again) is None

    def test_not_of_a_home_directory(self, engine, tmp_path, monkeypatch):
        home = tmp_path / "home"
        (home / ".git").mkdir(parents=True)
        monkeypatch.setenv("HOME", str(home))
        with book.start(engine, home, name="shop") as talk, pytest.raises(UsageError, match="home directory"):
            attached(talk)

    def test_after_a_resume_they_go_on(self, engine, talk):
        turn(talk, attached(talk), "Mend it", ("basket.py", "total = 1\n"))
        talk.close()
        with book.resume(engine, talk.conversation_id) as again:
            checkpoints = attached(again)
            turn(again, checkpoints, "More", ("basket.py", "total = 2\n"))
            assert [one.tag for one in checkpoints.listing()] == ["0", "1", "2"]
            checkpoints.restore("0")
            assert (again.workspace / "basket.py").read_text() == "total = 0\n"

    def test_without_its_files_a_conversation_begins_anew(self, engine, talk):
        """As in a copy of the store, which has the log only."""
        turn(talk, attached(talk), "Mend it", ("basket.py", "total = 1\n"))
        talk.close()
        shutil.rmtree(book.shadow_place(engine.store, talk.conversation_id))
        with book.resume(engine, talk.conversation_id) as again:
            checkpoints = attached(again)
            turn(again, checkpoints, "More", ("basket.py", "total = 2\n"))
            assert [one.tag for one in checkpoints.listing()] == ["1", "2"]
            checkpoints.restore("1")
            assert (again.workspace / "basket.py").read_text() == "total = 1\n"


class TestGoingBack:
    @pytest.fixture
    def checkpoints(self, talk):
        checkpoints = attached(talk)
        turn(talk, checkpoints, "One", ("basket.py", "total = 1\n"))
        turn(talk, checkpoints, "Two", ("basket.py", "total = 2\n"), ("new.py", "x"))
        return checkpoints

    def test_files_and_conversation(self, talk, checkpoints, work):
        restored = checkpoints.restore("1")
        assert files(work) == {"basket.py": "total = 1\n", "new.py": "x"}, "newer files stay"
        assert restored.kept == ("new.py",)
        assert (texts(talk), talk.turn) == (["One"], 1)

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
        event = talk.task.history.view.undoable[-1].event
        checkpoints.undo(event)
        talk.task.undo()
        assert files(work) == before
        assert (texts(talk), talk.turn) == (["One", "Two"], 2)

    def test_summary_counters_and_sticky_list(self, talk, checkpoints):
        for number in range(12):
            turn(talk, checkpoints, f"{number} " + "long words " * 100)
        tag = checkpoints.take("before").tag
        state = talk.task.history.view.state
        talk.task.compact()
        talk.task.sticky({"a.md": "text"})
        turn(talk, checkpoints, "Later")
        checkpoints.restore(tag)
        now = talk.task.history.view.state
        assert (now.summaries, now.sticky, now.notes["turn"]) == (state.summaries, state.sticky, state.notes["turn"])

    def test_a_number_given_twice_is_the_newer_one(self, talk, checkpoints, work):
        first = checkpoints.find("2")
        checkpoints.restore("1", hard=True)
        turn(talk, checkpoints, "Two, otherwise", ("basket.py", "total = 22\n"))
        assert checkpoints.find("2").label == "Two, otherwise"
        checkpoints.restore(f"#{first.event}", hard=True)
        assert files(work) == {"basket.py": "total = 2\n", "new.py": "x"}
        assert texts(talk) == ["One", "Two"]

    def test_inside_a_tangent(self, talk, checkpoints):
        talk.enter_tangent(commit=checkpoints.opened())
        turn(talk, checkpoints, "Aside", ("basket.py", "aside\n"))
        talk.leave_tangent()
        assert not talk.is_in_tangent
        checkpoints.restore("3")
        assert talk.is_in_tangent, "it was taken inside"
        assert texts(talk)[-1] == "Aside"

    def test_there_is_none(self, checkpoints):
        with pytest.raises(NotFound, match="'9'"):
            checkpoints.restore("9")

    def test_a_restore_that_was_cut_short_is_finished(self, engine, talk, checkpoints, work, monkeypatch):
        monkeypatch.setattr(type(checkpoints.shadow), "restore", _killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.restore("1", hard=True)
        monkeypatch.undo()
        talk.task.lease.close()
        with book.resume(engine, talk.conversation_id) as again:
            found = attached(again)
            assert files(work) == {"basket.py": "total = 1\n"}
            assert texts(again) == ["One"]
            found.undo(again.task.history.view.undoable[-1].event)
            again.task.undo()
            assert files(work) == {"basket.py": "total = 2\n", "new.py": "x"}
        talk.task.row = again.task.row  # it is not ours any more

    @pytest.mark.parametrize("says", [True, False])
    def test_a_restore_that_was_given_up_is_not_finished_later(self, engine, checkpoints, monkeypatch, says):
        """Whoever has gone on since, by a word or a checkpoint, wants what he has now."""
        talk = checkpoints.conversation
        monkeypatch.setattr(type(checkpoints.shadow), "restore", _killed)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.restore("1", hard=True)
        monkeypatch.undo()
        if says:
            talk.say("Three")
        else:
            checkpoints.take()
        before = files(talk.workspace)
        talk.task.lease.close()
        with book.resume(engine, talk.conversation_id) as again:
            attached(again)
            assert files(talk.workspace) == before
            assert texts(again)[:2] == ["One", "Two"]
        talk.task.row = again.task.row  # it is not ours any more

    def test_diff(self, checkpoints):
        assert "-total = 1\n+total = 2" in checkpoints.diff("1")
        assert "+total = 1" in checkpoints.diff("0", "1")
        (checkpoints.conversation.workspace / "basket.py").write_text("by hand\n")
        assert "+by hand" in checkpoints.diff("2"), "against the files as they are now"

    def test_clean(self, checkpoints, talk):
        assert checkpoints.clean() == 6
        assert checkpoints.listing() == []
        turn(talk, checkpoints, "Three", ("basket.py", "total = 3\n"))
        assert [one.tag for one in checkpoints.listing()] == ["3"]


class TestTangents:
    def test_what_changed_inside_is_named_and_put_back(self, talk, work):
        checkpoints = attached(talk)
        turn(talk, checkpoints, "One")
        talk.enter_tangent(commit=checkpoints.opened())
        (inside,) = talk.tangents
        turn(talk, checkpoints, "Aside", ("basket.py", "aside\n"), ("new.py", "x"))
        talk.leave_tangent()
        commit, changes = checkpoints.changed_inside(inside.event, inside.after)
        assert [(one.status, one.path) for one in changes] == [("M", "basket.py"), ("A", "new.py")]
        checkpoints.put_back(commit)
        assert files(work) == {"basket.py": "total = 0\n"}

    def test_decided_afterwards(self, talk, work):
        checkpoints = attached(talk)
        turn(talk, checkpoints, "One", ("basket.py", "one\n"))
        place = talk.task.history.last
        turn(talk, checkpoints, "Aside", ("basket.py", "aside\n"))
        talk.enter_tangent(after=place)
        (inside,) = talk.tangents
        talk.leave_tangent()
        commit, changes = checkpoints.changed_inside(inside.event, inside.after)
        assert [one.path for one in changes] == ["basket.py"]
        checkpoints.put_back(commit)
        assert files(work) == {"basket.py": "one\n"}


def _killed(*_, **__):
    raise KeyboardInterrupt
