"""A task with a plan: understand, divide, order, act, reflect, replan where needed, and verify.

    inheritance → planning → execution ⇄ reflection, replanning → verification → done
                                 ↑                                     ↓
                                 └───────────── mending ───────────────┘

Each phase is one piece of work and ends with `save`. Inside it every prompt has a key, a prompt that was already
answered is read instead of asked, and a value is recorded once. A piece that was interrupted is repeated from its
beginning and ends the same way, so a run can be paused or killed anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from orihon.context.matter import PLANNED
from orihon.engine import Engine
from orihon.errors import LimitReached, ModelError, OrihonError, ToolError, VerificationFailed
from orihon.inheritance import outline
from orihon.inheritance.names import Names, collect_names
from orihon.inheritance.search import may_inherit, search
from orihon.planning import plan_state
from orihon.planning.digest import TOPIC_KINDS, apply_lessons, learn, make_digest
from orihon.planning.history import Run, can_continue, read_run, select_runs
from orihon.planning.parser import parse_reply, read_entry
from orihon.planning.plan_state import (
    ActionResult,
    Applicability,
    Phase,
    Progress,
    Question,
    Verdict,
    count_replan,
    judge_decision,
    limit_revision,
    order_actions,
    settle_subtasks,
    update_action,
)
from orihon.planning.prompts import PromptBuilder, make_form
from orihon.planning.schema import (
    KIND_OF,
    Action,
    Change,
    Plan,
    Reflection,
    ReplanDecision,
    Revision,
    Subtask,
    Value,
    Verification,
    make_entry,
)
from orihon.planning.verification import check_verification, collect_written_lines, find_placeholders
from orihon.records import Message, PlanEntry
from orihon.task.task import Task

MAX_REPEATS = 2  # further requests after an unreadable reply
MAX_ROWS = 20  # earlier runs that are searched for a plan
KEY = PLANNED + "{}"  # of a prompt; those of structured replies continue it with `:NUMBER`
LOST = frozenset(("failed", "skipped"))

AskUser = Callable[[Sequence[str]], str | None]
V = TypeVar("V", bound=Value)


class Unreadable(ModelError):
    """The model's replies cannot be read, even after repeated requests."""

    default_hint = "Use a model that can answer in JSON."


class Loop(Protocol):
    """The turns of a task: what planning needs of the agent."""

    task: Task

    def ask(self, text: str, *, key: str | None = None, schema: dict[str, Any] | None = None) -> str: ...

    def continue_from(self, seq: int, *, schema: dict[str, Any] | None = None) -> str: ...

    def check(self) -> None: ...

    def announce(self, text: str) -> None: ...


class PlanningCoordinator:
    """Runs one task by a plan. `run` returns when the work is verified and raises an exception otherwise."""

    def __init__(
        self, loop: Loop, engine: Engine, *, ask_user: AskUser | None = None, workspace: Path | str | None = None
    ) -> None:
        self.loop, self.task, self.engine = loop, loop.task, engine
        self.settings, self.ask_user = engine.settings.planning, ask_user
        self.workspace = Path(workspace) if workspace is not None else None
        notes = self.task.log.view.state.notes
        self.progress = plan_state.read_progress(notes) or Progress()
        self._asked, self._entries = self.progress.asked, self.progress.entries
        self._digest = notes.get(outline.NOTE)
        self._history = Run()  # the entries so far, for the digest
        self.plan = plan_state.apply_progress(self._read_history(), self.progress)
        interrupted = self.task.log.read(self.progress.since + 1, self.task.log.last)
        self._prompted = {message.key: message.seq for message in interrupted if message.role == "user"}
        self._load_inherited_planning_context()

    def run(self) -> None:
        """Work from the current phase to the end."""
        phases: dict[Phase, Callable[[], None]] = {
            "inheritance": self._inherit,
            "planning": self._make_plan,
            "execution": self._act,
            "reflection": self._reflect,
            "replanning": self._replan,
            "verification": self._verify,
            "mending": self._repair,
        }
        while self.progress.phase != "done":
            self.loop.check()
            phases[self.progress.phase]()

    # storing and asking

    def save(self, phase: Phase, **changes: Any) -> None:
        """End this piece of work; the next one is `phase`."""
        counts = {"asked": self._asked, "entries": self._entries, "since": self.task.log.last, "open_question": 0}
        self.update_progress(phase=phase, **counts, **changes)

    def update_progress(self, **changes: Any) -> None:
        """Store progress and digest inside a piece of work, which still begins where it began."""
        errors = {str(number): action.error for number, action in enumerate(self.plan.actions) if action.error}
        steps = tuple(action.status for action in self.plan.actions)
        self.progress = replace(self.progress, steps=steps, errors=errors, **changes)
        notes = {plan_state.NOTE: msgspec.to_builtins(self.progress)}
        run = replace(self._history, plan=settle_subtasks(self.plan))
        digest = msgspec.to_builtins(make_digest(run, self.task.log.language))
        if digest != self._digest:
            self._digest = notes[outline.NOTE] = digest
        self.task.writer.event("note", **notes)

    def record(self, value: V) -> V:
        """Append a value to the planning history, once, and return it as it is stored."""
        self._entries += 1
        if self.task.writer.lease.last(PlanEntry) < self._entries:
            self.task.plan(make_entry(value))
        stored = next(self._read_values(first=self._entries, last=self._entries), None)
        self._history.add(stored)
        return stored if isinstance(stored, type(value)) else value

    def ask(self, prompt: str, form: dict[str, Any] | None = None) -> str:
        """Send the next prompt of this piece of work and return the reply."""
        self._asked += 1
        key = KEY.format(self._asked)
        if key in self._prompted:  # before the interruption
            return self.loop.continue_from(self._prompted[key], schema=form)
        return self.loop.ask(prompt, key=key, schema=form)

    def ask_for(self, struct: type[V], prompt: str, form: dict[str, Any] | None = None) -> tuple[V, str]:
        """Return a value and the reply that holds it. Raise Unreadable if no reply can be read."""
        form = form or make_form(KIND_OF[struct])
        problem = ""
        for _ in range(MAX_REPEATS + 1):
            reply = self.ask(prompt, form)
            try:
                return parse_reply(reply, struct), reply
            except ModelError as error:
                problem = error.message
                prompt = self.prompts.ask_again(problem, form)
        raise Unreadable(problem)

    def announce(self, text: str, *, warning: bool = False) -> None:
        """Show a text to the user who watches the run."""
        if warning:
            self.task.writer.logger.warning("%s", text)
        if text:
            self.loop.announce(text)

    def _read_values(self, **numbers: int) -> Iterator[Value | None]:
        return map(read_entry, self.task.writer.lease.store.read(self.task.uuid, PlanEntry, **numbers))

    def _read_history(self) -> Plan:
        """Read the entries up to the last `save`, and return the newest complete plan."""
        plan = Plan()
        for value in self._read_values(last=self.progress.entries) if self.progress.entries else ():
            self._history.add(value)
            if isinstance(value, Plan):
                plan = value
            elif isinstance(value, Revision) and value.updated_plan is not None:
                plan = value.updated_plan
        return plan

    # inheritance

    def _inherit(self) -> None:
        """Choose the earlier runs. A run that ends later changes nothing."""
        if self.task.config.inherited_from:
            row, settings = self.task.row, self.engine.settings.context_inheritance
            found = search(self.engine.store, row.task_key, settings=settings, user=row.user, exclude=row.uuid)
            rows = (found.previous.row, *found.older)[:MAX_ROWS] if found.previous else ()
            runs = select_runs(self.engine.store, rows, settings.planning.max_previous_plans)
            self.progress = replace(self.progress, inherited=tuple(run.uuid for run in runs))
            self._load_inherited_planning_context()
        self.save("planning", applicability=self._evaluate_previous_plan_applicability())

    def _load_inherited_planning_context(self) -> None:
        """Load the earlier runs, as far as they can be read and the task may inherit from them."""
        store, settings = self.engine.store, self.engine.settings.context_inheritance
        self.inherited, names = list[Run](), Names()
        for uuid in self.progress.inherited:
            try:
                row = store.row(uuid)
                if may_inherit(self.task.row, row, settings):
                    self.inherited.append(read_run(store, row))
                    names |= collect_names(store, row)
            except OrihonError:
                continue  # the run was deleted in the meantime
        allowed = {
            "plan": settings.planning.inherit_plans,
            "reflection": settings.planning.inherit_reflections,
            "verification": settings.planning.inherit_verifications,
            "pattern": settings.planning.reuse_successful_patterns,
        }
        self.lessons = [lesson for lesson in learn(self.inherited) if allowed[TOPIC_KINDS[lesson.topic]]]
        tools = {use.tool: use for run in reversed(self.inherited) for use in run.tools if allowed["pattern"]}
        self.prompts = PromptBuilder(self.task.log.language, self.lessons, list(tools.values()), names)

    def _evaluate_previous_plan_applicability(self) -> Applicability:
        """Return whether the previous plan is continued, only referred to, or missing."""
        if not self.inherited:
            return "new"
        inherits = self.engine.settings.context_inheritance.planning.inherit_plans
        continues = inherits and can_continue(self.engine.store, self.inherited[0], self.task.uuid)
        return "continue" if continues else "reference"

    def _build_initial_context_with_inheritance(self) -> str:
        """Return what the plan's prompt says about earlier runs, in addition to the inherited block."""
        previous = self.inherited[0].plan if self.inherited else None
        return self.prompts.introduce_earlier_runs(previous, continues=self.progress.applicability == "continue")

    def _merge_with_previous_learnings(self, plan: Plan) -> Plan:
        """Return the plan with the lessons of earlier runs, as the rest of the previous plan if that is continued."""
        plan = apply_lessons(plan, self.lessons)
        is_continued = self.inherited and self.progress.applicability == "continue"
        return plan_state.continue_plan(self.inherited[0].plan, plan) if is_continued else plan

    # planning

    def _make_plan(self) -> None:
        self.task.snapshot(current_phase="planning")
        inherited = self._build_initial_context_with_inheritance()
        plan, _ = self.ask_for(Plan, self.prompts.ask_for_plan(inherited, self.settings.max_subtasks))
        self.plan = self.record(self._merge_with_previous_learnings(order_actions(plan)))
        self.task.snapshot(goal=self.plan.goal, current_phase="execution")
        self.announce(self.plan.comment or self.plan.goal)
        self.save("execution")

    def _revise_plan(self, revision: Revision, plan: Plan) -> None:
        """Record a change of the plan together with the complete new plan."""
        self.plan = self.record(replace(revision, updated_plan=plan)).updated_plan or plan
        self.announce(revision.reason)

    def _apply_revision(self, revision: Revision) -> Plan:
        """Return the plan after a revision. Failed subtasks are open again, because the new plan may do them."""
        if revision.updated_plan is None or not revision.updated_plan.actions:
            raise Unreadable("The model's answer holds no new actions.")
        settled = settle_subtasks(self.plan).subtasks
        parts = (part if part.status == "completed" else replace(part, status="pending") for part in settled)
        return order_actions(plan_state.revise(self.plan.with_subtasks(tuple(parts)), revision))

    # execution

    def _act(self) -> None:
        number, blocked = plan_state.choose_action(self.plan)
        for other in blocked:
            self.plan = update_action(self.plan, other, status="skipped")
        if number is None:
            self.task.snapshot(current_phase="verification")
            self.save("verification")
            return
        count, limit = self.progress.actions + 1, self.settings.max_subtasks
        if count > limit:
            raise LimitReached(f"The plan has taken its {limit:,} actions.", limit="actions")
        if self.plan.actions[number].status != "running":  # otherwise it was begun before a pause
            self.plan = update_action(self.plan, number, status="running", error="")
            self.update_progress(step=number)
        result = self._execute(number)
        self.plan = update_action(self.plan, number, status=result.status, error=result.error)
        self.save(self._choose_phase(result, count), actions=count, advice="")

    def _execute(self, number: int) -> ActionResult:
        try:
            reply = self.ask(self.prompts.ask_for_action(self.plan, number, self.progress.advice))
        except ToolError as error:  # replanning may find another way
            return ActionResult(status="failed", error=error.message)
        messages = self.task.log.read(self.progress.since + 1, self.task.log.last)
        return plan_state.assess_action(reply, messages)

    def _choose_phase(self, result: ActionResult, count: int) -> Phase:
        """Return the phase after an action."""
        settings = self.settings.reflection
        is_trouble = result.is_partial or result.status == "failed"
        is_due = settings.trigger_interval > 0 and count % settings.trigger_interval == 0
        if settings.enabled and (is_due or (is_trouble and settings.trigger_on_error)):
            return "reflection"
        return self._continue_or_replan(result.status)

    def _continue_or_replan(self, status: str) -> Phase:
        return "replanning" if status == "failed" and self.settings.replanning.enabled else "execution"

    # reflection

    def _reflect(self) -> None:
        number = self.progress.step
        known_error = self.plan.actions[number].error
        is_revised = False
        try:
            prompt = self.prompts.ask_for_reflection(self.plan, number)
            answer, reply = self.ask_for(Reflection, prompt, make_form("reflection", "revision"))
        except Unreadable as error:
            self.announce(f"There is no reflection: {error.message}", warning=True)
        else:
            reflection = self.record(answer)
            if plan_state.locate_step(self.plan, reflection.action_evaluated, reflection.tool)[0] == number:
                self.plan = plan_state.apply_reflection(self.plan, reflection)
                action = self.plan.actions[number]
                if action.status == "failed" and not action.error:
                    self.plan = update_action(self.plan, number, error=known_error)
            is_revised = reflection.plan_revision_needed and self._revise_after_reflection(reply, number)
        self.save("execution" if is_revised else self._continue_or_replan(self.plan.actions[number].status))

    def _revise_after_reflection(self, reply: str, number: int) -> bool:
        """Revise the plan as a reflection wants it. Return whether it was revised."""
        limit = self.settings.revision.max_revisions
        if self.progress.revisions >= limit:
            self.announce(f"The plan is not revised again: the limit of {limit:,} revisions is reached.", warning=True)
            return False
        try:
            revision = self._parse_revision(reply)
            if revision is None or revision.updated_plan is None:
                prompt = self.prompts.ask_for_revision(self.plan, number, "plan_revision", "")
                revision, _ = self.ask_for(Revision, prompt)
            plan = self._apply_revision(revision)
        except Unreadable as error:
            self.announce(f"The plan is not revised: {error.message}", warning=True)
            return False
        self._revise_plan(revision, plan)
        self.progress = replace(self.progress, revisions=self.progress.revisions + 1)
        return True

    def _parse_revision(self, reply: str) -> Revision | None:
        try:
            return parse_reply(reply, Revision)
        except ModelError:
            return None

    # replanning

    def _replan(self) -> None:
        number, settings = self.progress.step, self.settings.replanning
        action, limit = self.plan.actions[number], settings.max_total_replans
        prompt = self.prompts.ask_for_decision(self.plan, number, self.progress.replans, limit)
        try:
            decision, _ = self.ask_for(ReplanDecision, prompt)
        except Unreadable as error:
            self.announce(f"The plan stays as it is: {error.message}", warning=True)
            self.save("execution")
            return
        before = replace(self.progress, questions=self.progress.questions[:-1]) if self._is_asked else self.progress
        verdict = judge_decision(decision, before, settings, action=f"{action.task_id} {action.purpose[:80]}")
        question = self._ask_user(decision) if verdict.asks else None
        if verdict.warns:
            text = f"{verdict.kind} with a confidence of {decision.confidence:g}: {decision.reasoning}"
            self.announce(text, warning=True)
        advice = self.prompts.make_advice(decision.recovery_strategy, question)
        revision, verdict = self._ask_for_new_plan(verdict, advice)
        self._conclude(decision, verdict, revision, advice)

    def _ask_for_new_plan(self, verdict: Verdict, advice: str) -> tuple[Revision | None, Verdict]:
        """Return the new plan that a verdict needs. Without a readable one the decision is not executed."""
        if not verdict.is_executed or verdict.level <= 1:
            return None, verdict
        try:
            prompt = self.prompts.ask_for_revision(self.plan, self.progress.step, verdict.kind, advice)
            revision = limit_revision(self.ask_for(Revision, prompt)[0], verdict.level)
            return replace(revision, updated_plan=self._apply_revision(revision)), verdict
        except Unreadable as error:
            return None, replace(verdict, is_executed=False, reason=error.message)

    def _conclude(self, decision: ReplanDecision, verdict: Verdict, revision: Revision | None, advice: str) -> None:
        """Record the decision and whether it was executed, and continue accordingly."""
        executed = verdict.is_executed
        counters = count_replan(self.progress, verdict) if executed else {}
        action = self.plan.actions[self.progress.step]
        self.record(
            replace(
                decision,
                affected_actions=decision.affected_actions or (action.purpose or action.tool,),
                phase="execution",
                executed=executed,
                override_reason=verdict.reason,
                replan_counts=dict(counters.get("replans", self.progress.replans)),
            )
        )
        if verdict.reason:
            self.announce(f"{verdict.kind} is not executed: {verdict.reason}", warning=True)
        if revision is not None and revision.updated_plan is not None:
            self._revise_plan(revision, revision.updated_plan)
        elif executed:
            self.plan = update_action(self.plan, self.progress.step, status="pending")
        self.save("execution", advice=advice if executed and revision is None else "", **counters)

    def _ask_user(self, decision: ReplanDecision) -> Question:
        """Ask the user once, even if the run is interrupted. A later answer arrives as a comment."""
        if self._is_asked:
            return self.progress.questions[-1]
        texts, before = decision.clarification_questions or (decision.reasoning,), self.progress.questions
        question = Question(questions=texts, assumptions=decision.assumptions_to_make)
        self.update_progress(questions=(*before, question), open_question=self._asked)
        self.announce("\n".join(texts))
        answer = self.ask_user(texts) if self.ask_user is not None else None
        if answer:
            question = replace(question, answer=answer)
            self.update_progress(questions=(*before, question))
        return question

    @property
    def _is_asked(self) -> bool:
        """Whether the user was asked in this piece of work before it was interrupted."""
        return 0 < self.progress.open_question == self._asked

    # verification

    def _verify(self) -> None:
        if not self.settings.verification.enabled:
            self._check_steps()
            self.save("done")
            return
        placeholders: list[str] = []
        if self.workspace is not None:
            messages = self.task.writer.lease.store.read(self.task.uuid, Message)
            placeholders = find_placeholders(self.workspace, collect_written_lines(messages, self.task.log.load))
        try:
            answer, _ = self.ask_for(Verification, self.prompts.ask_for_verification(self.plan, placeholders))
        except Unreadable as error:
            answer = Verification(issues_found=(error.message,))
        verification = self.record(check_verification(answer, placeholders, self.progress.round + 1))
        self.announce(verification.comment)
        self.save("done" if verification.verification_passed else "mending", round=self.progress.round + 1)

    def _check_steps(self) -> None:
        """Raise VerificationFailed if a part of the plan failed: the check of a plan without verification."""
        plan = settle_subtasks(self.plan)
        ids = {part.id for part in plan.subtasks}
        parts = [part.name for part in plan.subtasks if part.status in LOST]
        parts += [action.purpose for action in plan.actions if action.status in LOST and action.task_id not in ids]
        if parts:
            raise VerificationFailed(f"The plan could not be carried out: {'; '.join(parts)}")

    def _repair(self) -> None:
        """Plan the work that a verification left, while there are rounds for it."""
        verification, round_ = (self._history.newest(Verification) or [Verification()])[-1], self.progress.round
        issues = verification.issues_found or verification.placeholder_detected.locations
        if round_ >= self.settings.verification.max_rounds:
            left = "; ".join(issues) or verification.comment
            raise VerificationFailed(f"The verification failed {round_:,} times. {left}".strip())
        reason = self.prompts.describe_repair(issues)
        part = Subtask(id=f"verification_{round_}", description=reason)
        more = verification.additional_actions or (Action(action_type="", purpose=reason),)
        actions = tuple(replace(action, task_id=part.id, status="pending", error="") for action in more)
        plan = self.plan.with_subtasks((*self.plan.subtasks, part)).with_actions((*self.plan.actions, *actions))
        if order := plan.action_plan.execution_order:
            plan = replace(plan, action_plan=replace(plan.action_plan, execution_order=(*order, part.id)))
        changes = tuple(Change(type="add_action", details=action.purpose or action.tool) for action in actions)
        self._revise_plan(Revision(reason=reason, changes=changes), order_actions(plan))
        self.save("execution")
