"""The lessons of planned runs, and the digest of a run: the sections that the core keeps and shows to the next run.

A digest is written in the language of its task and refreshed while the run goes on, so that it exists however the run
ends. Every text from a run stands on one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from orihon._prompts import read_table
from orihon.inheritance.outline import (
    DETAIL,
    EXECUTION,
    HISTORY,
    NOTE,
    OUTLINE,
    PLAN,
    RECOMMENDATIONS,
    VERIFICATION,
    Section,
)
from orihon.planning.history import Run, read_run
from orihon.planning.plan_state import DONE, locate_step, normalise
from orihon.planning.schema import (
    Action,
    Complexity,
    Plan,
    Reflection,
    ReplanDecision,
    Revision,
    StepStatus,
    Subtask,
    Value,
    Verification,
    make_entry,
)
from orihon.task.task import Task
from orihon.terminal import shorten

MAX_CHARS = 200
MAX_SUBTASKS = 30
MAX_LINES = 10  # of one topic
MAX_ADVICE = 3  # recommendations of one kind

Topic = Literal[
    "worked", "failure", "dependency", "effort", "revision", "replan", "problem", "criterion", "placeholder", "work"
]
Words = Mapping[str, str]

# the kind of section that a topic belongs to, which a setting can switch off
TOPIC_KINDS: dict[Topic, str] = {
    "worked": "pattern",
    "failure": "reflection",
    "dependency": "plan",
    "effort": "plan",
    "revision": "reflection",
    "replan": "reflection",
    "problem": "reflection",
    "criterion": "verification",
    "placeholder": "verification",
    "work": "verification",
}
_OPEN = frozenset(("pending", "running", "failed"))
_LEVELS = get_args(Complexity)


class Lesson(Struct, frozen=True, kw_only=True):
    """One thing that a run teaches: what it is about, why, and what to do."""

    topic: Topic
    what: str
    tool: str = ""
    why: str = ""
    remedy: str = ""
    names: tuple[str, ...] = ()  # subtasks of a dependency; estimated and adjusted complexity of an effort
    ok: bool | None = None  # whether a failure was overcome, a criterion was met, or a replan was executed

    def concerns(self, action: Action) -> bool:
        """Return whether it is about the same tool or the same purpose as an action."""
        purpose = normalise(action.purpose)
        return bool(action.tool and self.tool == action.tool) or bool(purpose and normalise(self.what) == purpose)


def learn(runs: Iterable[Run]) -> list[Lesson]:
    """Return the lessons of some runs, the newest first. Where two are about the same thing, the newer one counts."""
    lessons: dict[tuple[str, str, str], Lesson] = {}
    for run in sorted(runs, key=lambda run: run.completed_at, reverse=True):
        for lesson in (*_learn_from_steps(run), *_learn_from_entries(run)):
            if lesson.what:
                lessons.setdefault((lesson.topic, normalise(lesson.what), lesson.tool), lesson)
    return list(lessons.values())


def apply_lessons(plan: Plan, lessons: Sequence[Lesson]) -> Plan:
    """Return the plan with known dependencies, complexity, tools that worked and remedies of known failures."""
    ids = {normalise(part.description): part.id for part in plan.subtasks}
    subtasks = tuple(_improve_subtask(part, lessons, ids) for part in plan.subtasks)
    actions = tuple(_improve_action(action, lessons) for action in plan.actions)
    return plan.with_subtasks(subtasks).with_actions(actions)


def _improve_subtask(part: Subtask, lessons: Sequence[Lesson], ids: dict[str, str]) -> Subtask:
    dependencies, complexity = list(part.dependencies), part.estimated_complexity
    for lesson in lessons:
        if normalise(lesson.what) != normalise(part.description):
            continue
        if lesson.topic == "dependency":
            known = (ids.get(normalise(name), "") for name in lesson.names)
            dependencies += [id_ for id_ in known if id_ and id_ != part.id and id_ not in dependencies]
        elif lesson.topic == "effort":
            complexity = _LEVELS[max(_LEVELS.index(complexity), _LEVELS.index(lesson.names[1]))]
    return replace(part, dependencies=tuple(dependencies), estimated_complexity=complexity)


def _improve_action(action: Action, lessons: Sequence[Lesson]) -> Action:
    known = [lesson for lesson in lessons if lesson.concerns(action)]
    tool = action.tool or next((item.tool for item in known if item.topic == "worked" and item.tool), "")
    remedy = next((item.remedy for item in known if item.topic == "failure" and item.remedy), "")
    return replace(action, tool=tool, fallback_strategy=action.fallback_strategy or remedy)


def _learn_from_steps(run: Run) -> Iterator[Lesson]:
    """Yield how each action and subtask went, with the reflections and the replans that were about it."""
    reflections: dict[int | str, list[Reflection]] = {}
    replans: dict[int | None, ReplanDecision] = {}
    troubled = set[int | None]()
    for reflection in run.newest(Reflection):
        number, part = locate_step(run.plan, reflection.action_evaluated, reflection.tool)
        name = normalise(reflection.action_evaluated or reflection.evaluation) if number is None else number
        reflections.setdefault(name, []).append(reflection)
        if reflection.status != "success" or reflection.plan_revision_needed:
            troubled.add(part)
    for replan in run.newest(ReplanDecision):
        for text in replan.affected_actions if replan.replan_needed else ():
            number, part = locate_step(run.plan, text)
            replans |= {number: replan} if replan.executed else {}
            troubled.add(part)
    for number, action in enumerate(run.plan.actions):
        yield from _learn_from_step(action, reflections.pop(number, []), replans.get(number))
    for others in reflections.values():  # about no step of the plan
        verdict = next((item.status for item in reversed(others) if item.status != "partial"), "")
        status: StepStatus = "completed" if verdict == "success" else "failed" if verdict == "failure" else "pending"
        yield from _learn_from_step(Action(status=status), others, None)
    yield from _learn_from_subtasks(run.plan, troubled)


def _learn_from_step(action: Action, reflections: list[Reflection], replan: ReplanDecision | None) -> Iterator[Lesson]:
    """Yield that a step worked, and that it failed. A step that failed first and worked later is both."""
    newest = reflections[-1] if reflections else Reflection()
    failure = next((item for item in reversed(reflections) if item.status == "failure"), Reflection())
    what = action.purpose or newest.action_evaluated or action.tool or newest.evaluation or action.task_id
    tool = action.tool or newest.tool
    worked = action.status == "completed"
    if worked:
        yield Lesson(topic="worked", what=what, tool=tool)
    if failure.status == "failure" or action.status == "failed" or replan is not None:
        replan = replan or ReplanDecision()
        why = failure.root_cause or "; ".join(failure.issues_identified) or failure.evaluation or action.error
        remedy = next((item.remedy for item in reversed(reflections) if item.remedy), replan.recovery_strategy)
        suggestion = "" if worked else action.fallback_strategy  # only a remedy that was used has helped
        yield Lesson(
            topic="failure", what=what, tool=tool, why=why or replan.reasoning, remedy=remedy or suggestion, ok=worked
        )


def _learn_from_subtasks(plan: Plan, troubled: set[int | None]) -> Iterator[Lesson]:
    """Yield the dependencies of subtasks, and the complexity of those that were tried."""
    names = {part.id: part.name for part in plan.subtasks}
    failed = {action.task_id for action in plan.actions if action.status == "failed"}
    for number, part in enumerate(plan.subtasks):
        if part.dependencies:
            needed = tuple(names.get(id_, id_) for id_ in part.dependencies)
            yield Lesson(topic="dependency", what=part.name, names=needed)
        is_harder = number in troubled or part.status == "failed" or part.id in failed
        if is_harder or part.status in DONE:
            level = _LEVELS.index(part.estimated_complexity) + is_harder
            adjusted = _LEVELS[min(level, len(_LEVELS) - 1)]
            yield Lesson(topic="effort", what=part.name, names=(part.estimated_complexity, adjusted))


def _learn_from_entries(run: Run) -> Iterator[Lesson]:
    """Yield what was recorded about the plan as a whole, the newest first."""
    for revision in reversed(run.newest(Revision)):
        yield Lesson(topic="revision", what=revision.reason)
    for replan in reversed(run.newest(ReplanDecision)):
        if replan.replan_needed or replan.executed:
            what = replan.reasoning or replan.recovery_strategy or "; ".join(replan.affected_actions)
            remedy = replan.recovery_strategy if replan.reasoning else ""
            yield Lesson(topic="replan", what=what, why=replan.override_reason, remedy=remedy, ok=replan.executed)
    for reflection in reversed(run.newest(Reflection)):
        for issue in reflection.issues_identified:
            yield Lesson(topic="problem", what=issue, why=reflection.root_cause)
    verifications = run.newest(Verification)
    for text, met in _judge_criteria(run.plan, verifications).items():
        yield Lesson(topic="criterion", what=text, ok=met)
    for verification in reversed(verifications):
        for place in verification.placeholder_detected.locations:
            yield Lesson(topic="placeholder", what=place)
        for action in verification.additional_actions:
            yield Lesson(topic="work", what=action.purpose or action.tool)


def _judge_criteria(plan: Plan, verifications: list[Verification]) -> dict[str, bool]:
    """Return the success criteria that were verified, and whether each is met.

    The newest verdict counts. A criterion without a verdict is met if the last verification passed.
    """
    passed = bool(verifications) and verifications[-1].verification_passed
    verdicts = {normalise(text): (text, True) for text in plan.goal_understanding.success_criteria if passed}
    for item in (item for verification in verifications for item in verification.criteria):
        verdicts[normalise(item.criterion)] = (item.criterion, item.met)
    return dict(verdicts.values())


# lessons as text


def read_words(language: str) -> Words:
    """Return the labels and headings in a language; in English for a language without any."""
    return read_table("orihon.planning.prompts", "words", "ja" if language == "ja" else "en")


def describe_all(lessons: Sequence[Lesson], words: Words, *topics: Topic) -> list[str]:
    """Return the lessons of some topics as texts, a few of each."""
    lines: list[str] = []
    for topic in topics:
        texts = (describe(item, words) for item in lessons if item.topic == topic)
        lines += islice(filter(None, texts), MAX_LINES)
    return lines


def describe(lesson: Lesson, words: Words, *, label: bool = True) -> str:
    """Return a lesson as one line; empty if there is nothing to say."""
    headings = {"criterion": "met" if lesson.ok else "unmet", "replan": "replan" if lesson.ok else "not_replanned"}
    text = shorten(lesson.what, MAX_CHARS)
    if lesson.topic == "effort":
        estimated, adjusted = lesson.names
        if estimated == adjusted:
            return ""
        text += f" ({words[estimated]} → {words[adjusted]})"
    if lesson.topic == "dependency":
        text += f" ← {shorten(', '.join(lesson.names), MAX_CHARS)}"
    if lesson.tool:
        text += f" ({shorten(lesson.tool, MAX_CHARS)})"
    if lesson.why:
        why = shorten(lesson.why, MAX_CHARS)
        text += f" ({words['cause']}: {why})" if lesson.topic in {"problem", "replan"} else f": {why}"
    if lesson.topic == "failure" and lesson.ok:
        text += f" ({words['recovered']})"
    if lesson.remedy:
        prefix = f"{words['helped' if lesson.ok else 'try']}: " if lesson.topic == "failure" else ""
        text += f" → {prefix}{shorten(lesson.remedy, MAX_CHARS)}"
    return f"{words[headings.get(lesson.topic, lesson.topic)]}: {text}" if label else text


# the digest of a run


def make_digest(run: Run, language: str) -> list[Section]:
    """Return the sections of a run: its plan, how it went, its verification, and what the next run should do."""
    words, lessons = read_words(language), learn([run])
    failures = [f"  {describe(item, words, label=False)}" for item in lessons if item.topic == "failure"][:MAX_LINES]
    sections = [
        (PLAN, "plan", OUTLINE, _describe_plan(run, words)),
        (PLAN, "plan", DETAIL, _describe_goal(run, words)),
        (PLAN, "plan", DETAIL, describe_all(lessons, words, "effort", "dependency")),
        (EXECUTION, "execution", HISTORY, _count_actions(lessons, words)),
        (EXECUTION, "pattern", DETAIL, describe_all(lessons, words, "worked")),
        (EXECUTION, "reflection", HISTORY, [f"{words['failures']}:", *failures] if failures else []),
        (EXECUTION, "reflection", HISTORY, describe_all(lessons, words, "replan")),
        (EXECUTION, "reflection", DETAIL, describe_all(lessons, words, "revision", "problem")),
        (VERIFICATION, "verification", OUTLINE, _describe_verifications(run, words)),
        (VERIFICATION, "verification", OUTLINE, describe_all(lessons, words, "criterion")),
        (VERIFICATION, "verification", DETAIL, describe_all(lessons, words, "placeholder", "work")),
        *((RECOMMENDATIONS, kind, OUTLINE, lines) for kind, lines in _recommend(run, lessons, words)),
    ]
    made = [Section(title=title, kind=kind, priority=rank, lines=tuple(lines)) for title, kind, rank, lines in sections]
    return [section for section in made if section.lines]


def _count_actions(lessons: Iterable[Lesson], words: Words) -> list[str]:
    topics = Counter("failed" if item.topic == "failure" and not item.ok else item.topic for item in lessons)
    return [words["actions"].format(topics["worked"], topics["failed"])] if topics["worked"] or topics["failed"] else []


def _describe_plan(run: Run, words: Words) -> Iterator[str]:
    subtasks = run.plan.subtasks
    if run.plan.goal:
        yield f"{words['goal']}: {shorten(run.plan.goal, MAX_CHARS)}"
    if not subtasks:
        return
    yield f"{words['subtasks']}:"
    for part in subtasks[:MAX_SUBTASKS]:
        yield f"  [{words[part.status]}] {shorten(part.name, MAX_CHARS)}"
    if len(subtasks) > MAX_SUBTASKS:
        yield f"  {words['more'].format(len(subtasks) - MAX_SUBTASKS)}"
    counts = Counter(part.status for part in subtasks)
    done = words["done"].format(counts.pop("completed", 0), len(subtasks))
    yield f"{words['completion']}: {'; '.join([done, *(f'{words[name]} {count:,}' for name, count in counts.items())])}"


def _describe_goal(run: Run, words: Words) -> list[str]:
    goal, reasoning = run.plan.goal_understanding, run.plan.task_decomposition.reasoning
    texts = [("criterion", text) for text in goal.success_criteria[:MAX_LINES]]
    texts += [("constraint", text) for text in goal.constraints[:MAX_LINES]]
    texts += [("approach", reasoning)] if reasoning else []
    return [f"{words[name]}: {shorten(text, MAX_CHARS)}" for name, text in texts]


def _describe_verifications(run: Run, words: Words) -> Iterator[str]:
    rounds = run.newest(Verification)
    if not rounds:
        return
    found, left = _collect_issues(rounds)
    passed = words["passed" if rounds[-1].verification_passed else "not_passed"]
    yield f"{words['rounds']}: {len(rounds):,} ({passed})"
    for name, texts in (("found", found), ("resolved", [text for text in found if text not in left])):
        if texts:
            yield f"{words[name]}:"
            yield from (f"  {shorten(text, MAX_CHARS)}" for text in texts[:MAX_LINES])


def _collect_issues(rounds: list[Verification]) -> tuple[list[str], list[str]]:
    """Return the issues that all verifications found, and those that the last one found."""
    found = {normalise(text): text for item in rounds for text in item.issues_found}
    last = {normalise(text) for item in rounds[-1:] for text in item.issues_found}
    return list(found.values()), [text for name, text in found.items() if name in last]


def _recommend(run: Run, lessons: list[Lesson], words: Words) -> Iterator[tuple[str, list[str]]]:
    """Yield what the run left to do, what helped, what to avoid and what to use again, each with its kind."""
    rounds = run.newest(Verification)
    failures = [item for item in lessons if item.topic == "failure"]
    unsolved = [item for item in failures if not item.remedy and not item.ok]
    unmet = [item.what for item in lessons if item.topic == "criterion" and not item.ok]
    places = [place for item in rounds[-1:] for place in item.placeholder_detected.locations]
    advice = [
        ("plan", "finish", [part.name for part in run.plan.subtasks if part.status in _OPEN]),
        ("verification", "finish", unmet),
        ("verification", "resolve", _collect_issues(rounds)[1]),
        ("verification", "fill", places),
        ("reflection", "remedy", [f"{item.what} → {item.remedy}" for item in failures if item.remedy]),
        ("reflection", "avoid", [describe(item, words, label=False) for item in unsolved]),
        ("pattern", "reuse", [describe(item, words, label=False) for item in lessons if item.topic == "worked"]),
    ]
    for kind, name, texts in advice:
        yield kind, [words[name].format(shorten(text, MAX_CHARS)) for text in texts[:MAX_ADVICE]]


def record_value(task: Task, value: Value) -> None:
    """Append a value to a task's planning history and refresh its digest, for programs that plan on their own."""
    task.plan(make_entry(value))
    run = read_run(task.writer.lease.store, task.row)
    task.writer.event("note", **{NOTE: msgspec.to_builtins(make_digest(run, task.log.language))})
