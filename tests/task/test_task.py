"""The task as a user writes it, over every store."""

import json
import logging
import threading

import msgspec
import pytest

import orihon
from orihon.context.repair import plain_name
from orihon.errors import BudgetTooSmall, NotFound, TangentError, UsageError
from orihon.settings.schema import History, Settings
from support.replies import KEY, TOOLS, calling, saying, turn

TOKEN = "ghp_" + "a1B2c3D4" * 4 + "e5F6"


def begun(engine, **options):
    task = engine.start(KEY, tools=TOOLS, user="alice", **options)
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


def test_a_run_from_start_to_end(engine, caplog):
    """The loop of the README: everything is recorded, counted and logged, and leaving the block completes it."""
    caplog.set_level(logging.INFO, "orihon")
    with begun(engine) as task:
        turn(task, calling(("read_file", {"path": "a.py"}), usage=(120, 30)), ["print(1)"])
        turn(task, saying("Done.", usage=(160, 5)))
        assert not task.wants_reply()
    row = engine.row(task.uuid)
    assert (row.status, row.llm_call_count, row.tool_call_count, row.total_tokens) == ("completed", 2, 1, 315)
    assert "Done." in row.final_summary
    roles = [message.role for message in engine.read(task.uuid).messages()]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    (call,) = engine.read(task.uuid).tools()
    assert (call.tool, call.args, call.result, call.status) == ("read_file", {"path": "a.py"}, "print(1)", "success")
    tag = f"[uuid:{task.uuid[:8]}]"
    assert [record.getMessage() for record in caplog.records if tag in record.getMessage()] == [
        f"{tag} Task started: github/acme/shop#27",
        (
            f"{tag} compression_threshold has no effect: there is no summariser, "
            "and the policy `fold` makes room by itself"
        ),
        f"{tag} LLM call #1: 150 tokens",
        f"{tag} Tool execution: read_file",
        f"{tag} LLM call #2: 165 tokens",
        f"{tag} Task completed successfully",
    ]


def test_without_usage_the_tokens_are_counted(engine):
    """A provider that says nothing of tokens still gives a sum."""
    with begun(engine) as task:
        window = turn(task, saying("Done."))
        assert engine.row(task.uuid).total_tokens > window.tokens


def test_the_turn_is_the_models_until_it_has_nothing_to_ask(engine):
    """Nothing said, only a system prompt, or a last word: no reply is wanted."""
    with engine.start(KEY, tools=TOOLS) as task:
        assert not task.wants_reply()
        task.add("system", "You fix bugs.")
        assert not task.wants_reply()
        task.add("user", "Fix it.")
        assert task.wants_reply()
        task.add_reply(calling(("read_file", {})))
        assert task.wants_reply()
        for call in task.pending_calls():
            with task.tool(call) as run:
                run.result = ""
        assert task.wants_reply()
        task.add_reply(saying("Done."))
        assert not task.wants_reply()


def test_an_exception_is_a_result(engine):
    """The model reads what a tool raised; the loop goes on, and the record keeps it."""
    with begun(engine) as task:
        task.add_reply(calling(("read_file", {"path": "b.py"})))
        (call,) = task.pending_calls()
        with task.tool(call) as run:
            raise FileNotFoundError("b.py is not there")
        assert isinstance(run.exception, FileNotFoundError)
        answer = task.window().openai()[-1]
        assert answer["content"] == "FileNotFoundError: b.py is not there"
    (record,) = engine.read(task.uuid).tools()
    assert (record.status, record.error) == ("error", "FileNotFoundError: b.py is not there")


def test_results_of_any_shape(engine):
    """Text, values, bytes, and parts as MCP gives them."""
    picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    shapes = {
        "text": ("plain", "plain"),
        "value": ({"a": [1, "二"]}, '{"a": [1, "二"]}'),
        "nothing": (None, ""),
        "bytes": (b"raw", "raw"),
        "parts": ([{"type": "text", "text": "seen"}, picture], "seen"),
    }
    with begun(engine) as task:
        for result, text in shapes.values():
            turn(task, calling(("read_file", {})), [result])
            (newest,) = engine.read(task.uuid).messages(first=-1)
            assert newest.text == text


def test_pictures_in_the_shapes_that_people_write(engine):
    """OpenAI's, Anthropic's and our own parts are the same picture."""
    data = "iVBORw0KGgo="
    with begun(engine) as task:
        for part in (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
            {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
            {"type": "image", "media_type": "image/png", "data": data},
        ):
            task.add("user", [part])
        shown = task.window().openai()[-4:]
        assert [message["content"][0]["image_url"]["url"] for message in shown] == [f"data:image/png;base64,{data}"] * 4


def test_arguments_that_cannot_be_read_are_answered(engine):
    """The model is told what is wrong, and the caller never sees the call."""
    with begun(engine) as task:
        task.add_reply(calling(("read_file", '{"path": '), ("read_file", "[1]"), ("read_file", "")))
        (call,) = task.pending_calls()
        assert call.arguments == {}
        texts = [message.text for message in engine.read(task.uuid).messages() if message.is_error]
        assert "not valid JSON" in texts[0]
        assert "JSON object" in texts[1]


def test_names_that_a_provider_refuses_come_back(engine):
    """A tool is called what its owner calls it, whatever had to be sent."""
    with engine.start(KEY, tools=[{"name": "read a file"}]) as task:
        task.add("user", "Go.")
        assert task.window().tools()[0]["function"]["name"] == plain_name("read a file")
        task.add_reply(calling((plain_name("read a file"), {})))
        assert task.pending_calls()[0].name == "read a file"


def test_a_secret_runs_and_is_never_stored(engine):
    """The tool gets the arguments as the model wrote them; what is stored, and sent again, is masked."""
    with begun(engine) as task:
        task.add_reply(calling(("read_file", {"token": TOKEN})))
        (call,) = task.pending_calls()
        assert call.arguments == {"token": TOKEN}
        with task.tool(call) as run:
            run.result = f"logged in with {TOKEN}"
        assert TOKEN not in str(task.window().openai())
    kept = [*engine.read(task.uuid).messages(), *engine.read(task.uuid).tools(), *engine.read(task.uuid).events()]
    assert TOKEN not in str(kept)
    assert "[GITHUB_TOKEN]" in str(kept)


def test_threads_answer_in_any_order(engine):
    """Results that come late stand in the order of the calls, and none is lost."""
    with begun(engine) as task:
        task.add_reply(calling(*[("read_file", {"path": f"{number}.py"}) for number in range(8)]))
        gates = [threading.Event() for _ in range(8)]
        begun_all = threading.Barrier(9)

        def work(place, call):
            with task.tool(call) as run:
                begun_all.wait(60)
                gates[place].wait(60)
                run.result = call.arguments["path"]
            if place:
                gates[place - 1].set()

        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(task.pending_calls())]
        for thread in threads:
            thread.start()
        begun_all.wait(60)
        assert task.pending_calls() == []  # they run
        gates[7].set()
        for thread in threads:
            thread.join()
        shown = [message["content"] for message in task.window().openai() if message["role"] == "tool"]
        assert shown == [f"{number}.py" for number in range(8)]
        written = [message.text for message in engine.read(task.uuid).messages() if message.role == "tool"]
        assert written == shown[::-1]
    assert engine.row(task.uuid).tool_call_count == 8


def test_a_key_makes_a_repeated_message_harmless(engine):
    """Said twice with one key, stored once."""
    with begun(engine) as task:
        assert task.add("user", "again", key="k") == task.add("user", "again", key="k")
        assert engine.read(task.uuid).row.uuid == task.uuid
        assert [message.text for message in engine.read(task.uuid).messages()].count("again") == 1


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda task: task.add("robot", "x"), "the role 'robot'"),
        (lambda task: task.add("user", 5), "hold a int"),
        (lambda task: task.add("user", [5]), "not a part"),
        (lambda task: task.add("user", [{"type": "input_audio", "input_audio": {"data": "x"}}]), "says nothing"),
        (lambda task: task.add("user", [{"type": "text", "text": 5}]), "says nothing"),
        (lambda task: task.add("user", [{"type": "image_url"}]), "no address"),
        (lambda task: task.add("user", "x", tool_calls=[{"name": "a"}]), "cannot call tools"),
        (lambda task: task.add("assistant", "x", tool_calls=["a"]), "not a tool call"),
        (lambda task: task.add("assistant", "x", usage={"input_tokens": "many"}), "not a usage"),
        (lambda task: task.add_reply({"nothing": 1}), "not a model's reply"),
        (lambda task: task.unfold("x4"), "no handle"),
        (lambda task: task.recall("x", of="everything"), "recall of"),
        (lambda task: task.rewind(99), "no message 99"),
        (lambda task: task.undo(), "nothing to undo"),
        (lambda task: task.compact(keep_recent=-1), "keep_recent"),
        (lambda task: task.snapshot(mood="good"), "snapshot cannot"),
        (lambda task: task.snapshot(completed_actions="read it"), "lists of texts"),
        (lambda task: task.add("user", "x", key=5), "key cannot be a int"),
        (lambda task: task.link("nonsense"), "key"),
        (lambda task: task.end_tangent("all"), "cannot keep"),
        (lambda task: task.rewind("3"), "no message 3"),
        (lambda task: task.unfold(3), "no handle"),
        (lambda task: task.recall(5), "query cannot"),
        (lambda task: task.compact(keep_recent="5"), "keep_recent"),
        (lambda task: task.plan({"goal": "x"}), "not an entry of a plan"),
        (lambda task: task.link("moon"), "task key"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(engine, call, sentence):
    """One sentence, a hint, and the log as it was."""
    with begun(engine) as task:
        before = list(engine.read(task.uuid).messages())
        with pytest.raises(UsageError, match=sentence) as caught:
            call(task)
        assert caught.value.hint
        assert list(engine.read(task.uuid).messages()) == before
        assert list(engine.read(task.uuid).events()) == []


def test_a_task_that_cannot_be_is_not_begun(engine):
    """Nonsense is refused before anything is made."""
    for options in (
        {"context_length": 100, "reserved_output": 100},
        {"tokens": "words"},
        {"window": "guess"},
        {"tools": [{"description": "no name"}]},
        {"summariser": "gpt-5"},
        {"mood": "good"},
        {"fold_at": 0.4},
        {"fold_at": float("nan")},
        {"max_memory_messages": -1},
        {"reserved_output": -500},
        {"compression_threshold": -1.0},
        {"user": 5},
        {"inherited_from": "another task"},
        {"tools": [{"name": "x", "parameters": {1, 2}}]},
    ):
        with pytest.raises(UsageError):
            engine.start(KEY, **options)
    with pytest.raises(UsageError):
        engine.start("github/acme")
    assert list(engine.tasks()) == []


def test_a_pin_that_is_too_large_is_refused_with_figures(engine):
    """A quarter of the window is for pins; the sentence says what it would take."""
    with begun(engine, context_length=8000, reserved_output=0) as task:
        with pytest.raises(UsageError, match=r"the pins would take [\d,]+; [\d,]+ are allowed"):
            task.add("user", "word " * 4000, pinned=True)
        seq = task.add("user", "word " * 4000)
        with pytest.raises(UsageError, match="are allowed"):
            task.pin(seq)
        small = task.add("user", "Remember the blue door.", pinned=True)
        task.pin(small)
        task.unpin(small)
        task.unpin(small)
        assert [event.type for event in engine.read(task.uuid).events()] == ["pin", "unpin"]
        with pytest.raises(NotFound):
            task.pin(99)


def test_the_window_folds_and_the_model_can_look(engine):
    """What does not fit is folded with a handle; unfold and recall are answered by the engine."""
    with begun(engine, context_length=6000, reserved_output=500, tokens="bytes4") as task:
        for number in range(12):
            lines = "\n".join(f"line {line} of part {number}: value_{number}_{line}" for line in range(120))
            window = turn(task, calling(("read_file", {"path": f"part_{number}.py"})), [lines])
            assert window.tokens <= window.report.limit
        assert window.report.folded + window.report.left_out
        shown = str(window.openai())
        assert "value_0_77" not in shown
        task.add_reply(calling(("recall", {"query": "value_0_77"}), ("unfold", {"handle": "m4", "lines": "70-80"})))
        assert task.pending_calls() == []
        recalled, unfolded = (message["content"] for message in task.window().openai()[-2:])
        assert "value_0_77" in recalled
        assert "line 75 of part 0" in unfolded
        assert task.unfold("m4").count("\n") == 119
        assert task.wants_reply()
        task.add_reply(
            calling(("unfold", {"handle": "m9999"}), ("unfold", {"handle": "x"}), ("recall", {"of": "moon"}))
        )
        assert task.pending_calls() == []
        assert all(message.is_error for message in engine.read(task.uuid).messages(first=-3))


def test_without_tools_no_tool_is_named(engine):
    """A model that is offered no tools is told of none."""
    with engine.start(KEY, context_length=3000, reserved_output=0, tokens="bytes4") as task:
        task.add("user", "Read this.")
        for number in range(20):
            task.add("assistant", f"Part {number}.\n" + "\n".join(f"value_{number}_{line}" for line in range(60)))
            task.add("user", "Go on.")
        window = task.window()
        assert window.tools() == []
        assert "unfold" not in str(window.openai())
        assert window.tokens <= 3000


def test_a_tool_of_the_callers_own_name_stays_his(engine):
    """Whoever brings his own `recall` answers it himself."""
    with engine.start(KEY, tools=[{"name": "recall"}]) as task:
        task.add("user", "Go.")
        assert [tool["function"]["name"] for tool in task.window().tools()] == ["recall", "unfold"]
        task.add_reply(calling(("recall", {"query": "x"})))
        assert [call.name for call in task.pending_calls()] == ["recall"]


def test_the_first_request_and_more_than_the_window(engine):
    """What cannot be folded and does not fit is an error with figures."""
    with engine.start(KEY, context_length=900, reserved_output=0, tokens="bytes4") as task:
        task.add("system", "rule " * 2000)
        task.add("user", "Go.")
        with pytest.raises(BudgetTooSmall, match="more than the"):
            task.window()
        task.stop("too small")


def test_snapshot_stats_and_reset(engine):
    """The snapshot is kept by the caller and by the tools; stats count; reset empties the view and not the log."""
    with begun(engine) as task:
        task.snapshot(goal="Fix it", current_phase="reading")
        task.snapshot(current_phase="fixing")
        turn(task, calling(("read_file", {"path": "a.py"}), ("run_tests", {})), ["x", "y"])
        seen = task.snapshot()
        assert (seen.goal, seen.current_phase) == ("Fix it", "fixing")
        assert seen.completed_actions == ("read_file a.py", "run_tests")
        for _ in range(9):
            turn(task, calling(("run_tests", {})))
        assert (len(task.snapshot().completed_actions), task.snapshot().earlier_actions) == (8, 3)
        stats = task.stats()
        assert (stats.messages, stats.tool_calls, stats.llm_calls, stats.has_snapshot) == (23, 11, 10, True)
        assert stats.unsummarised_messages == 22
        task.reset()
        assert not task.snapshot()
        assert [message["role"] for message in task.window().openai()] == ["system"]
        assert task.stats().messages == 23
        task.undo()
        assert task.snapshot().goal == "Fix it"


def test_a_live_snapshot_at_the_end(engine):
    """Who does not care for the cache sees the snapshot last."""
    with begun(engine, snapshot="tail", tokens="bytes4", context_length=5000) as task:
        task.snapshot(goal="Fix the basket")
        assert "Fix the basket" in task.window().openai()[-1]["content"]
        task.snapshot(goal="Fix the till")
        window = task.window()
        assert "Fix the till" in window.openai()[-1]["content"]
        assert window.tokens == sum(message.tokens for message in window.messages)
        assert window.report.by_source["snapshot"] == window.messages[-1].tokens


def test_tangents(engine):
    """A side conversation leaves the main one as it was, byte for byte, or what was asked to stay."""
    with begun(engine) as task:
        turn(task, saying("I will."))
        before = task.window().openai()
        with task.tangent("Why is CI slow?"):
            turn(task, saying("The cache is off."))
        assert task.window().openai() == before
        with task.tangent("Why is CI slow?", keep="tail"):
            turn(task, saying("Let me see."))
            task.add("user", "Well?")
            turn(task, calling(("run_tests", {})))
            turn(task, saying("The cache is off."))
        assert [message["role"] for message in task.window().openai()[len(before):]] == [
            "user", "assistant", "tool", "assistant"
        ]  # fmt: skip
        with task.tangent("Why is the sky blue?", keep="summary"):
            turn(task, saying("It scatters the light."))
        assert "It scatters the light." in str(task.window().openai())
        with pytest.raises(ValueError, match="broken"), task.tangent("Again?", keep="tail"):
            raise ValueError("broken")
        assert "Again?" not in str(task.window().openai())
        with pytest.raises(TangentError):
            task.end_tangent()


def test_rewind_checkpoint_restore_undo(engine):
    """Going back hides, and can itself be taken back."""
    with begun(engine) as task:
        turn(task, calling(("read_file", {"path": "a.py"})))
        mark = task.checkpoint("before")
        whole = task.window().openai()
        turn(task, saying("One way."))
        task.add("user", "Another way, please.")
        later = task.window().openai()
        task.restore(mark)
        assert task.window().openai() == whole
        task.undo()
        assert task.window().openai() == later
        task.rewind(3)  # into the unit: the result stays with its call
        assert task.window().openai() == whole
        task.undo()
        assert task.window().openai() == later
        with pytest.raises(NotFound):
            task.restore(999)


def test_hooks_hear_everything_and_a_failing_one_loses_nothing(url, caplog):
    """Three places in the loop and one per outcome, in order."""
    heard = []

    class Ear:
        def __getattr__(self, name):
            if name.startswith(("before_", "after_", "on_")):
                return lambda *_: heard.append(name)
            raise AttributeError(name)

    class Broken:
        def after_tool(self, *_):
            raise RuntimeError("broken hook")

        def __getattr__(self, name):
            raise KeyError(name) if name.startswith("on_") else AttributeError(name)

    with orihon.open(url, settings=Settings(), hooks=[Broken(), Ear()]) as engine:
        with begun(engine) as task:
            turn(task, calling(("read_file", {})))
        assert heard == ["on_started", "before_request", "after_reply", "after_tool", "on_completed"]
        assert "broken hook" in caplog.text
        heard.clear()
        for leave in ("stop", "pause"):
            task = begun(engine)
            getattr(task, leave)("enough")
        with pytest.raises(ZeroDivisionError), begun(engine):
            1 / 0  # noqa: B018
        assert heard == ["on_started", "on_stopped", "on_started", "on_paused", "on_started", "on_failed"]
    with pytest.raises(UsageError, match="not a hook"):
        orihon.open(url, settings=Settings(), hooks=[object()])


class Cutter:
    """A hook that changes the messages before they are sent, as `beforeModelRequest` of document 003 does."""

    def __init__(self, change):
        self.change = change

    def before_request(self, _, window):
        return self.change(window)


def test_a_hook_replaces_what_is_sent(url, caplog):
    """003: UI data is cut in `beforeModelRequest`. The reply and the row know of it; the log keeps all of it."""

    def cut(window):
        return window.replace(
            msgspec.structs.replace(message, content="[120 nodes] DB_PASSWORD=k3y9f7q2w8e1")
            if message.role == "user"
            else message
            for message in window.messages
        )

    with orihon.open(url, settings=Settings(), hooks=[Cutter(cut)]) as engine, engine.start(KEY) as task:
        task.add("system", "You read screens.")
        task.add("user", '{"nodes": "' + "button " * 400 + '"}')
        window = task.window()
        assert [message["content"] for message in window.openai()] == [
            "You read screens.", "[120 nodes] DB_PASSWORD=[PASSWORD]",
        ]  # fmt: skip
        assert window.tokens == sum(message.tokens for message in window.messages) < 60
        assert window.report.by_source.keys() == {"system", "user"}
        assert task.row.current_context_tokens == window.tokens
        sent = task.log.one(task.add_reply(saying("I see 120 nodes."))).window
        assert (sent.tokens, sent.reasons) == (window.tokens, ["a hook replaced messages"])
        assert len(task.log.one(2).text) > 2000
    assert "failed" not in caplog.text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda window: window.replace([]), "would refuse"),
        (lambda window: window.replace(window.messages[:-1]), "would refuse"),  # a call without its result
        (lambda window: window.replace(reversed(window.messages)), "would refuse"),
        (
            lambda window: window.replace(
                msgspec.structs.replace(message, content="word " * 9000) for message in window.messages
            ),
            "fit",
        ),
        (lambda window: window.openai(), "list is no window"),
        (lambda window: window.replace(window.openai()), "no window of messages"),
        (lambda window: window.replace(1 / 0), "ZeroDivisionError"),
    ],
)
def test_a_replacement_that_cannot_be_sent_is_not(caplog, change, why):
    """The window goes out as it was, and the log says why."""
    with (
        orihon.open("memory:", settings=Settings(), hooks=[Cutter(change)]) as engine,
        engine.start(KEY, tools=TOOLS, context_length=9000) as task,
    ):
        task.add("system", "You fix bugs.")
        task.add("user", "Fix the basket.")
        task.add_reply(calling(("run_tests", {})))
        with task.tool(task.pending_calls()[0]) as run:
            run.result = "2 passed"
        assert [message.role for message in task.window().messages] == ["system", "user", "assistant", "tool"]
    assert why in caplog.text


def test_state_is_written_before_and_after_each_call(engine):
    """Whoever looks sees what the task is doing."""
    with begun(engine) as task:

        def state():
            row = engine.store.row(task.uuid)
            return row.activity, row.last_activity, row.current_context_tokens > 0

        task.window()
        assert state() == ("processing", "llm_call", True)
        task.add_reply(calling(("read_file", {})))
        assert state() == ("processing", "llm_reply", True)
        with task.tool(task.pending_calls()[0]):
            assert state() == ("processing", "tool_execution", True)
        assert state() == ("processing", "tool_result", True)


def test_a_provider_that_counts_more_gets_a_smaller_window(engine):
    """After a few requests the window is made for the provider's numbers, and a resume knows."""
    with begun(engine, context_length=20_000, reserved_output=0) as task:
        limit = task.window().report.limit
        for _ in range(6):
            window = task.window()
            task.add_reply(saying("Hm.", usage=(int((window.tokens + task.log.schema_tokens) * 1.3), 1)))
            task.add("user", "Go on. " + "word " * 200)
        smaller = task.window().report.limit
        assert limit / 1.35 < smaller < limit / 1.25
        task.pause()
        with engine.resume(task.uuid) as again:
            assert again.window().report.limit == smaller
            again.add_reply(saying("Hm.", usage=(1000, 1)))
            assert again.window().report.limit == smaller  # one request is not enough to think otherwise


def test_the_view_is_recorded_every_256_events(engine):
    """Reading starts at the last record, and gives the same view."""
    with begun(engine) as task:
        for number in range(300):
            task.snapshot(current_phase=f"{number}")
        kinds = [event.type for event in engine.read(task.uuid).events()]
        assert [place for place, kind in enumerate(kinds, start=1) if kind == "view"] == [257]
        assert engine.read(task.uuid).window().openai() == task.window().openai()


def test_long_texts_are_whole_in_the_window_and_in_folds(engine):
    """A text that lives in a blob is shown whole as long as it fits, and folded from its whole."""
    text = "\n".join(f"row {number}: ok" for number in range(30_000)) + "\nERROR in row_parser at the very end"
    with begun(engine, context_length=400_000, tokens="bytes4") as task:
        turn(task, calling(("run_tests", {})), [text])
        assert task.window().openai()[-1]["content"] == text
        assert task.unfold("m4") == text
    with begun(engine, context_length=20_000, tokens="bytes4") as task:
        turn(task, calling(("run_tests", {})), [text])
        window = task.window()
        assert "row_parser at the very end" in str(window.openai())
        assert window.tokens <= window.report.limit


def test_tasks_and_rows(engine):
    """The tasks of a store by status, user and key; a row by the beginning of its id."""
    with begun(engine) as one:
        pass
    two = engine.start(orihon.TaskKey.local("notes"), user="bob")
    assert [row.uuid for row in engine.tasks()] == [two.uuid, one.uuid]
    assert [row.uuid for row in engine.tasks(status="completed")] == [one.uuid]
    assert [row.uuid for row in engine.tasks(status=("running", "paused"), user="bob")] == [two.uuid]
    assert [row.uuid for row in engine.tasks(key=KEY)] == [one.uuid]
    assert engine.row(one.uuid[:13]).uuid == one.uuid
    with pytest.raises(NotFound):
        engine.row("nothing")
    for nonsense in ("", None, 5):
        with pytest.raises(UsageError, match="task id"):
            engine.resume(nonsense)
    with pytest.raises(UsageError, match="no status 'done'"):
        engine.tasks(status="done")
    with pytest.raises(UsageError):
        engine.tasks(key="nonsense")
    two.close()
    assert engine.row(two.uuid).status == "paused"


def test_a_reader_needs_no_lease(engine):
    """While one writes, another looks, and sees the same window."""
    with begun(engine) as task:
        turn(task, calling(("read_file", {"path": "a.py"})))
        reader = engine.read(task.uuid)
        assert reader.window().openai() == task.window().openai()
        assert [message.role for message in reader.messages(first=-2)] == ["assistant", "tool"]
        assert reader.message(2).text == "Fix the basket."
        assert list(reader.summaries()) == list(reader.plan()) == []
        with pytest.raises(NotFound):
            reader.message(77)


def test_what_a_call_was_given_can_be_unfolded(engine):
    """Arguments of any size come back whole, to the caller at once and to the model page by page."""
    written = "x = 1\n" * 60_000
    with begun(engine, context_length=30_000, tokens="bytes4") as task:
        turn(task, calling(("read_file", {"content": written}), text="I write it."))
        whole = task.unfold("m3")
        assert whole == 'I write it.\nread_file({"content": "' + written.replace("\n", "\\n") + '"})'
        lines, shown = "", ""
        while lines is not None:
            task.add_reply(calling(("unfold", {"handle": "m3", "lines": lines})))
            assert task.pending_calls() == []
            page = task.window().openai()[-1]["content"]
            words, _, end = page.partition("\n[… the line goes on, ")
            shown += words if end else page
            lines = end.rpartition('lines="')[2].partition('"')[0] if end else None
        assert shown == whole


@pytest.mark.parametrize("result", [(number for number in ()), type("Later", (), {"__await__": lambda _: iter(())})()])
def test_a_result_that_nobody_has_run_is_an_error(engine, result):
    """A generator, or something to wait for, is no answer; the model and the person hear of it."""
    with begun(engine) as task:
        turn(task, calling(("read_file", {})), [result])
        (record,) = engine.read(task.uuid).tools()
        assert record.status == "error"
        assert "never run" in record.error


def test_an_error_inside_a_tangent_that_was_left_is_the_one_to_hear(engine):
    """What went wrong is not hidden by how the tangent ended."""
    with begun(engine) as task:
        mark = task.checkpoint()
        with pytest.raises(ValueError, match="mine"), task.tangent("Why?"):
            task.restore(mark)
            raise ValueError("mine")


def test_how_much_of_a_tree_is_shown_is_a_setting(url):
    """The limits of seed 003, as `config.yaml` or a task sets them."""
    tree = json.dumps(
        {"role": "page", "children": [{"role": "button", "name": f"b{n}", "children": []} for n in range(90)]}
    )
    for options, shown in (({}, 20), ({"max_ui_children": 5}, 5)):
        with orihon.open(url, settings=Settings()) as engine, begun(engine, window="importance", **options) as task:
            turn(task, calling(("read_file", {})), [tree])
            seen = task.window().openai()[-1]["content"]
            assert seen.count('"button"') == shown
            assert "truncated" in seen
    few = Settings(history=History(max_ui_children=7))
    with orihon.open(url, settings=few) as engine, begun(engine, window="importance") as task:
        turn(task, calling(("read_file", {})), [tree])
        assert task.window().openai()[-1]["content"].count('"button"') == 7


def test_an_id_that_is_the_beginning_of_others(engine):
    """The task that is called exactly so is meant, however many newer ones begin so."""
    for name in ("t2", "t20", "t21", "t22"):
        engine.start(f"local/issue/{name}", uuid=name).pause()
    assert engine.row("t2").uuid == "t2"
    with pytest.raises(UsageError, match="Several"):
        engine.row("t")
