"""A sitting: what is said, answered, cancelled, refused, failed; and the next sitting."""

import json
import logging
import stat
import string

import pytest

import orihon
from orihon.chat import book, modelinfo
from orihon.chat.conversation import STOPPED
from orihon.chat.entries import CANCELLED
from orihon.chat.terminal import typed
from orihon.chat.terminal.completion import offered
from orihon.chat.terminal.paths import paths
from orihon.chat.terminal.plain import Plain
from orihon.chat.terminal.sitting import warnings_shown
from orihon.chat.terminal.words import WORDS, Words
from orihon.settings.schema import Llm, Provider, Settings
from orihon.terminal import language_of
from orihon.testing import serve
from orihon.testing.wire_rules import violations
from support.typist import Table, Typist, messages

SHELL = {"say": "I look.", "call": [{"name": "shell", "arguments": {"command": "echo made > made.txt"}}]}
LIST = {"say": "I list.", "call": [{"name": "list_files", "arguments": {}}]}


@pytest.fixture
def engine(tmp_path):
    with orihon.open(tmp_path / "store", settings=Settings()) as engine:
        yield engine


@pytest.fixture
def table(engine, tmp_path):
    (tmp_path / "desk").mkdir()
    return Table(engine, tmp_path / "desk")


class TestSaying:
    def test_what_is_typed_is_said_and_answered(self, table, engine):
        """As it comes; an empty line says nothing, and a space before a slash makes it a message."""
        table.script("Hello.", "A path.")
        face = table.sit("hi", "", "  ", " /etc/passwd is odd")
        assert face.said == ["Hello.", "A path."]
        assert messages(engine, face.chat)[:2] == [("user", "hi"), ("assistant", "Hello.")]
        assert messages(engine, face.chat)[2][1] == " /etc/passwd is odd"
        assert engine.row(face.chat.conversation.conversation_id).status == "paused"
        assert face.code == 0

    def test_the_meter_stands_before_each_prompt(self, table):
        table.script("Hello.")
        assert table.sit("hi").meters == ["[1% of 128k]"] * 2

    def test_a_tool_is_asked_for_and_allowed(self, table):
        table.script(SHELL, "Done.")
        face = table.sit("do it")
        assert (table.place / "made.txt").read_text() == "made\n"
        assert "echo made > made.txt" in face.asked[0]
        assert face.notes[1].startswith('  shell {"command"')

    def test_a_tool_that_is_refused_is_answered_as_such(self, table, engine):
        table.script(SHELL, "As you like.")
        face = table.sit(face=Typist("do it", allows=False))
        assert not (table.place / "made.txt").exists()
        assert "The user did not allow" in messages(engine, face.chat)[2][1]
        assert face.said[-1] == "As you like."

    def test_nobody_to_ask(self, table, engine):
        """In a pipe what needs a person is not done."""
        table.script(SHELL, "As you like.")
        face = table.sit(face=Typist("do it", interactive=False))
        assert "Nobody is there" in messages(engine, face.chat)[2][1]

    def test_one_that_nobody_used_or_named_is_not_kept(self, table, engine):
        table.sit("/help", name="")
        assert book.listing(engine) == []
        table.sit("/help")
        assert [one.name for one in book.listing(engine)] == ["shop"]


class TestCancelling:
    def test_what_was_heard_stays(self, table, engine):
        """And the conversation goes on."""
        table.script("It is the total that", "Better.")
        face = Typist("why?", "then?")
        face.stop_at = "total"
        table.sit(face=face)
        assert [text for _, text in messages(engine, face.chat)] == [
            "why?", f"It is the total that\n\n{STOPPED}", "then?", "Better."
        ]  # fmt: skip
        assert any("/retry" in note for note in face.notes)

    def test_a_call_that_was_asked_for_is_cancelled(self, table, engine):
        """What was stored before is not said twice, and every provider takes what is left."""
        table.script(LIST, "Fine.")
        face = Typist("look", lambda chat: _check_valid(chat) or "go on")
        face.stop_at = "list_files"
        table.sit(face=face)
        assert [text for _, text in messages(engine, face.chat)] == ["look", "I list.", CANCELLED, "go on", "Fine."]

    def test_retry_asks_again(self, table, engine):
        table.script("Half", "Whole.")
        face = Typist("why?", "/retry", "/transcript")
        face.stop_at = "Half"
        table.sit(face=face)
        assert face.shown == ["[2] > why?\n[4] Whole."]
        assert len(messages(engine, face.chat)) == 3

    def test_a_pipe_is_left(self, table, engine):
        """There is nobody who could go on."""
        table.script("Half")
        face = Typist("why?", "then?", interactive=False)
        face.stop_at = "Half"
        with pytest.raises(KeyboardInterrupt):
            table.sit(face=face)
        assert engine.row(face.chat.conversation.conversation_id).status == "paused"
        assert [text for _, text in messages(engine, face.chat)] == ["why?", f"Half\n\n{STOPPED}"]

    def test_at_an_empty_prompt_it_says_how_to_leave(self, table):
        def press(_):
            raise KeyboardInterrupt

        assert "Ctrl-D or /quit leaves" in table.sit(press).notes[1]


class TestFailing:
    def test_an_error_is_a_sentence_with_a_hint(self, table):
        """It is in the transcript, the chat goes on, and the exit code of a pipe tells of it."""
        table.script({"status": 400, "error": "The key is odd."}, "Now it works.")
        face = Typist("hi", "again", "/transcript", interactive=False)
        table.sit(face=face)
        message, hint = face.errors[0]
        assert "The key is odd." in message
        assert hint
        assert face.said == ["Now it works."]
        assert face.shown == ["[2] > hi\n[2] The key is odd.\n[3] > again\n[4] Now it works."]
        assert face.code == 5

    def test_at_a_terminal_leaving_is_no_failure(self, table):
        table.script({"status": 500, "error": "Away."}, "Here.")
        face = table.sit("hi", "/retry")
        assert (face.code, len(face.errors), face.said) == (0, 1, ["Here."])

    def test_an_overflow_is_folded_harder(self, table):
        """And the person gets the answer."""
        (table.place / "log.txt").write_text("".join(f"line {number} of the log\n" for number in range(1500)))
        read = {"say": "I read.", "call": [{"name": "read", "arguments": {"path": "log.txt"}}]}
        overflow = {"status": 400, "error": "prompt is too long: maximum context length"}
        table.script(read, "It is long.", overflow, "It fits.")
        face = table.sit("read it", "and now?", "/usage")
        assert face.said[-1] == "It fits."
        assert face.errors == []
        assert "1 folded" in face.shown[0]

    def test_a_conversation_that_somebody_uses(self, table, engine):
        with book.start(engine, table.place, name="taken"):
            face = table.sit("/resume taken")
        assert "is held by process" in face.errors[0][0]

    def test_one_that_has_failed(self, table, engine):
        """It cannot go on, and the sitting does."""
        with book.start(engine, table.place, name="failed") as one:
            one.task.fail("for good")
        table.script("Hello.")
        face = table.sit("/resume failed", "hi")
        assert "cannot be resumed" in face.errors[0][0]
        assert face.said == ["Hello."]

    def test_it_runs_away(self, table):
        """One message may take so many calls as the settings say; the next one may as well."""
        settings = Settings(max_llm_process_num=2)
        table.engine = orihon.Engine(table.engine.store, settings)
        table.script(LIST, LIST, LIST, "End.")
        face = table.sit("loop", "go on")
        assert "limit of 2 calls" in face.errors[0][0]
        assert face.said[-1] == "End."


class TestTheNextSitting:
    def test_it_shows_where_it_stands(self, table):
        table.script("Hello.", "There.")
        table.sit("hi")
        face = table.sit("where?", resume="")
        assert face.notes[:3] == [
            f"Conversation shop goes on, with scripted:{table.place / 'script.json'}.", "[2] > hi", "[3] Hello."
        ]  # fmt: skip
        assert face.said == ["There."]

    def test_what_was_typed_when_it_died_is_sent(self, table, engine):
        """And what was sent and not answered can be asked for."""
        table.script("Hello.", "Late.")
        face = table.sit("hi")
        with book.resume(engine, face.chat.conversation.conversation_id) as conversation:
            conversation.set_next("typed")
        face = table.sit("/retry", resume="shop")
        assert face.notes[3] == "What you had typed last is sent now."
        assert face.notes[4] == "The last message has no answer yet: /retry asks for it."
        assert face.said == ["Late."]

    def test_tools_are_those_of_today(self, table, engine):
        """A conversation that was begun with other tools gets ours."""
        model = table.script("Hello.")
        with book.start(engine, table.place, name="old", model=model, llm_provider="scripted", tools=[]) as one:
            one.say("hi")
        face = table.sit("/retry", resume="old")
        names = [tool["function"]["name"] for tool in face.chat.conversation.task.config.tools]
        assert "read" in names
        assert face.said == ["Hello."]

    def test_with_another_model(self, table):
        table.script("Hello.")
        table.sit("hi")
        face = table.sit("who?", resume="shop", model=table.script("I am new.", name="other.json"))
        assert face.said == ["I am new."]

    def test_without_mcp_stays_without(self, table):
        """What was chosen at the start counts in every sitting."""
        broken = {"mcp_server_name": "gone", "command": ("/nonexistent",)}
        table.engine = orihon.Engine(
            table.engine.store, Settings(mcp_servers=(orihon.settings.schema.McpServer(**broken),))
        )  # fmt: skip
        table.script("Hello.")
        table.sit("hi", mcp=False)
        assert table.sit("/tools", resume="shop").shown[0].count(":") == 2


class TestPlain:
    def test_nothing_reaches_the_terminal_but_text(self, capsys):
        face = Plain(Words("en"))
        face.piece("red \x1b[31m bell \x07 全角\u3000空白")
        face.note("\x9b2J\u202e")
        out, err = capsys.readouterr()
        assert out == "red \\x1b[31m bell \\x07 全角\u3000空白\n"
        assert err == "\\x9b2J\\u202e\n"

    def test_the_log_is_shown_as_text(self):
        """What a provider says in a warning is foreign, too."""
        face = Typist()
        with warnings_shown(face):
            logging.getLogger("orihon").warning("Trying again %s", "soon")
        assert face.notes == ["Trying again soon"]


class TestWords:
    def test_both_languages_say_the_same_things(self):
        """The same texts, with the same values in them."""

        def fields(text):
            return {name for _, name, _, _ in string.Formatter().parse(text) if name}

        assert WORDS["en"].keys() == WORDS["ja"].keys()
        assert [name for name in WORDS["en"] if fields(WORDS["en"][name]) != fields(WORDS["ja"][name])] == []

    @pytest.mark.parametrize(
        ("environ", "language"),
        [({}, "en"), ({"LANG": "ja_JP.UTF-8"}, "ja"), ({"LC_ALL": "C", "LANG": "ja_JP.UTF-8"}, "en"),
         ({"LC_ALL": "", "LC_MESSAGES": "ja_JP.UTF-8", "LANG": "en_GB"}, "ja")],
    )  # fmt: skip
    def test_the_locale_chooses(self, environ, language):
        assert language_of(environ) == language


class TestTyped:
    def test_it_comes_back_without_secrets(self, tmp_path):
        """For its owner alone."""
        path = tmp_path / "a" / "typed.jsonl"
        for text in ("first", "two\nlines 日本", "my key is ghp_" + "a1B2" * 9):
            typed.remember(path, text)
        assert typed.load(path) == ["first", "two\nlines 日本", "my key is [GITHUB_TOKEN]"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    def test_what_is_broken_or_no_file_is_left_out(self, tmp_path):
        path = tmp_path / "typed.jsonl"
        path.write_bytes(b'"one"\n{"no": 1}\nrubbish \xff\n"two"\n"half')
        assert typed.load(path) == ["one", "two"]
        (tmp_path / "link").symlink_to(path)
        assert typed.load(tmp_path / "link") == []
        typed.remember(tmp_path / "link", "three")
        assert typed.load(path) == ["one", "two"]
        assert typed.load(tmp_path / "none") == []

    def test_it_does_not_grow_for_ever(self, tmp_path, monkeypatch):
        monkeypatch.setattr(typed, "MAX_BYTES", 2000)
        for number in range(500):
            typed.remember(tmp_path / "typed", f"line {number}")
        assert (tmp_path / "typed").stat().st_size < 3000
        assert typed.load(tmp_path / "typed")[-1] == "line 499"

    def test_each_directory_has_its_own(self, tmp_path):
        (tmp_path / "a").mkdir()
        places = {typed.place(tmp_path / name, {"XDG_STATE_HOME": "/x"}) for name in ("a", "b")}
        assert len(places) == 2
        assert all(str(place).startswith("/x/orihon/chat/") for place in places)


class TestCompletion:
    def test_paths(self, tmp_path):
        """Directories have a slash, hidden names have to be asked for, and odd ones are not offered."""
        for name in ("basket.py", "bas ket.py", ".bashrc", "evil\x1b[2J", "日本.txt"):
            (tmp_path / name).write_text("")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "tool").write_text("")
        assert paths("b", tmp_path) == ["bas ket.py", "basket.py", "bin/"]
        assert paths(".b", tmp_path) == [".bashrc"]
        assert paths("bin/", tmp_path) == ["bin/tool"]
        assert paths(f"{tmp_path}/日", tmp_path / "bin") == [f"{tmp_path}/日本.txt"]
        assert paths("evil", tmp_path) == []
        assert paths("nowhere/x", tmp_path) == []
        assert paths("a\0b/", tmp_path) == []

    def test_what_tab_offers(self, table):
        """Commands, their arguments, and the path at the end of a message."""
        (table.place / "basket.py").write_text("")
        (table.place / "out").mkdir()
        seen = {}
        typed_so_far = ["/com", "/tangent e", "/save bas", "/save out/", "/resume sh", "/model oll", "/help /us"]
        typed_so_far += ["see bask", "see ", "/nope x", "/context a", "/context add bas", "/context remove "]

        def look(chat):
            seen.update((text, offered(chat, text)) for text in typed_so_far)

        table.sit(look, "/tangent", look)
        assert seen == {
            "/com": [("/compact", 4)],
            "/tangent e": [(f"/tangent {end}", 10) for end in ("end", "end none", "end tail", "end summary")],
            "/save bas": [("/save basket.py", 9)],
            "/save out/": [],
            "/resume sh": [("/resume shop", 10)],
            "/model oll": [("/model ollama:qwen3-30b", 10)],
            "/help /us": [("/help /usage", 9)],
            "see bask": [("basket.py", 4)],
            "see ": [],
            "/nope x": [],
            "/context a": [("/context add ", 10)],
            "/context add bas": [("/context add basket.py", 16)],
            "/context remove ": [],
        }


class TestModelInfo:
    @pytest.mark.parametrize(
        ("listed", "length"),
        [
            ([{"id": "m", "max_model_len": 4096}], 4096),
            ([{"id": "a", "context_length": 1024}, {"id": "m", "context_length": 2048}], 2048),
            ([{"id": "file.gguf", "meta": {"n_ctx_train": 8192}}], 8192),
            ([{"id": "a", "max_model_len": 1}, {"id": "b", "max_model_len": 4096}], None),
            ([{"id": "m", "max_model_len": "4096", "meta": []}], None),
            ([{"id": "m", "max_model_len": 5}], None),
            ([], None),
            ("odd", None),
        ],
    )
    def test_what_servers_say(self, listed, length):
        assert modelinfo.length_in({"object": "list", "data": listed}, "m") == length

    def test_the_smaller_of_both_counts(self):
        for told, wanted in ((4096, 4096), (1_000_000, 128_000)):
            with serve([], models=[{"id": "m", "max_model_len": told}]) as server:
                settings = Settings(llm=Llm(openai=Provider(base_url=server.url)))
                assert modelinfo.context_length("openai:m", settings) == wanted

    def test_what_cannot_be_had_is_the_default_with_a_warning(self, caplog):
        """A server that does not know, one that talks nonsense, one that is not there."""
        with serve([]) as server:
            settings = Settings(llm=Llm(openai=Provider(base_url=server.url)))
            assert modelinfo.context_length("openai:m", settings) == 128_000
        assert modelinfo.context_length("openai:m", settings) == 128_000
        said = [record.message for record in caplog.records]
        assert all("128000 is assumed" in text for text in said)
        assert len(said) == 2
        assert "does not answer" in said[1]

    def test_nobody_is_asked_without_an_address(self, caplog):
        assert modelinfo.context_length("openai:m", Settings()) == 128_000
        assert modelinfo.context_length("anthropic:m", Settings()) == 200_000
        assert modelinfo.context_length("scripted:m", Settings()) is None
        assert not caplog.records


def _check_valid(chat):
    window = chat.conversation.task.window()
    assert violations("openai", window.openai()) == []
    assert violations("anthropic", window.anthropic()) == []
    assert json.dumps(window.openai())
