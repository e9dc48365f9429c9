"""A conversation: messages, cancellation, tangents, limits; and the registry of conversations."""

from contextlib import suppress

import pytest

import orihon
from orihon.chat import conversation, registry
from orihon.chat.conversation import CANCELLED, EMPTY_PROMPT, HistoryEntry, UserTurn
from orihon.errors import LeaseHeld, NotFound, StoreError, TangentError, UsageError
from orihon.settings.schema import Settings
from support.replies import TOOLS, calling, saying


@pytest.fixture(params=["jsonl", "sqlite"])
def url(request, tmp_path):
    return str(tmp_path / "store") if request.param == "jsonl" else f"sqlite:///{tmp_path / 'contexts.db'}"


@pytest.fixture
def engine(url):
    with orihon.open(url, settings=Settings()) as engine:
        yield engine


@pytest.fixture
def talk(engine, tmp_path):
    talk = registry.start(engine, tmp_path, name="shop", tools=TOOLS, system="You help.")
    yield talk
    with suppress(StoreError):  # a test that simulates a crash has released the lease
        talk.close()


def texts(talk):
    return [message.text for message in talk.messages() if message.role != "system"]


def exchange(talk, prompt, answer):
    talk.say(prompt)
    talk.task.add_reply(saying(answer))


class TestNextMessage:
    def test_there_is_one_at_a_time(self, talk):
        talk.set_next("first")
        with pytest.raises(UsageError, match="Another message"):
            talk.set_next("second")
        assert talk.next_message == "first"

    def test_there_must_be_one_to_send(self, talk):
        with pytest.raises(UsageError, match="no message to send"):
            talk.send()

    def test_it_is_never_empty(self, talk):
        talk.say("  \n")
        assert texts(talk) == [EMPTY_PROMPT]

    def test_it_can_be_dropped(self, talk):
        talk.set_next("first")
        talk.drop_next()
        talk.drop_next()
        assert talk.next_message is None

    def test_it_survives_a_crash_and_is_sent_once(self, engine, talk):
        talk.set_next("first")
        talk.task.add("user", "first", key=f"orihon:next:{talk.notes['next_message']['id']}")  # then the process died
        talk.task.writer.lease.close()
        with registry.resume(engine, talk.conversation_id) as again:
            assert again.next_message == "first"
            again.send()
            assert texts(again) == ["first"]
            assert (again.next_message, again.turn) == (None, 1)


class TestCancel:
    def test_before_anything_was_received(self, talk):
        talk.say("Tell me.")
        talk.cancel()
        assert texts(talk) == ["Tell me.", conversation.STOPPED]
        assert not talk.task.wants_reply()

    def test_the_received_part_stays(self, talk):
        talk.say("Tell me.")
        talk.cancel("Once upon")
        assert texts(talk)[-1] == f"Once upon\n\n{conversation.STOPPED}"

    def test_unanswered_calls(self, talk):
        talk.say("Test it.")
        talk.task.add_reply(calling(("run_tests", {}), ("read_file", {"path": "a"})))
        talk.cancel()
        assert texts(talk)[2:] == [CANCELLED, CANCELLED]
        assert talk.task.pending_calls() == []

    def test_a_new_message_cancels_them_too(self, talk):
        talk.say("Test it.")
        talk.task.add_reply(calling(("run_tests", {})))
        talk.say("No.")
        entries = list(talk.entries())
        assert isinstance(entries[-1], UserTurn)
        assert entries[-1].is_cancelled
        assert entries[-1].prompt == "No."

    def test_nothing_runs(self, talk):
        exchange(talk, "Hi.", "Hello.")
        talk.cancel()
        assert texts(talk) == ["Hi.", "Hello."]


def test_entries_are_pairs(talk):
    exchange(talk, "One", "1")
    talk.say("Two")
    talk.task.add_reply(calling(("run_tests", {}), text="I look."))
    (call,) = talk.task.pending_calls()
    with talk.task.tool(call) as run:
        run.result = "passed"
    talk.task.add_reply(saying("2", usage=(100, 5)))
    first, second, third = talk.entries()
    assert all(isinstance(entry, HistoryEntry) for entry in (first, second, third))
    assert (second.user.prompt, third.user.prompt, third.user.results[0].text) == ("Two", "", "passed")
    assert first.request_metadata is None
    assert third.request_metadata["input_tokens"] == 100


class TestTranscript:
    def test_every_line_of_the_user_is_marked(self, talk):
        exchange(talk, "One\n\ntwo\n", "Yes\nno")
        assert talk.transcript == ["> One\n> \n> two", "Yes\nno"]

    def test_it_names_calls_and_contains_errors(self, talk):
        talk.say("Test it.")
        talk.task.add_reply(calling(("run_tests", {}), text="I look."))
        talk.add_error("429: slow down")
        talk.cancel()
        assert talk.transcript == ["> Test it.", "I look.\n[Tool uses: run_tests]", "429: slow down"]

    def test_it_is_never_sent(self, talk):
        exchange(talk, "One", "1")
        talk.add_error("unheard of")
        talk.say("Two")
        assert "unheard of" not in str(talk.task.window().openai())

    def test_it_keeps_the_newest(self, talk):
        for number in range(30):
            exchange(talk, f"{number}", f"answer {number}")
            talk.add_error(f"error {number}")
        assert [text for _, text in talk.read_transcript(5)] == [
            "answer 28",
            "error 28",
            "> 29",
            "answer 29",
            "error 29",
        ]

    def test_leaving_a_tangent_hides_its_errors(self, talk):
        exchange(talk, "One", "1")
        talk.enter_tangent()
        talk.say("Aside")
        talk.add_error("inside")
        talk.leave_tangent()
        assert talk.transcript == ["> One", "1"]


class TestTangents:
    def test_the_main_prefix_stays_byte_for_byte(self, talk):
        exchange(talk, "One", "1")
        before = talk.task.window().openai()
        talk.enter_tangent()
        exchange(talk, "Aside", "Indeed")
        talk.enter_tangent()
        exchange(talk, "Deeper", "Deep")
        talk.leave_tangent("summary")
        talk.leave_tangent()
        assert talk.task.window().openai() == before
        assert not talk.is_in_tangent

    def test_the_tail_and_its_calls_stay(self, talk):
        exchange(talk, "One", "1")
        talk.enter_tangent()
        exchange(talk, "Aside", "Indeed")
        talk.say("And?")
        talk.task.add_reply(calling(("run_tests", {})))
        talk.leave_tangent("tail")
        assert texts(talk) == ["One", "1", "And?", "", CANCELLED]

    def test_duration(self, talk):
        assert talk.tangent_seconds is None
        talk.enter_tangent()
        assert talk.tangent_seconds in range(60)

    def test_none_is_open(self, talk):
        with pytest.raises(TangentError):
            talk.leave_tangent()

    def test_it_survives_a_crash(self, engine, talk):
        exchange(talk, "One", "1")
        talk.set_next("typed outside")
        talk.enter_tangent()
        talk.drop_next()
        exchange(talk, "Aside", "Indeed")
        talk.task.writer.lease.close()
        with registry.resume(engine, talk.conversation_id) as again:
            assert again.is_in_tangent
            again.leave_tangent()
            assert texts(again) == ["One", "1"]
            assert again.next_message == "typed outside", "the message from outside is still there"

    def test_started_in_the_past(self, talk):
        exchange(talk, "One", "1")
        exchange(talk, "Aside", "Indeed")
        exchange(talk, "More of it", "Much more")
        place = next(message.seq for message in talk.messages() if message.text == "1")
        talk.enter_tangent(after=place)
        assert texts(talk)[-1] == "Much more", "everything is still visible inside"
        talk.leave_tangent("tail")
        assert texts(talk) == ["One", "1", "More of it", "Much more"]

    @pytest.mark.parametrize("place", [-1, 99, "x"])
    def test_started_at_an_invalid_message(self, talk, place):
        with pytest.raises(TangentError, match="cannot have begun"):
            talk.enter_tangent(after=place)

    def test_started_before_the_open_tangent(self, talk):
        exchange(talk, "One", "1")
        talk.enter_tangent()
        exchange(talk, "Aside", "Indeed")
        with pytest.raises(TangentError, match="cannot have begun"):
            talk.enter_tangent(after=1)


def test_clear_can_be_undone(talk):
    exchange(talk, "One", "1")
    talk.set_next("typed")
    talk.clear()
    assert (texts(talk), talk.next_message, talk.transcript) == ([], None, [])
    talk.task.undo()
    assert texts(talk) == ["One", "1"]


def test_the_last_question_is_not_what_stands_for_a_tangent(talk):
    """`/rewind` takes back a question of the user."""
    exchange(talk, "One", "1")
    talk.enter_tangent()
    exchange(talk, "An aside", "2")
    talk.leave_tangent("summary")
    assert "An aside" in talk.find_newest("user").text
    assert talk.find_question().text == "One"


class TestLimit:
    @pytest.fixture
    def notices(self, talk, monkeypatch):
        monkeypatch.setattr(conversation, "MAX_ENTRIES", 10)
        notices = []
        talk.notify = notices.append
        return notices

    def test_the_oldest_are_hidden_and_the_log_keeps_all(self, engine, talk, notices):
        for number in range(40):
            exchange(talk, f"{number}", f"answer {number}")
            entries = sum(isinstance(entry, HistoryEntry) for entry in talk.entries())
            assert entries == min(number + 1, 10), "004 §5.1: beyond the limit the oldest one leaves, each time"
        assert len(notices) == 1, "the user is told once"
        assert "is hidden" in notices[0]
        assert "39" in texts(talk)
        assert "0" not in texts(talk)
        assert len(list(engine.read(talk.conversation_id).messages())) == 81

    @pytest.mark.usefixtures("notices")
    def test_inside_a_tangent_the_main_conversation_stays(self, talk):
        for number in range(9):
            exchange(talk, f"{number}", f"answer {number}")
        main = texts(talk)
        talk.enter_tangent()
        for number in range(19):
            exchange(talk, f"inside {number}", "yes")
        assert "answer 8" not in texts(talk)
        talk.leave_tangent()
        assert texts(talk) == main

    def test_a_summary_still_covers_the_rest(self, talk, notices):
        for number in range(10):
            exchange(talk, f"{number} " + "long words " * 200, f"answer {number}")
        assert talk.task.compact(keep_recent=2) is not None
        before = talk.task.log.view.state.summary.id
        exchange(talk, "more", "and more")
        exchange(talk, "more", "and more")
        assert notices
        assert talk.task.log.view.state.summary.id == before

    @pytest.mark.usefixtures("notices")
    def test_counting_reads_only_new_messages(self, talk, monkeypatch):
        for number in range(12):
            exchange(talk, f"{number}", f"answer {number}")
        reads = []
        real = talk.task.log.read
        monkeypatch.setattr(talk.task.log, "read", lambda first, last: reads.append((first, last)) or real(first, last))
        talk._count_entries()
        assert reads, "there are enough messages for a count"
        assert all(first > 20 for first, _ in reads), reads


class TestRegistry:
    def test_several_in_one_directory(self, engine, tmp_path):
        for name in ("shop", "日本語の会話", "two words"):
            with registry.start(engine, tmp_path, name=name) as talk:
                exchange(talk, f"about {name}", "yes")
        assert {one.name for one in registry.list_conversations(engine, tmp_path)} == {
            "shop",
            "日本語の会話",
            "two words",
        }
        assert registry.list_conversations(engine, tmp_path)[0].name == "two words", "the most recently used first"
        assert registry.list_conversations(engine, tmp_path / "elsewhere") == []
        assert len(registry.list_conversations(engine)) == 3
        assert registry.find(engine, tmp_path).name == "two words"
        assert registry.find(engine, tmp_path, "日本語の会話").row.llm_call_count == 1

    def test_found_again(self, engine, tmp_path):
        with registry.start(engine, tmp_path, name="日本語の会話") as talk:
            exchange(talk, "One", "1")
        assert registry.find(engine, tmp_path, talk.conversation_id[:8]).row.status == "paused"
        with registry.resume(engine, talk.conversation_id) as again:
            assert (again.name, again.workspace, texts(again)) == ("日本語の会話", tmp_path, ["One", "1"])

    @pytest.mark.usefixtures("talk")
    def test_a_name_is_given_once(self, engine, tmp_path):
        with pytest.raises(UsageError, match="exists already"):
            registry.start(engine, tmp_path, name="shop")

    @pytest.mark.parametrize("name", ["", "a\nb", "x" * 101, "\x1b[31m"])
    def test_invalid_names(self, engine, tmp_path, name):
        if name:
            with pytest.raises(UsageError, match="cannot be the name"):
                registry.start(engine, tmp_path, name=name)
        else:
            with registry.start(engine, tmp_path) as one:
                pass
            with registry.start(engine, tmp_path) as two:
                assert one.name != two.name

    def test_not_found(self, engine, tmp_path):
        with pytest.raises(NotFound, match="nothing"):
            registry.find(engine, tmp_path, "nothing")

    def test_search(self, engine, talk, tmp_path):
        exchange(talk, "Where does the TOTAL go wrong? " + "x" * 500, "In 合計の計算.")
        (found,) = registry.search(engine, "total", tmp_path)
        assert (found.name, found.role, found.text[:24]) == ("shop", "user", "Where does the TOTAL go ")
        assert len(found.text) < 200
        assert [one.role for one in registry.search(engine, "合計")] == ["assistant"]
        assert list(registry.search(engine, "You help")) == [], "system messages are not searched"
        for number in range(5):
            exchange(talk, f"total {number}", "yes")
        assert len(list(registry.search(engine, "total", limit=3))) == 3

    def test_deleted_with_its_checkpoints(self, engine, tmp_path):
        with registry.start(engine, tmp_path, name="shop") as talk, pytest.raises(LeaseHeld):
            registry.delete(engine, talk.conversation_id)
        place = registry.find_checkpoint_directory(engine.store, talk.conversation_id)
        (place / "objects").mkdir(parents=True)
        registry.delete(engine, talk.conversation_id)
        assert not place.exists()
        assert registry.list_conversations(engine) == []

    def test_a_task_is_not_a_conversation(self, engine):
        with engine.start(orihon.TaskKey.local("x")) as task:
            task.add("user", "hi")
        with pytest.raises(UsageError, match="not a conversation"):
            registry.resume(engine, task.uuid)

    def test_of_one_user(self, engine, tmp_path):
        for user in ("alice", "bob"):
            with registry.start(engine, tmp_path, name=user, user=user) as talk:
                exchange(talk, "secret plans", "yes")
        assert [one.name for one in registry.list_conversations(engine, tmp_path, user="alice")] == ["alice"]
        assert [one.name for one in registry.search(engine, "plans", user="alice")] == ["alice"]
        with pytest.raises(NotFound):
            registry.find(engine, tmp_path, "bob", user="alice")
