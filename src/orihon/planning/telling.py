"""What the model is told in each phase: the prompts of `planning.prompts`, filled in.

The form of an answer is made from the schema, so no field has its name here. What earlier runs say stands on lines of
its own, is cleaned of names and marks, and is called what it is: material.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from orihon.inheritance.block import harmless
from orihon.inheritance.sanitise import Names
from orihon.planning.history import Learnings, relevant
from orihon.planning.history.outline import line
from orihon.planning.history.progress import Question
from orihon.planning.history.steps import settled
from orihon.planning.history.words import WORDS
from orihon.planning.labels import LABELS
from orihon.planning.prompts import prompt
from orihon.planning.schema import Action, Plan, Subtask, json_schema
from orihon.planning.schema.values import ReplanType
from orihon.records import PlanKind

SHOWN = 10  # lines of one kind
MAX_STEPS = 200
CHARS = 300


class Telling:
    """The texts for one task, in its language."""

    def __init__(self, language: str, names: Names) -> None:
        self.language = language if language in LABELS else "en"
        self.names = names
        self.labels, self.words = LABELS[self.language], WORDS[self.language]

    # the prompts

    def plan(self, inherited: str, *, most: int) -> str:
        """Ask for the whole plan."""
        return self._filled("plan", inherited=_spaced(inherited), most=f"{most:,}", form=form_of(form("plan")))

    def action(self, plan: Plan, number: int, learned: Learnings, advice: str) -> str:
        """Ask for one action."""
        action = plan.actions[number]
        heading = self.labels["step"].format(number + 1, len(plan.actions))
        about = [*self._about(plan, action), *self._labelled({"advice": advice}), *self._known(learned, action)]
        return self._filled("action", heading=heading, about="\n".join(about), report=form_of(report()))

    def reflection(self, plan: Plan, number: int, learned: Learnings) -> str:
        """Ask how it went."""
        known = [
            *(f"{self.labels['revised']}: {text}" for text in learned.revision_reasons[:SHOWN]),
            *(f"{self.labels['problem']}: {item.issue} — {item.root_cause}" for item in learned.problems[:SHOWN]),
            *(
                f"{self.labels['remedy']}: {item.what} → {item.remedy}"
                for item in learned.failed[:SHOWN]
                if item.helped
            ),
        ]
        form_ = form("reflection", "revision")
        return self._filled("reflect", **self._state(plan, number), learned=self._earlier(known), form=form_of(form_))

    def decision(self, plan: Plan, number: int, counts: dict[str, int], most: int) -> str:
        """Ask whether to plan again."""
        done = ", ".join(f"{name} {count:,}" for name, count in counts.items()) or self.labels["nothing"]
        return self._filled(
            "decide", **self._state(plan, number), counts=done, most=f"{most:,}", form=form_of(form("replan_decision"))
        )

    def revision(self, plan: Plan, number: int, kind: ReplanType, advice: str) -> str:
        """Ask for another plan, or a part of one."""
        about = [*self._about(plan, plan.actions[number]), *self._labelled({"advice": advice})]
        return self._filled(
            "revise",
            what=self.labels.get(kind, self.labels["plan_revision"]),
            about="\n".join(about),
            plan=self.steps(plan),
            form=form_of(form("revision")),
        )

    def verification(self, plan: Plan, learned: Learnings, found: Sequence[str]) -> str:
        """Ask whether it is done."""
        known = [
            *(f"{self.labels['placeholder']}: {text}" for text in learned.placeholders[:SHOWN]),
            *(f"{self.labels['unmet']}: {item.criterion}" for item in learned.criteria if item.met is False),
            *(f"{self.labels['met']}: {item.criterion}" for item in learned.criteria if item.met),
            *(f"{self.labels['work']}: {text}" for text in learned.additional_work[:SHOWN]),
        ]
        goal = plan.goal_understanding
        about = [
            *self._labelled({"goal": goal.main_objective}),
            *(f"{self.labels['criterion']}: {text}" for text in goal.success_criteria),
            *(f"{self.labels['constraint']}: {text}" for text in goal.constraints),
        ]
        ours = "\n".join((self.labels["found"], *(f"- {text}" for text in found))) if found else ""
        return self._filled(
            "verify",
            about="\n".join(about),
            plan=self.steps(plan),
            learned=self._earlier(known),
            found=ours,
            form=form_of(form("verification")),
        )

    def again(self, error: str, schema: dict[str, Any]) -> str:
        """Ask for an answer that can be read."""
        return self._filled("again", error=error, form=form_of(schema))

    # pieces

    def steps(self, plan: Plan) -> str:
        """The subtasks and actions of a plan with how they stand, a line each."""
        plan = settled(plan)
        lines = [
            f"[{self.words[part.status]}] {part.id}: {line(part.description, CHARS)}{self._needs(part)}"
            for part in plan.subtasks[:MAX_STEPS]
        ]
        for number, action in enumerate(plan.actions[:MAX_STEPS], start=1):
            error = f" — {line(action.error, CHARS)}" if action.error else ""
            what = ": ".join(filter(None, (action.tool, line(action.purpose, CHARS))))
            lines.append(f"  {number}. [{self.words[action.status]}] ({action.task_id}) {what}{error}")
        return "\n".join(lines)

    def initial(self, previous: Plan | None, learned: Learnings, *, continues: bool) -> str:
        """What earlier runs say to a new plan; empty when there is nothing."""
        if previous is None and learned == Learnings():
            return ""
        known = [
            *(f"{self.labels['worked']}: {item.what} ({item.tool})" for item in learned.worked[:SHOWN]),
            *(f"{self.labels['failed']}: {item.what}: {item.why} → {item.remedy}" for item in learned.failed[:SHOWN]),
            *(f"{self.labels['depends']}: {one} ← {', '.join(of)}" for one, of in _first(learned.dependencies)),
            *(
                f"{self.labels['harder']}: {name} ({self.words[item.adjusted]})"
                for name, item in _first(learned.complexity)
                if item.troubles
            ),
            *(
                f"{self.labels['tool']}: {use.tool}: {self.words['uses'].format(use.successes, use.failures)}"
                for use in learned.tools[:SHOWN]
            ),
        ]
        told = self.labels["continue" if continues else "reference"]
        plan = harmless(self.steps(previous), self.names) if previous is not None and continues else ""
        return "\n".join(filter(None, (told, plan, self._earlier(known).strip())))

    def advice(self, strategy: str, question: Question | None) -> str:
        """What the next try should know, in one line each."""
        lines = [strategy] if strategy else []
        if question is not None and question.answer:
            lines.append(f"{self.labels['answer']}: {question.answer}")
        elif question is not None:
            assumed = "; ".join(question.assumptions) or self.labels["judge"]
            lines.append(f"{self.labels['assume']}: {assumed}")
        return "\n".join(lines)

    def mending(self, issues: Iterable[str]) -> str:
        """The purpose of an action that mends what a verification found."""
        texts = [line(text, CHARS) for text in issues][:SHOWN]
        return self.labels["mend"].format("; ".join(texts) or self.labels["judge"])

    def _state(self, plan: Plan, number: int) -> dict[str, str]:
        return {"about": "\n".join(self._about(plan, plan.actions[number])), "plan": self.steps(plan)}

    def _about(self, plan: Plan, action: Action) -> list[str]:
        part = next((part for part in plan.subtasks if part.id == action.task_id), Subtask(id=action.task_id))
        return self._labelled(
            {
                "goal": plan.goal,
                "subtask": ": ".join(filter(None, (part.id, part.description))),
                "purpose": action.purpose,
                "tool": action.tool,
                "parameters": _json(action.parameters) if action.parameters else "",
                "expected": action.expected_outcome,
                "fallback": action.fallback_strategy,
                "error": action.error,
            }
        )

    def _labelled(self, values: dict[str, str]) -> list[str]:
        return [f"{self.labels[name]}: {value}" for name, value in values.items() if value]

    def _known(self, learned: Learnings, action: Action) -> list[str]:
        """What earlier runs know about such an action."""
        about = relevant(learned, action)
        known = [
            *(f"{self.labels['worked']}: {item.what} ({item.tool})" for item in about.worked[:SHOWN]),
            *(f"{self.labels['failed']}: {item.what}: {item.why} → {item.remedy}" for item in about.failed[:SHOWN]),
            *(
                f"{self.labels['tool']}: {use.tool}: "
                f"{self.words['uses'].format(use.successes, use.failures)} {line(use.last_error, CHARS)}"
                for use in about.tools
            ),
        ]
        return [self._earlier(known).strip()] if known else []

    def _earlier(self, known: Sequence[str]) -> str:
        lines = [f"- {line(harmless(text, self.names), CHARS)}" for text in known]
        return _spaced("\n".join((self.labels["earlier"], *lines))) if lines else ""

    def _needs(self, part: Subtask) -> str:
        return f" ({self.words['after']}: {', '.join(part.dependencies)})" if part.dependencies else ""

    def _filled(self, name: str, **values: str) -> str:
        return prompt(name, self.language).format(**values)


@functools.cache
def form(*kinds: PlanKind) -> dict[str, Any]:
    """The form of an answer; only the first of several kinds is needed."""
    schemas = [json_schema(kind) for kind in kinds]
    together = {name: item for schema in reversed(schemas) for name, item in schema["properties"].items()}
    return {**schemas[0], "properties": together}


@functools.cache
def report() -> dict[str, Any]:
    """The short form of a reflection: only what it cannot be without."""
    return {name: _needed(item) for name, item in json_schema("reflection")["properties"].items()}


def form_of(schema: dict[str, Any]) -> str:
    """A form as the model reads it."""
    return _json(schema)


def _needed(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: " | ".join(map(str, schema["properties"][name].get("enum", ()))) for name in schema["required"]}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _spaced(text: str) -> str:
    return f"\n{text}\n" if text else ""


def _first(values: dict[str, Any]) -> list[tuple[str, Any]]:
    return list(values.items())[:SHOWN]
