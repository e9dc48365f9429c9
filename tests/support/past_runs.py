"""Earlier runs of a task, as they stand in a store when the next one starts."""

import uuid as uuids

import msgspec

from orihon.inheritance import make_outline
from orihon.planning.digest import make_digest
from orihon.planning.history import read_run
from orihon.planning.schema import (
    Action,
    ActionPlan,
    Decomposition,
    Goal,
    Plan,
    Reflection,
    Subtask,
    Verification,
    make_entry,
)
from orihon.records import PlanEntry, Summary, ToolCall
from orihon.task_key import TaskKey
from orihon.testing.samples import a_task

NOW = "2024-03-01T12:00:00.000000Z"
KEY = "github/acme/shop/issue/1"


def a_run(
    store,
    status="completed",
    *,
    key=KEY,
    user="alice",
    summary="It is done.",
    at="2024-02-01T10:00:00.000000Z",
    hostname=None,
    uuid="",
    records=(),
    language="en",
    **fields,
):
    """Create a run that worked and ended, with the outline that its row keeps, and return its id."""
    uuid = uuid or str(uuids.uuid4())
    about = msgspec.structs.replace(
        a_task(), uuid=uuid, task_key=TaskKey.parse(key), user=user, hostname=hostname, created_at=at or "2024-01-01"
    )
    with store.lease(uuid, create=about) as lease:
        for record in records:
            lease.append(record)
        if any(isinstance(record, PlanEntry) for record in records):
            notes = {"sections": msgspec.to_builtins(make_digest(read_run(store, store.row(uuid)), language))}
            fields = {"handoff": make_outline(store, store.row(uuid), notes)} | fields
        lease.update(status=status, completed_at=at, final_summary=summary, **fields)
    return uuid


def a_final(text, kind="final"):
    """A summary that the store has still to number."""
    return Summary(
        id=0, start_seq=1, end_seq=9, summary=text, original_tokens=90, summary_tokens=9, ratio=0.1, kind=kind,
        timestamp="",
    )  # fmt: skip


def a_plan(uuid="u", *, goal="Fix the total of an empty basket", who="the reviewer"):
    """The records of a planned run: a plan, what came of it, and the tools that were used."""
    steps = ("Read src/shop/basket.py", "Guard the division", "Tell everybody")
    plan = Plan(
        goal_understanding=Goal(main_objective=goal, success_criteria=("tests/test_basket.py passes",)),
        task_decomposition=Decomposition(
            subtasks=tuple(Subtask(id=f"t{number}", description=text) for number, text in enumerate(steps, 1))
        ),
        action_plan=ActionPlan(
            actions=tuple(
                Action(task_id=f"t{number}", tool=tool, purpose=text)
                for number, (tool, text) in enumerate(zip(("read_file", "edit_file", "mail"), steps, strict=True), 1)
            )
        ),
    )
    values = [
        plan,
        Reflection(action_evaluated=steps[0], status="success", tool="read_file", evaluation="The division is there."),
        Reflection(action_evaluated=steps[1], status="success", tool="edit_file", evaluation="A guard was added."),
        Reflection(
            action_evaluated=steps[2], status="failure", tool="mail", issues_identified=("no mail server",),
            root_cause=f"{who} has no account", remedy="write a comment instead",
        ),
        Verification(round=1, verification_passed=False, issues_found=("rounding is not tested",)),
        Verification(round=2, verification_passed=True),
    ]  # fmt: skip
    return [*(make_entry(value, uuid) for value in values), *_CALLS]


def a_call(tool="shell", **fields):
    """A tool call that the store has still to number; with an error, it failed."""
    status = "error" if fields.get("error") else "success"
    return ToolCall(
        **{"seq": 0, "tool": tool, "args": {}, "status": status, "duration_ms": 1, "timestamp": ""} | fields
    )


_CALLS = [
    a_call("read_file", args={"path": "src/shop/basket.py"}, result="class Basket: …"),
    a_call("mail", args={"to": "everybody"}, error="ConnectionRefusedError: port 25"),
]
