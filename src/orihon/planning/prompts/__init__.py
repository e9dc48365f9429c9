"""The prompts of a planned run: the text files of this package, one per language, filled in.

The form of a reply is generated from the schema, so field names are not repeated here. Text from earlier runs stands on
lines of its own, without names or marks, and is introduced as material.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from orihon._prompts import read
from orihon.inheritance.block import neutralise
from orihon.inheritance.names import Names
from orihon.inheritance.outline import ToolUse
from orihon.planning.digest import Lesson, describe_all, read_words
from orihon.planning.plan_state import Question, settle_subtasks
from orihon.planning.schema import Plan, ReplanType, Subtask, json_schema
from orihon.records import PlanKind
from orihon.terminal import shorten

MAX_LINES = 10  # of one kind
MAX_STEPS = 200
MAX_CHARS = 300


class PromptBuilder:
    """The prompts of one task, in its language, with the lessons of earlier runs."""

    def __init__(
        self, language: str, lessons: Sequence[Lesson] = (), tools: Sequence[ToolUse] = (), names: Names | None = None
    ) -> None:
        self.language = "ja" if language == "ja" else "en"
        self.words = read_words(self.language)
        self.lessons, self.tools, self.names = lessons, tools, names or Names()

    def ask_for_plan(self, inherited: str, max_actions: int) -> str:
        """Return the prompt for the complete plan."""
        return self._fill("plan", make_form("plan"), inherited=_space(inherited), most=f"{max_actions:,}")

    def ask_for_action(self, plan: Plan, number: int, advice: str) -> str:
        """Return the prompt for one action."""
        action = plan.actions[number]
        lessons = [lesson for lesson in self.lessons if lesson.concerns(action)]
        tools = [use for use in self.tools if use.tool == action.tool]
        known = [*describe_all(lessons, self.words, "worked", "failure"), *self._describe_tools(tools)]
        about = "\n".join(filter(None, (self._describe_action(plan, number, advice), self._quote(known).strip())))
        heading = self.words["step"].format(number + 1, len(plan.actions))
        return self._fill("action", heading=heading, about=about, report=_to_json(_make_report_form()))

    def ask_for_reflection(self, plan: Plan, number: int) -> str:
        """Return the prompt for a reflection on an action."""
        lessons = [lesson for lesson in self.lessons if lesson.topic != "failure" or (lesson.ok and lesson.remedy)]
        known = describe_all(lessons, self.words, "revision", "replan", "problem", "failure")
        form = make_form("reflection", "revision")
        return self._fill("reflect", form, **self._state(plan, number), learned=self._quote(known))

    def ask_for_decision(self, plan: Plan, number: int, counts: dict[str, int], max_replans: int) -> str:
        """Return the prompt for the decision whether to replan."""
        done = ", ".join(f"{name} {count:,}" for name, count in counts.items()) or self.words["nothing"]
        form = make_form("replan_decision")
        return self._fill("decide", form, **self._state(plan, number), counts=done, most=f"{max_replans:,}")

    def ask_for_revision(self, plan: Plan, number: int, kind: ReplanType, advice: str) -> str:
        """Return the prompt for a new plan, or for a part of one."""
        state = self._state(plan, number, advice)
        return self._fill("revise", make_form("revision"), **state, what=self.words[kind])

    def ask_for_verification(self, plan: Plan, placeholders: Sequence[str]) -> str:
        """Return the prompt for a verification of the work."""
        goal = plan.goal_understanding
        about = [("goal", goal.main_objective)]
        about += [("criterion", text) for text in goal.success_criteria]
        about += [("constraint", text) for text in goal.constraints]
        found = [self.words["written"], *(f"- {text}" for text in placeholders)] if placeholders else []
        return self._fill(
            "verify",
            make_form("verification"),
            about=self._label(about),
            plan=self.describe_steps(plan),
            learned=self._quote(describe_all(self.lessons, self.words, "placeholder", "criterion", "work")),
            found="\n".join(found),
        )

    def ask_again(self, error: str, form: dict[str, Any]) -> str:
        """Return the prompt for a readable reply."""
        return self._fill("again", form, error=error)

    def introduce_earlier_runs(self, previous: Plan | None, *, continues: bool) -> str:
        """Return what the plan's prompt says about earlier runs; empty without any."""
        if previous is None:
            return ""
        known = describe_all(self.lessons, self.words, "worked", "failure", "dependency", "effort")
        parts = [
            self._fill("continue" if continues else "reference").strip(),
            neutralise(self.describe_steps(previous), self.names) if continues else "",
            self._quote([*known, *self._describe_tools(self.tools)]).strip(),
        ]
        return "\n".join(filter(None, parts))

    def describe_steps(self, plan: Plan) -> str:
        """Return the subtasks and actions of a plan with their status, one per line."""
        lines = []
        for part in settle_subtasks(plan).subtasks[:MAX_STEPS]:
            needs = f" ({self.words['after']}: {', '.join(part.dependencies)})" if part.dependencies else ""
            lines.append(f"[{self.words[part.status]}] {part.id}: {shorten(part.description, MAX_CHARS)}{needs}")
        for number, action in enumerate(plan.actions[:MAX_STEPS], start=1):
            what = ": ".join(filter(None, (action.tool, shorten(action.purpose, MAX_CHARS))))
            error = f" — {shorten(action.error, MAX_CHARS)}" if action.error else ""
            lines.append(f"  {number}. [{self.words[action.status]}] ({action.task_id}) {what}{error}")
        return "\n".join(lines)

    def make_advice(self, strategy: str, question: Question | None) -> str:
        """Return what the next attempt should know."""
        if question is None:
            return strategy
        assumed = "; ".join(question.assumptions) or self.words["judge"]
        label, text = ("answer", question.answer) if question.answer else ("assume", assumed)
        return "\n".join(filter(None, (strategy, f"{self.words[label]}: {text}")))

    def describe_repair(self, issues: Iterable[str]) -> str:
        """Return the purpose of an action that resolves the issues of a verification."""
        texts = [shorten(text, MAX_CHARS) for text in issues][:MAX_LINES]
        return self.words["repair"].format("; ".join(texts) or self.words["judge"])

    def _state(self, plan: Plan, number: int, advice: str = "") -> dict[str, str]:
        return {"about": self._describe_action(plan, number, advice), "plan": self.describe_steps(plan)}

    def _describe_action(self, plan: Plan, number: int, advice: str) -> str:
        action = plan.actions[number]
        part = next((part for part in plan.subtasks if part.id == action.task_id), Subtask(id=action.task_id))
        about = {
            "goal": plan.goal,
            "subtask": ": ".join(filter(None, (part.id, part.description))),
            "purpose": action.purpose,
            "tool": action.tool,
            "parameters": _to_json(action.parameters) if action.parameters else "",
            "expected": action.expected_outcome,
            "fallback": action.fallback_strategy,
            "error": action.error,
            "advice": advice,
        }
        return self._label(about.items())

    def _describe_tools(self, uses: Sequence[ToolUse]) -> list[str]:
        texts = []
        for use in uses[:MAX_LINES]:
            counts = self.words["uses"].format(use.successes, use.failures)
            texts.append(": ".join(filter(None, (self.words["tool"], use.tool, counts, use.last_error))))
        return texts

    def _label(self, texts: Iterable[tuple[str, str]]) -> str:
        return "\n".join(f"{self.words[name]}: {text}" for name, text in texts if text)

    def _quote(self, known: Sequence[str]) -> str:
        lines = [f"- {shorten(neutralise(text, self.names), MAX_CHARS)}" for text in known]
        return _space("\n".join((self.words["earlier"], *lines))) if lines else ""

    def _fill(self, name: str, form: dict[str, Any] | None = None, **values: str) -> str:
        return read(__name__, name, self.language).format(form=_to_json(form), **values)


@functools.cache
def make_form(*kinds: PlanKind) -> dict[str, Any]:
    """Return the JSON schema of a reply. Only the first of several kinds is required."""
    schemas = [json_schema(kind) for kind in kinds]
    properties = {name: item for schema in reversed(schemas) for name, item in schema["properties"].items()}
    return {**schemas[0], "properties": properties}


def _make_report_form() -> dict[str, Any]:
    """Return the short form of a reflection: its required fields."""
    reflection = make_form("reflection")["properties"]["reflection"]
    return {"reflection": {name: " | ".join(reflection["properties"][name]["enum"]) for name in reflection["required"]}}


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _space(text: str) -> str:
    return f"\n{text}\n" if text else ""
