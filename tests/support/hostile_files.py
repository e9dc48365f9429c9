"""A task with every kind of record and event in it, and a portable file of it whose lines can be changed one by one."""

import gzip
import hashlib
import json

import msgspec

import orihon
from orihon.chat import registry
from orihon.context.view import record
from orihon.ops.task_file import write_task_file
from orihon.planning.digest import record_value
from orihon.planning.schema import Action, ActionPlan, Decomposition, Goal, Plan, Subtask
from orihon.settings.schema import Settings
from support.mutations import dumped

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
KEY = "github/acme/shop/issue/27"


READ = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]


def reply(text, *calls, usage=True):
    made = [
        {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for place, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": text} | ({"tool_calls": made} if made else {})
    return {"choices": [{"message": message}]} | (
        {"usage": {"prompt_tokens": 900, "completion_tokens": 20}} if usage else {}
    )


def fill(engine, directory):
    """A conversation that has done everything that makes an event, paused."""
    conversation = registry.start(
        engine, directory, name="talk", user="alice", uuid=UUID, context_length=6000, tools=READ
    )
    task = conversation.task
    task.add("system", "You fix bugs.")
    task.sticky({"STYLE.md": "short lines"})
    conversation.set_next("not said yet")
    for number in range(6):
        task.add("user", f"question {number} " + "word " * 300)
        task.add_reply(reply(f"I look {number}", ("read", {"path": f"part_{number}.py"})))
        for call in task.pending_calls():
            with task.tool(call) as run:
                run.result = "line of a file\n" * 200
        task.add_reply(reply(f"answer {number}"))
        task.window()
    task.compact()
    task.snapshot(goal="mend it", current_phase="execution", key_observations=["red"])
    with task.tangent("why is it slow?", keep="tail"):
        task.add_reply(reply("because"))
    mark = task.checkpoint("before")
    task.rewind(task.log.last - 2)
    task.restore(mark)
    undo = task.rewind(task.log.last - 1)
    task.undo(undo)
    task.add("user", "pin me", pinned=True)
    task.pin(1)
    task.unpin(1)
    task.writer.event("leave", upto=1)
    task.writer.event(
        "note", scale=1.2, least_scale=1.1, refusals=[1, 2], frozen={"model": "other"}, work={"request": "x"}
    )
    task.writer.event(
        "note", next_message={"text": "later", "id": "1"}, turn=3, steps=2, cut=4, planning={"phase": "planning"}
    )
    parts = Decomposition(subtasks=(Subtask(id="1", description="s"),))
    steps = ActionPlan(actions=(Action(task_id="1", tool="read", purpose="p"),))
    plan = Plan(goal_understanding=Goal(main_objective="g"), task_decomposition=parts, action_plan=steps)
    record_value(task, plan)
    task.begin_tangent()
    task.add("user", "aside")
    task.writer.event("view", **record(task.log.view))
    task.writer.event("clear")
    task.add("user", "go on")
    task.add_reply(reply("done"))
    task.follow([{"role": "system", "content": "You mend baskets."}, {"role": "user", "content": "go on"}])
    task.pause("for lunch")
    return task


def portable(place):
    """A portable file of such a task; its lines, as values, without the last one."""
    place.mkdir(parents=True, exist_ok=True)
    with orihon.open("memory:", settings=Settings()) as engine:
        fill(engine, place)
        write_task_file(engine.store, engine.row(UUID), place / "task.orihon")
    lines = gzip.decompress((place / "task.orihon").read_bytes()).splitlines()
    return [json.loads(line) for line in lines[:-1]]


def packed(lines):
    """A portable file of these lines, with its checksum."""
    data = b"".join(
        (line if isinstance(line, bytes) else dumped(line).encode("utf-8", "surrogatepass")) + b"\n" for line in lines
    )
    end = {"end": {"lines": len(lines), "sha256": hashlib.sha256(data).hexdigest()}}
    return gzip.compress(data + msgspec.json.encode(end) + b"\n", 1)
