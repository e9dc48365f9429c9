"""Earlier runs of a task, as they stand in a store when the next one starts."""

import uuid as uuids

import msgspec

from orihon.planning.schema import (
    Action,
    ActionPlan,
    Decomposition,
    Goal,
    Plan,
    Reflection,
    Subtask,
    Verification,
    entry,
)
from orihon.records import Summary, ToolCall
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
    **fields,
):
    """A run that was made, worked and ended; its id."""
    uuid = uuid or str(uuids.uuid4())
    about = msgspec.structs.replace(
        a_task(), uuid=uuid, task_key=TaskKey.parse(key), user=user, hostname=hostname, created_at=at or "2024-01-01"
    )
    with store.lease(uuid, create=about) as lease:
        for record in records:
            lease.append(record)
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
    return [*(entry(uuid, value) for value in values), *_CALLS]


_CALLS = [
    ToolCall(seq=0, tool="read_file", args={"path": "src/shop/basket.py"}, result="class Basket: …", status="success",
             duration_ms=3, timestamp=""),
    ToolCall(seq=0, tool="mail", args={"to": "everybody"}, status="error", error="ConnectionRefusedError: port 25",
             duration_ms=3, timestamp=""),
]  # fmt: skip
