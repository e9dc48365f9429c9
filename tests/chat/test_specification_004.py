"""Every row of every table of specification 004, by its name."""

import json
import subprocess
from collections.abc import Callable

import pytest

import orihon
from orihon.agent.tools.toolbox import Toolbox
from orihon.chat import conversation, document, registry
from orihon.chat.conversation import HistoryEntry
from orihon.chat.files import ConversationFiles, group_by_origin
from orihon.context.sticky import BEGIN, END
from orihon.settings.schema import McpServer, Settings
from support.replies import TOOLS, calling, saying

ROWS = {
    "1.2": ["永続化", "履歴管理", "タンジェントモード", "コンテキスト統合", "チェックポイント連携"],
    "1.3": ["作成", "更新", "永続化", "復元"],
    "2.1": [
        *("conversation_id", "next_message", "history", "valid_history_range", "transcript", "tools"),
        *("context_manager", "tool_manager", "context_message_length", "latest_summary", "agents", "model"),
        *("model_info", "file_line_tracker", "checkpoint_manager", "mcp_enabled", "tangent_state"),
    ],
    "2.2": ["user", "assistant", "request_metadata"],
    "2.3": ["main_history", "main_next_message", "main_transcript", "main_latest_summary", "tangent_start_time"],
    "3.1": ["MAX_CONVERSATION_STATE_HISTORY_LEN"],
    "3.2": ["CONTEXT_ENTRY_START_HEADER", "CONTEXT_ENTRY_END_HEADER"],
    "4.1": ["conversation_id", "agents", "tool_config", "tool_manager", "current_model_id", "os", "mcp_enabled"],
    "5.2": ["start", "end"],
    "6.2": ["開始", "確認", "期間取得", "終了", "終了（保持）"],
    "6.3": ["main_history", "main_next_message", "main_transcript", "main_latest_summary", "tangent_start_time"],
    "6.4": ["完全復元", "末尾保持復元"],
    "8.1": ["Builtin", "Custom", "Mcp"],
    "9.1": ["model", "model_info"],
    "12.1": ["要約テキスト", "メタデータ"],
    "13.1": ["conversation_id", "history", "tools", "tool_manager", "agents", "checkpoint_manager"],
    "13.2": ["model", "skip_serializing_if"],
}
CHECKS: dict[Callable[..., None], list[tuple[str, str]]] = {}  # the rows of each check
CUSTOM = {"type": "function", "function": {"name": "my_tool", "parameters": {"type": "object"}}}


def row(section, *names):
    """Register a function as the check of rows."""

    def register(check):
        CHECKS.setdefault(check, []).extend((section, name) for name in names)
        return check

    return register


class Desk:
    """A conversation with tools and a sticky file, in a git repository if checkpoints are needed."""

    def __init__(self, place, *, with_git):
        self.place = place / "work"
        self.place.mkdir()
        if with_git:
            subprocess.run(["git", "init", "-q", str(self.place)], check=True)
        (self.place / "rules.md").write_text("Be kind.\n")
        self.url = place / "store"
        self.engine = orihon.open(self.url, settings=Settings())
        self.box = Toolbox(self.place, approve="all")
        self.talk = self.started("main")
        self.files = self.begun(self.talk)
        self.files.sticky.add("rules.md")

    def started(self, name, **options):
        tools = [*self.box.schemas, *TOOLS, CUSTOM]
        return registry.start(self.engine, self.place, name=name, **({"model": "gpt-4o", "tools": tools} | options))

    def begun(self, talk):
        files = ConversationFiles(talk, self.box, self.engine.settings)
        files.begin()
        return files

    def turn(self, prompt="Mend it.", *, usage=None):
        self.talk.say(prompt)
        self.files.before_reply(self.talk.task)
        self.talk.task.add_reply(calling(("read", {"path": "rules.md"})))
        for call in self.talk.task.pending_calls():
            with self.talk.task.tool(call) as run:
                run.result = self.box.run(call)
        self.talk.task.add_reply(saying(f"Answer to {prompt}", usage=usage))
        self.files.end_turn(prompt)

    def compact(self):
        for number in range(8):
            self.talk.say(f"{number} " + "some more words " * 60)
            self.talk.task.add_reply(saying("An answer. " * 40))
        assert self.talk.task.compact() is not None

    def saved(self):
        path = self.place.parent / "saved.json"
        document.write(self.talk, path, self.files.export())
        return json.loads(path.read_text("utf-8"))

    def loaded(self, found, **options):
        path = self.place.parent / "changed.json"
        path.write_text(json.dumps(found), "utf-8")
        return document.read(self.engine, path, self.place, name="again", **options)

    def close(self):
        self.talk.close()
        self.box.close()
        self.engine.close()


@row("1.2", "永続化")
@row("1.3", "復元")
def a_conversation_is_stored_as_json(desk):
    desk.turn()
    with desk.loaded(desk.saved()) as again:
        assert again.transcript == desk.talk.transcript


@row("1.2", "履歴管理")
def the_history_is_read_from_the_log(desk):
    desk.turn()
    assert sum(isinstance(entry, HistoryEntry) for entry in desk.talk.entries()) == 2


@row("1.2", "タンジェントモード")
@row("6.4", "完全復元")
@row("6.2", "終了")
def a_tangent_leaves_the_main_conversation_as_it_was(desk):
    desk.turn()
    before = desk.talk.task.window().openai()
    desk.talk.enter_tangent()
    desk.turn("An aside.")
    desk.talk.leave_tangent("none")
    assert desk.talk.task.window().openai() == before


@row("1.2", "コンテキスト統合")
@row("2.1", "context_manager")
def sticky_files_are_in_every_window(desk):
    desk.turn()
    assert "Be kind." in str(desk.talk.task.window().openai())
    found = desk.saved()["context_manager"]
    assert found["paths"] == ["rules.md"]
    assert found["max_context_files_size"] > 0
    with desk.loaded(desk.saved()) as again:
        assert again.task.sticky_files.declared == ("rules.md",)


@row("1.2", "チェックポイント連携")
@row("2.1", "checkpoint_manager")
@row("13.1", "checkpoint_manager")
def file_changes_can_be_reverted(desk):
    desk.turn()
    (desk.place / "rules.md").write_text("Be rude.\n")
    assert [one["tag"] for one in desk.saved()["checkpoint_manager"]["checkpoints"]] == ["0", "1"]
    desk.files.checkpoints.restore("1")
    assert (desk.place / "rules.md").read_text() == "Be kind.\n"


@row("1.3", "作成")
def a_conversation_starts_with_the_session(desk):
    with desk.started("another") as new:
        assert (new.task.row.status, list(new.entries())) == ("running", [])


@row("1.3", "更新")
def messages_and_replies_are_stored_at_once(desk):
    desk.turn()
    said = [message.text for message in desk.engine.read(desk.talk.conversation_id).messages()]
    assert "Mend it." in said
    assert "Answer to Mend it." in said


@row("1.3", "永続化")
def it_is_saved_after_every_message(desk):
    """Not only at the end of the session: another engine reads everything while it is open."""
    desk.turn()
    with orihon.open(desk.url, settings=Settings()) as other:
        assert "Answer to Mend it." in [m.text for m in other.read(desk.talk.conversation_id).messages()]
    desk.talk.close()
    assert desk.engine.row(desk.talk.conversation_id).status == "paused"


@row("2.1", "conversation_id")
@row("4.1", "conversation_id")
@row("13.1", "conversation_id")
def a_conversation_has_an_id(desk):
    given = "12345678-1234-4234-8234-123456789012"
    with desk.started("mine", uuid=given) as mine:
        assert mine.conversation_id == given
    assert desk.saved()["conversation_id"] == desk.talk.conversation_id


@row("2.1", "next_message")
def the_next_message(desk):
    desk.talk.set_next("And then?")
    assert desk.saved()["next_message"] == {"content": {"Prompt": {"prompt": "And then?"}}}
    desk.talk.drop_next()
    assert "next_message" not in desk.saved()


@row("2.1", "history")
@row("13.1", "history")
def the_history_is_restored(desk):
    desk.turn()
    assert len(desk.saved()["history"]) == 2
    with desk.loaded(desk.saved()) as again:
        assert [m.text for m in again.messages()] == [m.text for m in desk.talk.messages()]


@row("2.1", "valid_history_range")
@row("5.2", "start", "end")
def the_valid_range(desk):
    desk.turn()
    assert desk.saved()["valid_history_range"] == [0, 2]
    desk.compact()
    start, end = desk.saved()["valid_history_range"]
    assert 0 < start < end == len(desk.saved()["history"])


@row("2.1", "transcript")
def the_transcript(desk):
    desk.turn("One\ntwo")
    desk.talk.add_error("429: slow down")
    assert desk.saved()["transcript"] == [
        "> One\n> two",
        "[Tool uses: read]",
        "Answer to One\ntwo",
        "429: slow down",
    ]
    assert conversation.MAX_ENTRIES == 10_000


@row("2.1", "tools")
@row("13.1", "tools")
@row("8.1", "Builtin", "Custom")
def tools_group_by_origin(desk):
    found = desk.saved()["tools"]
    assert {schema["function"]["name"] for schema in found["builtin"]} >= {"read", "write", "shell", "unfold"}
    assert "my_tool" in [schema["function"]["name"] for schema in found["custom"]]
    assert found["mcp"] == []


@row("8.1", "Mcp")
def tools_of_servers(desk):
    server = {"type": "function", "function": {"name": "forge_search", "parameters": {"type": "object"}}}
    with Toolbox(desk.box.workspace.root, servers=[McpServer(mcp_server_name="forge", command=("forge",))]) as box:
        assert group_by_origin([server], box)["mcp"] == [server]


@row("2.1", "tool_manager", "agents")
@row("13.1", "tool_manager", "agents")
@row("4.1", "agents", "tool_manager", "os")
def fields_that_are_rebuilt_at_run_time(desk):
    """Tool manager, settings and system belong to the process and are not in the document."""
    assert not {"tool_manager", "agents", "os"} & desk.saved().keys()
    desk.talk.close()
    with registry.resume(desk.engine, desk.talk.conversation_id) as again:
        desk.talk, desk.files = again, desk.begun(again)
        desk.turn()
        assert again.transcript[-1] == "Answer to Mend it."


@row("2.1", "context_message_length")
def the_length_of_the_sticky_files_is_cached(desk):
    assert desk.saved()["context_message_length"] == desk.files.sticky.length > len("Be kind.\n")


@row("2.1", "latest_summary")
@row("12.1", "要約テキスト", "メタデータ")
def the_latest_summary(desk):
    assert "latest_summary" not in desk.saved()
    desk.compact()
    text, about = desk.saved()["latest_summary"]
    assert text.strip()
    assert about["summary_tokens"] < about["original_tokens"]


@row("2.1", "model")
@row("9.1", "model")
@row("13.2", "model")
def the_old_field_is_read_and_not_written(desk):
    desk.turn()
    found = desk.saved()
    assert "model" not in found
    del found["model_info"]
    with desk.loaded(found | {"model": "from-before"}) as again:
        assert again.task.config.model == "from-before"


@row("2.1", "model_info")
@row("9.1", "model_info")
@row("4.1", "current_model_id")
def the_model_is_known(desk):
    found = desk.saved()["model_info"]
    assert found["model_id"] == "gpt-4o"
    assert found["context_window_tokens"] == 128_000
    with desk.loaded(desk.saved() | {"model": "from-before"}) as again:
        assert again.task.config.model == "gpt-4o", "it has precedence over the old field"


@row("2.1", "file_line_tracker")
def files_that_the_agent_knows(desk):
    desk.turn()
    assert desk.saved()["file_line_tracker"]["rules.md"]["lines"] == 1
    (desk.place / "rules.md").write_text("Be kind.\nBe quick.\n")
    desk.turn("Go on.")
    reports = [m.text for m in desk.talk.messages() if "changed outside this conversation" in m.text]
    assert len(reports) == 1
    assert "+Be quick." in reports[0]


@row("2.1", "mcp_enabled")
@row("4.1", "mcp_enabled")
def servers_can_be_disabled(desk):
    assert desk.talk.mcp_enabled
    with desk.started("alone", mcp_enabled=False) as alone:
        assert not alone.mcp_enabled
    with desk.loaded(desk.saved() | {"mcp_enabled": False}) as again:
        assert not again.mcp_enabled


@row("2.1", "tangent_state")
@row("2.3", *ROWS["2.3"])
@row("6.3", *ROWS["6.3"])
def the_state_that_a_tangent_restores(desk):
    desk.turn()
    desk.compact()
    desk.talk.set_next("Typed before.")
    before = desk.saved()
    desk.talk.enter_tangent()
    desk.talk.drop_next()
    desk.turn("An aside.")
    found = desk.saved()["tangent_state"]
    assert found["main_history"] == before["history"]
    assert found["main_next_message"] == before["next_message"]
    assert found["main_transcript"] == before["transcript"]
    assert found["main_latest_summary"] == before["latest_summary"]
    assert found["tangent_start_time"] == desk.talk.tangents[0].timestamp


@row("2.2", "user", "assistant")
def an_entry_is_a_pair(desk):
    desk.turn()
    first, second = desk.saved()["history"]
    assert first["user"]["content"] == {"Prompt": {"prompt": "Mend it."}}
    assert first["assistant"]["ToolUse"]["tool_uses"][0]["name"] == "read"
    assert "ToolUseResults" in second["user"]["content"]
    assert second["assistant"]["Response"]["content"] == "Answer to Mend it."


@row("2.2", "request_metadata")
def an_entry_has_request_metadata(desk):
    desk.turn(usage=(120, 8))
    first, second = desk.saved()["history"]
    assert "request_metadata" not in first
    assert (second["request_metadata"]["input_tokens"], second["request_metadata"]["output_tokens"]) == (120, 8)


@row("3.1", "MAX_CONVERSATION_STATE_HISTORY_LEN")
def the_limit_of_visible_entries(_):
    assert conversation.MAX_ENTRIES == 10_000


@row("3.2", "CONTEXT_ENTRY_START_HEADER", "CONTEXT_ENTRY_END_HEADER")
def sticky_files_stand_between_marks(desk):
    assert (BEGIN, END) == ("--- CONTEXT ENTRY BEGIN ---\n", "--- CONTEXT ENTRY END ---\n\n")
    desk.turn()
    shown = "\n".join(message.text for message in desk.talk.task.window().messages)
    assert f"{BEGIN}[rules.md]\nBe kind.\n{END}".rstrip() in shown


@row("4.1", "tool_config")
def a_conversation_is_given_its_tools(desk):
    with desk.started("few", tools=[CUSTOM]) as few:
        assert few.task.config.tools == [CUSTOM]


@row("6.2", "開始", "確認")
def entering_a_tangent(desk):
    assert not desk.talk.is_in_tangent
    desk.talk.enter_tangent()
    assert desk.talk.is_in_tangent


@row("6.2", "期間取得")
def the_duration_of_a_tangent(desk):
    assert desk.talk.tangent_seconds is None
    desk.talk.enter_tangent()
    assert desk.talk.tangent_seconds in range(300)


@row("6.2", "終了（保持）")
@row("6.4", "末尾保持復元")
def the_last_entry_stays(desk):
    desk.turn()
    desk.talk.enter_tangent()
    desk.turn("Aside.")
    desk.turn("The last one.")
    desk.talk.leave_tangent("tail")
    assert [text for text in desk.talk.transcript if text.startswith("> ")] == ["> Mend it.", "> The last one."]


@row("13.2", "skip_serializing_if")
def missing_values_are_left_out(desk):
    assert not {"next_message", "latest_summary", "tangent_state", "model"} & desk.saved().keys()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_rows(check, tmp_path):
    """Each check covers the rows that it is registered for."""
    desk = Desk(tmp_path, with_git=check is file_changes_can_be_reverted)
    try:
        check(desk)
    finally:
        desk.close()


def test_every_row_has_one_check():
    covered = [row for rows in CHECKS.values() for row in rows]
    assert sorted(covered) == sorted((section, name) for section, names in ROWS.items() for name in names)
