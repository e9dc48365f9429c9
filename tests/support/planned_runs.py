"""Planned runs with a model whose replies depend only on its window, so that any process can continue them.

python planned_runs.py STORE WORKSPACE UUID [CHECKS]    continue the story; with CHECKS, pause at that check
"""

import itertools
import json
import sys
from pathlib import Path

from msgspec.structs import replace

import orihon
from orihon.agent.handler import TaskHandler, Work
from orihon.agent.loop import PauseRequested
from orihon.context.repair import INTERRUPTED
from orihon.planning.parser import read_entry
from orihon.planning.plan_state import load_progress
from orihon.records import Message, PlanEntry
from orihon.settings.schema import ContextStorage, Planning, Reflection, Settings

KEY = orihon.TaskKey.github("acme", "shop", issue=27)
NAMES = ("read_file", "write_file", "run_tests")
SCHEMAS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in NAMES
]
OPENINGS = {
    "plan": ("Plan the task", "作業を始める前に計画"),
    "action": ("Action ", "アクション "),
    "reflection": ("Reflect before", "次に進む前に"),
    "decision": ("The last action failed", "直前のアクションが失敗"),
    "revision": ("Revise the plan", "計画を修正して"),
    "verification": ("Verify whether", "タスクが完了したか"),
    "again": ("Your answer could not", "回答を読み取れ"),
}
DONE = 'It is done. {"reflection": {"status": "success"}}'
FAILED = 'It cannot be done. {"reflection": {"status": "failure", "evaluation": "the port is taken"}}'
PASSED = {"verification_passed": True, "comment": "All is well."}
FINE = {"reflection": {"status": "partial", "evaluation": "it goes on"}}
NO_REPLAN = {"replan_decision": {"replan_needed": False}}
QUIET = Settings(planning=Planning(reflection=Reflection(enabled=False)))


def action(purpose, task_id="1", tool="read_file", **more):
    return {"task_id": task_id, "tool": tool, "purpose": purpose, "expected_outcome": f"{purpose} is done", **more}


def plan(*actions, goal="Mend the shop", subtasks=None, criteria=("the tests pass",), **more):
    """Return a plan as a model writes it, by default with one subtask for each id."""
    ids = dict.fromkeys(one["task_id"] for one in actions)
    parts = subtasks or [{"id": id_, "description": f"part {id_}"} for id_ in ids]
    return {
        "goal_understanding": {"main_objective": goal, "success_criteria": list(criteria)},
        "task_decomposition": {"reasoning": "so", "subtasks": parts},
        "action_plan": {"actions": list(actions), **more},
    }


def decision(confidence=0.9, **fields):
    return {"replan_decision": {"replan_needed": True, "confidence": confidence, "reasoning": "it failed", **fields}}


def revision(*actions, reason="another way", **more):
    return {"plan_revision": {"reason": reason, "updated_plan": {"action_plan": {"actions": list(actions)}, **more}}}


class Workspace:
    """The directory and the tools of a run. `ran` has a line for every call."""

    def __init__(self, root):
        self.root = Path(root)
        self.root.mkdir(parents=True, exist_ok=True)
        self.schemas = SCHEMAS

    @property
    def ran(self):
        place = self.root / "ran.log"
        return place.read_text("utf-8").splitlines() if place.exists() else []

    def run(self, call):
        with (self.root / "ran.log").open("a", encoding="utf-8") as log:
            log.write(line_of(call.name, call.arguments) + "\n")
        if call.arguments.get("fails"):
            raise OSError(call.arguments["fails"])
        if call.name == "write_file":
            (self.root / call.arguments["path"]).write_text(call.arguments["content"], "utf-8")
            return "written"
        if call.name == "read_file" and (self.root / call.arguments.get("path", "")).is_file():
            return (self.root / call.arguments["path"]).read_text("utf-8")
        return "ok"


def line_of(name, arguments):
    return f"{name} {json.dumps(arguments, sort_keys=True)}"


class ScriptedPlanner:
    """A model that gives the n-th answer to the n-th prompt of a kind, or of an action's purpose.

    An answer is a value, a text, a function of the messages, or for actions a list of calls and texts.
    """

    def __init__(self, world, *, acts=None, **answers):
        self.world, self.acts, self.answers = world, acts or {}, answers
        self.windows = []
        self.forms = []

    def reply(self, window, *, on_text=None, **form):  # noqa: ARG002 - it does not stream
        messages = window.openai()
        self.windows.append(messages)
        self.forms.append(form)
        place, kind, nth = self._asked(messages)
        steps = self._steps(kind, messages, place, nth)
        return self._step(steps, messages[place + 1 :])

    def _asked(self, messages):
        prompts = [(place, kind_of(one["content"])) for place, one in enumerate(messages) if one["role"] == "user"]
        prompts = [(place, kind) for place, kind in prompts if kind]
        place, kind = prompts[-1]
        if kind == "action":
            about = purpose_of(messages[place]["content"])
            same = [one for one, what in prompts if what == kind and purpose_of(messages[one]["content"]) == about]
            return place, kind, len(same)
        if kind == "again":
            before = next(what for _, what in reversed(prompts) if what != "again")
            return place, before, len([what for _, what in prompts if what in {before, "again"}])
        return place, kind, len([what for _, what in prompts if what == kind])

    def _steps(self, kind, messages, place, nth):
        if kind == "action":
            known = self.acts.get(purpose_of(messages[place]["content"]), [[DONE]])
        else:
            defaults = {"verification": PASSED, "reflection": FINE, "decision": NO_REPLAN}
            known = self.answers.get(kind, [defaults.get(kind)])
        chosen = known[min(nth, len(known)) - 1]
        chosen = chosen(messages) if callable(chosen) else chosen
        return chosen if isinstance(chosen, list) else [chosen]

    def _step(self, steps, since):
        calls = [one for message in since for one in message.get("tool_calls") or ()]
        lines = [line_of(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in calls]
        if since and since[-1].get("content") == INTERRUPTED and lines[-1] not in self.world.ran:
            step = (calls[-1]["function"]["name"], json.loads(calls[-1]["function"]["arguments"]))
        else:
            step = steps[min(len(dict.fromkeys(lines)), len(steps) - 1)]
            step = step(since) if callable(step) else step
        if isinstance(step, tuple):
            return calling(*step)
        return saying(step if isinstance(step, str) else json.dumps(step, ensure_ascii=False))


_ids = itertools.count(1)


def calling(name, arguments):
    call = {"name": name, "arguments": json.dumps(arguments)}
    return saying("", tool_calls=[{"id": f"call_{next(_ids)}", "type": "function", "function": call}])


def saying(text, **more):
    return {"model": "m", "choices": [{"message": {"role": "assistant", "content": text, **more}}]}


def kind_of(text):
    return next((kind for kind, starts in OPENINGS.items() if str(text).startswith(starts)), None)


def purpose_of(text):
    lines = (line for line in text.splitlines() if line.startswith(("Purpose: ", "目的: ")))
    return next(lines, ": ").split(": ", 1)[1]


def prompts(engine, uuid, kind=None):
    """Return the prompts that the model was sent, in order."""
    said = [one.text for one in engine.store.read(uuid, Message) if one.role == "user" and kind_of(one.text)]
    return [text for text in said if kind in {None, kind_of(text)}]


def entries(engine, uuid):
    return [read_entry(entry) for entry in engine.store.read(uuid, PlanEntry)]


def progress(engine, uuid):
    return load_progress(engine.store, uuid)


def handler(engine, planner, *, pause_at=None, **options):
    """Return a handler for planned runs that pauses at the given check."""
    count = itertools.count(1)

    def check(_):
        if next(count) == pause_at:
            raise PauseRequested("now")

    checks = () if pause_at is None else (check,)
    options = {"workspace": planner.world.root, **options}
    return TaskHandler(engine, planner, planner.world, planning=True, checks=checks, **options)


def run(engine, planner, request="Mend the shop.", *, key=KEY, **options):
    """Run one task to its end and return its row."""
    return handler(engine, planner, **options).handle(Work(key=key, request=request))


# the story: every phase, every kind of entry, and a user who answers


def story(world):
    """A model that reads, plans, fails, reflects, asks, replans, leaves a placeholder and fills it in."""
    first = plan(
        action("look at the shop"),
        action("open the door", "2", "run_tests"),
        action("write the sign", "3", "write_file"),
        action("paint the wall", "4"),
        subtasks=[{"id": "1"}, {"id": "2", "dependencies": ["1"]}, {"id": "3"}, {"id": "4"}],
    )
    return ScriptedPlanner(
        world,
        plan=[[("read_file", {"path": "shop.txt"}), first]],
        acts={
            "look at the shop": [[("read_file", {"path": "a"}), ("read_file", {"path": "b"}), DONE]],
            "open the door": [[("run_tests", {"fails": "locked"}), FAILED], [("run_tests", {"key": 1}), DONE]],
            "write the sign": [
                [("write_file", {"path": "sign.py", "content": "def sign():\n    pass\n"}), DONE],
            ],
            "paint the wall": [[("read_file", {"path": "wall", "fails": "wet"}), FAILED]],
            "paint the door": [[("run_tests", {"paint": "door"}), "Painted."]],
            "fill in the sign": [[("write_file", {"path": "sign.py", "content": "SIGN = 1\n"}), DONE]],
        },
        reflection=[
            {"reflection": {"status": "failure", "action_evaluated": "open the door", "root_cause": "no key"}},
            {
                "reflection": {"status": "partial", "plan_revision_needed": True},
                **revision(
                    action("write the sign", "3", "write_file"),
                    action("paint the wall", "4"),
                    action("sweep the floor", "5"),
                    reason="it is dirty",
                ),
            },
            {"reflection": {"status": "failure", "action_evaluated": "paint the wall"}},
            FINE,
        ],
        decision=[
            decision(0.9, replan_level=1, recovery_strategy="use the key"),
            decision(
                0.4, replan_type="partial_replan", clarification_questions=["Which?"], assumptions_to_make=["the door"]
            ),
        ],
        revision=[revision(action("paint the door", "4"), action("sweep the floor", "5"))],
        verification=[PASSED | {"additional_actions": [action("fill in the sign")]}, PASSED],
    )


def story_handler(engine, world, pause_at=None):
    (world.root / "shop.txt").write_text("a shop", "utf-8")

    def ask_user(questions):
        with (world.root / "asked.log").open("a", encoding="utf-8") as log:
            log.write(f"{questions[0]}\n")
        return "The door."

    return handler(engine, story(world), pause_at=pause_at, ask_user=ask_user)


def outcome(engine, world, uuid):
    """Return everything that interruptions must not change."""
    asked = (world.root / "asked.log").read_text("utf-8").splitlines()
    keys = [one.key for one in engine.store.read(uuid, Message) if one.role == "user"]
    return {
        "status": engine.row(uuid).status,
        "entries": entries(engine, uuid),
        "progress": replace(progress(engine, uuid), since=0),  # a lost call is a message more
        "ran": world.ran,
        "asked": asked,
        "keys": keys,
    }


def main(url, place, uuid, pause_at=None):
    with orihon.open(url, settings=STORY) as engine:
        row = story_handler(engine, Workspace(place), int(pause_at) if pause_at else None).resume(uuid)
        sys.stdout.write(row.status)


STORY = Settings(context_storage=ContextStorage(durability="os"))

if __name__ == "__main__":
    main(*sys.argv[1:])
