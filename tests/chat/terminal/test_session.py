"""A chat session: messages, replies, cancellation, errors, resuming, input history and completion."""

import json
import logging
import stat
import string

import pytest

import orihon
from orihon.chat import registry
from orihon.chat.conversation import CANCELLED, STOPPED
from orihon.chat.i18n import Texts
from orihon.chat.terminal import session, ui_terminal
from orihon.chat.terminal.commands import complete, complete_path
from orihon.chat.terminal.session import show_warnings
from orihon.chat.terminal.ui import PipeUI
from orihon.chat.terminal.ui_terminal import InputHistory, find_history
from orihon.settings.schema import Llm, Provider, Settings
from orihon.terminal import detect_language
from orihon.testing import serve
from support.typist import Table, Typist, messages
from support.wire_rules import violations

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


class TestMessages:
    def test_a_message_is_sent_and_answered(self, table, engine):
        """An empty line sends nothing, and a space before a slash makes it a message."""
        table.script("Hello.", "A path.")
        face = table.sit("hi", "", "  ", " /etc/passwd is odd")
        assert face.said == ["Hello.", "A path."]
        assert messages(engine, face.chat)[:2] == [("user", "hi"), ("assistant", "Hello.")]
        assert messages(engine, face.chat)[2][1] == " /etc/passwd is odd"
        assert engine.row(face.chat.conversation.conversation_id).status == "paused"
        assert face.code == 0

    def test_the_meter_is_shown_before_each_prompt(self, table):
        table.script("Hello.")
        assert table.sit("hi").meters == ["[1% of 128k]"] * 2

    def test_a_tool_call_is_approved(self, table):
        table.script(SHELL, "Done.")
        face = table.sit("do it")
        assert (table.place / "made.txt").read_text() == "made\n"
        assert "echo made > made.txt" in face.asked[0]
        assert face.notes[1].startswith('  shell {"command"')

    def test_a_tool_call_is_refused(self, table, engine):
        table.script(SHELL, "As you like.")
        face = table.sit(face=Typist("do it", allows=False))
        assert not (table.place / "made.txt").exists()
        assert "The user did not allow" in messages(engine, face.chat)[2][1]
        assert face.said[-1] == "As you like."

    def test_a_pipe_cannot_approve(self, table, engine):
        """A tool call that needs approval is refused."""
        table.script(SHELL, "As you like.")
        face = table.sit(face=Typist("do it", interactive=False))
        assert "There is no one to allow" in messages(engine, face.chat)[2][1]

    def test_an_unused_conversation_without_a_name_is_deleted(self, table, engine):
        table.sit("/help", name="")
        assert registry.list_conversations(engine) == []
        table.sit("/help")
        assert [one.name for one in registry.list_conversations(engine)] == ["shop"]


class TestCancelling:
    def test_the_received_part_stays(self, table, engine):
        """The conversation goes on."""
        table.script("It is the total that", "Better.")
        face = Typist("why?", "then?")
        face.stop_at = "total"
        table.sit(face=face)
        assert [text for _, text in messages(engine, face.chat)] == [
            "why?", f"It is the total that\n\n{STOPPED}", "then?", "Better."
        ]  # fmt: skip
        assert any("/retry" in note for note in face.notes)

    def test_a_tool_call_is_cancelled(self, table, engine):
        """A stored reply is not stored twice, and the history is valid for every provider."""
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

    def test_a_pipe_ends(self, table, engine):
        """Ctrl-C ends the session."""
        table.script("Half")
        face = Typist("why?", "then?", interactive=False)
        face.stop_at = "Half"
        with pytest.raises(KeyboardInterrupt):
            table.sit(face=face)
        assert engine.row(face.chat.conversation.conversation_id).status == "paused"
        assert [text for _, text in messages(engine, face.chat)] == ["why?", f"Half\n\n{STOPPED}"]

    def test_at_an_empty_prompt_it_shows_how_to_leave(self, table):
        def press(_):
            raise KeyboardInterrupt

        assert "Press Ctrl-D or type /quit to leave" in table.sit(press).notes[1]


class TestErrors:
    def test_an_error_has_a_hint(self, table):
        """It is in the transcript, the session goes on, and a pipe exits with its code."""
        table.script({"status": 400, "error": "The key is odd."}, "Now it works.")
        face = Typist("hi", "again", "/transcript", interactive=False)
        table.sit(face=face)
        message, hint = face.errors[0]
        assert "The key is odd." in message
        assert hint
        assert face.said == ["Now it works."]
        assert face.shown == ["[2] > hi\n[2] The key is odd.\n[3] > again\n[4] Now it works."]
        assert face.code == 5

    def test_at_a_terminal_the_exit_code_is_0(self, table):
        table.script({"status": 500, "error": "Away."}, "Here.")
        face = table.sit("hi", "/retry")
        assert (face.code, len(face.errors), face.said) == (0, 1, ["Here."])

    def test_an_overflow_is_folded_harder(self, table):
        """The user gets the reply."""
        (table.place / "log.txt").write_text("".join(f"line {number} of the log\n" for number in range(1500)))
        read = {"say": "I read.", "call": [{"name": "read", "arguments": {"path": "log.txt"}}]}
        overflow = {"status": 400, "error": "prompt is too long: maximum context length"}
        table.script(read, "It is long.", overflow, "It fits.")
        face = table.sit("read it", "and now?", "/usage")
        assert face.said[-1] == "It fits."
        assert face.errors == []
        assert "1 folded" in face.shown[0]

    def test_a_conversation_that_is_in_use(self, table, engine):
        with registry.start(engine, table.place, name="taken"):
            face = table.sit("/resume taken")
        assert "is held by process" in face.errors[0][0]

    def test_a_failed_conversation(self, table, engine):
        """It cannot be resumed, and the session goes on."""
        with registry.start(engine, table.place, name="failed") as one:
            one.task.fail("for good")
        table.script("Hello.")
        face = table.sit("/resume failed", "hi")
        assert "cannot be resumed" in face.errors[0][0]
        assert face.said == ["Hello."]

    def test_a_reply_that_never_ends(self, table):
        """The settings limit the calls for one message; the next message has the same limit."""
        settings = Settings(max_llm_process_num=2)
        table.engine = orihon.Engine(table.engine.store, settings)
        table.script(LIST, LIST, LIST, "End.")
        face = table.sit("loop", "go on")
        assert "limit of 2 calls" in face.errors[0][0]
        assert face.said[-1] == "End."


class TestResuming:
    def test_the_last_entries_are_shown(self, table):
        table.script("Hello.", "There.")
        table.sit("hi")
        face = table.sit("where?", resume="")
        assert face.notes[:3] == [
            f"Resuming conversation shop with scripted:{table.place / 'script.json'}.", "[2] > hi", "[3] Hello."
        ]  # fmt: skip
        assert face.said == ["There."]

    def test_an_unsent_message_is_sent(self, table, engine):
        """A message without a reply can be retried."""
        table.script("Hello.", "Late.")
        face = table.sit("hi")
        with registry.resume(engine, face.chat.conversation.conversation_id) as conversation:
            conversation.set_next("typed")
        face = table.sit("/retry", resume="shop")
        assert face.notes[3] == "Your last message was not sent yet. It is sent now."
        assert face.notes[4] == "The last message has no reply yet. /retry asks for one."
        assert face.said == ["Late."]

    def test_the_current_tools_are_used(self, table, engine):
        """Even if the conversation was started with others."""
        model = table.script("Hello.")
        with registry.start(engine, table.place, name="old", model=model, llm_provider="scripted", tools=[]) as one:
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

    def test_mcp_stays_disabled(self, table):
        """The choice at the start applies to every session."""
        broken = {"mcp_server_name": "gone", "command": ("/nonexistent",)}
        table.engine = orihon.Engine(
            table.engine.store, Settings(mcp_servers=(orihon.settings.schema.McpServer(**broken),))
        )  # fmt: skip
        table.script("Hello.")
        table.sit("hi", mcp=False)
        assert table.sit("/tools", resume="shop").shown[0].count(":") == 2


class TestPipeUI:
    def test_control_characters_are_escaped(self, capsys):
        face = PipeUI(Texts("en"))
        face.write_piece("red \x1b[31m bell \x07 全角\u3000空白")
        face.note("\x9b2J\u202e")
        out, err = capsys.readouterr()
        assert out == "red \\x1b[31m bell \\x07 全角\u3000空白\n"
        assert err == "\\x9b2J\\u202e\n"

    def test_warnings_of_the_log_are_shown(self):
        face = Typist()
        with show_warnings(face):
            logging.getLogger("orihon").warning("Trying again %s", "soon")
        assert face.notes == ["Trying again soon"]


class TestTexts:
    def test_both_languages_have_the_same_texts(self):
        """With the same values in them."""

        def fields(text):
            return {name for _, name, _, _ in string.Formatter().parse(text) if name}

        english, japanese = Texts("en").texts, Texts("ja").texts
        assert english.keys() == japanese.keys()
        assert [name for name in english if fields(english[name]) != fields(japanese[name])] == []

    @pytest.mark.parametrize(
        ("environ", "language"),
        [({}, "en"), ({"LANG": "ja_JP.UTF-8"}, "ja"), ({"LC_ALL": "C", "LANG": "ja_JP.UTF-8"}, "en"),
         ({"LC_ALL": "", "LC_MESSAGES": "ja_JP.UTF-8", "LANG": "en_GB"}, "ja")],
    )  # fmt: skip
    def test_the_locale_selects_the_language(self, environ, language):
        assert detect_language(environ) == language


class TestInputHistory:
    def test_secrets_are_masked(self, tmp_path):
        """The file is readable by its owner only."""
        path = tmp_path / "a" / "typed.jsonl"
        for text in ("first", "two\nlines 日本", "my key is ghp_" + "a1B2" * 9):
            InputHistory(path).store_string(text)
        assert load(path) == ["first", "two\nlines 日本", "my key is [GITHUB_TOKEN]"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    def test_invalid_lines_and_links_are_ignored(self, tmp_path):
        path = tmp_path / "typed.jsonl"
        path.write_bytes(b'"one"\n{"no": 1}\nrubbish \xff\n"two"\n"half')
        assert load(path) == ["one", "two"]
        (tmp_path / "link").symlink_to(path)
        assert load(tmp_path / "link") == []
        InputHistory(tmp_path / "link").store_string("three")
        assert load(path) == ["one", "two"]
        assert load(tmp_path / "none") == []

    def test_its_size_is_limited(self, tmp_path, monkeypatch):
        monkeypatch.setattr(ui_terminal, "MAX_BYTES", 2000)
        for number in range(500):
            InputHistory(tmp_path / "typed").store_string(f"line {number}")
        assert (tmp_path / "typed").stat().st_size < 3000
        assert load(tmp_path / "typed")[-1] == "line 499"

    def test_each_directory_has_its_own(self, tmp_path):
        (tmp_path / "a").mkdir()
        places = {find_history(tmp_path / name, {"XDG_STATE_HOME": "/x"}) for name in ("a", "b")}
        assert len(places) == 2
        assert all(str(place).startswith("/x/orihon/chat/") for place in places)


class TestCompletion:
    def test_paths(self, tmp_path):
        """Directories end with a slash, hidden names need a dot, and unprintable ones are left out."""
        for name in ("basket.py", "bas ket.py", ".bashrc", "evil\x1b[2J", "日本.txt"):
            (tmp_path / name).write_text("")
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "tool").write_text("")
        assert complete_path("b", tmp_path) == ["bas ket.py", "basket.py", "bin/"]
        assert complete_path(".b", tmp_path) == [".bashrc"]
        assert complete_path("bin/", tmp_path) == ["bin/tool"]
        assert complete_path(f"{tmp_path}/日", tmp_path / "bin") == [f"{tmp_path}/日本.txt"]
        assert complete_path("evil", tmp_path) == []
        assert complete_path("nowhere/x", tmp_path) == []
        assert complete_path("a\0b/", tmp_path) == []

    def test_commands_arguments_and_paths(self, table):
        """And the path at the end of a message."""
        (table.place / "basket.py").write_text("")
        (table.place / "out").mkdir()
        seen = {}
        typed_so_far = ["/com", "/tangent e", "/save bas", "/save out/", "/resume sh", "/model oll", "/help /us"]
        typed_so_far += ["see bask", "see ", "/nope x", "/context a", "/context add bas", "/context remove "]

        def look(chat):
            seen.update((text, complete(chat, text)) for text in typed_so_far)

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
    def test_lists_of_servers(self, listed, length):
        assert session.parse_length({"object": "list", "data": listed}, "m") == length

    def test_the_smaller_value_applies(self):
        for told, wanted in ((4096, 4096), (1_000_000, 128_000)):
            with serve([], models=[{"id": "m", "max_model_len": told}]) as server:
                settings = Settings(llm=Llm(openai=Provider(base_url=server.url)))
                assert session.find_context_length("openai:m", settings) == wanted

    def test_without_an_answer_the_setting_applies(self, caplog):
        """With a warning: a server that does not report it, and one that does not answer."""
        with serve([]) as server:
            settings = Settings(llm=Llm(openai=Provider(base_url=server.url)))
            assert session.find_context_length("openai:m", settings) == 128_000
        assert session.find_context_length("openai:m", settings) == 128_000
        said = [record.message for record in caplog.records]
        assert all("128000 is assumed" in text for text in said)
        assert len(said) == 2
        assert "The server does not answer (ConnectError)); 128000" in said[1]

    def test_no_request_without_an_address(self, caplog):
        assert session.find_context_length("openai:m", Settings()) == 128_000
        assert session.find_context_length("anthropic:m", Settings()) == 200_000
        assert session.find_context_length("scripted:m", Settings()) is None
        assert not caplog.records


def load(path):
    return list(InputHistory(path).load_history_strings())[::-1]


def _check_valid(chat):
    window = chat.conversation.task.window()
    assert violations("openai", window.openai()) == []
    assert violations("anthropic", window.anthropic()) == []
    assert json.dumps(window.openai())
