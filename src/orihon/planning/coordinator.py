"""A task with a plan: understand, split, order, act, look back, plan again where it must be, and verify.

Each phase does one piece of work, and ends by noting where the run stands. Whoever resumes begins with the piece that
was not noted: what was said in it is in the log under its key and is not said again, what was answered is read instead
of asked, and what was recorded is not recorded twice. So a pause or a crash at any place changes nothing of the plan,
of the counters, or of what is done.

    inheritance → planning → execution ⇄ reflection, replanning → verification → done
                                 ↑                                     ↓
                                 └───────────── mending ───────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec.structs import replace

from orihon.engine import Engine
from orihon.errors import LimitReached, ToolError, VerificationFailed
from orihon.planning import inheritance
from orihon.planning.actions import Outcome, arranged, following, outcome, placed
from orihon.planning.history.progress import Applicability, Phase, Question
from orihon.planning.history.steps import marked, meant, revised, settled
from orihon.planning.inheritance import Inherited
from orihon.planning.notebook import Loop, Notebook, Unreadable
from orihon.planning.replanning import Verdict, counted, judge, narrowed
from orihon.planning.schema import Action, Change, Plan, Reflection, ReplanDecision, Revision, Subtask, Verification
from orihon.planning.telling import Telling
from orihon.planning.verification import checked, placeholders, written
from orihon.records import Message

AskUser = Callable[[Sequence[str]], str | None]


class PlanningCoordinator(Notebook):
    """Runs one task by a plan. It returns when the work is verified; everything else is an exception."""

    def __init__(
        self, loop: Loop, engine: Engine, *, ask_user: AskUser | None = None, workspace: Path | str | None = None
    ) -> None:
        super().__init__(loop)
        self.engine, self.settings = engine, engine.settings.planning
        self.ask_user = ask_user
        self.workspace = Path(workspace) if workspace is not None else None
        self._load_inherited_planning_context()

    def run(self) -> None:
        """From where the task stands to its end."""
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

    # what earlier runs give

    def _inherit(self) -> None:
        settings = self.engine.settings.context_inheritance
        if self.task.previous:
            uuids = inheritance.find(self.engine.store, self.task.row, settings)
            self.progress = replace(self.progress, inherited=uuids)
            self._load_inherited_planning_context()
        self.save("planning", applicability=self._evaluate_previous_plan_applicability())

    def _load_inherited_planning_context(self) -> None:
        """The runs that were chosen when this one began; a run that ends later does not change what is inherited."""
        settings, uuids = self.engine.settings.context_inheritance, self.progress.inherited
        self.inherited = inheritance.load(self.engine.store, self.task.row, uuids, settings) if uuids else Inherited()
        self.telling = Telling(self.task.history.language, self.inherited.names)

    def _evaluate_previous_plan_applicability(self) -> Applicability:
        """Whether the last plan goes on, or is only looked at."""
        store, planning = self.engine.store, self.engine.settings.context_inheritance.planning
        request = inheritance.request_of(store, self.task.uuid)
        return inheritance.applicability(store, self.inherited.runs, request, planning)

    def _build_initial_context_with_inheritance(self) -> str:
        """What the prompt of the plan says of earlier runs, beside the handoff that stands before the request."""
        return self.telling.initial(self._previous, self.inherited.learned, continues=self._continues)

    def _merge_with_previous_learnings(self, plan: Plan) -> Plan:
        """The plan with what earlier runs taught; as the rest of the last one where that goes on."""
        plan = inheritance.merged(plan, self.inherited.learned)
        return inheritance.continued(self._previous, plan) if self._previous and self._continues else plan

    @property
    def _previous(self) -> Plan | None:
        return self.inherited.runs[0].plan if self.inherited.runs else None

    @property
    def _continues(self) -> bool:
        return self.progress.applicability == "continue"

    # the plan

    def _make_plan(self) -> None:
        """The goal, the subtasks and the actions, in one answer."""
        self.task.snapshot(current_phase="planning")
        most = self.settings.max_subtasks
        inherited = self._build_initial_context_with_inheritance()
        plan = self.answer(Plan, self.telling.plan(inherited, most=most))
        self.plan = self.record(self._merge_with_previous_learnings(arranged(plan)))
        self.task.snapshot(goal=self.plan.goal, current_phase="execution")
        self.tell(self.plan.comment or self.plan.goal)
        self.save("execution")

    def _revise(self, revision: Revision, plan: Plan) -> None:
        """Keep a change of the plan, with the whole plan as it is then."""
        kept = self.record(replace(revision, updated_plan=plan))
        self.plan = kept.updated_plan or plan
        self.tell(revision.reason)

    # acting

    def _act(self) -> None:
        number, lost = following(self.plan)
        for one in lost:
            self.plan = placed(self.plan, one, status="skipped")
        if number is None:
            self.task.snapshot(current_phase="verification")
            self.save("verification")
            return
        if self.progress.actions >= self.settings.max_subtasks:
            raise LimitReached(f"The plan has taken its {self.settings.max_subtasks:,} actions.", limit="actions")
        self._begin(number)
        ended = self._do(number)
        self.plan = placed(self.plan, number, status=ended.status, error=ended.error)
        actions = self.progress.actions + 1
        self.save(self._after(ended, actions), actions=actions, advice="")

    def _begin(self, number: int) -> None:
        """Note that an action begins, unless it was begun before a pause."""
        if self.plan.actions[number].status != "running":
            self.plan = placed(self.plan, number, status="running", error="")
            self.remember(step=number, **self.steps())

    def _do(self, number: int) -> Outcome:
        text = self.telling.action(self.plan, number, self.inherited.learned, self.progress.advice)
        try:
            words = self.ask(text)
        except ToolError as error:  # a plan can go another way
            return Outcome(status="failed", error=error.message)
        return outcome(words, self.task.history.read(self.progress.since + 1, self.task.history.last))

    def _after(self, ended: Outcome, actions: int) -> Phase:
        reflection = self.settings.reflection
        is_trouble = ended.is_partial or ended.status == "failed"
        is_due = reflection.trigger_interval > 0 and actions % reflection.trigger_interval == 0
        if reflection.enabled and (is_due or (is_trouble and reflection.trigger_on_error)):
            return "reflection"
        return self._unless_fine(ended.status)

    def _unless_fine(self, status: str) -> Phase:
        return "replanning" if status == "failed" and self.settings.replanning.enabled else "execution"

    # looking back

    def _reflect(self) -> None:
        number = self.progress.step
        prompt = self.telling.reflection(self.plan, number, self.inherited.learned)
        try:
            answers = self.answers(prompt, Reflection, beside=True)
        except Unreadable as error:
            self.tell(f"There is no reflection: {error.message}", warning=True)
            self.save(self._unless_fine(self.plan.actions[number].status))
            return
        reflection = self.record(answers[0])
        about = meant(self.plan, reflection.action_evaluated, reflection.tool)[0]
        if about == number:
            known = self.plan.actions[number].error
            self.plan = marked(self.plan, reflection) or self.plan
            now = self.plan.actions[number]
            if now.status == "failed" and not now.error:
                self.plan = placed(self.plan, number, error=known)
        is_revised = reflection.plan_revision_needed and self._change(answers[1], number)
        self.save("execution" if is_revised else self._unless_fine(self.plan.actions[number].status))

    def _change(self, revision: Revision | None, number: int) -> bool:
        """Change the plan as a reflection wants it; whether it was done."""
        most = self.settings.revision.max_revisions
        if self.progress.revisions >= most:
            self.tell(f"The plan is not revised again: the limit of {most:,} revisions is reached.", warning=True)
            return False
        try:
            if revision is None or revision.updated_plan is None:
                revision = self.answer(Revision, self.telling.revision(self.plan, number, "plan_revision", ""))
            plan = self._changed(revision)
        except Unreadable as error:
            self.tell(f"The plan is not revised: {error.message}", warning=True)
            return False
        self._revise(revision, plan)
        self.progress = replace(self.progress, revisions=self.progress.revisions + 1)
        return True

    def _changed(self, revision: Revision) -> Plan:
        plan = revised(_resting(self.plan), revision)
        if plan is None or revision.updated_plan is None or not revision.updated_plan.actions:
            raise Unreadable("The model's answer holds no new actions.")
        return arranged(plan)

    # planning again

    def _replan(self) -> None:
        number, settings = self.progress.step, self.settings.replanning
        prompt = self.telling.decision(self.plan, number, self.progress.replans, settings.max_total_replans)
        try:
            decision = self.answer(ReplanDecision, prompt)
        except Unreadable as error:
            self.tell(f"It is not planned again: {error.message}", warning=True)
            self.save("execution")
            return
        action = self.plan.actions[number]
        before = replace(self.progress, questions=self.progress.questions[:-1]) if self._is_asked else self.progress
        verdict = judge(decision, before, settings, action=f"{action.task_id} {action.purpose[:80]}")
        question = self._ask_person(decision) if verdict.asks else None
        if verdict.warns:
            self.tell(
                f"{verdict.kind} with a confidence of {decision.confidence:g}: {decision.reasoning}", warning=True
            )
        advice = self.telling.advice(decision.recovery_strategy, question)
        revision, verdict = self._new_plan(verdict, advice)
        self._conclude(decision, verdict, revision, advice)

    def _new_plan(self, verdict: Verdict, advice: str) -> tuple[Revision | None, Verdict]:
        """What the verdict needs of the model; without it, it is not carried out."""
        if not verdict.is_done or verdict.level <= 1:
            return None, verdict
        try:
            prompt = self.telling.revision(self.plan, self.progress.step, verdict.kind, advice)
            revision = narrowed(self.answer(Revision, prompt), verdict.level)
            return replace(revision, updated_plan=self._changed(revision)), verdict
        except Unreadable as error:
            return None, replace(verdict, is_done=False, reason=error.message)

    def _conclude(self, decision: ReplanDecision, verdict: Verdict, revision: Revision | None, advice: str) -> None:
        """Record what was decided and whether it was done, and go on accordingly."""
        counters = counted(self.progress, verdict) if verdict.is_done else {}
        counts = counters.get("replans", self.progress.replans)
        done = {"executed": verdict.is_done, "override_reason": verdict.reason, "replan_counts": dict(counts)}
        self.record(replace(decision, phase="execution", **done))
        if verdict.reason:
            self.tell(f"{verdict.kind} is not done: {verdict.reason}", warning=True)
        if revision is not None and revision.updated_plan is not None:
            self._revise(revision, revision.updated_plan)
        elif verdict.is_done:
            self.plan = placed(self.plan, self.progress.step, status="pending")
        is_retry = verdict.is_done and revision is None
        self.save("execution", advice=advice if is_retry else "", **counters)

    def _ask_person(self, decision: ReplanDecision) -> Question:
        """Ask once, whatever happens meanwhile; an answer that comes later comes as a comment."""
        if self._is_asked:
            return self.progress.questions[-1]
        asked = decision.clarification_questions or (decision.reasoning,)
        question, before = Question(questions=asked, assumptions=decision.assumptions_to_make), self.progress.questions
        self.remember(questions=(*before, question), open_question=self._asked)
        self.tell("\n".join(asked))
        answer = self.ask_user(asked) if self.ask_user is not None else None
        if answer:
            question = replace(question, answer=answer)
            self.remember(questions=(*before, question))
        return question

    @property
    def _is_asked(self) -> bool:
        """Whether a person was asked in this piece of work, before it was cut off."""
        return 0 < self.progress.open_question == self._asked

    # verifying

    def _verify(self) -> None:
        turn, settings = self.progress.round + 1, self.settings.verification
        if not settings.enabled:
            self._check_steps()
            self.save("done")
            return
        found = self._placeholders()
        prompt = self.telling.verification(self.plan, self.inherited.learned, found)
        try:
            answer = self.answer(Verification, prompt)
        except Unreadable as error:
            answer = Verification(issues_found=(error.message,))
        verification = self.record(checked(answer, found, round=turn))
        self.tell(verification.comment)
        self.save("done" if verification.verification_passed else "mending", round=turn)

    def _placeholders(self) -> list[str]:
        """What we find ourselves in the files that this run has written."""
        if self.workspace is None:
            return []
        log = self.task.lease.store.read(self.task.uuid, Message)
        return placeholders(self.workspace, written(log, self.task.history.load))

    def _mend(self) -> None:
        """Do what a verification says is left, while there are rounds for it."""
        verification, turn = self._last_verification(), self.progress.round
        issues = verification.issues_found or verification.placeholder_detected.locations
        if turn >= self.settings.verification.max_rounds:
            left = "; ".join(issues) or verification.comment
            raise VerificationFailed(f"The verification failed {turn:,} times. {left}".strip())
        reason = self.telling.mending(issues)
        part = Subtask(id=f"verification_{turn}", description=reason)
        more = verification.additional_actions or (Action(action_type="", purpose=reason),)
        actions = tuple(replace(action, task_id=part.id, status="pending", error="") for action in more)
        parts, steps = self.plan.task_decomposition, self.plan.action_plan
        order = (*steps.execution_order, part.id) if steps.execution_order else ()
        plan = replace(
            self.plan,
            task_decomposition=replace(parts, subtasks=(*parts.subtasks, part)),
            action_plan=replace(steps, actions=(*steps.actions, *actions), execution_order=order),
        )
        changes = tuple(Change(type="add_action", details=action.purpose or action.tool) for action in actions)
        self._revise(Revision(reason=reason, changes=changes), arranged(plan))
        self.save("execution")

    def _last_verification(self) -> Verification:
        found = [value for value in self.recorded(last=self.progress.entries) if isinstance(value, Verification)]
        return found[-1] if found else Verification()

    def _check_steps(self) -> None:
        """Without a verification, a plan is done when none of its parts has failed."""
        plan = settled(self.plan)
        ids = {part.id for part in plan.subtasks}
        parts = [part.description or part.id for part in plan.subtasks if part.status in _LOST]
        parts += [action.purpose for action in plan.actions if action.status in _LOST and action.task_id not in ids]
        if parts:
            raise VerificationFailed(f"The plan could not be carried out: {'; '.join(parts)}")


_LOST = frozenset(("failed", "skipped"))


def _resting(plan: Plan) -> Plan:
    """The plan whose subtasks are completed or still to do: a new plan may do what failed."""
    parts = settled(plan).task_decomposition
    subtasks = tuple(part if part.status == "completed" else replace(part, status="pending") for part in parts.subtasks)
    return replace(plan, task_decomposition=replace(parts, subtasks=subtasks))
