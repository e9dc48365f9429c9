"""The class names of the specification: each that docs/specification.md calls done is called, and its effect seen.

A row that says `done` without a call here fails, and so does a call here whose row says something else.
"""

import inspect
import json
import re
import uuid as uuids
from collections.abc import Callable
from pathlib import Path

import pytest

import orihon
from orihon.agent import queue
from orihon.agent.handler import TaskHandler, Work
from orihon.agent.loop import Loop
from orihon.agent.models import open_model
from orihon.agent.sources.local import Local
from orihon.agent.sticky_files import StickyFiles
from orihon.agent.tools.toolbox import Toolbox
from orihon.chat import document, registry
from orihon.chat.checkpoints import ENABLED, open_checkpoints
from orihon.chat.file_tracker import FileLineTracker
from orihon.chat.terminal.session import find_context_length
from orihon.codec import now
from orihon.context.importance import importance
from orihon.ingest import Sanitiser
from orihon.inheritance import Handoff, Previous, search
from orihon.planning.coordinator import PlanningCoordinator
from orihon.planning.history import past_executions
from orihon.planning.schema import Goal, Plan, make_entry
from orihon.settings.schema import ContextStorage, Settings
from orihon.stores.base import Query
from support.planned_runs import DONE, PASSED, ScriptedPlanner, Workspace, action, plan
from support.replies import KEY, TOOLS, calling, saying, turn

CALLS: dict[str, Callable[..., None]] = {}  # each takes the engine, its place, or both
LONG = "I changed the total in basket.py. " * 60
SUMMARY = "We changed the total in basket.py, and the tests of the basket passed."


def ours(name):
    """Say which name of the seeds a function calls ours for."""

    def register(function):
        assert name not in CALLS
        CALLS[name] = function
        return function

    return register


def begun(engine, **options):
    task = engine.start(KEY, **({"tools": TOOLS, "user": "alice"} | options))
    task.add("system", "You fix bugs.")
    task.add("user", "Fix the basket.")
    return task


def long_enough(task, rounds=8):
    for number in range(rounds):
        turn(task, calling(("read_file", {"path": f"{number}.py"})), [LONG])


def lines(place, task, name):
    (found,) = place.glob(f"*/{task.uuid}/{name}")
    return [json.loads(line) for line in found.read_text("utf-8").splitlines()]


# seeds 000 and 002: storage


@ours("TaskContextManager.__init__")
def starting_makes_an_id_a_directory_and_a_row(engine, place):
    with engine.start(KEY) as task:
        assert uuids.UUID(task.uuid).version == 4
        metadata = json.loads((place / "running" / task.uuid / "metadata.json").read_text("utf-8"))
        assert metadata["uuid"] == task.uuid
        assert (place / "running" / task.uuid / ".lock").exists()
        assert engine.row(task.uuid).status == "running"


@ours("TaskContextManager.uuid")
def the_id_is_the_tasks_and_may_be_given(engine, place):
    given = str(uuids.uuid4())
    with engine.start(KEY, uuid=given) as task:
        assert task.uuid == given == engine.row(given).uuid
        assert (place / "running" / given).is_dir()


@ours("TaskContextManager.update_status")
def a_status_changes_by_what_happens(engine):
    ends = {
        "completed": lambda task: task.complete(),
        "failed": lambda task: task.fail("broken"),
        "stopped": lambda task: task.stop("enough"),
        "paused": lambda task: task.pause(),
    }
    for status, end in ends.items():
        task = begun(engine)
        end(task)
        assert engine.row(task.uuid).status == status
        assert engine.row(task.uuid).error_message == ("broken" if status == "failed" else None)


@ours("TaskContextManager.update_statistics")
def everything_is_counted_by_itself(engine):
    with begun(engine) as task:
        long_enough(task)
        turn(task, saying("Done.", usage=(100, 7)))
        task.compact()
        row, stats = engine.row(task.uuid), task.stats()
        assert (row.llm_call_count, row.tool_call_count, row.compression_count) == (9, 8, 1)
        assert (stats.llm_calls, stats.tool_calls, stats.compressions) == (9, 8, 1)
        assert row.total_tokens == stats.total_tokens > 107


@ours("TaskContextManager.complete")
def completing_moves_the_directory(engine, place):
    task = begun(engine)
    task.complete()
    row = engine.row(task.uuid)
    assert (row.status, row.completed_at is not None) == ("completed", True)
    assert (place / "completed" / task.uuid).is_dir()
    assert not (place / "running" / task.uuid).exists()


@ours("TaskContextManager.fail")
def failing_keeps_the_error(engine, place):
    with pytest.raises(ZeroDivisionError), begun(engine) as task:
        1 / 0  # noqa: B018
    row = engine.row(task.uuid)
    assert (row.status, row.error_message) == ("failed", "ZeroDivisionError: division by zero")
    assert (place / "completed" / task.uuid).is_dir()


@ours("TaskContextManager.get_message_store")
def the_task_is_the_message_store(engine):
    with begun(engine) as task:
        task.add("user", "And the till.")
        assert task.window().openai()[-1]["content"] == "And the till."


@ours("TaskContextManager.get_summary_store")
def the_task_is_the_summary_store(engine):
    with begun(engine, summariser=lambda _: SUMMARY) as task:
        long_enough(task)
        task.compact()
        assert SUMMARY in str(task.window().openai())


@ours("TaskContextManager.get_tool_store")
def the_task_is_the_tool_store(engine):
    with begun(engine) as task:
        turn(task, calling(("run_tests", {})), ["2 passed"])
        assert [call.result for call in engine.read(task.uuid).tools()] == ["2 passed"]


@ours("MessageStore.__init__")
def opening_takes_the_settings(place):
    settings = Settings(context_storage=ContextStorage(max_memory_messages=3))
    with orihon.open(place.parent / "others", settings=settings) as other, begun(other, context_length=64_000) as task:
        long_enough(task)
        assert len(task.log._recent) == 3
        assert (other.row(task.uuid).context_length, task.config.max_memory_messages) == (64_000, 3)


@ours("MessageStore.add_message")
def adding_gives_the_next_number(engine, place):
    with engine.start(KEY, tokens="chars4") as task:
        assert [task.add("system", "You fix bugs."), task.add("user", "Fix the basket.")] == [1, 2]
        assert task.add("tool", "empty", tool_name="read_file") == 3
        assert task.add("user", "12345678") == 4
        result, newest = lines(place, task, "messages.jsonl")[-2:]
        assert (result["seq"], result["role"], result["tool_name"]) == (3, "tool", "read_file")
        assert (newest["seq"], newest["role"], newest["tokens"]) == (4, "user", 2)


@ours("MessageStore.get_messages_for_llm")
def the_window_is_prompt_summary_and_the_rest(engine):
    options = {"window": "plain", "tokens": "chars4", "context_length": 8_000, "reserved_output": 1_000}
    with begun(engine, summariser=lambda _: SUMMARY, **options) as task:
        long_enough(task, 12)
        window = task.window()
        prompt, request, summary, snapshot, *rest = window.openai()
        assert (prompt["content"], request["content"]) == ("You fix bugs.", "Fix the basket.")
        assert SUMMARY in summary["content"]
        assert "read_file 11.py" in snapshot["content"]
        assert [message["role"] for message in rest] == ["assistant", "tool"] * (len(rest) // 2)
        assert rest[-1]["content"] == LONG
        assert window.tokens <= 0.7 * 8_000


@ours("MessageStore.load_recent_messages")
def a_resume_reads_the_newest_messages(engine):
    task = begun(engine)
    long_enough(task, 15)
    task.pause()
    with engine.resume(task.uuid) as again:
        assert list(again.log._recent) == list(range(13, 33))


@ours("MessageStore.mark_as_summarized")
def what_a_summary_covers_is_not_marked_in_the_log(engine, place):
    with begun(engine) as task:
        long_enough(task)
        before = lines(place, task, "messages.jsonl")
        assert task.stats().unsummarised_messages == 17
        made = task.compact()
        assert task.stats().unsummarised_messages == 17 - made.messages
        assert lines(place, task, "messages.jsonl") == before


@ours("MessageStore.get_unsummarized_token_count")
def the_stats_know_what_stands_in_no_summary(engine):
    with begun(engine) as task:
        long_enough(task)
        said = [message.tokens for message in engine.read(task.uuid).messages() if message.role != "system"]
        assert task.stats().unsummarised_tokens == sum(said)
        task.compact()
        assert task.stats().unsummarised_tokens < sum(said)


@ours("MessageStore.count_messages")
def the_stats_count_messages(engine, place):
    with begun(engine) as task:
        long_enough(task, 3)
        assert task.stats().messages == len(lines(place, task, "messages.jsonl")) == 8


@ours("SummaryStore.__init__")
def opening_opens_the_summaries_too(engine, place):
    with begun(engine) as task:
        long_enough(task)
        task.compact()
    with orihon.open(place, settings=Settings()) as again:
        assert [summary.kind for summary in again.read(task.uuid).summaries()] == ["rolling", "final"]


@ours("SummaryStore.add_summary")
def compressing_writes_a_summary(engine, place):
    with begun(engine, summariser=lambda _: SUMMARY) as task:
        long_enough(task)
        task.compact()
        (line,) = lines(place, task, "summaries.jsonl")
        assert (line["id"], line["summary"].startswith(SUMMARY)) == (1, True)
        assert (line["start_seq"], line["end_seq"]) == (2, 12)
        assert line["ratio"] == round(line["summary_tokens"] / line["original_tokens"], 4)


@ours("SummaryStore.get_latest_summary")
def the_latest_summary_is_in_the_window(engine):
    texts = iter(
        [
            "The first half of the work is done in basket.py; the total was wrong.",
            "Both halves of the work are done in basket.py; the total is right now.",
        ]
    )
    with begun(engine, summariser=lambda _: next(texts, SUMMARY)) as task:
        for text in ("The first half", "Both halves"):
            long_enough(task)
            task.compact()
            assert text in str(task.window().openai())
        assert "The first half" not in str(task.window().openai())
        assert [summary.id for summary in engine.read(task.uuid).summaries()] == [1, 2]


@ours("SummaryStore.count_summaries")
def the_stats_count_summaries(engine, place):
    with begun(engine) as task:
        assert task.stats().summaries == 0
        long_enough(task)
        task.compact()
        assert task.stats().summaries == len(lines(place, task, "summaries.jsonl")) == 1


@ours("ToolStore.__init__")
def opening_opens_the_tools_too(engine, place):
    with begun(engine) as task:
        turn(task, calling(("run_tests", {})))
    with orihon.open(place, settings=Settings()) as again:
        assert [call.tool for call in again.read(task.uuid).tools()] == ["run_tests"]


@ours("ToolStore.add_tool_call")
def running_a_tool_records_it(engine, place):
    with begun(engine) as task:
        task.add_reply(calling(("read_file", {"path": "a.py"}), ("read_file", {"path": "b.py"})))
        good, bad = task.pending_calls()
        with task.tool(good) as run:
            run.result = "print(1)"
        with task.tool(bad):
            raise FileNotFoundError("b.py")
        first, second = lines(place, task, "tools.jsonl")
        assert (first["seq"], first["tool"], first["args"]) == (1, "read_file", {"path": "a.py"})
        assert (first["result"], first["status"], first["duration_ms"] >= 0) == ("print(1)", "success", True)
        assert (second["seq"], second["status"], second["error"]) == (2, "error", "FileNotFoundError: b.py")


@ours("ToolStore.count_tool_calls")
def the_stats_count_tool_calls(engine, place):
    with begun(engine) as task:
        long_enough(task, 3)
        assert task.stats().tool_calls == len(lines(place, task, "tools.jsonl")) == 3


@ours("ContextCompressor.__init__")
def a_task_takes_a_summariser(engine):
    asked = []
    with begun(engine, summariser=lambda prompt: asked.append(prompt) or SUMMARY) as task:
        long_enough(task)
        task.compact()
        assert len(asked) == 1


@ours("ContextCompressor.should_compress")
def the_window_decides_and_a_dry_run_shows(engine):
    options = {"window": "plain", "tokens": "chars4", "context_length": 8_000, "reserved_output": 1_000}
    with begun(engine, **options) as task:
        assert task.compact(dry_run=True) is None
        long_enough(task, 9)
        task.window()  # enough messages, not enough tokens
        assert task.stats().compressions == 0
        assert task.compact(dry_run=True).saved > 0
        assert task.stats().compressions == 0
        long_enough(task, 3)
        task.window()
        assert task.stats().compressions == 1
    options = {"tokens": "chars4", "context_length": 8_000, "reserved_output": 1_000}
    with begun(engine, summariser=lambda _: SUMMARY, **options) as task:  # the default policy, with a model
        long_enough(task, 30)
        assert task.stats().compressions == 3
        assert SUMMARY in str(task.window().openai())


@ours("ContextCompressor.compress")
def compressing_by_hand(engine, place):
    asked = []
    with begun(engine, summariser=lambda prompt: asked.append(prompt) or SUMMARY) as task:
        long_enough(task)
        made = task.compact(focus="the total", keep_recent=3)
        assert "the total" in asked[0]
        assert made.ranges[-1][1] == 14  # the newest unit and the one that the third message belongs to stay
        assert lines(place, task, "events.jsonl")[-1]["type"] == "summary"
        assert engine.row(task.uuid).compression_count == 1


@ours("ContextCompressor.create_summary_prompt")
def the_prompt_quotes_the_messages(engine):
    asked = []
    with begun(engine, summariser=lambda prompt: asked.append(prompt) or SUMMARY) as task:
        long_enough(task)
        task.compact()
        assert "[USER]: Fix the basket." in asked[0]
        assert "[TOOL]: read_file -> I changed the total" in asked[0]
        assert "You fix bugs." not in asked[0]


# seed 001: inheritance and planning


def ended(engine, *, end="complete", **options):
    task = begun(engine, **options)
    turn(task, saying("The basket is fixed."))
    getattr(task, end)(*([] if end == "complete" else ["enough"]))
    return task


@ours("ContextInheritanceManager.__init__")
def opening_is_all_that_inheritance_needs(engine, place):
    task = ended(engine)
    with orihon.open(place, settings=Settings()) as again:
        assert again.inheritance(KEY, user="alice").uuid == task.uuid
    never = {"enabled": False}
    settings = Settings(context_inheritance=type(Settings().context_inheritance)(**never))
    with orihon.open(place, settings=settings) as again, again.start(KEY, user="alice") as new:
        assert new.inheritance is None


@ours("ContextInheritanceManager.find_previous_contexts")
def the_search_finds_and_says_what_it_skipped(engine):
    old, stopped, failed = ended(engine), ended(engine, end="stop"), ended(engine, end="fail")
    found = search(engine.store, KEY, settings=Settings().context_inheritance, user="alice", now=now())
    assert found.previous.uuid == stopped.uuid
    assert [row.uuid for row in found.older] == [old.uuid]
    assert {skipped.uuid: skipped.reason for skipped in found.skipped}[failed.uuid].startswith("It failed")


@ours("ContextInheritanceManager.get_inheritance_context")
def the_handoff_is_what_would_be_inherited(engine):
    assert engine.inheritance(KEY, user="alice") is None
    task = ended(engine)
    handoff = engine.inheritance(KEY, user="alice")
    assert handoff.uuid == task.uuid
    assert "The basket is fixed." in handoff.text
    assert engine.inheritance("github/acme/shop/issue/28", user="alice") is None


@ours("ContextInheritanceManager.create_initial_context")
def the_block_stands_before_the_first_request(engine):
    ended(engine)
    with begun(engine) as new:
        roles = [(message.role, "The basket is fixed." in message.text) for message in engine.read(new.uuid).messages()]
        assert roles == [("system", False), ("assistant", True), ("user", False)]


@ours("PreviousContext")
def an_earlier_run_is_a_row_with_its_summary(engine):
    task = ended(engine)
    previous = search(engine.store, KEY, settings=Settings().context_inheritance, user="alice", now=now()).previous
    assert isinstance(previous, Previous)
    assert (previous.uuid, previous.row.key, previous.row.status) == (task.uuid, KEY, "completed")
    assert (previous.ended, previous.summary) == (previous.row.completed_at, previous.row.final_summary)


@ours("InheritanceContext")
def a_handoff_names_the_run_and_its_words(engine):
    task = ended(engine)
    handoff = engine.inheritance(KEY, user="alice")
    assert isinstance(handoff, Handoff)
    assert (handoff.uuid, handoff.tokens <= handoff.max_tokens) == (task.uuid, True)
    assert engine.row(task.uuid).final_summary.splitlines()[0] in handoff.text


@ours("PlanningHistoryStore.get_past_executions_for_issue")
def past_runs_with_their_plans(engine):
    with begun(engine) as task:
        task.plan(make_entry(Plan(goal_understanding=Goal(main_objective="Fix the total"))))
    ended(engine)  # without a plan
    (run,) = past_executions(engine.store, KEY)
    assert (run.uuid, run.plan.goal) == (task.uuid, "Fix the total")
    assert past_executions(engine.store, "github/acme/shop/issue/28") == []


# seed 002: the agent's client


@ours("LLMClient.send_system_prompt")
def a_system_prompt_is_added(engine):
    with engine.start(KEY) as task:
        task.add("system", "You fix bugs.")
        task.add("user", "Go.")
        assert task.window().openai()[0] == {"role": "system", "content": "You fix bugs."}


@ours("LLMClient.send_user_message")
def a_users_message_is_added(engine):
    with engine.start(KEY) as task:
        task.add("user", "Fix it.")
        assert task.wants_reply()
        assert task.window().openai() == [{"role": "user", "content": "Fix it."}]


@ours("LLMClient.send_function_result")
def a_result_is_set_in_the_block_of_the_tool(engine, place):
    with begun(engine) as task:
        task.add_reply(calling(("run_tests", {})))
        with task.tool(task.pending_calls()[0]) as run:
            run.result = {"passed": 2}
        newest = lines(place, task, "messages.jsonl")[-1]
        assert (newest["role"], newest["tool_name"], newest["content"]) == ("tool", "run_tests", '{"passed": 2}')


@ours("LLMClient.__init__")
def a_model_is_opened_without_a_store(place):
    (place / "script.json").write_text('["Done."]', "utf-8")
    model = open_model(f"scripted:{place / 'script.json'}", Settings())
    assert model.ask("Anything left?") == "Done."
    model.close()


@ours("LLMClient.get_response")
def a_window_is_answered_and_the_answer_is_added(engine, place):
    (place / "script.json").write_text('["Done."]', "utf-8")
    model = open_model(f"scripted:{place / 'script.json'}", Settings())
    with begun(engine) as task:
        task.add_reply(model.reply(task.window()))
        assert lines(place, task, "messages.jsonl")[-1]["content"] == "Done."
    model.close()


@ours("TaskHandler.__init__")
def a_handler_is_made_of_an_engine_a_model_and_tools(engine, place):
    handler = TaskHandler(engine, ScriptedPlanner(Workspace(place / "world")), Workspace(place / "world"))
    assert handler.limits.calls == engine.settings.max_llm_process_num


@ours("TaskHandler.handle")
def a_handler_runs_a_task_to_its_end(engine, place):
    (place / "script.json").write_text('["Done."]', "utf-8")
    model = open_model(f"scripted:{place / 'script.json'}", Settings())
    row = TaskHandler(engine, model, Workspace(place / "world")).handle(Work(key=KEY, request="Fix the basket."))
    assert (row.status, row.llm_call_count) == ("completed", 1)


@ours("TaskGetter")
def a_source_finds_what_is_to_be_done(place):
    issues = place / "issues"
    issues.mkdir()
    (issues / "basket.md").write_text("# The basket\n\nIts total is wrong.\n", "utf-8")
    (item,) = Local(issues, sanitiser=Sanitiser()).find()
    assert (item.title, item.body.strip()) == ("The basket", "Its total is wrong.")


@ours("Task.get_task_key")
def an_item_says_what_it_is(place):
    issues = place / "issues"
    issues.mkdir()
    (issues / "basket.md").write_text("# The basket\n", "utf-8")
    (item,) = Local(issues, sanitiser=Sanitiser()).find()
    assert orihon.TaskKey.parse(str(item.key)) == item.key


@ours("task_queue.get")
def a_queued_task_is_taken_once(engine):
    uuid = queue.enqueue(engine, KEY, queue.Job(request="Fix it."))
    assert [row.uuid for row in queue.iter_waiting(engine)] == [uuid]
    task = queue.claim(engine, uuid, tools=TOOLS)
    assert queue.load_job(engine, uuid).request == "Fix it."
    assert queue.claim(engine, uuid) is None
    task.complete()


# seed 001: the coordinator


def coordinated(engine, place):
    """A coordinator in front of a run that goes on from an earlier one with a plan."""
    world = Workspace(place / "world")
    first = plan(action("Read the basket"), goal="Mend the basket")
    planner = ScriptedPlanner(world, plan=[first], verification=[PASSED], acts={"Read the basket": [DONE]})
    TaskHandler(engine, planner, world, planning=True).handle(Work(key=KEY, request="Mend the basket."))
    task = engine.start(KEY, tools=world.schemas)
    task.add("user", "Mend the basket.")
    coordinator = PlanningCoordinator(Loop(task, planner, world), engine)
    coordinator._inherit()
    return task, coordinator


@ours("PlanningCoordinator._load_inherited_planning_context")
def earlier_plans_are_loaded(engine, place):
    task, coordinator = coordinated(engine, place)
    coordinator._load_inherited_planning_context()
    assert coordinator.inherited[0].plan.goal == "Mend the basket"
    task.complete()


@ours("PlanningCoordinator._build_initial_context_with_inheritance")
def earlier_plans_are_told(engine, place):
    task, coordinator = coordinated(engine, place)
    assert "Read the basket" in coordinator._build_initial_context_with_inheritance()
    task.complete()


@ours("PlanningCoordinator._evaluate_previous_plan_applicability")
def a_finished_plan_is_a_reference(engine, place):
    task, coordinator = coordinated(engine, place)
    assert coordinator._evaluate_previous_plan_applicability() == "reference"
    task.complete()


@ours("PlanningCoordinator._merge_with_previous_learnings")
def a_new_plan_takes_over_what_was_learned(engine, place):
    task, coordinator = coordinated(engine, place)
    merged = coordinator._merge_with_previous_learnings(Plan(goal_understanding=Goal(main_objective="Again")))
    assert merged.goal == "Again"
    task.complete()


# seed 003: importance and snapshots


@ours("ContextManager.constructor")
def the_policy_importance(engine):
    with begun(engine, window="importance", max_messages=6) as task:
        long_enough(task)
        shown = [message for message in task.window().messages if message.seq]
        assert len(shown) <= 6


@ours("ContextManager.addMessage")
def the_importance_of_a_message(engine):
    with begun(engine) as task:
        turn(task, calling(("run_tests", {})), ["ok"])
        task.add_reply(calling(("run_tests", {})))
        with task.tool(task.pending_calls()[0]):
            raise RuntimeError("broken")
        _, _, _, fine, _, failed = engine.read(task.uuid).messages()
        assert importance(failed) == pytest.approx(importance(fine) + 0.3)


@ours("ContextManager.getMessages")
def the_newest_and_the_most_important(engine):
    with begun(engine, window="importance", max_messages=10) as task:
        task.add_reply(calling(("read_file", {"path": "lost.py"})))
        with task.tool(task.pending_calls()[0]):
            raise FileNotFoundError("lost.py")
        long_enough(task, 10)
        seqs = [message.seq for message in task.window().messages if message.seq]
        assert seqs == sorted(seqs)
        assert {1, 2, 3, 4, 21, 22, 23, 24} <= set(seqs)  # instructions, the error, the newest 40 %
        assert len(seqs) <= 10


@ours("ContextManager.updateSnapshot")
def a_snapshot_is_updated_in_part(engine):
    with begun(engine) as task:
        task.snapshot(goal="Fix it", completed_actions=[], current_phase="planning", key_observations=[])
        task.snapshot(completed_actions=["read_file", "edit"], current_phase="executing")
        seen = task.snapshot()
        assert (seen.goal, seen.current_phase) == ("Fix it", "executing")
        assert seen.completed_actions == ("read_file", "edit")


@ours("ContextManager.compressUIData")
def a_tree_is_cut_down_in_the_window(engine):
    children = [{"role": "AXGroup", "children": [{"role": "AXText", "children": [{"role": "AXImage"}]}]}]
    button = {"role": "AXButton", "title": "Submit", "help": "Press enter", "children": children}
    tool = {"type": "function", "function": {"name": "elementsJson", "parameters": {"type": "object"}}}
    with begun(engine, window="importance", tools=[tool]) as task:
        turn(task, calling(("elementsJson", {})), [{"elements": [button] * 300}])
        shown = json.loads(task.window().openai()[-1]["content"])
        assert len(shown["elements"]) <= 200
        assert "help" not in shown["elements"][0]
        assert shown["elements"][0]["children"][0]["children"] == "[truncated]"
        assert len(json.loads(task.unfold("m4"))["elements"]) == 300


@ours("ContextManager.getStats")
def the_stats_of_a_task(engine):
    with begun(engine) as task:
        turn(task, calling(("run_tests", {})))
        window = task.window()
        stats = task.stats()
        assert (stats.messages, stats.current_context_tokens) == (4, window.tokens)
        assert (stats.has_snapshot, stats.completed_actions) == (True, 1)


def heard(place, name):
    """What a hook of this name hears in one round."""
    calls = []
    hook = type("Hook", (), {name: lambda _, *about: calls.append(about)})()
    with orihon.open(place, settings=Settings(), hooks=[hook]) as engine, begun(engine) as task:
        turn(task, calling(("run_tests", {})), ["2 passed"])
        ((who, what),) = calls
        assert who is task
        return what


@ours("ContextManagementPlugin.beforeModelRequest")
def before_a_request(place):
    window = heard(place, "before_request")
    assert window.openai()[-1]["content"] == "Fix the basket."


@ours("ContextManagementPlugin.afterModelResponse")
def after_a_reply(place):
    message = heard(place, "after_reply")
    assert (message.seq, message.tool_calls[0].name) == (3, "run_tests")


@ours("ContextManagementPlugin.afterFunctionExecution")
def after_a_tool(place):
    run = heard(place, "after_tool")
    assert (run.call.name, run.result) == ("run_tests", "2 passed")


@ours("orchestrator.getContextStats")
def stats_while_it_runs(engine):
    with begun(engine) as task:
        before = task.stats().messages
        turn(task, saying("Done."))
        assert task.stats().messages == before + 1


@ours("orchestrator.getContextSnapshot")
def the_snapshot_while_it_runs(engine):
    with begun(engine) as task:
        assert not task.snapshot()
        turn(task, calling(("read_file", {"path": "a.py"})))
        assert task.snapshot().completed_actions == ("read_file a.py",)


@ours("orchestrator.reset")
def a_reset_empties_the_view_and_the_snapshot(engine):
    with begun(engine) as task:
        task.snapshot(goal="Fix it")
        turn(task, calling(("run_tests", {})))
        task.reset()
        assert not task.snapshot()
        assert [message["role"] for message in task.window().openai()] == ["system"]
        assert task.stats().messages == 4


# seed 004: conversations


@ours("ConversationState.enter_tangent_mode")
def entering_a_tangent(engine, place):
    with begun(engine) as task, task.tangent("Why is CI slow?"):
        assert task.window().openai()[-1]["content"] == "Why is CI slow?"
        assert lines(place, task, "events.jsonl")[-1]["type"] == "tangent"


@ours("ConversationState.exit_tangent_mode")
def leaving_a_tangent(engine):
    with begun(engine) as task:
        before = task.window().openai()
        with task.tangent("Why is CI slow?"):
            turn(task, saying("The cache is off."))
        assert task.window().openai() == before


@ours("ConversationState.exit_tangent_mode_with_tail")
def leaving_a_tangent_with_its_last_exchange(engine):
    with begun(engine) as task:
        before = task.window().openai()
        with task.tangent("What is CI?", keep="tail"):
            turn(task, saying("A robot."))
            task.add("user", "Why is it slow?")
            turn(task, saying("The cache is off."))
        tail = task.window().openai()[-2:]
        assert [message["content"].splitlines()[-1] for message in tail] == ["Why is it slow?", "The cache is off."]
        assert "A robot." not in str(task.window().openai())
        assert str(before[0]["content"]) in str(task.window().openai())


@ours("ConversationState.clear")
def clearing(engine, place):
    with begun(engine) as task:
        task.reset()
        assert lines(place, task, "events.jsonl")[-1]["type"] == "clear"
        task.add("user", "Something else.")
        assert [message["content"] for message in task.window().openai()] == ["You fix bugs.", "Something else."]
        task.undo()
        assert "Fix the basket." in str(task.window().openai())


@ours("ConversationState::new")
def a_new_conversation(engine, place):
    place.mkdir(exist_ok=True)
    with registry.start(engine, place, name="shop", model="gpt-4o", tools=TOOLS, mcp_enabled=False) as talk:
        assert (talk.name, talk.mcp_enabled, talk.task.config.model) == ("shop", False, "gpt-4o")


@ours("ConversationState")
def to_json_and_back(engine, place):
    with registry.start(engine, place, name="shop") as talk:
        talk.say("Hello.")
        talk.task.add_reply(saying("Hi."))
        document.write(talk, place.parent / "talk.json")
        with document.read(engine, place.parent / "talk.json", place, name="again") as again:
            assert again.transcript == talk.transcript == ["> Hello.", "Hi."]


@ours("ConversationState.is_in_tangent_mode")
def being_in_a_tangent(engine, place):
    with registry.start(engine, place, name="shop") as talk:
        assert not talk.is_in_tangent
        talk.enter_tangent()
        assert talk.is_in_tangent


@ours("ConversationState.get_tangent_duration_seconds")
def how_long_a_tangent_lasts(engine, place):
    with registry.start(engine, place, name="shop") as talk:
        assert talk.tangent_seconds is None
        talk.enter_tangent()
        assert talk.tangent_seconds in range(300)


@ours("HistoryEntry")
def a_pair(engine, place):
    with registry.start(engine, place, name="shop") as talk:
        talk.say("Hello.")
        talk.task.add_reply(saying("Hi."))
        (entry,) = talk.entries()
        assert (entry.user.prompt, entry.assistant.text) == ("Hello.", "Hi.")


@ours("ConversationCheckpoint")
def what_the_main_conversation_was(engine, place):
    with registry.start(engine, place, name="shop") as talk:
        talk.say("Hello.")
        talk.task.add_reply(saying("Hi."))
        talk.enter_tangent()
        document.write(talk, place.parent / "talk.json")
        found = json.loads((place.parent / "talk.json").read_text())["tangent_state"]
        assert len(found["main_history"]) == 1


@ours("ContextManager")
def sticky_files(engine, place):
    (place.parent / "rules.md").write_text("Be kind.")
    with begun(engine) as task, Toolbox(place.parent) as box:
        StickyFiles(task, box.workspace).add("rules.md")
        assert "Be kind." in str(task.window().openai())


@ours("ToolManager")
def the_toolbox(engine, place):
    (place.parent / "rules.md").write_text("Be kind.")
    with Toolbox(place.parent) as box, begun(engine, tools=box.schemas) as task:
        task.add_reply(calling(("read", {"path": "rules.md"})))
        (call,) = task.pending_calls()
        assert "Be kind." in box.run(call)
        task.answer(call, "Be kind.", is_error=False)


@ours("ModelInfo")
def what_is_known_of_a_model():
    assert find_context_length("openai:gpt-4o", Settings()) == 128_000


@ours("FileLineTracker")
def whose_lines_they_are(place):
    (place.parent / "rules.md").write_text("Be kind.\n")
    with Toolbox(place.parent) as box:
        tracker = FileLineTracker(box.workspace)
        tracker.record_read("rules.md", b"Be kind.\n")
        (place.parent / "rules.md").write_text("Be rude.\n")
        (changed,) = tracker.collect_changes()
        assert (changed.path, changed.by) == ("rules.md", "user")


@ours("CheckpointManager")
def files_and_conversation_at_one_moment(engine, place):
    work = place.parent / "work"
    work.mkdir()
    (work / "rules.md").write_text("Be kind.\n")
    with registry.start(engine, work, name="shop") as talk:
        talk.set_notes(**{ENABLED: True})
        checkpoints = open_checkpoints(talk)
        (work / "rules.md").write_text("Be rude.\n")
        checkpoints.restore("0")
        assert (work / "rules.md").read_text() == "Be kind.\n"


# the map itself


@pytest.fixture
def place(tmp_path):
    return tmp_path / "contexts"


@pytest.mark.parametrize("name", CALLS)
def test_ours_is_called(name, place):
    """What docs/specification.md gives as its place does what the seed's name says."""
    with orihon.open(place, settings=Settings()) as engine:
        at_hand = {"engine": engine, "place": place}
        CALLS[name](**{argument: at_hand[argument] for argument in inspect.signature(CALLS[name]).parameters})
        assert [row.uuid for row in engine.store.find(Query(status=("running",)))] == []


def test_every_name_that_is_done_is_called_here():
    """The page and the calls above agree, name by name."""
    page = Path(__file__).resolve().parents[2] / "docs" / "specification.md"
    done = set(re.findall(r"^\| `([\w.:]+).*\| done \|$", page.read_text("utf-8"), re.MULTILINE))
    assert done == set(CALLS)
