"""A task with a plan: understand, divide, order, act, reflect, replan where needed, and verify.

Each phase is one piece of work and ends by storing the progress. A run that is resumed begins with the piece that was
not stored; see `orihon.planning.journal` for why nothing happens twice.

    inheritance → planning → execution ⇄ reflection, replanning → verification → done
                                 ↑                                     ↓
                                 └───────────── mending ───────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from orihon.engine import Engine
from orihon.errors import LimitReached, ModelError, ToolError, VerificationFailed
from orihon.planning import inheritance
from orihon.planning.inheritance import Inherited
from orihon.planning.journal import Journal, Loop, Unreadable
from orihon.planning.parser import parse_reply
from orihon.planning.plan_state import (
    ActionResult,
    Applicability,
    Phase,
    Question,
    apply_reflection,
    assess_action,
    choose_action,
    locate_step,
    order_actions,
    revise,
    settle_subtasks,
    update_action,
)
from orihon.planning.prompts import PromptBuilder, make_form
from orihon.planning.replanning import Verdict, count_replan, judge_decision, limit_revision
from orihon.planning.schema import Action, Change, Plan, Reflection, ReplanDecision, Revision, Subtask, Verification
from orihon.planning.verification import check_verification, collect_written_lines, find_placeholders
from orihon.records import Message

AskUser = Callable[[Sequence[str]], str | None]


class PlanningCoordinator(Journal):
    """Runs one task by a plan. `run` returns when the work is verified and raises an exception otherwise."""

    def __init__(
        self, loop: Loop, engine: Engine, *, ask_user: AskUser | None = None, workspace: Path | str | None = None
    ) -> None:
        super().__init__(loop)
        self.engine, self.settings = engine, engine.settings.planning
        self.ask_user = ask_user
        self.workspace = Path(workspace) if workspace is not None else None
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
            "mending": self._mend,
        }
        while self.progress.phase != "done":
            self.loop.check()
            phases[self.progress.phase]()

    # inheritance

    def _inherit(self) -> None:
        if self.task.previous:
            settings = self.engine.settings.context_inheritance
            uuids = inheritance.find_runs(self.engine.store, self.task.row, settings)
            self.progress = replace(self.progress, inherited=uuids)
            self._load_inherited_planning_context()
        self.save("planning", applicability=self._evaluate_previous_plan_applicability())

    def _load_inherited_planning_context(self) -> None:
        """Load the runs that were chosen when this one began. A run that ends later changes nothing."""
        settings, uuids = self.engine.settings.context_inheritance, self.progress.inherited
        store, row = self.engine.store, self.task.row
        self.inherited = inheritance.load_runs(store, row, uuids, settings) if uuids else Inherited()
        earlier = self.inherited
        self.prompts = PromptBuilder(self.task.history.language, earlier.lessons, earlier.tools, earlier.names)

    def _evaluate_previous_plan_applicability(self) -> Applicability:
        """Return whether the previous plan is continued or only referred to."""
        planning = self.engine.settings.context_inheritance.planning
        return inheritance.assess_applicability(self.engine.store, self.inherited.runs, self.task.uuid, planning)

    def _build_initial_context_with_inheritance(self) -> str:
        """Return what the plan's prompt says about earlier runs, in addition to the inherited block."""
        return self.prompts.introduce_earlier_runs(self._previous_plan, continues=self._continues)

    def _merge_with_previous_learnings(self, plan: Plan) -> Plan:
        """Return the plan with the lessons of earlier runs, as the rest of the previous plan if that is continued."""
        plan = inheritance.apply_lessons(plan, self.inherited.lessons)
        return inheritance.continue_plan(self._previous_plan, plan) if self._previous_plan and self._continues else plan

    @property
    def _previous_plan(self) -> Plan | None:
        return self.inherited.runs[0].plan if self.inherited.runs else None

    @property
    def _continues(self) -> bool:
        return self.progress.applicability == "continue"

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
        """Return the plan after a revision. Failed subtasks are open again: the new plan may do them."""
        if revision.updated_plan is None or not revision.updated_plan.actions:
            raise Unreadable("The model's answer holds no new actions.")
        subtasks = tuple(
            part if part.status == "completed" else replace(part, status="pending")
            for part in settle_subtasks(self.plan).subtasks
        )
        return order_actions(revise(self.plan.with_subtasks(subtasks), revision))

    # execution

    def _act(self) -> None:
        number, blocked = choose_action(self.plan)
        for other in blocked:
            self.plan = update_action(self.plan, other, status="skipped")
        if number is None:
            self.task.snapshot(current_phase="verification")
            self.save("verification")
            return
        limit, count = self.settings.max_subtasks, self.progress.actions + 1
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
        return assess_action(reply, self.task.history.read(self.progress.since + 1, self.task.history.last))

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
        prompt = self.prompts.ask_for_reflection(self.plan, number)
        try:
            answer, reply = self.ask_for(Reflection, prompt, make_form("reflection", "revision"))
        except Unreadable as error:
            self.announce(f"There is no reflection: {error.message}", warning=True)
            self.save(self._continue_or_replan(self.plan.actions[number].status))
            return
        reflection = self.record(answer)
        if locate_step(self.plan, reflection.action_evaluated, reflection.tool)[0] == number:
            known_error = self.plan.actions[number].error
            self.plan = apply_reflection(self.plan, reflection)
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
        counts, limit = self.progress.replans, settings.max_total_replans
        try:
            decision, _ = self.ask_for(ReplanDecision, self.prompts.ask_for_decision(self.plan, number, counts, limit))
        except Unreadable as error:
            self.announce(f"The plan stays as it is: {error.message}", warning=True)
            self.save("execution")
            return
        action = self.plan.actions[number]
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
        counts = counters.get("replans", self.progress.replans)
        outcome = {"executed": executed, "override_reason": verdict.reason, "replan_counts": dict(counts)}
        self.record(replace(decision, phase="execution", **outcome))
        if verdict.reason:
            self.announce(f"{verdict.kind} is not executed: {verdict.reason}", warning=True)
        if revision is not None and revision.updated_plan is not None:
            self._revise_plan(revision, revision.updated_plan)
        elif executed:
            self.plan = update_action(self.plan, self.progress.step, status="pending")
        is_retry = executed and revision is None
        self.save("execution", advice=advice if is_retry else "", **counters)

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
        round_ = self.progress.round + 1
        placeholders: list[str] = []
        if self.workspace is not None:
            messages = self.task.lease.store.read(self.task.uuid, Message)
            placeholders = find_placeholders(self.workspace, collect_written_lines(messages, self.task.history.load))
        try:
            answer, _ = self.ask_for(Verification, self.prompts.ask_for_verification(self.plan, placeholders))
        except Unreadable as error:
            answer = Verification(issues_found=(error.message,))
        verification = self.record(check_verification(answer, placeholders, round_))
        self.announce(verification.comment)
        self.save("done" if verification.verification_passed else "mending", round=round_)

    def _mend(self) -> None:
        """Plan the work that a verification left, while there are rounds for it."""
        values = [value for value in self.read_values(last=self.progress.entries) if isinstance(value, Verification)]
        verification, round_ = values[-1] if values else Verification(), self.progress.round
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

    def _check_steps(self) -> None:
        """Raise VerificationFailed if a part of the plan failed: the check of a plan without verification."""
        plan = settle_subtasks(self.plan)
        ids = {part.id for part in plan.subtasks}
        parts = [part.name for part in plan.subtasks if part.status in _LOST]
        parts += [action.purpose for action in plan.actions if action.status in _LOST and action.task_id not in ids]
        if parts:
            raise VerificationFailed(f"The plan could not be carried out: {'; '.join(parts)}")


_LOST = frozenset(("failed", "skipped"))
