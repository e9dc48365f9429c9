"""Every slash command."""

import json
import re
import sys
from pathlib import Path

import pytest

import orihon
from orihon.chat import registry
from orihon.chat.i18n import Texts
from orihon.chat.terminal.commands import COMMANDS
from orihon.settings.schema import McpServer, Settings
from support.typist import Table, Typist, messages

LONG = "The total of the basket is wrong when it holds more than three apples of the same kind. " * 30


@pytest.fixture
def engine(tmp_path):
    with orihon.open(f"sqlite:///{tmp_path / 'contexts.db'}", settings=Settings()) as engine:
        yield engine


@pytest.fixture
def table(engine, tmp_path):
    (tmp_path / "desk").mkdir()
    return Table(engine, tmp_path / "desk")


def test_help_lists_every_command(table):
    """In the language of the terminal; only one if it is named."""
    face = table.sit("/help", "/help compact", "/help /undo")
    lines = face.shown[0].splitlines()
    assert [line.split()[0] for line in lines if line.startswith("/")] == [command.name for command in COMMANDS]
    (below,) = [number for number, line in enumerate(lines) if line.startswith("/checkpoint")]
    assert lines[below + 1].startswith(" " * 22 + "take, show")
    assert lines[0].startswith("/help [COMMAND]       list the commands")
    assert face.shown[1].startswith("/compact [FOCUS]  summarise")
    assert face.shown[2].startswith("/undo  revert")
    table.texts = Texts("ja")
    assert "古いメッセージを要約" in table.sit("/help", name="another").shown[0]


def test_the_table_is_complete(root):
    """Each command has help in both languages, a unique name, and is documented."""
    page = (root / "docs" / "chat.md").read_text("utf-8")
    assert [command.name for command in COMMANDS if f"`{command.name}" not in page] == []
    for language in ("en", "ja"):
        assert [command.name for command in COMMANDS if f"help {command.name}" not in Texts(language).texts] == []
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)


def test_unknown_commands(table):
    """The name is shown as text."""
    face = table.sit("/nope\x1b[2J now", "/")
    assert [message for message, _ in face.errors] == [
        "There is no command /nope\\x1b[2J.",
        "There is no command /.",
    ]
    assert "type a space first" in face.errors[0][1]


class TestCompact:
    def test_it_shows_the_summary_and_the_savings(self, table):
        """/undo reverts it, and the window is the same as before."""
        table.script(*[f"Answer {number}. {LONG}" for number in range(6)])
        windows = []

        def look(chat):
            windows.append(chat.conversation.task.window().openai())

        face = table.sit(*[f"Question {number}" for number in range(6)], look, "/compact", look, "/undo", look)
        saved = next(re.search(r"(\d+) messages were summarised: ([\d,]+) tokens became ([\d,]+)", note) for note in
                     face.notes if "summarised" in note)  # fmt: skip
        before, after = (int(count.replace(",", "")) for count in saved.groups()[1:])
        assert before > after > 0
        assert face.shown[0]
        assert len(str(windows[1])) < len(str(windows[0]))
        assert windows[2] == windows[0]
        assert "Undone: summary." in face.notes

    def test_a_focus_is_for_the_model(self, table):
        """Only a model can take it into account."""
        summary = "- [m3] the apples cost three\n" * 3
        table.script(*[f"Answer {number}. {LONG}" for number in range(6)], summary)
        face = table.sit(*[f"Question {number}" for number in range(6)], "/compact the price of apples")
        assert "the apples cost three" in face.shown[0]

    def test_without_a_focus_the_model_is_asked_as_well(self, table, engine):
        """The record names it, and the note says what was kept and what was saved."""
        summary = "- [m3] the apples cost three\n" * 3
        table.script(*[f"Answer {number}. {LONG}" for number in range(6)], summary)
        face = table.sit(*[f"Question {number}" for number in range(6)], "/compact")
        assert face.shown[0].startswith("- [m3] the apples cost three")
        note = next(note for note in face.notes if "summarised" in note)
        assert re.search(r"[1-9][\d,]* are saved\. The newest 5 stay as they are\.", note)
        (row,) = engine.tasks()
        (stored,) = engine.read(row.uuid).summaries()
        assert stored.summary == face.shown[0]
        assert stored.model.startswith("scripted:")

    def test_an_empty_summary_is_never_stored(self, table, engine):
        """A model that says nothing is asked three times; then the ledger stands alone, and the reasons are told."""
        table.script(*[f"Answer {number}. {LONG}" for number in range(6)], "", " ", "OK")
        face = table.sit(*[f"Question {number}" for number in range(6)], "/compact")
        assert "Question 0" in face.shown[0]
        assert sum("The model's summary was not used" in note for note in face.notes) == 3
        (row,) = engine.tasks()
        (stored,) = engine.read(row.uuid).summaries()
        assert (stored.summary, stored.model) == (face.shown[0], None)
        assert stored.summary_tokens > 0

    def test_too_short(self, table):
        table.script("Hello.")
        assert "too short" in table.sit("hi", "/compact").shown[0]


class TestTangent:
    @pytest.mark.parametrize(
        ("end", "kept", "left"),
        [("/tangent end", "nothing", 2), ("/tangent end none", "nothing", 2), ("/tangent end tail", "the last exchange",
         4), ("/tangent end summary", "a summary", 3)],
    )  # fmt: skip
    def test_leaving(self, table, end, kept, left):
        """With nothing, the last exchange, or a summary; the duration is shown, and the meter shows the tangent."""
        table.script("Main.", "Aside.", "Back.")
        seen = []

        def look(chat):
            seen.append([message.text for message in chat.conversation.messages() if message.role != "system"])

        face = table.sit("first", "/tangent", "side?", end, look, "last")
        assert re.search(rf"Back in the main conversation after \d+s; kept: {kept}\.", "\n".join(face.notes))
        assert len(seen[0]) == left
        assert face.meters[2].startswith("[tangent · ")
        assert not face.meters[-1].startswith("[tangent")
        assert face.said[-1] == "Back."

    def test_with_a_question(self, table, engine):
        table.script("Main.", "Aside.")
        face = table.sit("first", "/tangent from where does it come?", "/tangent end")
        assert messages(engine, face.chat)[2][1] == "from where does it come?"

    def test_started_in_the_past(self, table):
        table.script("Main.", "Aside.")
        face = table.sit("first", "side?", "/tangent from 3", "/tangent end", "/transcript")
        assert face.shown == ["[2] > first\n[3] Main."]

    def test_nested(self, table):
        table.script("In.", "Deeper.")
        face = table.sit("/tangent one?", "/tangent two?", "/tangent end tail", "/tangent end")
        assert face.meters[2].startswith("[tangent 2 · ")
        assert any("Back in the outer tangent" in note for note in face.notes)
        assert any("Back in the main conversation" in note for note in face.notes)

    def test_errors(self, table):
        face = table.sit("/tangent end", "/tangent from x", "/tangent from 99")
        assert [message for message, _ in face.errors] == [
            "No tangent is open.",
            "'x' is not a message number.",
            "A tangent cannot have begun after message 99.",
        ]


class TestGoingBack:
    def test_rewind_and_undo(self, table):
        table.script("One.", "Two.", "Three.")
        face = table.sit("a", "b", "/rewind 3", "/transcript", "/undo", "/transcript", "c")
        assert face.shown == ["[2] > a\n[3] One.", "[2] > a\n[3] One.\n[4] > b\n[5] Two."]
        assert "Undone: rewind." in face.notes

    def test_the_last_exchange(self, table):
        table.script("One.", "Two.")
        face = table.sit("/rewind", "a", "b", "/rewind", "/transcript", "/rewind", "/transcript")
        assert face.errors[0][0] == "The conversation is empty."
        assert face.shown == ["[2] > a\n[3] One.", "The conversation is empty."]

    def test_to_a_question_that_is_asked_again(self, table):
        table.script("One.", "Other.")
        face = table.sit("a", "/rewind 2", "/retry", "/transcript")
        assert face.shown == ["[2] > a\n[4] Other."]

    @pytest.mark.parametrize("wrong", ["99", "x", "-1", "0", "²", "1 2", "9" * 5000])
    def test_wrong_numbers(self, table, wrong):
        table.script("One.")
        face = table.sit("a", f"/rewind {wrong}", f"/transcript {wrong}")
        assert len(face.errors) == (1 if wrong == "99" else 2)

    def test_clear(self, table):
        table.script("One.", "Two.")
        face = table.sit("a", "/clear", "/transcript", "/undo", "/transcript", "b")
        assert face.shown == ["The conversation is empty.", "[2] > a\n[3] One."]

    def test_nothing_to_undo_or_to_retry(self, table):
        table.script("One.")
        face = table.sit("/undo", "/retry", "a", "/retry")
        assert [message for message, _ in face.errors] == [
            "There is nothing to undo.",
            *["No message is waiting for a reply."] * 2,
        ]


class TestUsage:
    def test_tokens_by_source_cache_and_cost(self, table):
        """Replies in a discarded tangent count too."""
        usage = {"prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 400}}
        table.script({"say": "One.", "usage": usage}, {"say": "Two.", "usage": usage})
        face = table.sit("a", "/tangent b", "/tangent end", "/usage", prices=(3.0, 15.0))
        lines = face.shown[0].splitlines()
        assert re.fullmatch(r"Window: [\d,]+ of 128,000 tokens \(\d %\)", lines[0])
        sources = {line.split(maxsplit=1)[1]: int(line.split()[0].replace(",", "")) for line in lines if line[0] == " "}
        assert {"system", "user", "assistant", "tools", "reserved for the reply", "free"} == set(sources)
        assert sum(sources.values()) == pytest.approx(128_000, abs=10)
        assert "Requests: 2 · 2,000 tokens in, 100 out" in lines
        assert "From the provider's cache: 800 (40 %)" in lines
        assert "Cost: 0.0075, at 3 per million tokens in and 15 out" in lines

    def test_no_cost_without_prices(self, table):
        table.script("One.")
        assert "Cost" not in table.sit("a", "/usage").shown[0]

    def test_folds_are_counted(self, table):
        (table.place / "log.txt").write_text("".join(f"line {number}\n" for number in range(1500)))
        read = {"say": "I read.", "call": [{"name": "read", "arguments": {"path": "log.txt"}}]}
        table.script(read, "Long.", read, "Longer.", read, "Longest.")
        face = table.sit("a", "b", "c", context_length=12_000)
        assert re.fullmatch(r"\[\d+% of 12k · \d+ folded\]", face.meters[-1])


class TestContext:
    def test_added_shown_and_removed(self, table):
        """In declared order, with sizes, and the reason if a file does not fit."""
        (table.place / "a note.md").write_text("Apples cost three.\n" * 20)
        (table.place / "picture.bin").write_bytes(b"\x00\x01" * 50)
        face = table.sit("/context", "/context add a note.md", "/context add picture.bin", "/context show",
                         "/context remove a note.md")  # fmt: skip
        assert face.errors == []
        assert face.shown[0].startswith("Sticky files: 0 of ")
        assert re.search(r"\n +\d+ +\d\.\d %  a note\.md$", face.shown[1])
        assert re.search(r"— +picture\.bin: .*binary", face.shown[3])
        assert "In every window from now on: a note.md" in face.notes
        assert "No longer in every window: a note.md" in face.notes

    def test_the_model_sees_the_current_content(self, table):
        """Changes since the last question are included; a resume keeps the files."""
        (table.place / "price.md").write_text("Apples cost three.\n")
        table.script("Three.", "Four.", "Five.")
        seen = []

        def look(chat):
            seen.append(json.dumps(chat.conversation.task.window().openai()))

        def change(_):
            (table.place / "price.md").write_text("Apples cost four.\n")

        table.sit("/context add price.md", "how much?", look, change, "and now?", look)
        assert "Apples cost three." in seen[0]
        assert "Apples cost four." in seen[1]
        (table.place / "price.md").write_text("Apples cost five.\n")
        table.sit("today?", look, resume="shop")
        assert "Apples cost five." in seen[2]

    def test_files_of_the_settings(self, table):
        """An invalid entry is reported and does not affect the others."""
        (table.place / "a.md").write_text("A.\n")
        sticky = orihon.settings.schema.Sticky(files=("../up.md", "a.md", "later.md"))
        table.engine = orihon.Engine(table.engine.store, Settings(sticky=sticky))
        face = table.sit("/context show")
        assert any("contains `..`" in note for note in face.notes)
        assert "a.md" in face.shown[0]
        assert "later.md" in face.shown[0]

    def test_errors(self, table):
        face = table.sit("/context drop x", "/context add", "/context add nothing.md", "/context remove nothing.md")
        assert len(face.errors) == 4
        assert "/context add PATH" in face.errors[0][1]
        assert "matches no file" in face.errors[2][0]
        assert table.sit("/context add --force nothing.md", name="b").errors == []


class TestModel:
    def test_showing_and_changing(self, table):
        """Leaving a tangent restores the model."""
        table.script("Old.", "Old again.")
        other = table.script("New.", name="other.json")
        face = table.sit("/model", "a", "/tangent", f"/model {other}", "b", "/tangent end", "c", "/model")
        assert face.said == ["Old.", "New.", "Old again."]
        assert [other in line for line in face.shown] == [False, True, False]
        assert face.shown[0].endswith("with a window of 128,000 tokens.")

    def test_models_that_cannot_be_opened(self, table):
        table.script("Old.")
        face = table.sit("/model scripted:nothing.json", "/model anthropic:", "a")
        assert "cannot be read" in face.errors[0][0]
        assert "No model is named for anthropic" in face.errors[1][0]
        assert face.said == ["Old."]


@pytest.mark.slow
def test_tools_by_origin(table):
    """Built-in tools, those of each server, and those of the engine."""
    server = Path(__file__).parents[2] / "support" / "mcp_server.py"
    section = McpServer(mcp_server_name="demo", command=(sys.executable, str(server)))
    table.engine = orihon.Engine(table.engine.store, Settings(mcp_servers=(section,)))
    lines = table.sit("/tools").shown[0].splitlines()
    assert lines[0] == "Built in: read, write, edit, search, list_files, shell"
    assert lines[1].startswith("MCP server demo: demo_")
    assert lines[2] == "Answered by Orihon: recall, unfold"


class TestConversations:
    def test_list_name_and_resume(self, table, engine):
        table.script("One.")
        table.sit("a", name="first")
        table.script("Two.")
        face = table.sit("/list", "/name", "b", "/resume first", "/name", "/transcript", "/resume first", name="第二")
        lines = face.shown[0].splitlines()
        assert sorted(line.split()[:2] for line in lines) == [["*", "第二"], ["-", "first"]]
        assert face.shown[1].startswith("This is 第二 (")
        assert face.shown[2].startswith("This is first (")
        assert face.shown[3] == "[2] > a\n[3] One."
        assert face.errors[0][0] == "That conversation is open already."
        assert {one.row.status for one in registry.list_conversations(engine)} == {"paused"}

    def test_not_found(self, table):
        face = table.sit("/resume nothing", "/name")
        assert "There is no conversation" in face.errors[0][0]
        assert face.shown[0].startswith("This is shop (")

    def test_save_and_load(self, table, engine):
        """/load starts a new conversation; the other one stays as it was."""
        table.script("One.", "Two.")
        face = table.sit("a", "/save my talk.json", "/load my talk.json", "b", "/transcript")
        assert json.loads((table.place / "my talk.json").read_text())["format"] == "orihon-conversation"
        assert face.said == ["One.", "Two."]
        assert [re.sub(r"\[\d+\] ", "", line) for line in face.shown[0].splitlines()] == ["> a", "One.", "> b", "Two."]
        roles = [message.role for message in face.chat.conversation.messages()]
        assert roles[0] == "system"
        assert len(registry.list_conversations(engine)) == 2

    def test_save_and_load_errors(self, table):
        (table.place / "odd.json").write_text("{")
        table.script("One.")
        face = table.sit("a", "/save", "/save nowhere/x.json", "/load nothing.json", "/load odd.json", "/name")
        assert len(face.errors) == 4
        assert face.shown[0].startswith("This is shop (")

    def test_quit(self, table):
        assert table.sit("/quit", "not sent").code == 0
        face = Typist("/quit", "not sent")
        table.sit(face=face, name="b")
        assert face.lines == ["not sent"]
